/**
 * One call in a provider's protocol: it translates the response for a handler that expects a chat completion.
 * ProviderClient makes it. Upstream worker.
 *
 *     written → its response comes → over        abort() or an error may come at any point
 *
 * Must hold: the handler's onStart is called with the first translated bytes and not before, so that an error
 * until then has a status of its own and the call can fail over; and after `#over` no handler method is
 * called (test/unit/providers/provider-client.test.ts).
 *
 * A response that is not the provider's, as a web page or a redirect, goes to the handler as it is.
 */
import { SSE_EVENT_BYTES_MAX, UPSTREAM_RESPONSE_BYTES_MAX } from '../core/limits.js';
import { isHtml, type HttpCall, type HttpFault, type HttpHandler } from '../http1/http-client.js';
import {
  FieldError,
  ProviderError,
  type Credentials,
  type PassedRequest,
  type Provider,
  type ProviderCall,
  type ProviderFailure,
  type ProviderStream,
} from './provider.js';

/** Bytes that are read of an error's body. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;
/** The status of `ProviderError.invalid`. */
const INVALID = 502;

type Header = (name: string) => string | undefined;

const NO_HEADER: Header = () => undefined;

/**
 * How the response's body is handled: its bytes pass, are translated as they come, or are read to the end.
 */
type Course = 'none' | 'pass' | 'stream' | 'whole' | 'error';

export class TranslatedCall implements HttpCall, HttpHandler {
  readonly #provider: Provider;
  readonly #call: ProviderCall;
  readonly #credentials: Credentials;
  readonly #handler: HttpHandler;
  /** Defined for a passed call: then the handler reads the protocol of the call's door. */
  #passed: PassedRequest | undefined;
  #inner: HttpCall | undefined;
  #stream: ProviderStream | undefined;
  #course: Course = 'none';
  #status = 0;
  #header = NO_HEADER;
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  /** Bytes of the stream's longest event that were counted against the budget. */
  #eventBytes = 0;
  /** The handler's onStart was called. */
  #started = false;
  #paused = false;
  #over = false;

  constructor(provider: Provider, call: ProviderCall, credentials: Credentials, handler: HttpHandler) {
    this.#provider = provider;
    this.#call = call;
    this.#credentials = credentials;
    this.#handler = handler;
  }

  get sent(): boolean {
    return this.#inner?.sent ?? false;
  }

  get isHeldUp(): boolean {
    return this.#inner?.isHeldUp ?? false;
  }

  pause(): void {
    this.#paused = true;
    this.#inner?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#inner?.resume();
  }

  abort(): void {
    this.#over = true;
    this.#chunks = [];
    this.#inner?.abort();
  }

  /** Call before the request is sent, if the handler reads the protocol of the call's door. */
  passes(request: PassedRequest): void {
    this.#passed = request;
  }

