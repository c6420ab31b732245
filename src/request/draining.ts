/**
 * How a listener comes to its end: what it waits for before every connection is cut. Listener thread.
 *
 *     serving → stopping (accepts no more connections) → draining (every head says close) → rest (all connections are cut)
 *             → over (what was cut is settled)
 *
 * A connection that was told `close` ends with its response. One that was not told is kept: its client may send the next request at
 * any moment, and a connection that is closed then loses that request. It is served, and told. So a client that keeps its connections
 * has one more call from here at most, and loses none.
 */
import { onIdleTick } from './listen-apps.js';

/**
 * Without a call for so long, a gateway that is stopped is at rest although connections are open: a client that calls again as soon as
 * it has its response has done so by then, also over an ocean (some 200 ms there and back) or on a machine that is busy.
 */
const REST_MS = 400;

export class Draining {
  /** Cuts every connection: none of them has a call. */
  readonly #cut: () => void;
  #calls = 0;
  #connections = 0;
  #begun = false;
  /** Number of the last request that had begun before. */
  #lastBefore = Infinity;
  /** Calls that have begun since. */
  #lateCalls = 0;
  #keepsIdle = false;
  /** Only calls that have begun since are still waited for. */
  #isLate = false;
  #restTimer: NodeJS.Timeout | undefined;
  #onDrained: (() => void) | undefined;
  #onCallsOver: (() => void) | undefined;

  constructor(cut: () => void) {
    this.#cut = cut;
  }

  /** From now on every head says `close`. */
  get hasBegun(): boolean {
    return this.#begun;
  }

  /**
   * No connection is accepted any more. Calls back once, when every connection is cut: with `keepsIdle` when the clients have ended
   * them (µWS ends one after 10 s without a request), else when no call has been there for REST_MS.
   */
  begin(lastRequest: number, keepsIdle: boolean, onDrained: () => void): void {
    this.#begun = true;
    this.#lastBefore = lastRequest;
    this.#keepsIdle = keepsIdle;
    this.#onDrained = onDrained;
    this.#look();
  }

  /** The time is over: waits for nothing but calls that have begun since the drain has, which have that time from their own begin. */
  beginLate(): void {
    this.#isLate = true;
    this.#look();
  }

  /** A connection has begun (1) or ended (-1). */
  onConnection(change: number): void {
    this.#connections += change;
    if (this.#begun) this.#look();
  }

  onCallBegun(): void {
    this.#calls += 1;
    if (this.#begun) this.#lateCalls += 1;
  }

  onCallEnded(requestNumber: number): void {
    this.#calls -= 1;
    this.#lookForCalls();
    if (!this.#begun) return;
    if (requestNumber > this.#lastBefore) this.#lateCalls -= 1;
    this.#look();
  }

  /** Every connection was cut. Calls back once, when the last of their calls was settled. */
  close(onCallsOver: () => void): void {
    clearTimeout(this.#restTimer);
    this.#onDrained = undefined;
    this.#onCallsOver = onCallsOver;
    this.#lookForCalls();
  }

  #lookForCalls(): void {
    if (this.#onCallsOver === undefined || this.#calls > 0) return;
    // Not within the last frame of a call.
    setImmediate(this.#onCallsOver);
    this.#onCallsOver = undefined;
  }

  #look(): void {
    clearTimeout(this.#restTimer);
    if (this.#onDrained === undefined) return;
    if (this.#isLate) {
      if (this.#lateCalls === 0) this.#end();
    } else if (this.#connections === 0) {
      this.#end();
    } else if (!this.#keepsIdle && this.#calls === 0) {
      // After a quiet turn, so that no request is cut that the kernel has and nobody has read.
      this.#restTimer = setTimeout(() => onIdleTick(() => this.#endAtRest()), REST_MS);
    }
  }

  #endAtRest(): void {
    if (this.#calls === 0) this.#end();
  }

  #end(): void {
    const onDrained = this.#onDrained;
    this.#onDrained = undefined;
    if (onDrained === undefined) return;
    // In this turn, so that no call begins between the two. But not within a callback of µWS, which may be about such a connection.
    setImmediate(() => {
      if (this.#calls === 0) this.#cut();
      onDrained();
    });
  }
}
