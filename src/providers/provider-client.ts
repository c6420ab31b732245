/**
 * An HTTP client that speaks the protocol of a provider: it takes the body of a chat completion, sends what
 * the provider understands, and gives its handler a chat completion back. So attempts and their readers
 * know one protocol. One for each upstream worker, over its Http1Client.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { isRecord, parsedJson } from '../core/json.js';
import { UPSTREAM_RESPONSE_BYTES_MAX } from '../core/limits.js';
import type { ProviderName } from '../core/provider-names.js';
import type { HttpCall, HttpClient, HttpFault, HttpHandler, HttpTarget } from '../http1/http-client.js';
import { azureHeaders } from './azure/azure.js';
import { WatchedHandler } from './credentials/watched-handler.js';
import {
  FieldError,
  ProviderError,
  type Credential,
  type Provider,
  type ProviderCall,
  type ProviderFailure,
  type ProviderRequest,
  type ProviderSettings,
  type ProviderStream,
} from './provider.js';

export interface ProviderTarget extends HttpTarget {
  /** Defined: the others go to the HTTP client itself. */
  readonly provider: ProviderSettings | undefined;
}

/** The credentials that the gateway renews. */
export interface Credentials {
  /** The current one of that position; undefined if there is none now. */
  of(position: number): Credential | undefined;
  /** The provider does not accept this one any more, or not yet: a new one is asked for. */
  rejected(position: number, credential: Credential): void;
  /** Returns what a provider says about a call with this credential, without traces of it. */
  cleaned(credential: Credential, text: string): string;
}

/** Of a body with an error's status. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;

const NO_CREDENTIAL: HttpFault = {
  code: 'NO_CREDENTIAL',
  message: 'the credentials for the provider could not be had',
  repeatable: true,
};

export class ProviderClient {
  readonly #http: HttpClient;
  readonly #clock: Clock;
  readonly #credentials: Credentials;
  readonly #providers: Readonly<Partial<Record<ProviderName, Provider>>>;
  /** By the target of the settings: the same without its key, which the provider sends in its own way. */
  readonly #bare = new WeakMap<HttpTarget, HttpTarget>();

  constructor(
    http: HttpClient,
    clock: Clock,
    credentials: Credentials,
    providers: Readonly<Partial<Record<ProviderName, Provider>>>,
  ) {
    this.#http = http;
    this.#clock = clock;
    this.#credentials = credentials;
    this.#providers = providers;
  }

  /** As HttpClient.start. `body` is a JSON object with `model` and, if it is to be a stream, `stream`. */
  start(
    target: ProviderTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: HttpHandler,
    moreHeaders: readonly string[] = [],
  ): HttpCall {
    const { provider: settings, key } = target;
    invariant(settings !== undefined, 'the upstream has a provider of its own');
    const credential =
      key !== undefined
        ? ({ kind: 'key', key } as const)
        : settings.credential === undefined
          ? undefined
          : this.#credentials.of(settings.credential);
    const provider = this.#providers[settings.name];
    const isMissing = credential === undefined && settings.credential !== undefined;
    if (provider === undefined && !isMissing) {
      const headers = [...moreHeaders, ...azureHeaders(credential)];
      const { credential: position } = settings;
      const passed =
        credential === undefined || position === undefined
          ? handler
          : new WatchedHandler(handler, this.#credentials, position, credential);
      return this.#http.start(this.#bareOf(target), body, requestId, passed, headers);
    }
    const translated = new TranslatedCall(provider!, this.#credentials, handler);
    if (isMissing) {
      translated.fault(NO_CREDENTIAL);
      return translated;
    }
    const members = parsedJson(typeof body === 'string' ? body : Buffer.from(body).toString());
    const call: ProviderCall = {
      settings,
      credential,
      body: isRecord(members) ? members : {},
      model: isRecord(members) ? String(members.model) : '',
      stream: isRecord(members) && members.stream === true,
      requestId,
      nowMs: this.#clock.wallMs(),
    };
    const send = (request: ProviderRequest): void =>
      translated.sending(
        this.#http.start(
          this.#bareOf(target),
          request.body,
          requestId,
          translated,
          [...moreHeaders, ...request.headers],
          request.path,
        ),
      );
    translated.begin(call);
    try {
      const request = provider!.write(call);
      if (request instanceof Promise)
        request.then(
          (written) => {
            if (!translated.isOver) send(written);
          },
          (error: unknown) => translated.unwritten(error),
        );
      else send(request);
    } catch (error) {
      translated.unwritten(error);
    }
    return translated;
  }

  #bareOf(target: ProviderTarget): HttpTarget {
    let bare = this.#bare.get(target);
    if (bare === undefined) {
      bare = { ...target, key: undefined };
      this.#bare.set(target, bare);
    }
    return bare;
  }
}

