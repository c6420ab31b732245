/**
 * Checks what a single declaration cannot say: names that must be unique or must exist, and settings that
 * exclude or need each other. load.ts calls it, also if settings have errors: then these are undefined. Pure.
 *
 * Must hold: a pattern matches exactly the ids that it describes
 * (test/unit/config/cross-checks.model-pattern.test.ts tries all short patterns and ids).
 */
import type { Service } from '../core/door-names.js';
import type { SettingPath } from './config-error.js';
import { nearestName } from '../core/wrong-input.js';
import { forEachUpstream } from './provider-settings.js';
import type { SettingsDraft } from './schema.js';

/**
 * Whether `pattern` matches the model's id. `*` stands for any characters. gateway/snapshot.ts applies the
 * patterns of plans by it too.
 */
export function matchesModel(pattern: string, id: string): boolean {
  const [head = '', ...inner] = pattern.split('*');
  const tail = inner.pop();
  if (tail === undefined) return pattern === id;
  if (!id.startsWith(head) || !id.endsWith(tail)) return false;
  const end = id.length - tail.length;
  let position = head.length;
  for (const part of inner) {
    const found = id.indexOf(part, position);
    if (found < 0) return false;
    position = found + part.length;
  }
  return position <= end;
}

type Report = (path: SettingPath, text: string) => void;

function idsOf(models: SettingsDraft['models']): string[] {
  return (models ?? []).flatMap((model) => model?.id ?? []);
}

/** Whether an error was reported of the setting, or of one within it. */
type HasErrors = (path: SettingPath) => boolean;

/** Reports every error between settings. */
export function crossCheck(draft: SettingsDraft, report: Report, hasErrors: HasErrors): void {
  checkModelNames(draft.models, report);
  checkFallbacks(draft.models, report);
  checkLongPrices(draft.models, report);
  checkServices(draft.models, report);
  checkPlanNames(draft.plans, report);
  checkPlanModels(draft, report);
  checkModelLimits(draft, report, hasErrors);
  checkFiles(draft, report);
  checkPorts(draft, report);
  checkCallsInFlight(draft, report);
  checkSharing(draft, report, hasErrors);
  checkOidc(draft.admin?.oidc, report, hasErrors);
}

/** No two models may share a name, because callers use ids and aliases alike. */
function checkModelNames(models: SettingsDraft['models'], report: Report): void {
  /** What has each name so far, such as `the id of models[0]`. */
  const owners = new Map<string, string>();
  const check = (name: string | undefined, path: SettingPath, owner: string): void => {
    if (name === undefined) return;
    const first = owners.get(name);
    if (first === undefined) owners.set(name, owner);
    else report(path, `got "${name}", which is already ${first}`);
  };
  // Ids first: if an id equals an alias, the alias is to be changed.
  models?.forEach((model, index) => check(model?.id, ['models', index, 'id'], `the id of models[${index}]`));
  models?.forEach((model, index) =>
    model?.aliases?.forEach((alias, aliasIndex) =>
      check(alias, ['models', index, 'aliases', aliasIndex], `an alias of models[${index}]`),
    ),
  );
}

function checkFallbacks(models: SettingsDraft['models'], report: Report): void {
  const ids = idsOf(models);
  models?.forEach((model, modelIndex) => {
    model?.fallbacks?.forEach((id, index) => {
      const path = ['models', modelIndex, 'fallbacks', index];
      if (id === undefined) return;
      if (id === model.id) report(path, `got "${id}", which is the model itself`);
      else if (model.fallbacks!.indexOf(id) < index)
        report(path, `got "${id}", which is in the list already`);
      // If a model's id was rejected, the fallback that names it may be right.
      else if (!ids.includes(id) && ids.length === models.length) report(path, unknownModel(id, models, ids));
    });
  });
}

/** Long prices must ascend, because the last one whose `above` the prompt exceeds counts. */
function checkLongPrices(models: SettingsDraft['models'], report: Report): void {
  models?.forEach((model, modelIndex) => {
    let before = 0;
    model?.price?.long?.forEach((price, index) => {
      const above = price?.above;
      if (above === undefined) return;
      if (above <= before)
        report(
          ['models', modelIndex, 'price', 'long', index, 'above'],
          `got ${above}, want more than ${before}, which an entry before it has`,
        );
      before = Math.max(before, above);
    });
  });
}

/** Services that Azure does not have. */
const NOT_AT_AZURE: readonly Service[] = ['moderations', 'rerank'];

/**
 * Services other than chat, and `speaks`, need OpenAI's paths. A fallback must serve all that its model does.
 */
