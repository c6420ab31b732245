/**
 * The one interface behind which an HTTP client stands: HTTP/1.1 over connections of our own, and the built-in echo model. Upstream worker.
 *
 * Order of callbacks: onStart once, then onData any number of times, then exactly one of onEnd and onError; onError
 * alone is possible. After abort() nothing is called any more.
 */
/** What the HTTP client knows of an upstream. */
export interface HttpTarget {
  /** For messages and logs: the URL without its path's query and without credentials. */
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
  /** Certificates (PEM) that are trusted in place of the well-known ones. */
  readonly ca: string | undefined;
}

/** Why there is no (whole) answer. `code` is the client's own (`ECONNREFUSED`, `HTTP1_INVALID`), for the log. */
export interface HttpFault {
  readonly code: string;
  readonly message: string;
  /** A second try on the same upstream repeats no work there: nothing was sent, or a kept-alive connection was found dead. */
  readonly repeatable: boolean;
}

export interface HttpHandler {
  /** Final status; `header` looks one up by its lower-case name. */
  onStart(status: number, header: (name: string) => string | undefined): void;
  /** The bytes belong to the receiver. */
  onData(chunk: Uint8Array): void;
  onEnd(): void;
  onError(fault: HttpFault): void;
}

export interface HttpCall {
  /** Whether a byte of the call may have reached the upstream, so that it may cost something there. */
  readonly sent: boolean;
  /** Whether the caller makes the upstream wait, or did until just now: see HELD_UP_MS_MIN. */
  readonly isHeldUp: boolean;
  /** Holds onData back until resume(); one chunk that was already on its way may still come, with the end. Idempotent, as resume() is. */
  pause(): void;
  resume(): void;
  /** Ends the call and its connection at once; idempotent. */
  abort(): void;
}

/**
 * `start` calls nothing of the handler before it has returned; `traceHeaders` are name, value, name, value. `close` ends calls that
 * still run with a fault.
 */
export interface HttpClient {
  start(
    target: HttpTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: HttpHandler,
    traceHeaders?: readonly string[],
  ): HttpCall;
  close(): Promise<void>;
}
