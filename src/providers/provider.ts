/**
 * The interface `Provider` of a translator between two protocols: a chat completion becomes a request in the
 * protocol of a provider, and its response, stream and errors become a chat completion. provider-client.ts
 * calls it; each folder beside this file but azure/ and credentials/ implements it. Upstream worker; `write`
 * alone also runs in counter threads, for large bodies.
 *
 *     translated call: UnsignedCall --write--> WrittenRequest; ProviderCall and it --headers--> its headers
 *     passed call:     ProviderCall and PassedCall --writePassed--> PassedRequest
 *
 * Must hold: a translator does no I/O: provider-client.ts has the connections, time limits and credentials.
 * Nothing that a translator caches of one call changes another
 * (test/unit/providers/interleaved-calls.test.ts). The bytes that it keeps of a stream are bounded
 * (test/unit/providers/long-events.test.ts).
 */
import type { DoorName } from '../core/door-names.js';
import type { Members } from '../core/json.js';
import type { ProviderName } from '../core/provider-names.js';
import type { HeaderLookup } from '../http1/http-client.js';
import type { CompletionText } from './chat-writer.js';
import type { ProviderUsage } from './provider-usage.js';

// Codes of HttpFault that this folder gives. upstream/error-mapping.ts says what each means.
/** The provider's protocol cannot express a member of the request. */
export const FIELD_UNSUPPORTED = 'FIELD_UNSUPPORTED';
/** The request could not be written, by a bug. */
export const REQUEST_UNWRITTEN = 'REQUEST_UNWRITTEN';
/** The response breaks the provider's protocol, or a bug kept it from being read. */
export const RESPONSE_INVALID = 'RESPONSE_INVALID';
export const RESPONSE_TOO_LONG = 'RESPONSE_TOO_LONG';
/** The provider reported an error inside a response with a status of success: `reported` of the fault. */
export const ERROR_IN_RESPONSE = 'ERROR_IN_RESPONSE';
/** The gateway renews the upstream's credential, and has none now. */
export const NO_CREDENTIAL = 'NO_CREDENTIAL';

/** Settings of an upstream that does not speak OpenAI's protocol. A plain record, sent between threads. */
export interface ProviderSettings {
  readonly name: ProviderName;
  /** Path of `url`, without a slash at its end; mostly empty. */
  readonly basePath: string;
  /** `host` or `host:port` of the upstream, for signatures. */
  readonly host: string;
  /** `api_version`, or the provider's default. */
  readonly apiVersion: string;
  /** The setting `betas`: beta features that are switched on, by the provider's names. */
  readonly betas: readonly string[];
  /** `region`; empty if the provider has none. */
  readonly region: string;
  /** `project`; empty if the provider has none. */
  readonly project: string;
  /** The setting `drop_unsupported`: members that the provider lacks are left out, instead of a 400. */
  readonly dropUnsupported: boolean;
  /** `max_output_tokens` of the model, sent if the caller sets no bound and the provider requires one. */
  readonly outputTokensMax: number;
  /** Position of a Credential in Credentials; undefined if the upstream has a key, or needs none. */
  readonly credential: number | undefined;
}

/**
 * What authorises a call: a key of the settings, or what the gateway renews. An object never changes: a
 * renewed credential is a new one.
 */
export type Credential =
  | { readonly kind: 'key'; readonly key: string }
  | { readonly kind: 'bearer'; readonly token: string }
  | {
      readonly kind: 'aws';
      readonly accessKeyId: string;
      readonly secretAccessKey: string;
      readonly sessionToken: string | undefined;
    };

/**
 * The header that authorises a call, its name and its value: a key in `keyHeader`, a token in
 * `authorization`. Empty without a credential: then an operator's proxy may add one, or the settings have it.
 * The kind `aws` is Bedrock's alone, which signs.
 */
export function authorizationOf(credential: Credential | undefined, keyHeader: string): readonly string[] {
  if (credential?.kind === 'key') return [keyHeader, credential.key];
  return credential?.kind === 'bearer' ? ['authorization', `Bearer ${credential.token}`] : [];
}

/** The credentials that the gateway renews, as an upstream worker has them. */
export interface Credentials {
  /** The present credential of that position (credential-spec.ts); undefined if there is none now. */
  credentialAt(position: number): Credential | undefined;
  /** Call if the provider rejects the credential: then credential-keeper.ts renews the credential early. */
  rejected(position: number, credential: Credential): void;
  /** Returns a provider's text without the credential and its parts. */
  withoutSecrets(credential: Credential, text: string): string;
}

/** A call without its credential. The body of its request depends on nothing else. */
export interface UnsignedCall {
  readonly settings: ProviderSettings;
  /**
   * The body of the chat completion. The door has checked the members of protocol/chat-schema.ts alone: a
   * provider must check every other member that it reads (fields.ts).
   */
  readonly body: Members;
  /** The provider's own name of the model. */
  readonly model: string;
  readonly stream: boolean;
  readonly requestId: string;
  /** Unix milliseconds, as of the attempt's start. */
  readonly nowMs: number;
}

/** One call, as a provider sees it. */
export interface ProviderCall extends UnsignedCall {
  /** Undefined if the upstream needs no credential. */
  readonly credential: Credential | undefined;
}

/** A call whose body is in the protocol of a door that the provider speaks itself. */
export interface PassedCall {
  readonly door: DoorName;
  readonly stream: boolean;
  /** The caller's header `anthropic-beta`; mostly empty. The betas of `settings.betas` are sent too. */
  readonly betas: string;
}

/** What `Provider.write` returns: a request without headers. */
export interface WrittenRequest {
  /** The path with the base path of the settings, and the query if there is one. */
  readonly path: string;
  readonly body: string;
}

