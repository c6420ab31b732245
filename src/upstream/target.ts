/**
 * Where a model's calls go, as the upstream workers see it. Holds the providers' keys: it is handed to upstream workers
 * alone, never to a listener, a log or a response.
 */
import { isDeepStrictEqual } from 'node:util';
import type { HttpTarget } from '../http1/http-client.js';

export interface UpstreamTarget extends HttpTarget {
  /** Of its counters in the metrics. */
  readonly slot: number;
  /** The model's name there; undefined where it is the model's id. */
  readonly model: string | undefined;
  readonly weight: number;
  readonly priority: number;
  /** Failures that make it be left alone for a while; 0: never. */
  readonly breakerFailuresMax: number;
  /** How long its Retry-After is kept to where no other upstream is left; 0: it is never kept to. */
  readonly parkMsMax: number;
}

/** Origin of the built-in model. */
export const ECHO_ORIGIN = 'echo:';

export const TOKENIZERS = ['o200k_base', 'cl100k_base', 'none'] as const;
export type Tokenizer = (typeof TOKENIZERS)[number];

/** One model's upstreams, by the model's index in the catalogue. */
export interface ModelRoute {
  readonly id: string;
  /** Who made the model. */
  readonly ownedBy: string;
  readonly tokenizer: Tokenizer;
  /** What one choice can be at most. */
  readonly outputTokensMax: number;
  /** Sorted by priority, best first. */
  readonly targets: readonly UpstreamTarget[];
  /** The model was removed from the settings; a call that was on its way to a worker still finds its upstreams. */
  readonly retired?: true;
}

/** Whether what is known of one upstream holds for the other: it is the same service, met with the same credentials. */
export function isSameUpstream(one: UpstreamTarget, other: UpstreamTarget): boolean {
  return (
    one.origin === other.origin &&
    one.path === other.path &&
    one.key === other.key &&
    one.ca === other.ca &&
    one.breakerFailuresMax === other.breakerFailuresMax &&
    isDeepStrictEqual(one.headers, other.headers)
  );
}

/** Where its calls go, for an operator: without the query, in which a key may stand. */
export function addressOf({ origin, path }: HttpTarget): string {
  return origin === ECHO_ORIGIN ? ECHO_ORIGIN : `${origin}${path.replace(/\?.*$/, '')}`;
}

/** Shorter words of a header are no secrets, and would be cut out of sentences. */
const SECRET_CHARS_MIN = 8;

/** What an upstream could repeat of the credentials that it was sent: its key, and each word of its headers' values; long ones first. */
export function secretsOf({ key, headers }: UpstreamTarget): string[] {
  const words = Object.values(headers)
    .flatMap((value) => value.split(/[\s,;=]+/))
    .filter((word) => word.length >= SECRET_CHARS_MIN);
  const secrets = key === undefined || key === '' ? words : [key, ...words];
  // Where one is part of another, cutting it first would leave the rest of the other.
  return secrets.sort((one, other) => other.length - one.length);
}