/** One call: what the provider's response means goes to the handler of a chat completion. */
class TranslatedCall implements HttpCall, HttpHandler {
  readonly #provider: Provider;
  readonly #credentials: Credentials;
  readonly #handler: HttpHandler;
  #call: ProviderCall | undefined;
  #inner: HttpCall | undefined;
  #stream: ProviderStream | undefined;
  #status = 0;
  #header: (name: string) => string | undefined = () => undefined;
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #started = false;
  #paused = false;
  isOver = false;

  constructor(provider: Provider, credentials: Credentials, handler: HttpHandler) {
    this.#provider = provider;
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
    this.isOver = true;
    this.#chunks = [];
    this.#inner?.abort();
  }

  begin(call: ProviderCall): void {
    this.#call = call;
  }

  sending(inner: HttpCall): void {
    this.#inner = inner;
    if (this.#paused) inner.pause();
  }

  /** Ends the call with a fault, after `start` has returned. */
  fault(fault: HttpFault): void {
    queueMicrotask(() => {
      if (this.isOver) return;
      this.isOver = true;
      this.#handler.onError(fault);
    });
  }

  /** The request could not be written. */
  unwritten(error: unknown): void {
    if (error instanceof FieldError) {
      const { message } = error;
      queueMicrotask(() => this.#fail({ status: 400, message }));
    } else this.fault({ code: 'PROVIDER_UNWRITTEN', message: String(error), repeatable: false });
  }

  onStart(status: number, header: (name: string) => string | undefined): void {
    this.#status = status;
    this.#header = header;
    if (this.#isGood && this.#call!.stream) this.#stream = this.#provider.openStream(this.#call!);
  }

  onData(chunk: Uint8Array): void {
    if (this.isOver) return;
    if (this.#stream !== undefined) {
      this.#translate(() => this.#relay(this.#stream!.push(chunk)));
      return;
    }
    this.#bytes += chunk.length;
    if (this.#bytes <= (this.#isGood ? UPSTREAM_RESPONSE_BYTES_MAX : ERROR_BODY_BYTES_MAX))
      this.#chunks.push(chunk);
    else if (this.#isGood) this.#fail({ status: 502, message: 'the response is too long' });
    else this.onEnd();
  }

  onEnd(): void {
    if (this.isOver) return;
    const body = Buffer.concat(this.#chunks);
    this.#chunks = [];
    if (!this.#isGood) {
      const failure = this.#provider.readError(this.#status, this.#header, body.toString('utf8'));
      this.#judgeCredential(failure);
      this.#fail(failure);
    } else {
      this.#translate(() => {
        this.#relay(this.#stream?.end() ?? this.#provider.readResponse(body, this.#call!));
        if (this.isOver) return;
        this.isOver = true;
        this.#handler.onEnd();
      });
    }
  }

  onError(fault: HttpFault): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#handler.onError(fault);
  }

  /** AWS says 403 for a credential that has expired, as for one that lacks a permission. */
  #judgeCredential({ status }: ProviderFailure): void {
    const { credential, settings } = this.#call!;
    if (credential === undefined || settings.credential === undefined) return;
    if (this.#status === 401 || status === 401 || (credential.kind === 'aws' && this.#status === 403))
      this.#credentials.rejected(settings.credential, credential);
  }

  get #isGood(): boolean {
    return this.#status >= 200 && this.#status < 300;
  }

  #translate(act: () => void): void {
    try {
      act();
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      this.#fail(error.failure);
    }
  }

  /**
   * The handler hears of the response with its first bytes, so that an error before them has its own status.
   */
  #relay(text: string): void {
    if (text === '' || this.isOver) return;
    this.#start(200, this.#stream === undefined ? 'application/json' : 'text/event-stream');
    if (!this.isOver) this.#handler.onData(Buffer.from(text));
  }

  #start(status: number, type: string, retryAfter?: string): void {
    if (this.#started) return;
    this.#started = true;
    this.#handler.onStart(status, (name) =>
      name === 'content-type' ? type : name === 'retry-after' ? retryAfter : undefined,
    );
  }

  #fail({
    status,
    message,
    code = null,
    retryAfterSeconds,
  }: Omit<ProviderFailure, 'code'> & { code?: string | null | undefined }): void {
    if (this.isOver) return;
    const { credential } = this.#call!;
    // The key of the settings is cleaned away by who reads this body.
    const open =
      credential === undefined || credential.kind === 'key'
        ? message
        : this.#credentials.cleaned(credential, message);
    const body = JSON.stringify({ error: { message: open, type: 'provider_error', code } });
    if (this.#started) this.#handler.onData(Buffer.from(`data: ${body}\n\n`));
    else {
      this.#start(
        status,
        'application/json',
        retryAfterSeconds === undefined ? undefined : String(retryAfterSeconds),
      );
      if (!this.isOver) this.#handler.onData(Buffer.from(body));
    }
    if (this.isOver) return;
    this.isOver = true;
    this.#inner?.abort();
    this.#handler.onEnd();
  }
}
