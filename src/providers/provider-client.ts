/**
 * An adapter over the HTTP client: it takes the body of a chat completion, sends a request in the provider's
 * protocol, and gives its handler a chat completion back. So upstream/attempt.ts, which calls it for each
 * attempt on an upstream with a provider, and the readers of upstream/ know one protocol. Each upstream
 * worker has one ProviderClient, over its Http1Client, and so has gateway/upstream-probe.ts.
 *
 * Must hold: a handler method is never called before `start` has returned, as for any HttpClient
 * (test/unit/providers/provider-client.test.ts). The key of a target leaves only in a header that its
 * provider wrote: the HTTP client gets a copy of the target without the key.
 */
import { asBuffer } from '../core/bytes.js';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { type Members, membersOf, parsedJson } from '../core/json.js';
import type { ProviderName } from '../core/provider-names.js';
import type { HttpCall, HttpClient, HttpFault, HttpHandler, HttpTarget } from '../http1/http-client.js';
import { AZURE_ERRORS } from './azure/azure.js';
import {
  authorizationOf,
  FIELD_UNSUPPORTED,
  FieldError,
  NO_CREDENTIAL,
  REQUEST_UNWRITTEN,
  type Credential,
  type Credentials,
  type PassedCall,
  type PassedRequest,
  type Provider,
  type ProviderCall,
  type ProviderSettings,
  type ResponseReader,
  type UnsignedRequest,
} from './provider.js';
import { textOf, TranslatedCall } from './translated-call.js';

interface ProviderTarget extends HttpTarget {
  /** The upstream's name of the model; undefined if that is the model's name in the body. */
  readonly model: string | undefined;
  /** Undefined for an upstream that speaks OpenAI's protocol: its calls go to the HTTP client as they are. */
  readonly provider: ProviderSettings | undefined;
}

/** `ProviderCall.body` of a passed call, whose members nobody parses. */
const NO_MEMBERS: Members = Object.freeze({});
/** Of calls whose successes pass as they are. */
const PASSES: ResponseReader = Object.freeze({});

const NO_CREDENTIAL_FAULT: HttpFault = {
  code: NO_CREDENTIAL,
  message: 'the credentials for the provider could not be had',
  repeatable: false,
};

export class ProviderClient {
  readonly #http: HttpClient;
  readonly #clock: Clock;
  readonly #credentials: Credentials;
  readonly #providers: Readonly<Partial<Record<ProviderName, Provider>>>;
  /** By target: a copy without its key, because each provider sends the key in a header of its own. */
  readonly #targetsWithoutKey = new WeakMap<HttpTarget, HttpTarget>();

  /** The key credential of the last call, kept because consecutive calls often have the same key. */
  #lastKey: Extract<Credential, { kind: 'key' }> = { kind: 'key', key: '' };

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

  /**
   * Sends a chat completion, as HttpClient.start does (http1/client.ts). `body` is a JSON object with `model`
   * and, if a stream is asked for, `stream`. If it is translated, it gets the target's model. Azure gets any
   * body of OpenAI's protocol as it is, at `path`; other providers make the path. `moreHeaders`: those of the
   * trace.
   */
  start(
    target: ProviderTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: HttpHandler,
    moreHeaders: readonly string[] = [],
    path?: string,
  ): HttpCall {
    if (settingsOf(target).name === 'azure')
      return this.#startAzure(target, body, requestId, handler, moreHeaders, path);
    // The door has checked that the body is an object.
    const text = typeof body === 'string' ? body : asBuffer(body).toString('utf8');
    const members = membersOf(parsedJson(text));
    const { model, stream } = members;
    const modelName = target.model ?? (typeof model === 'string' ? model : '');
    const call = this.#callOf(target, members, modelName, stream === true, requestId);
    if (call === undefined) return new FailedCall(handler, NO_CREDENTIAL_FAULT);
    const provider = this.#providerOf(call.settings);
    try {
      const written = provider.write(call);
      const request = { path: written.path, body: written.body, headers: provider.headers(call, written) };
      return this.#send(target, request, provider, provider, call, handler, moreHeaders);
    } catch (error) {
      return new FailedCall(handler, unwrittenFault(error));
    }
  }

  /**
   * As `start`, for a body in the provider's own protocol, with the upstream's name of the model. The
   * provider speaks the door's protocol, and makes the path.
   */
  startPassed(
    target: ProviderTarget,
    body: string | Uint8Array,
    passed: PassedCall,
    requestId: string,
    handler: HttpHandler,
    moreHeaders: readonly string[] = [],
  ): HttpCall {
    // The model is in the bytes.
    const call = this.#callOf(target, NO_MEMBERS, '', passed.stream, requestId);
    if (call === undefined) return new FailedCall(handler, NO_CREDENTIAL_FAULT);
    const provider = this.#providerOf(call.settings);
    try {
      invariant(provider.writePassed !== undefined, 'a passed call goes to a provider that speaks a door');
      const request = provider.writePassed(call, body, passed);
      return this.#send(target, request, provider, request, call, handler, moreHeaders);
    } catch (error) {
      return new FailedCall(handler, unwrittenFault(error));
    }
  }