  /** Call when `inner` sends the request. */
  sending(inner: HttpCall): void {
    this.#inner = inner;
    if (this.#paused) inner.pause();
  }

  /** Ends the call with an error, in a microtask: after `start` has returned. */
  fail(fault: HttpFault): void {
    queueMicrotask(() => this.onError(fault));
  }

  /** Ends the call because the request could not be translated; nothing was sent. */
  unwritten(error: unknown): void {
    if (error instanceof FieldError)
      this.fail({
        code: 'FIELD_UNSUPPORTED',
        message: error.message,
        repeatable: false,
        field: error.field,
      });
    else this.fail({ code: 'REQUEST_UNWRITTEN', message: textOf(error), repeatable: false });
  }

  onStart(status: number, header: Header): void {
    if (this.#over) return;
    this.#status = status;
    this.#header = header;
    this.#course = this.#courseOf(status, header);
    if (this.#course === 'pass') {
      this.#started = true;
      this.#handler.onStart(status, header);
    } else if (this.#course === 'stream') this.#translate(() => this.#openStream());
  }

  onData(chunk: Uint8Array): void {
    if (this.#over) return;
    if (this.#course === 'pass') this.#handler.onData(chunk);
    else if (this.#course === 'stream') this.#translate(() => this.#push(this.#stream!, chunk));
    else this.#keep(chunk);
  }

  onEnd(): void {
    if (this.#over) return;
    if (this.#course === 'pass') {
      this.#over = true;
      this.#handler.onEnd();
    } else if (this.#course === 'error') this.#rejected();
    else this.#translate(() => this.#finish());
  }

  onError(fault: HttpFault): void {
    if (this.#over) return;
    if (this.#course === 'error') {
      // An error's status has come, which says more than the connection's end.
      this.#rejected();
      return;
    }
    this.#over = true;
    this.#chunks = [];
    this.#handler.onError(fault);
  }

  #courseOf(status: number, header: Header): Course {
    const passed = this.#passed;
    const isUnread = passed !== undefined && passed.stream === undefined && passed.readResponse === undefined;
    if (status < 300 && isUnread) return 'pass';
    if (isHtml(header('content-type')) || (status >= 300 && status < 400)) return 'pass';
    if (status >= 300) return 'error';
    return this.#call.stream ? 'stream' : 'whole';
  }

  #openStream(): void {
    this.#stream = this.#passed?.stream ?? this.#provider.openStream(this.#call);
  }

  #keep(chunk: Uint8Array): void {
    this.#bytes += chunk.length;
    if (this.#course === 'error') {
      this.#chunks.push(chunk);
      if (this.#bytes <= ERROR_BODY_BYTES_MAX) return;
      this.#inner?.abort();
      this.#rejected();
    } else if (this.#bytes > UPSTREAM_RESPONSE_BYTES_MAX)
      this.#fail({
        code: 'RESPONSE_TOO_LONG',
        message: `above ${UPSTREAM_RESPONSE_BYTES_MAX} bytes`,
        repeatable: false,
      });
    // The handler ends the call if there is no room.
    else if (this.#handler.hold?.(chunk.length) !== false) this.#chunks.push(chunk);
  }

  /**
   * The longest event stays counted to the call's end: after it was relayed, it may wait for a client that
   * reads slowly.
   */
  #push(stream: ProviderStream, chunk: Uint8Array): void {
    const text = stream.push(chunk);
    const { heldBytes = 0 } = stream;
    const more = heldBytes > SSE_EVENT_BYTES_MAX ? heldBytes - this.#eventBytes : 0;
    if (more > 0) {
      this.#eventBytes = heldBytes;
      // The handler ends the call if there is no room.
      if (this.#handler.hold?.(more) === false) return;
    }
    this.#relay(text);
  }

  #finish(): void {
    if (this.#stream !== undefined) this.#relay(this.#stream.end());
    else this.#relayWhole(this.#joined());
    if (this.#isOver()) return;
    this.#over = true;
    this.#handler.onEnd();
  }

  /** Most responses come in one chunk, which is not copied. */
  #joined(): Buffer {
    const [first] = this.#chunks;
    return this.#chunks.length === 1 && Buffer.isBuffer(first)
      ? first
      : Buffer.concat(this.#chunks, this.#bytes);
  }

  #relayWhole(body: Buffer): void {
    this.#chunks = [];
    const passed = this.#passed?.readResponse?.(body);
    const completion = passed === undefined ? this.#provider.readResponse(body, this.#call) : undefined;
    // The text replaces the provider's bytes; the handler counts it when it keeps the text.
    this.#handler.hold?.(-this.#bytes);
    if (completion === undefined || this.#handler.onWhole === undefined) {
      this.#relay(passed ?? completion!.text);
      return;
    }
    this.#start(200, 'application/json');
    if (!this.#over) this.#handler.onWhole(Buffer.from(completion.text), completion.members);
  }

  /** Ends a response with an error's status, by its body as far as that has come. */
  #rejected(): void {
    const body = Buffer.concat(this.#chunks).toString('utf8');
    this.#chunks = [];
    const failure = this.#provider.readError(this.#status, this.#header, body);
    this.#judgeCredential(failure);
    const { status, code = null, retryAfterSeconds } = failure;
    const message = this.#cleaned(failure.message);
    const retryAfter = retryAfterSeconds === undefined ? this.#header('retry-after') : `${retryAfterSeconds}`;
    this.#start(status, 'application/json', retryAfter);
    if (this.#isOver()) return;
    this.#handler.onData(Buffer.from(JSON.stringify({ error: { message, type: 'provider_error', code } })));
    if (this.#isOver()) return;
    this.#over = true;
    this.#handler.onEnd();
  }

  /**
   * Reports a rejected credential. AWS sends 403 for an expired credential and for a missing permission
   * alike.
   */
  #judgeCredential({ status }: ProviderFailure): void {
    const { credential, settings } = this.#call;
    if (credential === undefined || settings.credential === undefined) return;
    if (this.#status === 401 || status === 401 || (credential.kind === 'aws' && this.#status === 403))
      this.#credentials.rejected(settings.credential, credential);
  }

  /** Removes a renewed credential from the text. upstream/ removes the key of the settings. */
  #cleaned(message: string): string {
    const { credential } = this.#call;
    if (credential === undefined || credential.kind === 'key') return message;
    return this.#credentials.cleaned(credential, message);
  }

  /** Runs `act`. A bug of a translator counts as an invalid response too, so that it ends one call only. */
  #translate(act: () => void): void {
    try {
      act();
    } catch (error) {
      const isForeseen = error instanceof ProviderError;
      this.#failed(isForeseen ? error.failure : { status: INVALID, message: textOf(error) });
    }
  }

  /** Ends the call with an error that came inside a response with a status of success. */
  #failed({ status, message, retryAfterSeconds }: ProviderFailure): void {
    const reported = { status, retryAfterSeconds };
    this.#fail(
      status === INVALID
        ? { code: 'RESPONSE_INVALID', message, repeatable: false }
        : { code: 'ERROR_IN_RESPONSE', message: `status ${status}`, repeatable: false, reported },
    );
  }

  #fail(fault: HttpFault): void {
    if (this.#over) return;
    this.#over = true;
    this.#chunks = [];
    this.#inner?.abort();
    this.#handler.onError(fault);
  }

  #relay(text: string): void {
    if (text === '') return;
    this.#start(200, this.#course === 'stream' ? 'text/event-stream' : 'application/json');
    if (!this.#over) this.#handler.onData(Buffer.from(text));
  }

  #start(status: number, type: string, retryAfter?: string): void {
    if (this.#started) return;
    this.#started = true;
    this.#handler.onStart(status, (name) =>
      name === 'content-type' ? type : name === 'retry-after' ? retryAfter : undefined,
    );
  }

  /**
   * A method, because TypeScript takes `#over` for false after a check although a handler may have aborted.
   */
  #isOver(): boolean {
    return this.#over;
  }
}

function textOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
