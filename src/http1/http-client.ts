/**
 * The interface of an HTTP client that calls upstreams. upstream/attempt.ts uses it, client.ts implements it.
 * Two other files implement its `start`: upstream/echo-client.ts, which has no connections, and
 * providers/provider-client.ts, which translates. Upstream worker.
 *
 * Must hold, in each of them: the handler gets onStart once, then onData any number of times, then onEnd or
 * onError. onError alone is possible. After abort() no method of the handler is called
 * (test/unit/http1/client.test.ts, test/unit/providers/provider-client.test.ts).
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
  /** These headers replace the client's own of the same name. */
  readonly headers: Readonly<Record<string, string>>;
  /** Bounds the wait for a connection. */
  readonly connectTimeoutMs: number;
  /** Bounds the wait for the response's head. */
  readonly firstByteTimeoutMs: number;
  /** Bounds each gap in the response's body. */
  readonly idleTimeoutMs: number;
  /** Bounds the whole call, without its pauses. */
  readonly totalTimeoutMs: number;
  /** How many connections one worker may have, over all targets with the same `poolKeyOf` (client.ts). */
  readonly connectionsMax: number;
  /** Certificates (PEM) to trust instead of the well-known ones. */
  readonly ca: string | undefined;
}

/** Why there is no whole response. */
export interface HttpFault {
  /**
   * A TimeoutCode (call.ts), a code of this client, which begins with `HTTP1_`, of providers/provider.ts, or
   * of Node, such as `ECONNREFUSED`. Its row in upstream/error-mapping.ts says what it means.
   */
  readonly code: string;
  /** For the log; the code says enough for callers, except if it is FIELD_UNSUPPORTED. */
  readonly message: string;
  /**
   * Whether a second attempt on the same upstream most likely does no work twice: nothing was sent, the
   * upstream had not got the whole request, or it had closed the kept connection.
   */
  readonly repeatable: boolean;
  /** For an error that was reported within a response of a good status: what its status should have been. */
  readonly reported?: { readonly status: number; readonly retryAfterSeconds: number | undefined };
  /** The member of a chat completion that the upstream cannot express. `message` begins with it. */
  readonly field?: string;
}

/** The headers of responses that are looked up. In lower case; head.ts keeps each name for ever. */
export type HeaderName =
  | 'connection'
  | 'content-encoding'
  | 'content-length'
  | 'content-type'
  | 'keep-alive'
  | 'location'
  | 'retry-after'
  | 'transfer-encoding'
  | 'x-amzn-errortype';

/** The value of the first header of that name; undefined if the response has none. */
export type HeaderLookup = (name: HeaderName) => string | undefined;

export interface HttpHandler {
  /** `status` is the final one, never an informational one. */
  onStart(status: number, header: HeaderLookup): void;
  /** The chunk belongs to the handler: the client does not use its memory again. */
  onData(chunk: Uint8Array): void;
  /**
   * A client that translates may call it once, in place of all onData. `body` is whole and valid JSON;
   * `members` are those of its members that the client knows without parsing.
   */
  onWhole?(body: Buffer, members: Readonly<Record<string, unknown>>): void;
  onEnd(): void;
  onError(fault: HttpFault): void;
  /**
   * The client buffers `bytes` more of the response, or fewer if `bytes` is negative. Returns false if the
   * memory budget is used up; the handler has then ended the call.
   */
  countBuffered?(bytes: number): boolean;
}

export interface HttpCall {
  /** Whether a byte of the call may have reached the upstream, so that it may cost something there. */
  readonly sent: boolean;
  /** Whether the pauses, less the time for which the stream ran since, add up to HELD_UP_MS_MIN. */
  readonly isHeldUp: boolean;
  /** Whether the handler is to get an error response, once it is whole. Such a call costs nothing. */
  readonly isRefused?: boolean;
  /**
   * The usage so far, if onData has not brought it, in a form that upstream/usage-shapes.ts reads. Only a
   * client that translates a stream has this member. It is charged if the stream is left or breaks off.
   */
  readonly usageSoFar?: unknown;
  /** Stops onData until resume(); throws before onStart. A chunk or the end may still come. Idempotent. */
  pause(): void;
  /** Idempotent. */
  resume(): void;
  /** Nobody needs what still comes: resumes the call, and closes its connection unless it ends soon. */
  drain(): void;
  /** Ends the call and its connection at once. Idempotent. */
  abort(): void;
}

export interface HttpClient<Target extends HttpTarget = HttpTarget> {
  /**
   * Calls no method of the handler before it returns. `furtherHeaders` are name, value, name, value; the
   * array must not change later, because client.ts keeps its lines. `path` replaces the target's. `body` must
   * not change before the call has ended; a `disposable` one (core/bytes.ts) is freed once it is written.
   */
  start(
    target: Target,
    body: string | Uint8Array,
    requestId: string,
    handler: HttpHandler,
    furtherHeaders?: readonly string[],
    path?: string,
  ): HttpCall;
  /** Calls that run end with a fault, and so do calls that start later. */
  close(): Promise<void>;
}
