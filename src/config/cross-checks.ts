/**
 * Checks what a single declaration cannot say: names that must be unique or must exist, and settings that
 * exclude or need each other. load.ts calls it, also if settings have errors: a setting with an error is
 * undefined in the draft. Pure.
 *
 * Must hold:
 * - A pattern matches exactly the ids that it describes
 *   (test/unit/config/cross-checks.model-pattern.test.ts tries all short patterns and ids).
 * - An undefined setting leads to no further error, because its error was reported already
 *   (test/unit/config/settings-reader.errors.test.ts).
 */
import { isIPv4, isIPv6 } from 'node:net';
import type { Service } from '../core/door-names.js';
import type { HasErrors, Report, SettingPath } from './config-error.js';
import { nearestName } from '../core/wrong-input.js';
import { forEachUpstream, type UpstreamDraft } from './provider-settings.js';
import type { SettingsDraft } from './schema.js';

/**
 * Whether `pattern` matches the model's id. `*` stands for any characters, also none.
 * gateway/catalog-records.ts calls it too, for the patterns of plans.
 */
export function matchesModel(pattern: string, id: string): boolean {
  const [prefix = '', ...between] = pattern.split('*');
  const suffix = between.pop();
  if (suffix === undefined) return pattern === id;
  if (!id.startsWith(prefix) || !id.endsWith(suffix)) return false;
  // Each text between two stars is matched at its first position, which leaves the most for the next texts.
  let position = prefix.length;
  for (const text of between) {
    const foundAt = id.indexOf(text, position);
    if (foundAt < 0) return false;
    position = foundAt + text.length;
  }
  return position <= id.length - suffix.length;
}

/** Returns the ids that have no error. */
function idsOf(models: SettingsDraft['models']): string[] {
  return (models ?? []).flatMap((model) => model?.id ?? []);
}

/** Reports every error between settings. */
export function crossCheck(draft: SettingsDraft, report: Report, hasErrors: HasErrors): void {
  checkNames(draft, report);
  checkFallbacks(draft.models, report);
  checkLongPrices(draft.models, report);
  checkServices(draft.models, report, hasErrors);
  checkPlanModels(draft, report);
  checkModelLimits(draft, report, hasErrors);
  checkFiles(draft, report);
  checkPorts(draft, report);
  checkCallsInFlight(draft, report);
  checkSharing(draft, report, hasErrors);
  checkOidc(draft.admin?.oidc, report, hasErrors);
}

/** No two models may share a name, as callers use ids and aliases alike. No two plans may share an id. */
function checkNames({ models, plans }: SettingsDraft, report: Report): void {
  type Owners = Map<string, string>; // By name: the first owner of the name, such as `the id of models[0]`.
  const check = (owners: Owners, name: string | undefined, path: SettingPath, owner: string): void => {
    if (name === undefined) return;
    const firstOwner = owners.get(name);
    if (firstOwner === undefined) owners.set(name, owner);
    else report(path, `got "${name}", which is already ${firstOwner}`);
  };
  const modelOwners: Owners = new Map();
  // Ids are checked first: if an id equals an alias, the error names the alias.
  models?.forEach((model, index) =>
    check(modelOwners, model?.id, ['models', index, 'id'], `the id of models[${index}]`),
  );
  models?.forEach((model, index) =>
    model?.aliases?.forEach((alias, aliasIndex) =>
      check(modelOwners, alias, ['models', index, 'aliases', aliasIndex], `an alias of models[${index}]`),
    ),
  );
  const planOwners: Owners = new Map();
  plans?.forEach((plan, index) =>
    check(planOwners, plan?.id, ['plans', index, 'id'], `the id of plans[${index}]`),
  );
}

/** A fallback is the id of another model, and is listed once. */
function checkFallbacks(models: SettingsDraft['models'], report: Report): void {
  const ids = idsOf(models);
  models?.forEach((model, modelIndex) => {
    model?.fallbacks?.forEach((id, index) => {
      const path = ['models', modelIndex, 'fallbacks', index];
      if (id === undefined) return;
      if (id === model.id) report(path, `got "${id}", which is the model itself`);
      else if (model.fallbacks!.indexOf(id) < index)
        report(path, `got "${id}", which is in the list already`);
      // If the id of any model was rejected, the fallback may name that model.
      else if (!ids.includes(id) && ids.length === models.length) report(path, unknownModel(id, models, ids));
    });
  });
}

/** Long prices must ascend, because the last one whose `above` the prompt exceeds counts. */
function checkLongPrices(models: SettingsDraft['models'], report: Report): void {
  models?.forEach((model, modelIndex) => {
    let highestAbove = 0;
    model?.price?.long?.forEach((price, index) => {
      const above = price?.above;
      if (above === undefined) return;
      if (above <= highestAbove)
        report(
          ['models', modelIndex, 'price', 'long', index, 'above'],
          `got ${above}, want more than ${highestAbove}, which an entry before it has`,
        );
      highestAbove = Math.max(highestAbove, above);
    });
  });
}

