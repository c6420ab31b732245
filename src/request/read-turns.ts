/**
 * Bounds what large bodies and new connections take of one turn of a listener's event loop. µWS reads up to
 * half a megabyte of each connection that has bytes, and the first request of each new one, however many
 * they are. With 200 bodies of 10 MB at once turns took 60 to 130 ms, and each small call waits for four of
 * them. Beyond its share of a turn a connection is paused until it is its turn again. Connections has one
 * for new connections, Intake those of BodyTurns; listener thread.
 *
 * Must hold: whoever was paused is resumed, first come, first served, unless its client has left. Who
 * has left is not touched: µWS has freed it (test/unit/request/read-turns.test.ts, connections.test.ts).
 */
import type { HttpResponse } from 'uWebSockets.js';

/** Bytes of large bodies that a turn may bring: some 2 ms, with the copies. A sender alone stays below it. */
const BODY_BYTES_A_TURN = 2 * 1024 * 1024;
/** As many as may bring that: µWS reads up to half a megabyte of each. */
const BODIES_RESUMED_A_TURN = 4;
/**
 * Large bodies that are rejected in a turn before they have come. That takes some 0.4 ms, as much again as
 * to read what has come of them: most of it to reset the connection, if it ends.
 */
const REJECTIONS_A_TURN = 4;

type Readable = Pick<HttpResponse, 'pause' | 'resume'>;

export class ReadTurns {
  readonly #amountMax: number;
  readonly #resumedMax: number;
  /** Paused, the first one first, with what is to be done when it is its turn. */
  readonly #waiting = new Map<Readable, (() => void) | undefined>();
  /** What this turn has brought. */
  #amount = 0;
  #awaitsEnd = false;

  /** A turn may bring `amountMax`, as may `resumedMax` connections, which are resumed at its end. */
  constructor(amountMax: number, resumedMax: number) {
    this.#amountMax = amountMax;
    this.#resumedMax = resumedMax;
  }

  /**
   * The connection has brought `amount`, and more is to come. True if it was paused; `then` is called when it
   * has been resumed.
   */
  take(res: Readable, amount: number, then?: () => void): boolean {
    this.#amount += amount;
    if (!this.#awaitsEnd) this.#awaitEnd();
    if (this.#amount <= this.#amountMax && this.#waiting.size === 0) return false;
    this.#waiting.set(res, then);
    res.pause();
    return true;
  }

  /** The connection waits for nothing more. It is read on, unless its client has left. */
  leave(res: Readable, clientGone: boolean): void {
    if (this.#waiting.size > 0 && this.#waiting.delete(res) && !clientGone) res.resume();
  }

  /** µWS has read its sockets when it runs. The next time it finds those that are resumed here. */
  #awaitEnd(): void {
    this.#awaitsEnd = true;
    setImmediate(() => {
      this.#amount = 0;
      this.#awaitsEnd = false;
      let resumed = 0;
      for (const [res, then] of this.#waiting) {
        if (++resumed > this.#resumedMax) break;
        this.#waiting.delete(res);
        res.resume();
        then?.();
      }
      if (this.#waiting.size > 0) this.#awaitEnd();
    });
  }
}

/** The turns of large bodies. */
export class BodyTurns {
  readonly #reads = new ReadTurns(BODY_BYTES_A_TURN, BODIES_RESUMED_A_TURN);
  readonly #rejections = new ReadTurns(REJECTIONS_A_TURN, REJECTIONS_A_TURN);

  /** So many bytes of a body have come, and more are to come. */
  onBytes(res: Readable, bytes: number): void {
    this.#reads.take(res, bytes);
  }

  /** Calls `reject` now or, unless the client leaves before, in a later turn. Nothing is read meanwhile. */
  reject(res: Readable, reject: () => void): void {
    this.#reads.leave(res, false);
    if (!this.#rejections.take(res, 1, reject)) reject();
  }

  /** Before a response, and when the client has left. The rest of a rejected body is discarded. */
  leave(res: Readable, clientGone: boolean): void {
    this.#reads.leave(res, clientGone);
    this.#rejections.leave(res, clientGone);
  }
}
