/**
 * Gives each scope of upstreams with limits a slot in the counters (ledger/upstream-counters.ts), and an id
 * by which hosts share the scope. gateway/reload.ts and gateway/settings-records.ts call it for each state of
 * the settings. Main thread of a gateway process.
 *
 * Must hold: a scope keeps its slot for the life of the process, also over reloads, and has the same id at
 * every host (test/unit/upstream/upstream-scopes.test.ts).
 */
import { createHash } from 'node:crypto';
import type { Settings } from '../config/schema.js';
import { type DeclaredLimits, limitsByScope, scopesOf } from '../config/upstream-scopes.js';
import { invariant } from '../core/errors.js';
import { UPSTREAM_SCOPES_MAX } from '../core/limits.js';
import type { UpstreamLimits } from '../core/quotas.js';
import { asUpstreamScopeIndex, type UpstreamScopeIndex } from '../core/units.js';

/** 80 bits of the hash, which keep a million scopes apart. The hash also hides the provider's key. */
const ID_HEX_CHARS = 20;

/** A scope of the settings. */
interface UpstreamScope {
  readonly index: UpstreamScopeIndex;
  /** `up_` and 20 hexadecimal digits: the same for the same url and key at every host. */
  readonly id: string;
  readonly limits: UpstreamLimits;
}

type UpstreamSettings = Settings['models'][number]['upstreams'][number];

export class UpstreamScopes {
  /** By id. No scope is ever removed. */
  readonly #scopes = new Map<string, UpstreamScope>();
  readonly #byIndex: UpstreamScope[] = [];

  /** The scope with the limits that were last in force; undefined if no scope has the slot. */
  scopeAt(index: UpstreamScopeIndex): UpstreamScope | undefined {
    return this.#byIndex[index];
  }

  /** Errors of `settings` for the operator: too few slots for its scopes. Call it before `assign`. */
  problemsOf(settings: Settings): string[] {
    const ids = new Set([...this.#scopes.keys(), ...[...limitsByScope(settings.models).keys()].map(idOf)]);
    if (ids.size <= UPSTREAM_SCOPES_MAX) return [];
    return [
      `upstreams: ${ids.size} keys with limits since the start, removed ones counted, and ${UPSTREAM_SCOPES_MAX} are possible: restart`,
    ];
  }

  /**
   * Takes all scopes of new settings, whose limits hold from now on. Returns a function that finds the scope
   * of an upstream; undefined if the upstream has no limits. Throws where `problemsOf` reports an error.
   */
  assign(settings: Settings): (upstream: UpstreamSettings, modelId: string) => UpstreamScope | undefined {
    const scopes = new Map<string, UpstreamScope>();
    for (const [scopeText, declared] of limitsByScope(settings.models)) {
      const id = idOf(scopeText);
      const index = this.#scopes.get(id)?.index ?? asUpstreamScopeIndex(this.#scopes.size);
      invariant(index < UPSTREAM_SCOPES_MAX, 'problemsOf is asked before assign');
      const scope = { index, id, limits: limitsOf(declared) };
      this.#scopes.set(id, scope);
      this.#byIndex[index] = scope;
      scopes.set(scopeText, scope);
    }
    const scopeOf = scopesOf(settings.models);
    return (upstream, modelId) => scopes.get(scopeOf(upstream, modelId));
  }
}

/** `scopeText` is of `scopeTextOf` (config/upstream-scopes.ts): the address and the key. */
function idOf(scopeText: string): string {
  return `up_${createHash('sha256').update(`tollgate upstream ${scopeText}`).digest('hex').slice(0, ID_HEX_CHARS)}`;
}

function limitsOf(declared: DeclaredLimits): UpstreamLimits {
  return {
    requestsPerMinute: declared.requests_per_minute,
    tokensPerMinute: declared.tokens_per_minute,
    callsInFlight: declared.calls_in_flight,
  };
}
