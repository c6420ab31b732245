/**
 * One call in a provider's protocol: it translates the response for a handler that expects a chat completion,
 * or the protocol of a passed call's door. ProviderClient (provider-client.ts) makes a TranslatedCall for
 * each call; the HTTP client then calls its `on…` methods. Upstream worker.
 *
 *     made → setHttpCall → response comes → over        abort() or an error may come at any point
 *
 * Must hold: the handler's onStart is called with the first translated bytes and not before, so that an error
 * until then has a status of its own and the call can fail over. Once `#isOver` is set, no handler method is
 * called (test/unit/providers/provider-client.test.ts). So code after a call of a handler checks
 * `#isOverNow`.
 *
 * A response that is not the provider's, such as a web page or a redirect, goes to the handler as it is.
 */
import { joinedChunks } from '../core/bytes.js';
import { invariant } from '../core/errors.js';
import { isWholeObject } from '../core/json.js';
import {
  SSE_EVENT_BYTES_MAX,
  UPSTREAM_MESSAGE_CHARS_MAX,
  UPSTREAM_RESPONSE_BYTES_MAX,
} from '../core/limits.js';
import { isHtml } from '../http1/content-headers.js';
import type { HeaderLookup, HttpCall, HttpFault, HttpHandler } from '../http1/http-client.js';
import {
  ERROR_IN_RESPONSE,
  INVALID_STATUS,
  ProviderError,
  RESPONSE_INVALID,
  RESPONSE_TOO_LONG,
  type Credentials,
  type Provider,
  type ProviderCall,
  type ProviderFailure,
  type ProviderStream,
  type ResponseReader,
} from './provider.js';
import { usageMember } from './provider-usage.js';

/** Only so many bytes of an error's body are read. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;

const NO_HEADER: HeaderLookup = () => undefined;

/**
 * What happens to the response's body. `none`: no response yet; `pass`: the bytes go on unread; `stream`:
 * each chunk is translated as it comes; `whole`: the body is buffered to its end; `error`: to its end, or
 * until its JSON is whole.
 */
type BodyMode = 'none' | 'pass' | 'stream' | 'whole' | 'error';

export class TranslatedCall implements HttpCall, HttpHandler {
  readonly #provider: Pick<Provider, 'readError'>;
  readonly #reader: ResponseReader;
  readonly #call: ProviderCall;
  readonly #credentials: Credentials;
  readonly #handler: HttpHandler;
  #httpCall: HttpCall | undefined;
  #stream: ProviderStream | undefined;
  #mode: BodyMode = 'none';
  #status = 0;
  #header = NO_HEADER;
  #chunks: Uint8Array[] = [];
  #bufferedBytes = 0;
  /** How many bytes of the stream's longest event are counted against the memory budget. */
  #countedEventBytes = 0;
  #hasStarted = false;
  #isOver = false;

  /** `reader`: for successes: the provider itself, or the PassedRequest of a passed call. */
  constructor(
    provider: Pick<Provider, 'readError'>,
    reader: ResponseReader,
    call: ProviderCall,
    credentials: Credentials,
    handler: HttpHandler,
  ) {
    this.#provider = provider;
    this.#reader = reader;
    this.#call = call;
    this.#credentials = credentials;
    this.#handler = handler;
  }

  // The next methods are those of HttpCall (http1/http-client.ts), for the owner of the handler.
  get sent(): boolean {
    return this.#httpCall?.sent ?? false;
  }

  get isHeldUp(): boolean {
    return this.#httpCall?.isHeldUp ?? false;
  }

  get isRefused(): boolean {
    return this.#mode === 'error';
  }

  get usageSoFar(): unknown {
    const usage = this.#stream?.usageSoFar;
    return usage === undefined ? undefined : usageMember(usage);
  }

  pause(): void {
    this.#httpCall?.pause();
  }

  resume(): void {
    this.#httpCall?.resume();
  }

  drain(): void {
    this.#httpCall?.drain();
  }

  abort(): void {
    this.#isOver = true;
    this.#chunks = [];
    this.#httpCall?.abort();
  }

