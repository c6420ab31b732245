/**
 * Wraps the handler of a call to Azure with a token of Entra. Nobody translates the response of such a call,
 * but the gateway renews its credential. Reports a credential that Azure rejects, and removes the credential
 * from the body of an error. provider-client.ts makes one for each such call; the HTTP client calls its `on…`
 * methods. Upstream worker.
 *
 * Must hold: the body of an error is buffered, within ERROR_BODY_BYTES_MAX, and reaches the handler in one
 * piece after the credential was removed from it (also test/unit/upstream/credential-table.test.ts).
 */
import { isRecord, parsedJson } from '../core/json.js';
import { UPSTREAM_MESSAGE_CHARS_MAX } from '../core/limits.js';
import type { HeaderLookup, HttpCall, HttpFault, HttpHandler } from '../http1/http-client.js';
import type { Credential, Credentials } from './provider.js';
import { ERROR_BODY_BYTES_MAX } from './translated-call.js';

export class RenewedCredentialHandler implements HttpHandler {
  readonly #handler: HttpHandler;
  readonly #credentials: Credentials;
  readonly #credentialPosition: number;
  readonly #credential: Credential;
  /** The body of an error so far; undefined for a success, whose chunks pass at once. */
  #chunks: Uint8Array[] | undefined;
  #bytes = 0;
  #httpCall: HttpCall | undefined;
  /** Set if the body of an error was too long: the call was aborted, and the handler has got its `onEnd`. */
  #isOver = false;

  constructor(handler: HttpHandler, credentials: Credentials, position: number, credential: Credential) {
    this.#handler = handler;
    this.#credentials = credentials;
    this.#credentialPosition = position;
    this.#credential = credential;
  }

  /** Call once, right after the HTTP client's `start`: a long body of an error aborts `httpCall`. */
  setHttpCall(httpCall: HttpCall): void {
    this.#httpCall = httpCall;
  }

  onStart(status: number, header: HeaderLookup): void {
    if (status === 401) this.#credentials.rejected(this.#credentialPosition, this.#credential);
    if (status < 200 || status > 299) this.#chunks = [];
    this.#handler.onStart(status, header);
  }

  onData(chunk: Uint8Array): void {
    if (this.#chunks === undefined) {
      this.#handler.onData(chunk);
      return;
    }
    if (this.#isOver) return;
    this.#bytes += chunk.length;
    if (this.#bytes <= ERROR_BODY_BYTES_MAX) this.#chunks.push(chunk);
    else {
      this.#isOver = true;
      this.#httpCall?.abort();
      this.#relayErrorBody();
      this.#handler.onEnd();
    }
  }

  onEnd(): void {
    if (this.#isOver) return;
    this.#relayErrorBody();
    this.#handler.onEnd();
  }

  onError(fault: HttpFault): void {
    if (this.#isOver) return;
    // What has come of an error's body says more than the fault of the connection.
    this.#relayErrorBody();
    this.#handler.onError(fault);
  }

  /** Gives the body of an error to the handler; does nothing for a success. */
  #relayErrorBody(): void {
    if (this.#chunks === undefined) return;
    const body = Buffer.concat(this.#chunks).toString('utf8');
    this.#chunks = [];
    if (body === '') return;
    const text = this.#credentials.withoutSecrets(this.#credential, shortened(body));
    this.#handler.onData(Buffer.from(text));
  }
}

/**
 * Returns as much of an error's body as upstream/error-mapping.ts reads, in the form of OpenAI's API. The
 * body is shortened before it is cleaned, because to clean 64 KB of short words takes 0.3 s.
 */
function shortened(body: string): string {
  const members = parsedJson(body);
  if (!isRecord(members)) return body.slice(0, UPSTREAM_MESSAGE_CHARS_MAX);
  const { error } = members;
  if (!isRecord(error)) return JSON.stringify({ error: shortenedText(error) });
  const { message, type, code } = error;
  return JSON.stringify({
    error: { message: shortenedText(message), type: shortenedText(type), code: shortenedText(code) },
  });
}

function shortenedText(value: unknown): unknown {
  return typeof value === 'string' ? value.trim().slice(0, UPSTREAM_MESSAGE_CHARS_MAX) : undefined;
}
