/**
 * Puts upstreams with one url and one key into one scope. They share their limits, because a provider limits
 * what a key may use. Several models may name the same key, so limits that differ are an error.
 * load.ts calls the check; upstream/upstream-scopes.ts gives each scope its counters. Pure.
 *
 * Must hold (test/unit/config/upstream-scopes.test.ts):
 * - Upstreams of one url and key have one scope, whether `key` or `key_file` gives the key. A key in a header
 *   or in the url's query makes a scope of its own.
 * - `scopeTextOf` gives the same text in all versions, because hosts with another version share limits by it.
 */
import { UPSTREAM_SCOPES_MAX } from '../core/limits.js';
import { UPSTREAM_QUOTA_NAMES, type UpstreamQuotaName } from '../core/quotas.js';
import { forEachUpstream, urlOf, type UpstreamDraft } from './provider-settings.js';
import { formatPath, type HasErrors, type Report, type SettingPath } from './config-error.js';
import type { Settings, SettingsDraft } from './schema.js';

/** The limits that the upstreams of a scope declare. A limit of one upstream holds for the whole scope. */
export type DeclaredLimits = Partial<Record<UpstreamQuotaName, number>>;

/**
 * Matches a header that is taken for the upstream's key. The pattern is narrower than HEADER_NAMES_SECRET
 * (upstream-schema.ts) and must stay as it is, because the text of a scope depends on it. litellm/model.ts
 * uses it too. An upstream at Azure that has such a header gets no token of Entra from
 * gateway/settings-records.ts.
 */
export const KEY_HEADER = /^(?:cookie|(?:.*-)?(?:authorization|key|token|secret))$/i;

/**
 * Returns a text that is the same for upstreams that share their limits. The text contains the key, so it
 * must not be shown or stored. Some providers take the key in a header or in the url's query. `modelId` may
 * be undefined if `quota_scope` is `key`. Throws if `urlOf` returns an empty text. Exported for tests.
 */
export function scopeTextOf(upstream: UpstreamDraft, modelId: string | undefined): string {
  const { provider = 'openai', key, headers = {}, model, quota_scope: quotaScope } = upstream;
  const { origin, pathname, search } = new URL(urlOf(upstream));
  const secrets = Object.entries(headers)
    .filter(([name]) => KEY_HEADER.test(name))
    .map(([name, value]) => [name.toLowerCase(), value])
    .sort(([name], [other]) => (name! < other! ? -1 : 1));
  const address = [origin, pathname.replace(/\/$/, ''), search];
  const { region = '', project = '', profile = '' } = upstream;
  // Without a key, these three tell the accounts at a provider apart. The text of an upstream of `openai`
  // never had them, and must stay the same.
  const providerAccount = provider === 'openai' ? [] : [provider, region, project, profile];
  const modelName = quotaScope === 'model' ? (model ?? modelId) : null;
  return JSON.stringify([...address, key ?? null, secrets, modelName, ...providerAccount]);
}

/**
 * Returns a function that gives the `scopeTextOf` of an upstream. One without limits is counted like one with
 * limits and the same url and key.
 */
export function scopesOf(
  models: Settings['models'],
): (upstream: Settings['models'][number]['upstreams'][number], modelId: string) => string {
  const quotaScopes = new Map<string, 'key' | 'model'>();
  for (const { upstreams } of models)
    for (const upstream of upstreams)
      if (declaredOf(upstream).length > 0) quotaScopes.set(keyScopeOf(upstream), upstream.quota_scope);
  return (upstream, modelId) =>
    scopeTextOf(
      { ...upstream, quota_scope: quotaScopes.get(keyScopeOf(upstream)) ?? upstream.quota_scope },
      modelId,
    );
}

/** Returns a text that is the same for all upstreams of one url and key, whatever their `quota_scope`. */
function keyScopeOf(upstream: UpstreamDraft): string {
  return scopeTextOf({ ...upstream, quota_scope: 'key' }, undefined);
}

/** Returns the limits of each scope that has any, by the text of `scopeTextOf`. */
export function limitsByScope(models: Settings['models']): Map<string, DeclaredLimits> {
  const scopes = new Map<string, DeclaredLimits>();
  for (const model of models) {
    for (const upstream of model.upstreams) {
      const declared = declaredOf(upstream);
      if (declared.length === 0) continue;
      const scope = scopeTextOf(upstream, model.id);
      scopes.set(scope, { ...scopes.get(scope), ...Object.fromEntries(declared) });
    }
  }
  return scopes;
}

/**
 * Reports limits that differ within a scope, and upstreams of one url and key if one counts by key and one by
 * model. Leaves out upstreams with errors, and those that count by a model whose id has one. Call it after
 * the key files were read, because scopes are compared by their keys.
 */
export function checkUpstreamLimits({ models }: SettingsDraft, report: Report, hasErrors: HasErrors): void {
  const scopes = new Set<string>();
  /** Where each setting of a scope was given first, and its value, by the setting's name and the scope. */
  const firstGiven = new Map<string, { readonly path: SettingPath; readonly value: number | string }>();
  forEachUpstream(models, (draft, path, model) => {
    const upstream = draft as UpstreamDraft;
    // Its scope, or its `quota_scope`, may be another one than the draft has.
    if (hasErrors(path) || urlOf(upstream) === '') return;
    if (upstream.quota_scope === 'model' && (upstream.model ?? model.id) === undefined) return;
    const declared = declaredOf(upstream);
    if (declared.length === 0) return;
    const check = (scope: string, name: string, value: number | string): void => {
      const earlier = firstGiven.get(`${name} ${scope}`);
      if (earlier === undefined) firstGiven.set(`${name} ${scope}`, { path: [...path, name], value });
      else if (earlier.value !== value)
        report(
          [...path, name],
          `got ${value}, but ${formatPath(earlier.path)} says ${earlier.value} for the same url and key, which share one limit (quota_scope)`,
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

/** Returns the limits that the upstream itself declares. */
function declaredOf(upstream: UpstreamDraft): [UpstreamQuotaName, number][] {
  return UPSTREAM_QUOTA_NAMES.flatMap((name) => {
    const value = upstream[name];
    return value === undefined ? [] : [[name, value] satisfies [UpstreamQuotaName, number]];
  });
}