  /** Call it right after the HTTP client's `start`, which returned `httpCall`. A second call throws. */
  setHttpCall(httpCall: HttpCall): void {
    invariant(this.#httpCall === undefined, 'a call is sent once');
    this.#httpCall = httpCall;
  }

  // The next methods are those of HttpHandler: the HTTP client calls them.
  onStart(status: number, header: HeaderLookup): void {
    if (this.#isOver) return;
    this.#status = status;
    this.#header = header;
    this.#mode = this.#modeOf(status, header);
    if (this.#mode === 'pass') {
      this.#hasStarted = true;
      this.#handler.onStart(status, header);
    } else if (this.#mode === 'stream')
      this.#translate(() => {
        // `!`, here and in `#relayWhole`: without the method the mode is `pass`.
        this.#stream = this.#reader.openStream!(this.#call);
      });
  }

  onData(chunk: Uint8Array): void {
    if (this.#isOver) return;
    if (this.#mode === 'pass') this.#handler.onData(chunk);
    else if (this.#mode === 'stream') this.#translate(() => this.#push(this.#stream!, chunk));
    else this.#buffer(chunk);
  }

  onEnd(): void {
    if (this.#isOver) return;
    if (this.#mode === 'pass') {
      this.#isOver = true;
      this.#handler.onEnd();
    } else if (this.#mode === 'error') this.#relayError();
    else this.#translate(() => this.#relayLast());
  }

  onError(fault: HttpFault): void {
    if (this.#isOver) return;
    if (this.#mode === 'error') {
      // The status and what has come of the body say more than the fault of the connection.
      this.#relayError();
      return;
    }
    this.#isOver = true;
    this.#chunks = [];
    this.#handler.onError(fault);
  }

  #modeOf(status: number, header: HeaderLookup): BodyMode {
    const { stream } = this.#call;
    const read = stream ? this.#reader.openStream : this.#reader.readResponse;
    if (status < 300 && read === undefined) return 'pass';
    if (isHtml(header('content-type')) || (status >= 300 && status < 400)) return 'pass';
    if (status >= 300) return 'error';
    return stream ? 'stream' : 'whole';
  }

  /** Buffers a chunk of an error, or of a response that is not streamed. Ends the call if it is too long. */
  #buffer(chunk: Uint8Array): void {
    this.#bufferedBytes += chunk.length;
    if (this.#mode === 'error') {
      this.#chunks.push(chunk);
      if (this.#bufferedBytes > ERROR_BODY_BYTES_MAX) this.#httpCall?.abort();
      else if (!isWholeObject(this.#chunks)) return;
      this.#relayError();
    } else if (this.#bufferedBytes > UPSTREAM_RESPONSE_BYTES_MAX)
      this.#fail({
        code: RESPONSE_TOO_LONG,
        message: `above ${UPSTREAM_RESPONSE_BYTES_MAX} bytes`,
        repeatable: false,
      });
    // If the memory budget is used up, the handler ends the call.
    else if (this.#handler.countBuffered?.(chunk.length) !== false) this.#chunks.push(chunk);
  }

  /**
   * Translates a chunk. The longest event stays counted against the memory budget until the call ends,
   * because a relayed event may wait for a client that reads slowly.
   */
  #push(stream: ProviderStream, chunk: Uint8Array): void {
    const text = stream.push(chunk);
    const { bufferBytes = 0 } = stream;
    const uncountedBytes = bufferBytes > SSE_EVENT_BYTES_MAX ? bufferBytes - this.#countedEventBytes : 0;
    if (uncountedBytes > 0) {
      this.#countedEventBytes = bufferBytes;
      if (this.#handler.countBuffered?.(uncountedBytes) === false) return;
    }
    this.#relay(text);
  }

  #relayLast(): void {
    if (this.#stream !== undefined) this.#relay(this.#stream.end());
    else this.#relayWhole(joinedChunks(this.#chunks));
    if (this.#isOverNow()) return;
    // Of an empty stream nothing was relayed: its reader finds out that the end is missing.
    this.#startHandler(200, 'text/event-stream');
    if (this.#isOverNow()) return;
    this.#isOver = true;
    this.#handler.onEnd();
  }

  #relayWhole(body: Buffer): void {
    this.#chunks = [];
    const response = this.#reader.readResponse!(body, this.#call);
    // The provider's bytes are freed. The handler counts the translated text itself if it keeps the text.
    this.#handler.countBuffered?.(-this.#bufferedBytes);
    if (typeof response === 'string' || this.#handler.onWhole === undefined) {
      this.#relay(typeof response === 'string' ? response : response.text);
      return;
    }
    this.#startHandler(200, 'application/json');
    if (!this.#isOver) this.#handler.onWhole(Buffer.from(response.text), response.members);
  }

  /** Ends the call with the provider's error, read from as much of its body as has come. */
  #relayError(): void {
    const body = Buffer.concat(this.#chunks).toString('utf8');
    this.#chunks = [];
    const failure = this.#failureIn(body);
    this.#reportCredential(failure);
    const { status, retryAfterSeconds } = failure;
    const message = this.#cleaned(failure.message);
    const code = failure.code === undefined ? null : this.#cleaned(failure.code);
    const retryAfter = retryAfterSeconds === undefined ? this.#header('retry-after') : `${retryAfterSeconds}`;
    this.#startHandler(status, 'application/json', retryAfter);
    if (this.#isOverNow()) return;
    // An error that says nothing is left out: a 404 without an error counts against the breaker.
    if (message !== '' || code !== null)
      this.#handler.onData(Buffer.from(JSON.stringify({ error: { message, type: 'provider_error', code } })));
    if (this.#isOverNow()) return;
    this.#isOver = true;
    this.#handler.onEnd();
  }

  /** A bug of `readError` counts as an error of the provider. */
  #failureIn(body: string): ProviderFailure {
    try {
      return this.#provider.readError(this.#status, this.#header, body);
    } catch (error) {
      return { status: 500, message: textOf(error) };
    }
  }

  /** AWS sends 403 both for an expired credential and for a missing permission. */
  #reportCredential({ status }: ProviderFailure): void {
    const { credential, settings } = this.#call;
    if (credential === undefined || settings.credential === undefined) return;
    if (this.#status === 401 || status === 401 || (credential.kind === 'aws' && this.#status === 403))
      this.#credentials.rejected(settings.credential, credential);
  }

  /**
   * Removes a renewed credential from the text. Cuts the text first to what a caller may get, because to
   * clean 64 KB takes 0.3 s. A key of the settings is removed by upstream/error-mapping.ts.
   */
  #cleaned(message: string): string {
    const { credential } = this.#call;
    if (credential === undefined || credential.kind === 'key') return message;
    return this.#credentials.withoutSecrets(credential, message.trim().slice(0, UPSTREAM_MESSAGE_CHARS_MAX));
  }

  /** Runs `work`. If it throws, ends the call: a bug of a translator counts as an invalid response. */
  #translate(work: () => void): void {
    try {
      work();
    } catch (error) {
      const isReported = error instanceof ProviderError;
      this.#failByProvider(isReported ? error.failure : { status: INVALID_STATUS, message: textOf(error) });
    }
  }

  #failByProvider({ status, message, retryAfterSeconds }: ProviderFailure): void {
    const reported = { status, retryAfterSeconds };
    this.#fail(
      status === INVALID_STATUS
        ? { code: RESPONSE_INVALID, message, repeatable: false }
        : { code: ERROR_IN_RESPONSE, message: `status ${status}`, repeatable: false, reported },
    );
  }

  #fail(fault: HttpFault): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#chunks = [];
    this.#httpCall?.abort();
    this.#handler.onError(fault);
  }

  #relay(text: string): void {
    if (text === '') return;
    this.#startHandler(200, this.#mode === 'stream' ? 'text/event-stream' : 'application/json');
    if (!this.#isOver) this.#handler.onData(Buffer.from(text));
  }

  #startHandler(status: number, type: string, retryAfter?: string): void {
    if (this.#hasStarted) return;
    this.#hasStarted = true;
    this.#handler.onStart(status, (name) =>
      name === 'content-type' ? type : name === 'retry-after' ? retryAfter : undefined,
    );
  }

  /** A handler method may have aborted the call since the last check, which TypeScript does not see. */
  #isOverNow(): boolean {
    return this.#isOver;
  }
}

export function textOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