  /**
   * As `start`, for a request that a counter thread has written; upstream/large-call.ts calls it. `chat`: the
   * members of the chat completion by which the response is read.
   */
  startWritten(
    target: ProviderTarget,
    request: UnsignedRequest,
    { chat, stream }: { readonly chat: Members; readonly stream: boolean },
    requestId: string,
    handler: HttpHandler,
    moreHeaders: readonly string[] = [],
  ): HttpCall {
    const call = this.#callOf(target, chat, String(chat.model), stream, requestId);
    if (call === undefined) return new FailedCall(handler, NO_CREDENTIAL_FAULT);
    const provider = this.#providerOf(call.settings);
    try {
      const headers = provider.headers(call, request);
      return this.#send(target, { ...request, headers }, provider, provider, call, handler, moreHeaders);
    } catch (error) {
      return new FailedCall(handler, unwrittenFault(error));
    }
  }

  /** Sends a call to Azure, which speaks OpenAI's protocol: only path and headers differ. */
  #startAzure(
    target: ProviderTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: HttpHandler,
    moreHeaders: readonly string[],
    path: string | undefined,
  ): HttpCall {
    const { credential: renewed } = settingsOf(target);
    const headers = authorizationOf(this.#credentialOf(target), 'api-key');
    if (renewed === undefined) {
      const allHeaders = [...moreHeaders, ...headers];
      return this.#http.start(this.#withoutKey(target), body, requestId, handler, allHeaders, path);
    }
    // A token of Entra is removed from errors, and reported if Azure rejects it.
    const call = this.#callOf(target, NO_MEMBERS, '', false, requestId);
    if (call === undefined) return new FailedCall(handler, NO_CREDENTIAL_FAULT);
    return this.#send(target, { path, headers, body }, AZURE_ERRORS, PASSES, call, handler, moreHeaders);
  }

  /** Sends the request of `call`. `errors` and `reader`: of the TranslatedCall. */
  #send(
    target: ProviderTarget,
    { path, headers, body }: Omit<PassedRequest, 'path'> & { readonly path: string | undefined },
    errors: Pick<Provider, 'readError'>,
    reader: ResponseReader,
    call: ProviderCall,
    handler: HttpHandler,
    moreHeaders: readonly string[],
  ): TranslatedCall {
    const allHeaders = moreHeaders.length === 0 ? headers : [...moreHeaders, ...headers];
    const translated = new TranslatedCall(errors, reader, call, this.#credentials, handler);
    translated.setHttpCall(
      this.#http.start(this.#withoutKey(target), body, call.requestId, translated, allHeaders, path),
    );
    return translated;
  }

  /** The call as a provider sees it; undefined if the gateway has no credential for it now. */
  #callOf(
    target: ProviderTarget,
    body: Members,
    model: string,
    stream: boolean,
    requestId: string,
  ): ProviderCall | undefined {
    const settings = settingsOf(target);
    const credential = this.#credentialOf(target);
    if (credential === undefined && settings.credential !== undefined) return undefined;
    return { settings, credential, body, model, stream, requestId, nowMs: this.#clock.wallMs() };
  }

  #providerOf({ name }: ProviderSettings): Provider {
    const provider = this.#providers[name];
    invariant(provider !== undefined, 'every provider that translates is in the table');
    return provider;
  }

  /** The present credential of an upstream; undefined if it needs none, or if there is none now. */
  #credentialOf({ key, provider }: ProviderTarget): Credential | undefined {
    if (key !== undefined) {
      if (this.#lastKey.key !== key) this.#lastKey = { kind: 'key', key };
      return this.#lastKey;
    }
    return provider?.credential === undefined
      ? undefined
      : this.#credentials.credentialAt(provider.credential);
  }

  #withoutKey(target: ProviderTarget): HttpTarget {
    let copy = this.#targetsWithoutKey.get(target);
    if (copy === undefined) {
      copy = { ...target, key: undefined };
      this.#targetsWithoutKey.set(target, copy);
    }
    return copy;
  }
}

function settingsOf({ provider }: ProviderTarget): ProviderSettings {
  invariant(provider !== undefined, 'the upstream has a provider of its own');
  return provider;
}

function unwrittenFault(error: unknown): HttpFault {
  return error instanceof FieldError
    ? { code: FIELD_UNSUPPORTED, message: error.message, repeatable: false, field: error.field }
    : { code: REQUEST_UNWRITTEN, message: textOf(error), repeatable: false };
}

/**
 * A call that fails before anything is sent. The handler learns of the fault in a microtask, after `start`
 * has returned. upstream/attempt.ts makes a FailedCall too, if a door cannot write the request.
 */
export class FailedCall implements HttpCall {
  readonly sent = false;
  readonly isHeldUp = false;
  #isAborted = false;

  constructor(handler: HttpHandler, fault: HttpFault) {
    queueMicrotask(() => {
      if (!this.#isAborted) handler.onError(fault);
    });
  }

  pause(): void {
    // No data will come.
  }

  resume(): void {
    // No data will come.
  }

  drain(): void {
    // No data will come.
  }

  abort(): void {
    this.#isAborted = true;
  }
}