/** Services that Azure does not have. */
const NOT_AT_AZURE: readonly Service[] = ['moderations', 'rerank'];

/** A model's upstreams, and its fallbacks, must serve all that the model serves. */
function checkServices(models: SettingsDraft['models'], report: Report, hasErrors: HasErrors): void {
  const isServesWrong = (modelIndex: number): boolean => hasErrors(['models', modelIndex, 'serves']);
  models?.forEach((model, modelIndex) => {
    const services = model?.serves?.filter((service) => service !== undefined) ?? ['chat'];
    model?.upstreams?.forEach((upstream, index) => {
      // The cast is safe here: only entries of lists may be undefined against the type, and no entry is read.
      const upstreamDraft = (upstream ?? {}) as UpstreamDraft;
      checkUpstreamServices(services, upstreamDraft, ['models', modelIndex, 'upstreams', index], report);
    });
    model?.fallbacks?.forEach((id, index) => {
      const fallbackIndex = models.findIndex((candidate) => candidate?.id === id && id !== undefined);
      if (fallbackIndex === -1 || isServesWrong(modelIndex) || isServesWrong(fallbackIndex)) return;
      const served = models[fallbackIndex]?.serves ?? ['chat'];
      if (!services.every((service) => served.includes(service)))
        report(
          ['models', modelIndex, 'fallbacks', index],
          `got "${id!}", which serves ${served.join(', ')}, want a model that serves ${services.join(' and ')}`,
        );
    });
  });
}

/** Services other than chat, and `speaks`, need an upstream with OpenAI's paths. */
function checkUpstreamServices(
  services: readonly Service[],
  { provider = 'openai', url, speaks = [] }: UpstreamDraft,
  path: SettingPath,
  report: Report,
): void {
  const withoutChat = services.filter((service) => service !== 'chat');
  const isEcho = url === 'echo:';
  const isAzure = provider === 'azure';
  const hasOpenAiPaths = (provider === 'openai' && !isEcho) || isAzure;
  const shownName = isEcho ? url : provider;
  const unserved = withoutChat.filter((service) =>
    isAzure ? NOT_AT_AZURE.includes(service) : !hasOpenAiPaths,
  );
  const wantedProvider = isAzure ? 'openai' : 'openai or azure';
  if (unserved.length > 0)
    report(
      [...path, isEcho ? 'url' : 'provider'],
      `got ${shownName}, which does not serve ${unserved.join(', ')}, want an upstream of the provider ${wantedProvider}, or another serves`,
    );
  if (!hasOpenAiPaths && speaks.length > 0)
    report([...path, 'speaks'], `given for ${shownName}, want it for the providers openai and azure alone`);
}

/** Returns the message for a text that is not the id of a model. */
function unknownModel(
  text: string,
  models: NonNullable<SettingsDraft['models']>,
  ids: readonly string[],
): string {
  const aliased = models.find((model) => model?.aliases?.includes(text) === true)?.id;
  return aliased === undefined
    ? `got "${text}", which names no model, the nearest known one is ${nearestName(text, ids, (id) => id) ?? ''}`
    : `got "${text}", which is an alias, want the id of its model: ${aliased}`;
}

/** Each id or pattern of a plan must match a model; otherwise it is probably misspelt. */
function checkPlanModels(draft: SettingsDraft, report: Report): void {
  const models = draft.models;
  const ids = idsOf(models);
  // If the id of any model was rejected, the plan may name that model.
  if (models === undefined || ids.length < models.length) return;
  const check = (pattern: string | undefined, path: SettingPath): void => {
    if (pattern === undefined || ids.some((id) => matchesModel(pattern, id))) return;
    report(path, unknownModel(pattern, models, ids));
  };
  draft.plans?.forEach((plan, planIndex) => {
    plan?.models?.forEach((pattern, index) => check(pattern, ['plans', planIndex, 'models', index]));
    plan?.models_limits?.forEach((rule, index) =>
      check(rule?.model, ['plans', planIndex, 'models_limits', index, 'model']),
    );
  });
}

/** Reports rules without effect: a rule without a quota, or one whose models earlier rules match already. */
function checkModelLimits(draft: SettingsDraft, report: Report, hasErrors: HasErrors): void {
  const ids = idsOf(draft.models);
  draft.plans?.forEach((plan, planIndex) => {
    /** The models that an earlier rule matches. */
    const ruledIds = new Set<string>();
    plan?.models_limits?.forEach((rule, index) => {
      if (rule === undefined) return;
      const { model: pattern, ...quotas } = rule;
      const path = ['plans', planIndex, 'models_limits', index];
      // A quota with an error is not in the draft.
      if (Object.keys(quotas).length === 0 && !hasErrors(path))
        report(path, 'names no quota, want at least one besides model');
      if (pattern === undefined) return;
      const matched = ids.filter((id) => matchesModel(pattern, id));
      if (matched.length > 0 && matched.every((id) => ruledIds.has(id)))
        report([...path, 'model'], `got "${pattern}", whose models an earlier entry matches already`);
      for (const id of matched) ruledIds.add(id);
    });
  });
}

