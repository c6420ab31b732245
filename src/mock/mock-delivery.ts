/**
 * Sends one response of the mock with its pauses, back-pressure and ending, and counts it. mock-upstream.ts
 * makes one for each request. Writes without a pause between them are corked, so a non-streamed response and
 * a fast stream are one system call each.
 *
 * Must hold: `aborted` counts only clients that left (test/unit/mock/mock-upstream.test.ts).
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Response } from './mock-completion.js';

/** What the mock saw, for assertions: counters since the start or the last reset. */
export interface MockStats {
  /** Chat requests, counted when their headers come. */
  requests: number;
  /** Chat requests that are not finished. */
  open: number;
  /** Chat requests whose client left before the response was through. */
  aborted: number;
  /** When a client last left early, in milliseconds since 1970; null if none did. */
  lastAbortMs: number | null;
  /** Bytes of responses handed to the socket. */
  sentBytes: number;
  /** The last chat request; null before the first, and without `--record`. */
  last: { headers: Record<string, string>; body: string } | null;
}

export function createMockStats(): MockStats {
  return { requests: 0, open: 0, aborted: 0, lastAbortMs: null, sentBytes: 0, last: null };
}

/** Sets the counters to zero; `open` is a state and stays. */
export function resetMockStats(stats: MockStats): void {
  Object.assign(stats, { ...createMockStats(), open: stats.open });
}

const STATUS_TEXTS: Readonly<Record<number, string>> = { 200: '200 OK', 400: '400 Bad Request' };

const NOTHING = new Uint8Array(0);

export class Delivery {
  readonly #response: HttpResponse;
  readonly #stats: MockStats;
  #timer: NodeJS.Timeout | undefined;
  #next = 0;
  #over = false;

  /** Attaches the abort handler, so it must be made in the request's first callback. */
  constructor(response: HttpResponse, stats: MockStats) {
    this.#response = response;
    this.#stats = stats;
    stats.requests += 1;
    stats.open += 1;
    response.onAborted(() => this.#aborted());
  }

  /** True if nothing more can be sent. */
  get over(): boolean {
    return this.#over;
  }

  /** Sends `answer` with pauses before its first byte and after each piece. To be called once. */
  send(response: Response, firstByteMs: number, chunkMs: number): void {
    if (firstByteMs === 0) this.#begin(response, chunkMs);
    else this.#timer = setTimeout(() => this.#begin(response, chunkMs), firstByteMs);
  }

  #begin(response: Response, chunkMs: number): void {
    this.#response.cork(() => {
      if (response.headers) this.#writeHead(response);
      if (response.lengthBytes === undefined) this.#pump(response, chunkMs);
      else this.#sendSized(response, response.lengthBytes);
    });
  }

  #writeHead(response: Response): void {
    this.#response.writeStatus(STATUS_TEXTS[response.status] ?? `${response.status} Mock`);
    this.#response.writeHeader('content-type', response.contentType);
    const { moreHeaders } = response;
    for (let at = 0; at < moreHeaders.length; at += 2)
      this.#response.writeHeader(moreHeaders[at]!, moreHeaders[at + 1]!);
    if (response.retryAfter !== undefined) this.#response.writeHeader('retry-after', response.retryAfter);
  }

  /** Sends one piece, or none, of a response with a Content-Length. */
  #sendSized(response: Response, lengthBytes: number): void {
    const piece = response.pieces[0] ?? NOTHING;
    this.#stats.sentBytes += piece.length;
    if (response.ending === 'end') {
      this.#finished();
      this.#response.end(piece);
    } else {
      this.#response.tryEnd(piece, lengthBytes);
      this.#finish(response);
    }
  }

  /** Sends pieces of a chunked response as far as the socket takes them. */
  #pump(response: Response, chunkMs: number): void {
    while (this.#next < response.pieces.length) {
      const piece = response.pieces[this.#next]!;
      this.#next += 1;
      this.#stats.sentBytes += piece.length;
      const taken = this.#response.write(piece);
      if (chunkMs > 0) {
        this.#timer = setTimeout(() => this.#response.cork(() => this.#pump(response, chunkMs)), chunkMs);
        return;
      }
      if (!taken) {
        this.#response.onWritable(() => {
          if (!this.#over) this.#pump(response, chunkMs);
          return true;
        });
        return;
      }
    }
    this.#finish(response);
  }

  #finish(response: Response): void {
    if (response.ending === 'end') {
      this.#finished();
      this.#response.end();
    } else if (response.ending === 'reset') {
      // Closing at once would lose the corked bytes.
      setImmediate(() => {
        if (this.#over) return;
        this.#finished();
        this.#response.close();
      });
    }
    // A response that stalls waits for its client to leave.
  }

  #finished(): void {
    this.#over = true;
    this.#stats.open -= 1;
  }

  #aborted(): void {
    if (this.#over) return;
    this.#finished();
    clearTimeout(this.#timer);
    this.#stats.aborted += 1;
    this.#stats.lastAbortMs = Date.now();
  }
}
