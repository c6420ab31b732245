/**
 * The delivery of one response by the mock: its head (status and headers), its pieces with their pauses and
 * back-pressure, and its ending; and the counts of what happened (MockStats). mock-upstream.ts makes a
 * Delivery for each call, and so does bench/load/parts/canned-upstream.ts. One thread.
 *
 * Must hold: `aborted` counts only clients that left (test/unit/mock/mock-upstream.test.ts).
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { MockResponse } from './mock-completion.js';

/** What happened at the mock, for assertions of tests: counts since the start or the last reset. */
export interface MockStats {
  /** Calls, counted when their headers come. */
  requests: number;
  open: number;
  /** Calls whose client left before the response was sent. */
  aborted: number;
  /** When a client last left early, in milliseconds since 1970; null if none did. */
  lastAbortMs: number | null;
  sentBytes: number;
  /** The last call; null before the first, and without `--record`. */
  last: { headers: Record<string, string>; body: string } | null;
}

export function createMockStats(): MockStats {
  return { requests: 0, open: 0, aborted: 0, lastAbortMs: null, sentBytes: 0, last: null };
}

/** Sets the counters to zero; `open` stays, because these calls go on. */
export function resetMockStats(stats: MockStats): void {
  Object.assign(stats, { ...createMockStats(), open: stats.open });
}

const STATUS_TEXTS: Readonly<Record<number, string>> = { 200: '200 OK', 400: '400 Bad Request' };

const NO_BYTES = new Uint8Array(0);

/**
 * Writes without a pause between them are corked, so a response that is not streamed is one system call, and
 * so is a fast stream.
 */
export class Delivery {
  readonly #response: HttpResponse;
  readonly #stats: MockStats;
  #timer: NodeJS.Timeout | undefined;
  #nextPiece = 0;
  #isOver = false;

  /** To be called in the request's first callback: µWS wants the abort handler by then. */
  constructor(response: HttpResponse, stats: MockStats) {
    this.#response = response;
    this.#stats = stats;
    stats.requests += 1;
    stats.open += 1;
    response.onAborted(() => this.#aborted());
  }

  /** Whether nothing more can be sent: the response has ended or was cut, or the client has left. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Sends `response` with pauses before its first byte and after each piece. To be called once. */
  send(response: MockResponse, firstByteMs: number, chunkMs: number): void {
    if (firstByteMs === 0) this.#begin(response, chunkMs);
    else this.#timer = setTimeout(() => this.#begin(response, chunkMs), firstByteMs);
  }

  #begin(response: MockResponse, chunkMs: number): void {
    this.#response.cork(() => {
      if (response.hasHead) this.#writeHead(response);
      if (response.lengthBytes === undefined) this.#sendMore(response, chunkMs);
      else this.#sendSized(response, response.lengthBytes);
    });
  }

  #writeHead(response: MockResponse): void {
    this.#response.writeStatus(STATUS_TEXTS[response.status] ?? `${response.status} Mock`);
    this.#response.writeHeader('content-type', response.contentType);
    const { moreHeaders } = response;
    for (let index = 0; index < moreHeaders.length; index += 2)
      this.#response.writeHeader(moreHeaders[index]!, moreHeaders[index + 1]!);
    if (response.retryAfter !== undefined) this.#response.writeHeader('retry-after', response.retryAfter);
  }

  /** Sends the only piece, if there is one, of a response with a Content-Length. */
  #sendSized(response: MockResponse, lengthBytes: number): void {
    const piece = response.pieces[0] ?? NO_BYTES;
    this.#stats.sentBytes += piece.length;
    if (response.ending === 'end') {
      this.#markOver();
      this.#response.end(piece);
    } else {
      // Unlike `end`, leaves the response open if it has fewer bytes than its Content-Length.
      this.#response.tryEnd(piece, lengthBytes);
      this.#finish(response);
    }
  }

  #sendMore(response: MockResponse, chunkMs: number): void {
    while (this.#nextPiece < response.pieces.length) {
      const piece = response.pieces[this.#nextPiece]!;
      this.#nextPiece += 1;
      this.#stats.sentBytes += piece.length;
      const isTaken = this.#response.write(piece);
      if (chunkMs > 0) {
        this.#timer = setTimeout(() => this.#response.cork(() => this.#sendMore(response, chunkMs)), chunkMs);
        return;
      }
      if (!isTaken) {
        this.#response.onWritable(() => {
          if (!this.#isOver) this.#sendMore(response, chunkMs);
          return true;
        });
        return;
      }
    }
    this.#finish(response);
  }

  #finish(response: MockResponse): void {
    if (response.ending === 'end') {
      this.#markOver();
      this.#response.end();
    } else if (response.ending === 'reset') {
      // Closing within `cork` would lose the corked bytes.
      setImmediate(() => this.cut());
    }
    // A response that stalls waits for its client to leave.
  }

  /** Closes the connection, unless the delivery is over: µWS allows no use of such a response. */
  cut(): void {
    if (this.#isOver) return;
    this.#markOver();
    clearTimeout(this.#timer);
    this.#response.close();
  }

  #markOver(): void {
    this.#isOver = true;
    this.#stats.open -= 1;
  }

  #aborted(): void {
    if (this.#isOver) return;
    this.#markOver();
    clearTimeout(this.#timer);
    this.#stats.aborted += 1;
    this.#stats.lastAbortMs = Date.now();
  }
}
