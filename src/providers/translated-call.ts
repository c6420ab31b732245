/**
 * One call in a provider's protocol: what the provider's response means goes to the handler of a chat
 * completion. ProviderClient makes it. Upstream worker.
 *
 *     written → its response comes → over        abort() or an error may come at any point
 *
 * The handler hears of a response with its first translated bytes, so an error before them still has a status
 * of its own and another upstream may be asked. A response that is no provider's at all, as a web page or a
 * redirect, goes to the handler as it is: it knows what such a thing means.
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

/** Of a body with an error's status. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;
/** What `ProviderError.invalid` means. */
const INVALID = 502;

type Header = (name: string) => string | undefined;

/** What becomes of the response's body: bytes pass, are translated as they come, or are read to their end. */
type Course = 'none' | 'pass' | 'stream' | 'whole' | 'error';

export class TranslatedCall implements HttpCall, HttpHandler {
  readonly #provider: Provider;
  readonly #call: ProviderCall;
  readonly #credentials: Credentials;
  readonly #handler: HttpHandler;
  /** Defined: the handler reads the protocol of the call's door. */
  #passed: PassedRequest | undefined;
  #inner: HttpCall | undefined;
  #stream: ProviderStream | undefined;
  #course: Course = 'none';
  #status = 0;
  #header: Header = () => undefined;
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  /** Of the stream's longest event, if they are counted. */
  #eventBytes = 0;
  /** The handler knows the status. */
  #started = false;
  #paused = false;
  #over = false;

  constructor(provider: Provider, call: ProviderCall, credentials: Credentials, handler: HttpHandler) {
    this.#provider = provider;
    this.#call = call;
    this.#credentials = credentials;
    this.#handler = handler;
  }

  /** Aborted, failed, or whole. */
  get isOver(): boolean {
    return this.#over;
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

  /** Before the request is sent: its response is in the protocol of the call's door. */
  passes(request: PassedRequest): void {
    this.#passed = request;
  }

  /** The request is written, and `inner` sends it. */
  sending(inner: HttpCall): void {
    this.#inner = inner;
    if (this.#paused) inner.pause();
  }

  /** Ends the call once `start` has returned. */
  fail(fault: HttpFault): void {
    queueMicrotask(() => this.onError(fault));
  }

  /** The request could not be written, so nothing was sent. */
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
      // The status has come, and says more than the connection's end.
      this.#rejected();
      return;
    }
    this.#over = true;
    this.#chunks = [];
    this.#handler.onError(fault);
  }

  #courseOf(status: number, header: Header): Course {
    if (isHtml(header('content-type')) || (status >= 300 && status < 400)) return 'pass';
    if (status >= 300) return 'error';
    const { stream, readResponse } = this.#passed ?? {};
    if (this.#passed !== undefined && stream === undefined && readResponse === undefined) return 'pass';
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
      this.#failed({ status: INVALID, message: `above ${UPSTREAM_RESPONSE_BYTES_MAX} bytes` });
    // The handler ends the call if there is no room.
    else if (this.#handler.hold?.(chunk.length) !== false) this.#chunks.push(chunk);
  }

  /**
   * The longest event keeps its room to the call's end: when it was relayed, it may wait for a client that
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
    const body = Buffer.concat(this.#chunks, this.#bytes);
    this.#chunks = [];
    const text = this.#stream?.end() ?? this.#read(body);
    // The text takes the place of the provider's bytes, and is counted when the handler keeps it.
    if (this.#course === 'whole') this.#handler.hold?.(-this.#bytes);
    this.#relay(text);
    if (this.#isOver()) return;
    this.#over = true;
    this.#handler.onEnd();
  }

  #read(body: Buffer): string {
    return this.#passed?.readResponse?.(body) ?? this.#provider.readResponse(body, this.#call);
  }

  /** The response has an error's status; its body is read as far as it came. */
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

  /** AWS says 403 for a credential that has expired, as for one that lacks a permission. */
  #judgeCredential({ status }: ProviderFailure): void {
    const { credential, settings } = this.#call;
    if (credential === undefined || settings.credential === undefined) return;
    if (this.#status === 401 || status === 401 || (credential.kind === 'aws' && this.#status === 403))
      this.#credentials.rejected(settings.credential, credential);
  }

  /** The key of the settings is cleaned away by who reads the body. */
  #cleaned(message: string): string {
    const { credential } = this.#call;
    if (credential === undefined || credential.kind === 'key') return message;
    return this.#credentials.cleaned(credential, message);
  }

  /** Also a defect of a translator is an invalid response: nobody foresaw it. */
  #translate(act: () => void): void {
    try {
      act();
    } catch (error) {
      const isForeseen = error instanceof ProviderError;
      this.#failed(isForeseen ? error.failure : { status: INVALID, message: textOf(error) });
    }
  }

  /** An error inside a response whose status was good. */
  #failed({ status, message, retryAfterSeconds }: ProviderFailure): void {
    if (this.#over) return;
    this.#over = true;
    this.#chunks = [];
    this.#inner?.abort();
    const reported = { status, retryAfterSeconds };
    this.#handler.onError(
      status === INVALID
        ? { code: 'RESPONSE_INVALID', message, repeatable: false }
        : { code: 'ERROR_IN_RESPONSE', message: `status ${status}`, repeatable: false, reported },
    );
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

  /** The handler may have aborted the call. */
  #isOver(): boolean {
    return this.#over;
  }
}

function textOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