function checkServices(models: SettingsDraft['models'], report: Report): void {
  models?.forEach((model, modelIndex) => {
    const serves = model?.serves?.filter((service) => service !== undefined) ?? ['chat'];
    const passed = serves.filter((service) => service !== 'chat');
    model?.upstreams?.forEach((upstream, index) => {
      const { provider = 'openai', url, speaks = [] } = upstream ?? {};
      const path = ['models', modelIndex, 'upstreams', index];
      /** Whether the upstream has OpenAI's paths. */
      const hasPaths = (provider === 'openai' && url !== 'echo:') || provider === 'azure';
      const name = url === 'echo:' ? url : provider;
      const unserved = provider === 'azure' ? passed.filter((one) => NOT_AT_AZURE.includes(one)) : passed;
      const want = provider === 'azure' ? 'openai' : 'openai or azure';
      if ((!hasPaths || provider === 'azure') && unserved.length > 0)
        report(
          [...path, url === 'echo:' ? 'url' : 'provider'],
          `got ${name}, which does not serve ${unserved.join(', ')}, want an upstream of the provider ${want}, or another serves`,
        );
      if (!hasPaths && speaks.length > 0)
        report([...path, 'speaks'], `given for ${name}, want it for the providers openai and azure alone`);
    });
    model?.fallbacks?.forEach((id, index) => {
      const other = models.find((one) => one?.id === id && id !== undefined);
      const services = other?.serves ?? ['chat'];
      if (other !== undefined && !serves.every((service) => services.includes(service)))
        report(
          ['models', modelIndex, 'fallbacks', index],
          `got "${id!}", which serves ${services.join(', ')}, want a model that serves ${serves.join(' and ')}`,
        );
    });
  });
}

/** The sentence for a text that is not the id of a model. */
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

function checkPlanNames(plans: SettingsDraft['plans'], report: Report): void {
  const firstIndices = new Map<string, number>();
  plans?.forEach((plan, index) => {
    if (plan?.id === undefined) return;
    const first = firstIndices.get(plan.id);
    if (first === undefined) firstIndices.set(plan.id, index);
    else report(['plans', index, 'id'], `got "${plan.id}", which is already the id of plans[${first}]`);
  });
}

function checkPlanModels(draft: SettingsDraft, report: Report): void {
  const models = draft.models;
  const ids = idsOf(models);
  // If a model's id was rejected, the plan that names it may be right.
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

/** Reports rules without effect: one without a quota, and one whose models earlier rules match already. */
function checkModelLimits(draft: SettingsDraft, report: Report, hasErrors: HasErrors): void {
  const ids = idsOf(draft.models);
  draft.plans?.forEach((plan, planIndex) => {
    const ruled = new Set<string>();
    plan?.models_limits?.forEach((rule, index) => {
      if (rule === undefined) return;
      const { model: pattern, ...quotas } = rule;
      const path = ['plans', planIndex, 'models_limits', index];
      // A quota with an error is not in the draft.
      if (Object.keys(quotas).length === 0 && !hasErrors(path))
        report(path, 'names no quota, want at least one beside model');
      if (pattern === undefined) return;
      const matched = ids.filter((id) => matchesModel(pattern, id));
      if (matched.length > 0 && matched.every((id) => ruled.has(id)))
        report([...path, 'model'], `got "${pattern}", whose models an earlier entry matches already`);
      for (const id of matched) ruled.add(id);
    });
  });
}

/** Reports files that are given beside the settings whose values they hold. */
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

/** Reports sign-in by which nobody would be let in. */
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
 * Listeners open their port to be shared, so an equal admin port would open too, and each would get some
 * calls.
 */
function checkPorts(draft: SettingsDraft, report: Report): void {
  const port = draft.admin?.port;
  if (port === undefined || port === 0 || port !== draft.listen?.port) return;
  report(['admin', 'port'], `got ${port}, which is listen.port too, want another one`);
}

/** In a common file the lines of both logs would mix, and both would rotate it. Paths must be absolute. */
export function checkLogFiles({ usage_log: usage, access_log: access }: SettingsDraft, report: Report): void {
  if (usage?.path === undefined || access?.path === undefined) return;
  if (!isLogFileOf(usage.path, access.path) && !isLogFileOf(access.path, usage.path)) return;
  report(
    ['access_log', 'path'],
    `got "${access.path}", want a file that is none of usage_log, also no older one or another process's`,
  );
}

/** Whether the log with that path has the file: the current or an older one, of any process. */
function isLogFileOf(path: string, file: string): boolean {
  return file.startsWith(path) && /^(\.p\d+)?(\.\d+)?$/.test(file.slice(path.length));
}

/** Each listener has its part of the calls in flight, rounded down. With none it would refuse every call. */
function checkCallsInFlight({ limits, listen }: SettingsDraft, report: Report): void {
  const [calls, listeners] = [limits?.calls_in_flight, listen?.listeners];
  if (calls === undefined || listeners === undefined || calls >= listeners) return;
  report(
    ['limits', 'calls_in_flight'],
    `got ${calls}, want at least ${listeners}, one for each of listen.listeners`,
  );
}

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
