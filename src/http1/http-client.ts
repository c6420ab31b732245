/**
 * The interface of an HTTP client that calls upstreams. Http1Client implements it; the built-in echo model
 * (upstream/echo-client.ts), without connections, and ProviderClient, which translates, have its `start`.
 * Attempts (upstream/attempt.ts) use it. Upstream worker.
 *
 * Must hold: onStart is called once, then onData any number of times, then exactly one of onEnd and onError;
 * onError alone is possible. After abort() nothing is called (test/unit/http1/client.test.ts).
 */

/** An upstream as the HTTP client sees it. */
export interface HttpTarget {
  /** For messages and logs: the URL without query and credentials. */
  readonly name: string;
  /** `http:` or `https:` origin, or ECHO_ORIGIN. */
  readonly origin: string;
  /** Path of the call: `/v1/chat/completions`. */
  readonly path: string;
  /** The provider's key; undefined if the upstream needs none. */
  readonly key: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly connectTimeoutMs: number;
  readonly firstByteTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly totalTimeoutMs: number;
  /** Connections from one worker, over all targets that share them: poolKeyOf in client.ts. */
  readonly connectionsMax: number;
  /** Certificates (PEM) to trust instead of the well-known ones. */
  readonly ca: string | undefined;
}

/** Why there is no whole response. `code` is for the log: `ECONNREFUSED`, `HTTP1_INVALID`. */
export interface HttpFault {
  readonly code: string;
  readonly message: string;
  /**
   * A second attempt on the same upstream most likely does no work twice: nothing was sent, or the upstream
   * had closed the kept connection.
   */
  readonly repeatable: boolean;
  /**
   * Set if the upstream reported an error within a response whose status was good: the status that the error
   * should have had.
   */
  readonly reported?: { readonly status: number; readonly retryAfterSeconds: number | undefined };
  /**
   * The member of a chat completion that the upstream's protocol cannot express; `message` begins with it.
   */
  readonly field?: string;
}

export interface HttpHandler {
  /** The final status, not an informational one; `header` looks up a header by its lower-case name. */
  onStart(status: number, header: (name: string) => string | undefined): void;
  /** The bytes belong to the receiver. */
  onData(chunk: Uint8Array): void;
  /**
   * Called in place of all onData: the whole body, which is valid JSON, and those of its members that the
   * client has without parsing.
   */
  onWhole?(body: Buffer, members: Readonly<Record<string, unknown>>): void;
  onEnd(): void;
  onError(fault: HttpFault): void;
  /**
   * The client buffers `bytes` more of the response, or fewer if negative. Returns false if the memory budget
   * is used up: then the handler has ended the call.
   */
  hold?(bytes: number): boolean;
}

export interface HttpCall {
  /** Whether a byte of the call may have reached the upstream, so that it may cost something there. */
  readonly sent: boolean;
  /** Whether the stream is held up, or was until just now: see HELD_UP_MS_MIN. */
  readonly isHeldUp: boolean;
  /** An error of the upstream is being read that the handler does not know of yet: the call costs nothing. */
  readonly isRefused?: boolean;
  /**
   * A report of the usage so far that onData has not brought, from a client that translates a stream; in any
   * form that upstream/usage-shapes.ts reads. For a stream that is left or breaks off.
   */
  readonly usageSoFar?: unknown;
  /**
   * Stops onData until resume(); only after onStart. A chunk that was already on its way may still come, and
   * the end. Idempotent, as is resume().
   */
  pause(): void;
  resume(): void;
  /** Ends the call and its connection at once; idempotent. */
  abort(): void;
}

export interface HttpClient {
  /**
   * Calls no method of the handler before this returns. `moreHeaders` are name, value, name, value, and must
   * not change later; `path` replaces the target's.
   */
  start(
    target: HttpTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: HttpHandler,
    moreHeaders?: readonly string[],
    path?: string,
  ): HttpCall;
  /** Calls that still run end with a fault. */
  close(): Promise<void>;
}

/** Whether a response is a web page, which no API sends. */
export function isHtml(contentType: string | undefined): boolean {
  return contentType !== undefined && /^\s*(?:text\/html|application\/xhtml)/i.test(contentType);
}
