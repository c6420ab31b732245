/**
 * Wraps the handler of a call that passes untranslated, but with a credential that the gateway renews (Azure
 * with a token of Entra). It reports a credential that the provider rejects, and removes the credential from
 * an error's body. provider-client.ts makes one for each such call. Upstream worker.
 *
 * Must hold: the body of an error reaches the handler whole, after the credential was removed from it
 * (test/unit/providers/credentials/watched-handler.test.ts).
 */
import type { HttpFault, HttpHandler } from '../../http1/http-client.js';
import type { Credential, Credentials } from '../provider.js';

/** Chunks of an error's body beyond this are dropped. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;

export class WatchedHandler implements HttpHandler {
  readonly #handler: HttpHandler;
  readonly #credentials: Credentials;
  readonly #position: number;
  readonly #credential: Credential;
  /** The body of an error so far; undefined for a success, whose chunks pass at once. */
  #chunks: Uint8Array[] | undefined;
  #bytes = 0;

  constructor(handler: HttpHandler, credentials: Credentials, position: number, credential: Credential) {
    this.#handler = handler;
    this.#credentials = credentials;
    this.#position = position;
    this.#credential = credential;
  }

  onStart(status: number, header: (name: string) => string | undefined): void {
    if (status === 401) this.#credentials.rejected(this.#position, this.#credential);
    if (status < 200 || status > 299) this.#chunks = [];
    this.#handler.onStart(status, header);
  }

  onData(chunk: Uint8Array): void {
    if (this.#chunks === undefined) {
      this.#handler.onData(chunk);
      return;
    }
    this.#bytes += chunk.length;
    if (this.#bytes <= ERROR_BODY_BYTES_MAX) this.#chunks.push(chunk);
  }

  onEnd(): void {
    if (this.#chunks !== undefined) {
      const body = Buffer.concat(this.#chunks).toString('utf8');
      this.#handler.onData(Buffer.from(this.#credentials.cleaned(this.#credential, body)));
    }
    this.#handler.onEnd();
  }

  onError(fault: HttpFault): void {
    this.#handler.onError(fault);
  }
}
