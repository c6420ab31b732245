/**
 * The connections to one origin; client.ts makes one pool for each. A call gets the idle connection that was
 * used last. If no connection is idle, the pool opens one, up to a bound; beyond the bound the call waits in
 * order, up to its connect timeout. Upstream worker.
 *
 * A response that no request asked for (_unsolicited_) closes its connection if it comes before the next
 * request, because an event-loop turn passes before each use of a kept connection. While the next request is
 * on its way, nothing in HTTP/1.1 tells it from the right response. So an upstream that has sent one is
 * _distrusted_: for a while each connection carries one call.
 *
 * Must hold: a kept connection is used only after a whole turn of the event loop, and a distrusted upstream
 * gets one call a connection; otherwise a caller gets another's response (test/hostile/upstreams.test.ts,
 * test/unit/http1/connection.test.ts; the order of waiting calls: test/unit/http1/pool.wait-queue.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { MonotonicMs } from '../core/units.js';
import {
  Http1Connection,
  type ConnectionError,
  type ConnectionOwner,
  type ResponseEvents,
} from './connection.js';
import { Dialer } from './dialer.js';
import type { HttpTarget } from './http-client.js';

/** How often `expire` looks at idle connections. `#takeIdle` uses none that has expired meanwhile. */
const IDLE_CHECK_MS = 500;

/** How long an upstream is distrusted after an unsolicited response. */
const DISTRUST_MS = 600_000;

/** A call, as its pool sees it. */
export interface PooledCall extends ResponseEvents, Waiter<PooledCall> {
  /** Gives the call a connection, on which it sends its request. */
  sendOn(connection: Http1Connection): void;
}