/** Reports a file (`key_file`) that is given besides the setting whose value it holds (`key`). */
function checkFiles({ models, notify, admin }: SettingsDraft, report: Report): void {
  const check = (settings: object | undefined, name: string, path: SettingPath): void => {
    const values = { ...settings } as Readonly<Record<string, unknown>>;
    if (values[name] !== undefined && values[`${name}_file`] !== undefined)
      report([...path, `${name}_file`], `given besides ${name}, want one of the two`);
  };
  forEachUpstream(models, (upstream, path) => {
    check(upstream, 'key', path);
    check(upstream, 'ca', path);
  });
  check(notify, 'secret', ['notify']);
  check(admin?.oidc, 'client_secret', ['admin', 'oidc']);
}

/** Reports a section `oidc` by which nobody could sign in. */
function checkOidc(
  oidc: NonNullable<SettingsDraft['admin']>['oidc'],
  report: Report,
  hasErrors: HasErrors,
): void {
  if (oidc === undefined) return;
  if (hasErrors(['admin', 'oidc', 'roles']) || hasErrors(['admin', 'oidc', 'default_role'])) return;
  if (oidc.roles !== undefined && Object.keys(oidc.roles).length === 0 && oidc.default_role === undefined)
    report(
      ['admin', 'oidc', 'roles'],
      'names no value, want at least one, or default_role: nobody would be let in',
    );
}

/**
 * The admin port must be another one, unless the hosts share no address. Listeners open their port to be
 * shared, so an equal admin port would be opened too, and each of the two would get some of the calls.
 */
function checkPorts({ listen, admin }: SettingsDraft, report: Report): void {
  const port = admin?.port;
  if (port === undefined || port === 0 || port !== listen?.port) return;
  if (listen.host === undefined || admin?.host === undefined || !mayShareAddress(listen.host, admin.host))
    return;
  report(['admin', 'port'], `got ${port}, which is listen.port too, want another one`);
}

/** Whether who listens on both hosts may listen on one address twice: a name may stand for any address. */
function mayShareAddress(host: string, otherHost: string): boolean {
  const addresses = [host, otherHost].map(addressOf);
  return new Set(addresses).size < 2 || addresses.some((address) => EVERY_ADDRESS.test(address));
}

/** Matches a name, a wildcard, and IPv4 within IPv6, all of which may be the address that another host is. */
const EVERY_ADDRESS = /^(?:|0\.0\.0\.0|::|::ffff:.*)$/;

/** Returns the address in its one spelling; empty for a name. */
function addressOf(host: string): string {
  if (isIPv4(host)) return host;
  return isIPv6(host) ? new URL(`http://[${host}]`).hostname.slice(1, -1) : '';
}

/** Each listener has an equal part of calls_in_flight, rounded down. A part of 0 would reject every call. */
function checkCallsInFlight({ limits, listen }: SettingsDraft, report: Report): void {
  const [calls, listeners] = [limits?.calls_in_flight, listen?.listeners];
  if (calls === undefined || listeners === undefined || calls >= listeners) return;
  report(
    ['limits', 'calls_in_flight'],
    `got ${calls}, want at least ${listeners}, one for each of listen.listeners`,
  );
}

/** Checks `sharing` against other settings. A node must not expire while a call of it may still run. */
function checkSharing(draft: SettingsDraft, report: Report, hasErrors: HasErrors): void {
  const { sharing } = draft;
  if (sharing === undefined) return;
  const hosts = ['sharing', 'hosts'];
  if (sharing.on_authority_loss === 'equal_share' && sharing.hosts === undefined && !hasErrors(hosts))
    report(hosts, 'missing, want the number of hosts: on_authority_loss equal_share divides by it');
  const upstreams = draft.models?.flatMap((model) => model?.upstreams ?? []) ?? [];
  const longestMs = Math.max(0, ...upstreams.map((upstream) => upstream?.total_timeout_ms ?? 0));
  const expirySeconds = sharing.node_expiry_seconds;
  if (expirySeconds !== undefined && expirySeconds * 1_000 < longestMs)
    report(
      ['sharing', 'node_expiry_seconds'],
      `got ${expirySeconds}, want at least ${Math.ceil(longestMs / 1_000)}, the longest total_timeout_ms of an upstream in seconds`,
    );
}