/** What `Provider.headers` gets: a WrittenRequest, whose body a counter thread may have turned into bytes. */
export interface UnsignedRequest {
  readonly path: string;
  readonly body: string | Uint8Array;
  /** SHA-256 of the body in hexadecimal. If undefined, `headers` computes the hash if it needs it. */
  readonly bodyHash?: string | undefined;
}

/**
 * `ProviderFailure.status` of a response that breaks the protocol. No translator gives it to an error that a
 * provider reports inside a response, so translated-call.ts tells the two apart by it.
 */
export const INVALID_STATUS = 502;
/** `ProviderFailure.status` if the model cannot count tokens: then upstream/count-session.ts counts them. */
export const UNCOUNTED_STATUS = 501;

/** An error of the provider in terms of OpenAI's API. Thrown as ProviderError. */
export interface ProviderFailure {
  /**
   * The status that OpenAI's API would send. 400: the request is wrong; 401 to 403: the operator's
   * credentials or account are wrong; 404: no such model; 413: too large; 429: a limit is reached; 503:
   * overloaded; mostly 500 for anything else. INVALID_STATUS and UNCOUNTED_STATUS are our own.
   */
  readonly status: number;
  /** Callers see the message if the status is 400 or 413. upstream/ removes secrets from the message. */
  readonly message: string;
  /** OpenAI's error code, if there is one: `context_length_exceeded`, `model_not_found`. */
  readonly code?: string | undefined;
  /** A wait that the body asks for. Without one the header `Retry-After` counts (translated-call.ts). */
  readonly retryAfterSeconds?: number | undefined;
}

/**
 * Thrown by readResponse and by a stream, if the provider reports an error inside a 200, or breaks its
 * protocol. Doors throw it too, for a chat completion that they cannot express.
 */
export class ProviderError extends Error {
  readonly failure: ProviderFailure;

  constructor(failure: ProviderFailure) {
    super(failure.message);
    this.failure = failure;
  }

  /** The error for a response that breaks the provider's protocol. */
  static invalid(reason: string): ProviderError {
    return new ProviderError({ status: INVALID_STATUS, message: `invalid response: ${reason}` });
  }
}

/**
 * Thrown by `write`, and by a door's `toChat`: the protocol cannot express the request. If no other upstream
 * of the model can, the caller gets 400 with this message.
 */
export class FieldError extends Error {
  /** `field`: path of the member, as `messages[2].content[0].image_url`. `reason`: ends the sentence. */
  constructor(
    readonly field: string,
    reason: string,
  ) {
    super(`${field} ${reason}`);
  }
}

/**
 * Translates one stream into events of a chat completion. Chunks may be cut anywhere. After `end`, or once a
 * method has thrown, only `usageSoFar` is read (translated-call.ts).
 */
export interface ProviderStream {
  /**
   * Returns the events that `chunk` completes, as text of server-sent events; empty if none. Throws a
   * ProviderError. The memory of a stream is bounded: an event has at most SSE_EVENT_BYTES_MAX bytes, or
   * UPSTREAM_RESPONSE_BYTES_MAX if the stream has `bufferBytes`.
   */
  push(chunk: Uint8Array): string;
  /** Buffer of an unfinished event. Above SSE_EVENT_BYTES_MAX the budget of responses counts it. */
  readonly bufferBytes?: number;
  /**
   * The usage that the provider has reported so far; undefined if none. The usage is read at most once a
   * call, if the client leaves or the stream breaks off, and may lack the tokens of the completion.
   */
  readonly usageSoFar?: ProviderUsage | undefined;
  /** Returns the last events, with usage and `[DONE]`. Throws a ProviderError if the stream was cut. */
  end(): string;
}

/**
 * How a response with a status of success is translated: for a translated call by the methods of its
 * Provider. If the method for a stream, or for a whole response, is absent, such a response passes as it is.
 */
export interface ResponseReader {
  readonly openStream?: (call: ProviderCall) => ProviderStream;
  /** A string is in the protocol of a passed call's door. */
  readonly readResponse?: (body: Buffer, call: ProviderCall) => CompletionText | string;
}

/**
 * The request of a passed call: the caller's body, but for members that the provider wants elsewhere; and how
 * the response becomes one of the door's protocol, if it is not one already.
 */
export interface PassedRequest extends UnsignedRequest, ResponseReader {
  /** Name, value, name, value: authorisation, versions. `content-type` is JSON unless it is here. */
  readonly headers: readonly string[];
}

/**
 * What a folder of a provider exports. A method that throws anything but the errors named here has a bug,
 * which ends only its own call (translated-call.ts).
 */
export interface Provider {
  /**
   * Makes the request of a passed call. Absent if the provider speaks no door's protocol. `body`: the
   * caller's, with the provider's name of the model; `call.body` and `call.model` are empty. `readError`
   * reads errors.
   */
  readonly writePassed?: (call: ProviderCall, body: string | Uint8Array, passed: PassedCall) => PassedRequest;
  /** Translates the request. Throws a FieldError. Pure and without a credential: any thread may call it. */
  write(call: UnsignedCall): WrittenRequest;
  /** The headers of a request that `write` wrote: authorisation, versions. */
  headers(call: ProviderCall, request: UnsignedRequest): readonly string[];
  /** Whether `headers` uses the hash of the body. A thread that writes a large body then computes it. */
  readonly signsBody?: true;
  /** Translates a response with a status of success that is not streamed. Throws a ProviderError. */
  readResponse(body: Buffer, call: ProviderCall): CompletionText;
  /** Makes the translator of one streamed response. */
  openStream(call: ProviderCall): ProviderStream;
  /** Reads a response whose status is no success. `body` may be cut, empty, or not JSON. Never throws. */
  readError(status: number, header: HeaderLookup, body: string): ProviderFailure;
}
