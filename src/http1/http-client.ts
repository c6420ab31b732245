/**
 * The interface of an HTTP client that calls upstreams. Http1Client implements it over connections, the
 * built-in echo model (upstream/echo-client.ts) without any, ProviderClient as an adapter. Attempts use it.
 * Upstream worker.
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
  /** Provider's key; undefined if the upstream wants none. */
  readonly key: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly connectTimeoutMs: number;
  readonly firstByteTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly totalTimeoutMs: number;
  /** Connections from one worker. */
  readonly connectionsMax: number;
  /** Certificates (PEM) to trust instead of the well-known ones. */
  readonly ca: string | undefined;
}

/**
 * Why there is no (whole) response. `code` is the client's own (`ECONNREFUSED`, `HTTP1_INVALID`), for the
 * log.
 */
export interface HttpFault {
  readonly code: string;
  readonly message: string;
  /**
   * A second attempt on the same upstream repeats no work there: nothing was sent, or a kept connection was
   * found dead.
   */
  readonly repeatable: boolean;
  /**
   * An error that the upstream reported inside a response whose status was good: what its status would have
   * been.
   */
  readonly reported?: { readonly status: number; readonly retryAfterSeconds: number | undefined };
  /** The member of a chat completion that cannot be said to the upstream; `message` begins with it. */
  readonly field?: string;
}

export interface HttpHandler {
  /** The final status; `header` looks up a header by its lower-case name. */
  onStart(status: number, header: (name: string) => string | undefined): void;
  /** The bytes belong to the receiver. */
  onData(chunk: Uint8Array): void;
  /**
   * In place of all onData: the whole body, which is JSON for certain, and its members as far as the client
   * has them without parsing.
   */
  onWhole?(body: Buffer, members: Readonly<Record<string, unknown>>): void;
  onEnd(): void;
  onError(fault: HttpFault): void;
  /**
   * The client keeps so many more bytes of the response before it hands them on; fewer, if negative. Returns
   * false if there is no room: then the handler has ended the call.
   */
  hold?(bytes: number): boolean;
}

export interface HttpCall {
  /** Whether a byte of the call may have reached the upstream, so that it may cost something there. */
  readonly sent: boolean;
  /** Whether the caller makes the upstream wait, or did until just now: see HELD_UP_MS_MIN. */
  readonly isHeldUp: boolean;
  /**
   * Holds onData back until resume(); a chunk that was already on its way may still come, with the end. Both
   * are idempotent.
   */
  pause(): void;
  resume(): void;
  /** Ends the call and its connection at once; idempotent. */
  abort(): void;
}

export interface HttpClient {
  /**
   * Calls nothing of the handler before it has returned. `moreHeaders` are name, value, name, value; `path`
   * takes the place of the target's.
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

/** A web page: no API is there. */
export function isHtml(contentType: string | undefined): boolean {
  return contentType !== undefined && /^\s*(?:text\/html|application\/xhtml)/i.test(contentType);
}
