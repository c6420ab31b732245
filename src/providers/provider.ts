/**
 * The interface of a provider: how a chat completion becomes a request in the provider's own protocol, and
 * how its response, stream and errors become a chat completion again. provider-client.ts calls it; each
 * folder beside this file implements it for one protocol. Upstream worker.
 *
 * A provider keeps no state between calls and does no I/O: the client owns connections, time limits and
 * credentials.
 */
import type { DoorName } from '../core/door-names.js';
import type { ProviderName } from '../core/provider-names.js';

/** What the settings say about an upstream that does not speak OpenAI's protocol. A plain record. */
export interface ProviderSettings {
  readonly name: ProviderName;
  /** Path of `url`, without a slash at its end; mostly empty. */
  readonly basePath: string;
  /** `host` or `host:port` of the upstream, for signatures. */
  readonly host: string;
  /** `api_version`, or the provider's default. */
  readonly apiVersion: string;
  /** `betas`: features in trial that are switched on, by the provider's names. */
  readonly betas: readonly string[];
  /** `region`; empty if the provider has none. */
  readonly region: string;
  /** `project`; empty if the provider has none. */
  readonly project: string;
  /** Members of a request that the provider has no word for are left out, where they would get 400. */
  readonly dropUnsupported: boolean;
  /** `max_output_tokens` of the model, for providers that require a bound. */
  readonly outputTokensMax: number;
  /** Position among the credentials that expire; undefined if the upstream has a key, or needs none. */
  readonly credential: number | undefined;
}

/** What a call is authorised with. */
export type Credential =
  /** The key of the settings. */
  | { readonly kind: 'key'; readonly key: string }
  /** A token that the gateway renews. */
  | { readonly kind: 'bearer'; readonly token: string }
  /** For AWS signatures. */
  | {
      readonly kind: 'aws';
      readonly accessKeyId: string;
      readonly secretAccessKey: string;
      readonly sessionToken: string | undefined;
    };

/** The credentials that the gateway renews. */
export interface Credentials {
  /** The current one of that position; undefined if there is none now. */
  of(position: number): Credential | undefined;
  /** The provider does not accept this one any more, or not yet: a new one is asked for. */
  rejected(position: number, credential: Credential): void;
  /** Returns what a provider says about a call with this credential, without traces of it. */
  cleaned(credential: Credential, text: string): string;
}

/** One call, as a provider sees it. */
export interface ProviderCall {
  readonly settings: ProviderSettings;
  /** Undefined if the upstream wants none. */
  readonly credential: Credential | undefined;
  /**
   * The body of the chat completion. Only what protocol/chat-schema.ts names was checked: whatever a provider
   * reads beyond that it checks itself (fields.ts).
   */
  readonly body: Readonly<Record<string, unknown>>;
  /** The provider's name of the model. */
  readonly model: string;
  readonly stream: boolean;
  readonly requestId: string;
  readonly nowMs: number;
}

/** A call whose body is in the protocol of a door that the provider speaks itself. */
export interface PassedCall {
  readonly door: DoorName;
  readonly stream: boolean;
  /** `anthropic-beta` of the client; mostly empty. */
  readonly betas: string;
}

/** What goes to the provider. */
export interface ProviderRequest {
  /** With the base path of the settings, and a query. */
  readonly path: string;
  /** Name, value, name, value: authorisation, versions. `content-type` is JSON unless it is here. */
  readonly headers: readonly string[];
  readonly body: string;
}

/** An error of the provider, in words of OpenAI's interface. Thrown as ProviderError. */
export interface ProviderFailure {
  /**
   * A status that means to an OpenAI client what the provider's meant: 400 the request is wrong, 401 and 403
   * our credentials, 404 the model, 413 the size, 429 a limit, 503 overloaded, 500 anything else.
   */
  readonly status: number;
  /** For the caller if the status is 400 or 413, else for nobody. It may still hold secrets. */
  readonly message: string;
  /** OpenAI's word for it, if there is one: `context_length_exceeded`, `model_not_found`. */
  readonly code?: string | undefined;
  readonly retryAfterSeconds?: number | undefined;
}

/**
 * Thrown by readResponse and by a stream, if the provider reports an error inside a 200, or breaks its
 * protocol.
 */
export class ProviderError extends Error {
  readonly failure: ProviderFailure;

  constructor(failure: ProviderFailure) {
    super(failure.message);
    this.failure = failure;
  }

  /** The response is not what the provider's reference says. */
  static invalid(what: string): ProviderError {
    return new ProviderError({ status: 502, message: `invalid response: ${what}` });
  }
}

/** Thrown by write: the request cannot be said in the provider's protocol. Its sender gets 400. */
export class FieldError extends Error {
  /** `field`: the member with its path, as `messages[2].content[0].image_url`. */
  constructor(
    readonly field: string,
    what: string,
  ) {
    super(`${field} ${what}`);
  }
}

/** Turns one stream into events of a chat completion. Bytes may be cut anywhere. */
export interface ProviderStream {
  /**
   * Returns the events that `chunk` completes, as text of server-sent events; empty if none. Throws a
   * ProviderError. What it keeps is bounded: an event is at most SSE_EVENT_BYTES_MAX, or with `heldBytes`
   * UPSTREAM_RESPONSE_BYTES_MAX.
   */
  push(chunk: Uint8Array): string;
  /** Kept of an event that has begun. Above SSE_EVENT_BYTES_MAX they count as those of a whole response. */
  readonly heldBytes?: number;
  /**
   * The provider's response has ended. Returns the last events, with usage and `[DONE]`. Throws a
   * ProviderError.
   */
  end(): string;
}

/** A request whose body is nearly that of the caller. */
export interface PassedRequest extends Omit<ProviderRequest, 'body'> {
  readonly body: string | Uint8Array;
  /** Turns the response into one in the door's protocol; undefined: it is in it, and passes unread. */
  readonly stream?: ProviderStream;
  readonly readResponse?: (body: Buffer) => string;
}

export interface Provider {
  /**
   * Undefined if the provider speaks no door's protocol. `body`: the caller's, with the provider's name of
   * the model; it changes only as far as the provider's path and versions demand. Success passes unread,
   * unless the request says otherwise; errors are read by `readError`. `call` has no members of the body.
   */
  readonly passed?: (call: ProviderCall, body: string | Uint8Array, passed: PassedCall) => PassedRequest;
  /** Throws a FieldError. A promise only if the request is signed. */
  write(call: ProviderCall): ProviderRequest | Promise<ProviderRequest>;
  /**
   * `body`: a whole response with a status of success. Returns the JSON text of a chat completion. Throws a
   * ProviderError.
   */
  readResponse(body: Buffer, call: ProviderCall): string;
  openStream(call: ProviderCall): ProviderStream;
  /** A response with another status. `body` may be cut, empty, or not JSON. Never throws. */
  readError(status: number, header: (name: string) => string | undefined, body: string): ProviderFailure;
}
