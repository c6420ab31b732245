/**
 * Groups the upstreams that share their limits into scopes: those with one url and one key, because a
 * provider limits what a key may use. Several models may name the same key, so limits that differ are an
 * error. load.ts calls the check; upstream/upstream-scopes.ts gives each scope its counters. Pure.
 *
 * Must hold: upstreams of one url and key have one scope, however the key is given
 * (test/unit/config/upstream-scopes.test.ts).
 */
import { UPSTREAM_SCOPES_MAX } from '../core/limits.js';
import { UPSTREAM_QUOTA_NAMES, type UpstreamQuotaName } from '../core/quotas.js';
import { forEachUpstream, urlOf, type UpstreamDraft } from './provider-settings.js';
import { formatPath, type SettingPath } from './config-error.js';
import type { Settings, SettingsDraft } from './schema.js';

/** The limits that upstreams of one scope declare. A limit that only one of them declares holds for all. */
export type DeclaredLimits = Partial<Record<UpstreamQuotaName, number>>;

/**
 * Matches a header that is taken for the upstream's key. It is narrower than HEADER_NAMES_SECRET
 * (upstream-schema.ts) and must stay as it is: hosts with another version share limits by the text below.
 * litellm/model.ts uses it too, and snapshot.ts, by which an upstream at Azure gets no token of Entra.
 */
export const KEY_HEADER = /^(?:cookie|(?:.*-)?(?:authorization|key|token|secret))$/i;

/**
 * A text that is the same for upstreams that share their limits. It contains the key, so it must not be shown
 * or stored. Some providers take the key in a header or in the url's query. `modelId` may be undefined if
 * `quota_scope` is `key`. Throws if `urlOf` is empty. Exported for tests.
 */
export function scopeTextOf(upstream: UpstreamDraft, modelId: string | undefined): string {
  const { provider = 'openai', key, headers = {}, model, quota_scope: by } = upstream;
  const { origin, pathname, search } = new URL(urlOf(upstream));
  const secrets = Object.entries(headers)
    .filter(([name]) => KEY_HEADER.test(name))
    .map(([name, value]) => [name.toLowerCase(), value])
    .sort(([left], [right]) => (left! < right! ? -1 : 1));
  const address = [origin, pathname.replace(/\/$/, ''), search];
  const { region = '', project = '', profile = '' } = upstream;
  // If there is no key, these tell accounts apart. For `openai` the text must stay as it is, because hosts
  // with another version of the gateway share limits by it.
  const account = provider === 'openai' ? [] : [provider, region, project, profile];
  const name = by === 'model' ? (model ?? modelId) : null;
  return JSON.stringify([...address, key ?? null, secrets, name, ...account]);
}

/**
 * Returns a function that gives the scope of an upstream, as `scopeTextOf` has it. An upstream without limits
 * is counted as those with limits of its url and key are, because a limit of one upstream holds for all.
 */
export function scopesOf(
  models: Settings['models'],
): (upstream: Settings['models'][number]['upstreams'][number], modelId: string) => string {
  const countedBy = new Map<string, 'key' | 'model'>();
  for (const { upstreams } of models)
    for (const upstream of upstreams)
      if (declaredOf(upstream).length > 0) countedBy.set(keyScopeOf(upstream), upstream.quota_scope);
  return (upstream, modelId) =>
    scopeTextOf(
      { ...upstream, quota_scope: countedBy.get(keyScopeOf(upstream)) ?? upstream.quota_scope },
      modelId,
    );
}

function keyScopeOf(upstream: UpstreamDraft): string {
  return scopeTextOf({ ...upstream, quota_scope: 'key' }, undefined);
}

/** The limits of each scope that has any, by `scopeTextOf`. */
export function limitsByScope(models: Settings['models']): Map<string, DeclaredLimits> {
  const scopes = new Map<string, DeclaredLimits>();
  for (const model of models) {
    for (const upstream of model.upstreams) {
      const declared = declaredOf(upstream);
      if (declared.length === 0) continue;
      const text = scopeTextOf(upstream, model.id);
      scopes.set(text, { ...scopes.get(text), ...Object.fromEntries(declared) });
    }
  }
  return scopes;
}

/**
 * Reports limits that differ within a scope, and upstreams of one url and key of which one counts by key and
 * another by model. To be called when the key files were read.
 */
export function checkUpstreamLimits(
  { models }: SettingsDraft,
  report: (path: SettingPath, text: string) => void,
): void {
  const scopes = new Set<string>();
  /** Where each setting of a scope was given first, by its name and the scope. */
  const first = new Map<string, { readonly path: SettingPath; readonly value: number | string }>();
  forEachUpstream(models, (draft, path, model) => {
    const upstream = draft as UpstreamDraft;
    if (urlOf(upstream) === '') return;
    const declared = declaredOf(upstream);
    if (declared.length === 0) return;
    const check = (scope: string, name: string, value: number | string): void => {
      const known = first.get(`${name} ${scope}`);
      if (known === undefined) first.set(`${name} ${scope}`, { path: [...path, name], value });
      else if (known.value !== value)
        report(
          [...path, name],
          `got ${value}, but ${formatPath(known.path)} says ${known.value} for the same url and key, which share one limit (quota_scope)`,
        );
    };
    const scope = scopeTextOf(upstream, model.id);
    scopes.add(scope);
    check(keyScopeOf(upstream), 'quota_scope', upstream.quota_scope ?? 'key');
    for (const [name, value] of declared) check(scope, name, value);
  });
  if (scopes.size > UPSTREAM_SCOPES_MAX)
    report(['models'], `${scopes.size} keys of upstreams have limits, want at most ${UPSTREAM_SCOPES_MAX}`);
}

function declaredOf(upstream: UpstreamDraft): [UpstreamQuotaName, number][] {
  return UPSTREAM_QUOTA_NAMES.flatMap((name) => {
    const value = upstream[name];
    return value === undefined ? [] : [[name, value] satisfies [UpstreamQuotaName, number]];
  });
}
