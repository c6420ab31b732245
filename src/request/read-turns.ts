/**
 * Keeps a listener's event-loop turns short: beyond a bound, connections that bring large bodies, and new
 * connections, are paused and resumed in later turns. connections.ts has a ReadTurns for new connections,
 * intake.ts uses BodyTurns for large bodies; listener thread.
 *
 * In one turn µWS reads up to half a megabyte of each connection that has bytes, and the first request of
 * each new connection, however many there are. With 200 bodies of 10 MB at once turns took 60 to 130 ms, and
 * a small call needs four turns.
 *
 * Must hold (also test/unit/request/connections.test.ts):
 * - A paused connection is resumed, first come, first served, unless its client has left.
 * - No method of a response is called once its client has left, because µWS has freed the response. So
 *   whoever may pause a connection calls `leave` when its client leaves.
 */
import type { HttpResponse } from 'uWebSockets.js';

/**
 * Bytes of bodies that a turn may bring: some 2 ms, with the copies. One sender alone brings less, so it is
 * never paused.
 */
const BODY_BYTES_A_TURN = 2 * 1024 * 1024;
/** So many bodies bring BODY_BYTES_A_TURN in a turn: µWS reads up to half a megabyte of each. */
const BODIES_RESUMED_A_TURN = 4;
/**
 * Bodies that are rejected in a turn before all of their bytes have come. A rejection takes some 0.4 ms,
 * mostly to reset the connection.
 */
const REJECTIONS_A_TURN = 4;

type Readable = Pick<HttpResponse, 'pause' | 'resume'>;

/** Pauses the connections that come after a turn has brought enough. */
export class ReadTurns {
  readonly #amountMax: number;
  readonly #resumedMax: number;
  /** Paused connections, oldest first, each with its `onResumed`. The open connections bound the map. */
  readonly #paused = new Map<Readable, (() => void) | undefined>();
  /** How much this turn has brought. */
  #amount = 0;
  #awaitsEnd = false;

  /** A turn may bring `amountMax`, in the unit of `take`. At its end up to `resumedMax` connections go on. */
  constructor(amountMax: number, resumedMax: number) {
    this.#amountMax = amountMax;
    this.#resumedMax = resumedMax;
  }

  /**
   * The connection has brought `amount`, and more is to come. Returns whether the connection was paused. If
   * so, `onResumed` is called when it is resumed.
   */
  take(res: Readable, amount: number, onResumed?: () => void): boolean {
    this.#amount += amount;
    if (!this.#awaitsEnd) this.#awaitEnd();
    if (this.#amount <= this.#amountMax && this.#paused.size === 0) return false;
    this.#paused.set(res, onResumed);
    res.pause();
    return true;
  }

  /** Resumes the connection if it is paused. */
  resume(res: Readable): void {
    if (this.forget(res)) res.resume();
  }

  isPaused(res: Readable): boolean {
    return this.#paused.has(res);
  }

  /** Call it when the client has left: its connection must not be resumed. Returns whether it was paused. */
  forget(res: Readable): boolean {
    return this.#paused.size > 0 && this.#paused.delete(res);
  }

  /** The turn ends in `setImmediate`, after µWS has read its sockets. */
  #awaitEnd(): void {
    this.#awaitsEnd = true;
    setImmediate(() => {
      this.#amount = 0;
      this.#awaitsEnd = false;
      let resumed = 0;
      for (const [res, onResumed] of this.#paused) {
        if (++resumed > this.#resumedMax) break;
        this.#paused.delete(res);
        res.resume();
        onResumed?.();
      }
      if (this.#paused.size > 0) this.#awaitEnd();
    });
  }
}

/** Bounds how much of a turn is used by bodies that come in several chunks, and by their rejections. */
export class BodyTurns {
  readonly #reads = new ReadTurns(BODY_BYTES_A_TURN, BODIES_RESUMED_A_TURN);
  readonly #rejections = new ReadTurns(REJECTIONS_A_TURN, REJECTIONS_A_TURN);

  /** `bytes` of a body have come, and more are to come. */
  onBytes(res: Readable, bytes: number): void {
    this.#reads.take(res, bytes);
  }

  /** Calls `reject` now, or pauses the connection and calls it in a later turn, unless the client leaves. */
  reject(res: Readable, reject: () => void): void {
    this.#reads.resume(res);
    if (!this.#rejections.take(res, 1, reject)) reject();
  }

  /**
   * Restarts µWS's timer of a connection that brings little, by a pause and a resume. A connection that waits
   * for its turn is left alone: µWS has no timer of a paused one, and its resume begins a new one.
   */
  restartTimer(res: Readable): void {
    if (this.#reads.isPaused(res) || this.#rejections.isPaused(res)) return;
    res.pause();
    res.resume();
  }

  /** Call it when the client has left, and before a response, which must not leave its connection paused. */
  leave(res: Readable, clientGone: boolean): void {
    if (clientGone) {
      this.#reads.forget(res);
      this.#rejections.forget(res);
    } else {
      this.#reads.resume(res);
      this.#rejections.resume(res);
    }
  }
}
