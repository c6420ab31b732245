/**
 * Where a model's calls go, as the upstream workers see it. Holds the providers' keys: it is handed to upstream workers
 * alone, never to a listener, a log or an answer.
 */
export interface UpstreamTarget {
  /** For messages and logs: the URL without its path's query and without credentials. */
  readonly name: string;
  /** `http:` or `https:` origin, or ECHO_ORIGIN. */
  readonly origin: string;
  /** Path of the call: `/v1/chat/completions`. */
  readonly path: string;
  /** Provider's key; undefined where the upstream wants none. */
  readonly key: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** The model's name there; undefined where it is the caller's. */
  readonly model: string | undefined;
  readonly weight: number;
  readonly priority: number;
  readonly connectTimeoutMs: number;
  readonly firstByteTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly totalTimeoutMs: number;
  /** Connections from one worker. */
  readonly connectionsMax: number;
  /** Failures that make it be left alone for a while; 0: never. */
  readonly breakerFailuresMax: number;
  /** Certificates (PEM) that are trusted in place of the well-known ones. */
  readonly ca: string | undefined;
}

/** Origin of the built-in model. */
export const ECHO_ORIGIN = 'echo:';

export const TOKENIZERS = ['o200k_base', 'cl100k_base', 'none'] as const;
export type Tokenizer = (typeof TOKENIZERS)[number];

/** One model's upstreams, by the model's index in the catalogue. */
export interface ModelRoute {
  readonly id: string;
  readonly tokenizer: Tokenizer;
  /** Sorted by priority, best first. */
  readonly targets: readonly UpstreamTarget[];
}