export class Http1Pool implements ConnectionOwner {
  readonly #clock: Clock;
  readonly #dialer: Dialer;
  readonly #connectTimeoutMs: number;
  readonly #connectionsMax: number;
  readonly #onUnsolicited: () => void;
  /** All connections that are not closed. One that no call uses is in one of the next three lists. */
  readonly #connections = new Set<Http1Connection>();
  /** Oldest first: the first one expires first. */
  readonly #opening = new Set<Http1Connection>();
  /** The connection used last is last. Some may have closed meanwhile. */
  #idle: Http1Connection[] = [];
  /** Connections whose responses have ended since the last `#onTurnEnd`, which next time makes them idle. */
  #justFreed: Http1Connection[] = [];
  #isTurnAwaited = false;
  /** How many waiting calls, from the first on, have waited a whole turn and may use a kept connection. */
  #sendableCount = 0;
  /**
   * Sends first, and only then counts the calls of this turn as sendable and its connections as idle, so that
   * both wait for the next run. Between two runs lies a whole turn, in which the sockets read all that had
   * arrived. (The first run may come right after `enqueue`, in the same turn.)
   */
  readonly #onTurnEnd = (): void => {
    this.#isTurnAwaited = false;
    this.#sendWaiting();
    for (const connection of this.#justFreed) if (connection.isIdle) this.#idle.push(connection);
    this.#justFreed = [];
    this.#sendableCount = this.#waiting.size;
    if (this.#sendableCount === 0 && this.#isRetired) this.#destroyFree();
    if (this.#sendableCount > 0 && this.#idle.length > 0) this.#awaitTurn();
    this.#openConnections();
  };
  /** The calls in flight bound the queue, and the connect timeout of each call its wait. */
  readonly #waiting = new WaitQueue<PooledCall>();
  /** When `expire` looks at idle connections next, by the monotonic clock. */
  #idleCheckMs = 0;
  /** By the monotonic clock; 0 if the upstream never sent an unsolicited response. */
  #distrustUntilMs = 0;
  #isRetired = false;

  constructor(target: HttpTarget, clock: Clock, onUnsolicited: () => void) {
    this.#onUnsolicited = onUnsolicited;
    this.#clock = clock;
    this.#dialer = new Dialer(target);
    this.#connectTimeoutMs = target.connectTimeoutMs;
    this.#connectionsMax = target.connectionsMax;
  }

  /** Whether the pool has as many connections as it may, all of them open. */
  get isFull(): boolean {
    return this.#connections.size - this.#opening.size >= this.#connectionsMax;
  }

  /** No connection and no waiting call is left. */
  get isEmpty(): boolean {
    return this.#connections.size === 0 && this.#waiting.size === 0;
  }

  /** Queues the call, once. It is sent on a kept connection after this turn, or on one that opens. */
  enqueue(call: PooledCall): void {
    this.#waiting.add(call);
    if (this.#idle.length > 0 || this.#justFreed.length > 0) this.#awaitTurn();
    this.#openConnections();
  }

  /** Takes the call out of the queue, if it waits. */
  forget(call: PooledCall): void {
    this.#waiting.remove(call);
    this.#lowerSendable();
  }

  /** Closes connections that did not open in time or were idle too long. The client's sweeps call it. */
  expire(nowMs: MonotonicMs): void {
    for (const connection of this.#opening) {
      if (!connection.isExpired(nowMs)) break;
      connection.destroy();
    }
    if (nowMs < this.#idleCheckMs) return;
    this.#idleCheckMs = nowMs + IDLE_CHECK_MS;
    for (const connection of [...this.#idle, ...this.#justFreed]) {
      if (connection.isIdle && connection.isExpired(nowMs)) connection.destroy();
    }
    this.#idle = this.#idle.filter(({ isIdle }) => isIdle);
    this.#justFreed = this.#justFreed.filter(({ isIdle }) => isIdle);
  }

  /** From now on no idle connection is kept. Calls that run or wait go on to their ends. */
  retire(): void {
    this.#isRetired = true;
    this.#destroyFree();
  }

  /** Ends all connections at once, and forgets the calls that wait: Http1Client.close then fails them. */
  destroy(): void {
    while (this.#dequeue() !== undefined);
    for (const connection of [...this.#connections]) connection.destroy();
  }

  /**
   * Some servers close right after a response that did not announce it. A call that is sent then is lost, or
   * made twice. So the connection is not used before the turn of the response has ended: by then the
   * connection has read the end, or another response, if one came with the response.
   */
  onFree(connection: Http1Connection): void {
    // A connection that has just opened need not wait: without an earlier request there is no late response.
    if (this.#opening.delete(connection)) {
      this.#assign(connection);
      return;
    }
    if (this.#isDistrusted || (this.#isRetired && this.#waiting.size === 0)) {
      connection.destroy();
      return;
    }
    this.#justFreed.push(connection);
    // Without a waiting call the connection need not become idle: `enqueue` awaits the turn's end.
    if (this.#waiting.size > 0) this.#awaitTurn();
  }

  onUnsolicited(): void {
    this.#distrustUntilMs = this.#clock.monotonicMs() + DISTRUST_MS;
    this.#destroyFree();
    this.#onUnsolicited();
  }

  /** `connection.destroy()` calls this too, before it returns. */
  onGone(connection: Http1Connection, error: ConnectionError | undefined): void {
    this.#connections.delete(connection);
    this.#opening.delete(connection);
    // It failed to open. If too few others are left for the calls that wait, the first of these fails.
    if (error !== undefined && this.#waiting.size > this.#soonFreeCount)
      this.#dequeue()!.onConnectionError(error);
    this.#openConnections();
  }

  /** How many connections will soon take a call. If some turn out to be closed, `#onTurnEnd` opens others. */
  get #soonFreeCount(): number {
    return this.#opening.size + this.#justFreed.length + this.#idle.length;
  }

  get #isDistrusted(): boolean {
    return this.#distrustUntilMs > 0 && this.#clock.monotonicMs() < this.#distrustUntilMs;
  }

  #awaitTurn(): void {
    if (this.#isTurnAwaited) return;
    this.#isTurnAwaited = true;
    setImmediate(this.#onTurnEnd);
  }

  #destroyFree(): void {
    const free = [...this.#idle, ...this.#justFreed];
    this.#idle = [];
    this.#justFreed = [];
    for (const connection of free) connection.destroy();
  }

  #sendWaiting(): void {
    while (this.#sendableCount > 0) {
      const connection = this.#takeIdle();
      if (connection === undefined) return;
      // `#sendableCount` is at most the number of waiting calls, so there is one.
      this.#dequeue()!.sendOn(connection);
    }
  }

  /** Takes the longest waiting call out of the queue. */
  #dequeue(): PooledCall | undefined {
    this.#lowerSendable();
    return this.#waiting.takeFirst();
  }

  /** A call has left the queue. It counts as a sendable one: at worst another call waits one more turn. */
  #lowerSendable(): void {
    if (this.#sendableCount > 0) this.#sendableCount--;
  }

  /** Gives the connection to the longest waiting call, if there is one. */
  #assign(connection: Http1Connection): void {
    const call = this.#dequeue();
    if (call !== undefined) call.sendOn(connection);
    else if (this.#isRetired) connection.destroy();
    else this.#idle.push(connection);
  }

  /** The idle connection that was used last, taken out of `#idle`; undefined if none is idle. */
  #takeIdle(): Http1Connection | undefined {
    for (;;) {
      const connection = this.#idle.pop();
      if (connection === undefined) return undefined;
      if (!connection.isIdle) continue;
      if (!connection.isExpired(this.#clock.monotonicMs())) return connection;
      connection.destroy();
    }
  }

  #openConnections(): void {
    while (this.#waiting.size > this.#soonFreeCount && this.#connections.size < this.#connectionsMax) {
      const connection = new Http1Connection(this.#dialer, this, this.#clock, this.#connectTimeoutMs);
      this.#connections.add(connection);
      this.#opening.add(connection);
    }
  }
}

/**
 * A call that can wait. The queue's links are in the call itself, and are cut when the call leaves the queue,
 * so that an ended call keeps no other in memory.
 */
export interface Waiter<T> {
  isWaiting: boolean;
  /** Undefined if the call is the first, or does not wait. */
  previous: T | undefined;
  /** Undefined if the call is the last, or does not wait. */
  next: T | undefined;
}

/** In order; any may leave. A Set would keep ended calls in memory for seconds (core/slot-array.ts). */
export class WaitQueue<T extends Waiter<T>> {
  #first: T | undefined;
  #last: T | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Throws if the call waits already. */
  add(waiter: T): void {
    invariant(!waiter.isWaiting, 'a call waits once');
    waiter.isWaiting = true;
    waiter.previous = this.#last;
    if (this.#last === undefined) this.#first = waiter;
    else this.#last.next = waiter;
    this.#last = waiter;
    this.#size++;
  }

  /** Does nothing if the call does not wait. */
  remove(waiter: T): void {
    if (!waiter.isWaiting) return;
    const { previous, next } = waiter;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    waiter.isWaiting = false;
    waiter.previous = undefined;
    waiter.next = undefined;
    this.#size--;
  }

  /** Takes out the call that has waited longest; undefined if none waits. */
  takeFirst(): T | undefined {
    const first = this.#first;
    if (first !== undefined) this.remove(first);
    return first;
  }
}
