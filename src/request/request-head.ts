/**
 * Reads a request's headers in one pass, and rejects a head that another HTTP parser would read differently
 * (request smuggling). listener-server.ts has one RequestHead and fills it; intake.ts reads it. rejections.ts
 * uses `shown`. Listener thread, but `createRequestPrefix`: gateway/listeners.ts calls it on the main thread.
 *
 * µWebSockets.js (µWS) takes the first of several headers of one name, and any `Transfer-Encoding` for
 * `chunked`. A proxy in front that takes the last header, or knows the coding, would see the body end
 * elsewhere. Then one caller's body would become another's request. So `read` uses `forEach` of µWS (1.4 µs
 * for the sixteen headers of an SDK): `getHeader` hides a second header and an empty one. Lists are joined. A
 * second Host is rejected, and a second key or length that differs. The last Origin and traceparent count.
 *
 * Must hold: each `read` sets all fields, or one caller's header becomes another's. Nobody keeps the object
 * beyond the callback of µWS (test/hostile/framing.test.ts). All headers together have at most 16 KiB, which
 * supervisor/gateway-process.ts tells µWS.
 */
import { randomBytes } from 'node:crypto';
import type { HttpRequest } from 'uWebSockets.js';
import type { ErrorRecord } from '../core/errors.js';
import { clipped } from '../core/wrong-input.js';

const DIGITS = /^[0-9]+$/;
/** JavaScript numbers are exact up to this many digits; intake.ts reads the length as a number. */
const LENGTH_DIGITS_MAX = 15;
/** Bound of all `anthropic-beta` headers together, which are sent to the upstream. */
const BETAS_CHARS_MAX = 1024;
/** The ASCII characters from the space to `~`: so no line break gets into the upstream's request. */
const PRINTABLE = /^[ -~]*$/;
/** How much of a wrong value a message repeats. */
const SHOWN_CHARS_MAX = 60;

/** One object serves all requests of a listener: its fields are valid until the next `read`. */
export class RequestHead {
  // A missing header leaves its field empty, or undefined if the field's type has undefined.
  /** If it is missing: `Bearer` and the value of `x-api-key`, which Anthropic's clients send instead. */
  authorization = '';
  idempotencyKey: string | undefined;
  contentEncoding: string | undefined;
  cacheControl: string | undefined;
  traceParent = '';
  /** `anthropic-beta`: names of Anthropic's beta features, for an upstream that knows them. */
  betas = '';
  origin: string | undefined;
  contentLength: string | undefined;
  transferEncoding: string | undefined;
  #apiKey = '';
  #hosts = 0;
  /** The message about the last wrong header that `read` has met. */
  #error: string | undefined;
  readonly #visit = (name: string, value: string): void => this.#takeHeader(name, value);

  /** Reads all headers of a request. Call it first in each callback of µWS for a new request. */
  read(req: HttpRequest): void {
    this.authorization = this.#apiKey = this.traceParent = this.betas = '';
    this.idempotencyKey = this.contentEncoding = this.origin = this.cacheControl = undefined;
    this.contentLength = this.transferEncoding = this.#error = undefined;
    this.#hosts = 0;
    req.forEach(this.#visit);
    if (this.authorization === '' && this.#apiKey !== '') this.authorization = `Bearer ${this.#apiKey}`;
  }

  /**
   * Whether the body comes in chunks. Then the response ends the connection: µWS reads the sizes of chunks
   * laxly, so what follows the body cannot be trusted.
   */
  get isChunked(): boolean {
    return this.transferEncoding !== undefined;
  }

  /** Returns the rejection of a malformed or ambiguous head. Its response must end the connection. */
  rejection(): ErrorRecord | undefined {
    const message = this.#errorText();
    return message === undefined ? undefined : { code: 'invalid_parameters', message };
  }

  /**
   * Compares lengths first, so that most names are not compared at all: each `case` is the length of the
   * names below it. `name` is in lower case.
   */
  #takeHeader(name: string, value: string): void {
    switch (name.length) {
      case 4:
        if (name === 'host') this.#hosts += 1;
        return;
      case 6:
        if (name === 'origin') this.origin = value;
        return;
      case 9:
        if (name === 'x-api-key') this.#apiKey = this.#takeCredential(name, this.#apiKey, value);
        return;
      case 11:
        if (name === 'traceparent') this.traceParent = value;
        return;
      case 13:
        if (name === 'authorization')
          this.authorization = this.#takeCredential(name, this.authorization, value);
        else if (name === 'cache-control') this.cacheControl = joined(this.cacheControl, value);
        return;
      case 14:
        if (name === 'content-length') this.#takeLength(value);
        else if (name === 'anthropic-beta') this.#takeBetas(value);
        return;
      case 15:
        if (name === 'idempotency-key') this.idempotencyKey = joined(this.idempotencyKey, value);
        return;
      case 16:
        if (name === 'content-encoding') this.contentEncoding = joined(this.contentEncoding, value);
        return;
      case 17:
        if (name === 'transfer-encoding') this.transferEncoding = joined(this.transferEncoding, value);
    }
  }

  /**
   * Returns the value of a header that must not have two values, because another parser may take the other
   * one. The message repeats neither value: they are keys.
   */
  #takeCredential(name: string, earlier: string, value: string): string {
    if (earlier !== '' && value !== '' && earlier !== value)
      this.#error = `${name} must be sent once, got two different values.`;
    return earlier || value;
  }

  #takeBetas(value: string): void {
    this.betas = this.betas === '' ? value : joined(this.betas, value);
    if (this.betas.length > BETAS_CHARS_MAX || !PRINTABLE.test(this.betas))
      this.#error = `anthropic-beta must have at most ${BETAS_CHARS_MAX} printable characters, got ${shown(value)}.`;
  }

  #takeLength(value: string): void {
    if (this.contentLength !== undefined && this.contentLength !== value)
      this.#error = `Content-Length must be sent once, got ${shown(this.contentLength)} and ${shown(value)}.`;
    this.contentLength = value;
  }

  #errorText(): string | undefined {
    if (this.#error !== undefined) return this.#error;
    if (this.#hosts > 1) return 'Host must be sent once.';
    const { contentLength: length, transferEncoding: coding } = this;
    if (length !== undefined && (length.length > LENGTH_DIGITS_MAX || !DIGITS.test(length)))
      return `Content-Length must be a whole number of at most ${LENGTH_DIGITS_MAX} digits, got ${shown(length)}.`;
    if (coding === undefined) return undefined;
    if (length !== undefined) return 'Transfer-Encoding and Content-Length must not be sent together.';
    if (coding.toLowerCase() === 'chunked') return undefined;
    return `Transfer-Encoding must be "chunked" or absent, got ${shown(coding)}.`;
  }
}

/** Joins several headers of one name to one list (RFC 9110 §5.3). */
function joined(earlier: string | undefined, value: string): string {
  return earlier === undefined ? value : `${earlier}, ${value}`;
}

/** Returns a header's value as messages show it: quoted, and cut after SHOWN_CHARS_MAX with `…`. */
export function shown(value: string): string {
  return JSON.stringify(clipped(value, SHOWN_CHARS_MAX));
}

/** 72 random bits: two listeners never get the same prefix, whatever the hosts. */
const PREFIX_BYTES = 9;

/** Returns a listener's own prefix of request ids. telemetry/call-record.ts appends a request's number. */
export function createRequestPrefix(): string {
  return `req_${randomBytes(PREFIX_BYTES).toString('base64url')}-`;
}
