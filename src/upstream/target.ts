/**
 * The upstreams of a model, as upstream workers see them. gateway/snapshot.ts makes them of the settings.
 *
 * Must hold: they hold the providers' keys, so they are given to upstream workers alone, never to a listener,
 * a log or a response (test/e2e/secrets.test.ts). What decides on an upstream's state after a reload is in
 * `isSameUpstream`: a new field that makes it another service belongs there.
 */
import { isDeepStrictEqual } from 'node:util';
import type { DoorName } from '../core/door-names.js';
import type { UpstreamLimits } from '../core/quotas.js';
import type { UpstreamScopeIndex } from '../core/units.js';
import type { HttpTarget } from '../http1/http-client.js';
import type { ProviderSettings } from '../providers/provider.js';
import type { MemberNames } from './upstream-body.js';

/** The limits of an upstream, which it may share with others. */
export interface TargetQuotas {
  readonly scope: UpstreamScopeIndex;
  readonly limits: UpstreamLimits;
  /** How long a call may wait for room in them, in milliseconds. */
  readonly queueMs: number;
}

export interface UpstreamTarget extends HttpTarget {
  /** Of its counters in the metrics. */
  readonly slot: number;
  /** The upstream's name of the model; undefined if it is the model's id. */
  readonly model: string | undefined;
  readonly weight: number;
  readonly priority: number;
  /** Failures that open its breaker; with 0 it never opens. */
  readonly breakerFailuresMax: number;
  /** How long its Retry-After is respected if no other upstream is left; 0: it is never respected. */
  readonly parkMsMax: number;
  /** Undefined if it has no limits. */
  readonly quotas: TargetQuotas | undefined;
  /**
   * The path of each door besides chat whose protocol it speaks, so that bodies pass; empty if the provider
   * makes the path.
   */
  readonly doors: Readonly<Partial<Record<DoorName, string>>>;
  /** Undefined if it speaks OpenAI's protocol, which is passed on byte for byte. */
  readonly provider: ProviderSettings | undefined;
  /** Only of one that speaks OpenAI's protocol. */
  readonly memberNames?: MemberNames | undefined;
}

/** Origin of the built-in model. */
export const ECHO_ORIGIN = 'echo:';

export const TOKENIZERS = ['o200k_base', 'cl100k_base', 'none'] as const;
export type Tokenizer = (typeof TOKENIZERS)[number];

/** What another model stands in for. `unavailable`: no upstream of the model could serve the call. */
export const FALLBACK_REASONS = ['unavailable', 'context_length'] as const;
export type FallbackReason = (typeof FALLBACK_REASONS)[number];

/** One model's upstreams; routes are listed by the model's index in the catalogue. */
export interface ModelRoute {
  readonly id: string;
  /** The maker of the model. */
  readonly ownedBy: string;
  readonly tokenizer: Tokenizer;
  /** The longest possible choice. */
  readonly outputTokensMax: number;
  /** When the model's fallbacks are asked. */
  readonly fallbackOn: readonly FallbackReason[];
  /** Sorted by priority, best first. */
  readonly targets: readonly UpstreamTarget[];
  /**
   * The model was removed from the settings; a call that was on its way to a worker still finds its
   * upstreams.
   */
  readonly retired?: true;
}

/** Whether the state of one upstream holds for the other: same service, same credentials. */
export function isSameUpstream(one: UpstreamTarget, other: UpstreamTarget): boolean {
  return (
    one.origin === other.origin &&
    one.path === other.path &&
    one.key === other.key &&
    one.ca === other.ca &&
    one.breakerFailuresMax === other.breakerFailuresMax &&
    isDeepStrictEqual(one.doors, other.doors) &&
    isDeepStrictEqual(one.headers, other.headers) &&
    isDeepStrictEqual(one.provider, other.provider)
  );
}

/** Its address for an operator: without the query, which may contain a key. */
export function addressOf({ origin, path }: HttpTarget): string {
  return origin === ECHO_ORIGIN ? ECHO_ORIGIN : `${origin}${path.replace(/\?.*$/, '')}`;
}

/** Shorter words of a header are not secrets, and masking them would garble sentences. */
const SECRET_CHARS_MIN = 8;

/**
 * What an upstream could repeat of its credentials: its key, each word of its headers' values, and the
 * project or resource that is billed. Long ones first.
 */
export function secretsOf({ key, headers, provider }: UpstreamTarget): string[] {
  const billed =
    provider === undefined ? [] : [provider.project, provider.name === 'azure' ? provider.host : ''];
  const words = [...Object.values(headers).flatMap((value) => value.split(/[\s,;=]+/)), ...billed].filter(
    (word) => word.length >= SECRET_CHARS_MIN,
  );
  const secrets = key === undefined || key === '' ? words : [key, ...words];
  // If one is part of another, cutting it first would leave the rest of the other.
  return secrets.sort((one, other) => other.length - one.length);
}
