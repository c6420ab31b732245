/**
 * The connections to one origin; the client makes one pool for each. A call takes the connection that was
 * used last. If none is idle, one is opened for it, up to a bound; beyond that it waits in order, up to its
 * connect timeout. Upstream worker.
 *
 * An upstream may send a response without a request. If it comes before the next request, it is read first,
 * because an event-loop turn passes before each use of a kept connection, and the connection is closed. If it
 * comes while the next request is on its way, nothing in HTTP/1.1 tells it from the response. So an upstream
 * that was caught once gets only one call on each connection for a while: then no caller can get another's
 * response.
 */
import type { Clock } from '../core/clock.js';
import type { MonotonicMs } from '../core/units.js';
import type { Http1Call } from './call.js';
import { Http1Connection, type ConnectionError, type ConnectionOwner } from './connection.js';
import { Dialer } from './dialer.js';
import type { HttpTarget } from './http-client.js';

/**
 * How late an idle connection may be closed, or leave the list after it was closed; KEEP_ALIVE margins are
 * larger.
 */
const IDLE_CHECK_MS = 500;

/**
 * How long each connection carries one call only, after a response without a request. Callers' texts are at
 * stake.
 */
const DISTRUST_MS = 600_000;

export class Http1Pool implements ConnectionOwner {
  readonly #clock: Clock;
  readonly #dialer: Dialer;
  readonly #connectTimeoutMs: number;
  readonly #connectionsMax: number;
  readonly #onUnsolicited: () => void;
  readonly #connections = new Set<Http1Connection>();
  /** Oldest first, so the first one expires first. */
  readonly #opening = new Set<Http1Connection>();
  /** Last used last. Some may have closed meanwhile. */
  #idle: Http1Connection[] = [];
  /** Free, and idle only from the end of this turn on. */
  #resting: Http1Connection[] = [];
  #isTurnAwaited = false;
  /** How many of the waiting calls, from the first on, have waited since the last turn or longer. */
  #ripe = 0;
  /**
   * Resting connections get waiting calls at the end of the next turn: until then the loop reads all that has
   * arrived.
   */
  readonly #endTurn = (): void => {
    this.#isTurnAwaited = false;
    this.#sendRipe();
    for (const connection of this.#resting) if (connection.isIdle) this.#idle.push(connection);
    this.#resting = [];
    this.#ripe = this.#waiting.size;
    if (this.#ripe === 0 && this.#retired) this.#destroyFree();
    if (this.#ripe > 0 && this.#idle.length > 0) this.#awaitTurn();
    this.#open();
  };
  /** Bounded by the calls in flight, and each wait by the connect timeout. */
  readonly #waiting = new WaitingLine<Http1Call>();
  #idleCheckMs = 0;
  #distrustUntilMs = 0;
  #retired = false;

  /** `onUnasked`: the upstream sent a response without a request. */
  constructor(target: HttpTarget, clock: Clock, onUnsolicited: () => void) {
    this.#onUnsolicited = onUnsolicited;
    this.#clock = clock;
    this.#dialer = new Dialer(target);
    this.#connectTimeoutMs = target.connectTimeoutMs;
    this.#connectionsMax = target.connectionsMax;
  }

  /** The pool has all its connections, and each carries a call. */
  get isFull(): boolean {
    return this.#connections.size - this.#opening.size >= this.#connectionsMax;
  }

  /** No connection and no waiting call is left. */
  get isEmpty(): boolean {
    return this.#connections.size === 0 && this.#waiting.size === 0;
  }

  /**
   * Sends the call after this event-loop turn, or when a connection is free; does not call it before it has
   * returned.
   */
  take(call: Http1Call): void {
    this.#waiting.add(call);
    if (this.#idle.length > 0 || this.#resting.length > 0) this.#awaitTurn();
    this.#open();
  }

  /** Takes the call out of the waiting line. Idempotent. */
  forget(call: Http1Call): void {
    this.#waiting.remove(call);
    this.#countOut();
  }

  /** Closes connections that did not open in time, and those that were idle for too long. */
  expire(nowMs: MonotonicMs): void {
    for (const connection of this.#opening) {
      if (!connection.isExpired(nowMs)) break;
      connection.destroy();
    }
    if (nowMs < this.#idleCheckMs) return;
    this.#idleCheckMs = nowMs + IDLE_CHECK_MS;
    for (const connection of [...this.#idle, ...this.#resting]) {
      if (connection.isIdle && connection.isExpired(nowMs)) connection.destroy();
    }
    this.#idle = this.#idle.filter(({ isIdle }) => isIdle);
    this.#resting = this.#resting.filter(({ isIdle }) => isIdle);
  }

  /** Keeps no connection any more; calls that run or wait go on to their ends. */
  retire(): void {
    this.#retired = true;
    this.#destroyFree();
  }

  /** Ends all connections at once. */
  destroy(): void {
    while (this.#next() !== undefined);
    for (const connection of [...this.#connections]) connection.destroy();
  }

  /**
   * Some servers close right after a response that did not announce it. A call that is sent into that is
   * lost, or made twice. So the connection rests until the turn of the response has ended: an end or another
   * response that came with it is seen then.
   */
  onFree(connection: Http1Connection): void {
    if (this.#opening.delete(connection)) {
      this.#hand(connection);
      return;
    }
    if (this.#isDistrusted || (this.#retired && this.#waiting.size === 0)) {
      connection.destroy();
      return;
    }
    this.#resting.push(connection);
    // Without a waiting call nobody needs the turn's end.
    if (this.#waiting.size > 0) this.#awaitTurn();
  }

  onUnsolicited(): void {
    this.#distrustUntilMs = this.#clock.monotonicMs() + DISTRUST_MS;
    this.#destroyFree();
    this.#onUnsolicited();
  }

  onGone(connection: Http1Connection, fault: ConnectionError | undefined): void {
    this.#connections.delete(connection);
    this.#opening.delete(connection);
    // Connections are opened for waiting calls: one of them has lost its own.
    if (fault !== undefined && this.#waiting.size > this.#comingSoon) this.#next()!.onFault(fault, false);
    this.#open();
  }

  /** Connections that will soon take a call. */
  get #comingSoon(): number {
    return this.#opening.size + this.#resting.length + this.#idle.length;
  }

  get #isDistrusted(): boolean {
    return this.#distrustUntilMs > 0 && this.#clock.monotonicMs() < this.#distrustUntilMs;
  }

  #awaitTurn(): void {
    if (this.#isTurnAwaited) return;
    this.#isTurnAwaited = true;
    setImmediate(this.#endTurn);
  }

  #destroyFree(): void {
    const free = [...this.#idle, ...this.#resting];
    this.#idle = [];
    this.#resting = [];
    for (const connection of free) connection.destroy();
  }

  #sendRipe(): void {
    while (this.#ripe > 0) {
      const connection = this.#takeIdle();
      if (connection === undefined) return;
      this.#next()!.sendOn(connection);
    }
  }

  /** Takes the longest waiting call out of the line. */
  #next(): Http1Call | undefined {
    this.#countOut();
    return this.#waiting.take();
  }

  /**
   * A call leaves the line. It counts as a ripe one wherever it was: at worst another waits one more turn.
   */
  #countOut(): void {
    if (this.#ripe > 0) this.#ripe--;
  }

  /** Gives the connection to the longest waiting call, if there is one. */
  #hand(connection: Http1Connection): void {
    const call = this.#next();
    if (call !== undefined) call.sendOn(connection);
    else if (this.#retired) connection.destroy();
    else this.#idle.push(connection);
  }

  #takeIdle(): Http1Connection | undefined {
    for (;;) {
      const connection = this.#idle.pop();
      if (connection === undefined) return undefined;
      if (!connection.isIdle) continue;
      if (!connection.isExpired(this.#clock.monotonicMs())) return connection;
      connection.destroy();
    }
  }

  #open(): void {
    while (this.#waiting.size > this.#comingSoon && this.#connections.size < this.#connectionsMax) {
      const connection = new Http1Connection(this.#dialer, this, this.#clock, this.#connectTimeoutMs);
      this.#connections.add(connection);
      this.#opening.add(connection);
    }
  }
}

/**
 * A call in a waiting line. Its links are in the call itself, and cut when it leaves, so that dead calls keep
 * nobody alive.
 */
export interface Waiter<T> {
  isWaiting: boolean;
  /** Undefined while the call does not wait, or is the first. */
  ahead: T | undefined;
  behind: T | undefined;
}

/** Waiting calls in order; any of them may leave from anywhere. Not a Set: see core/slot-list. */
export class WaitingLine<T extends Waiter<T>> {
  #first: T | undefined;
  #last: T | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(waiter: T): void {
    waiter.isWaiting = true;
    waiter.ahead = this.#last;
    if (this.#last === undefined) this.#first = waiter;
    else this.#last.behind = waiter;
    this.#last = waiter;
    this.#size++;
  }

  /** Does nothing if the call does not wait. */
  remove(waiter: T): void {
    if (!waiter.isWaiting) return;
    const { ahead, behind } = waiter;
    if (ahead === undefined) this.#first = behind;
    else ahead.behind = behind;
    if (behind === undefined) this.#last = ahead;
    else behind.ahead = ahead;
    waiter.isWaiting = false;
    waiter.ahead = undefined;
    waiter.behind = undefined;
    this.#size--;
  }

  /** Takes out the one that has waited longest. */
  take(): T | undefined {
    const first = this.#first;
    if (first !== undefined) this.remove(first);
    return first;
  }
}
