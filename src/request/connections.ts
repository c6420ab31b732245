/**
 * The connections of one listener: which µWS app accepts them, how many new ones an event-loop turn may read,
 * and when they end: in a drain, or if the process runs out of file descriptors (descriptor-guard.ts).
 * listener.thread.ts makes one Connections. Listener thread.
 *
 *     serving  → stopping   `drain` was called; the socket closes at the next idle tick (#isStopping)
 *              → draining   the socket is closed; every response head says `connection: close` (#hasBegun)
 *              → late       `drainLate` was called: the drain waits only for calls that began in it (#isLate)
 *              → drained    what `drain` waits for has ended; connections are cut if no call is in flight
 *              → closing    `close` was called, now or in any state before; every connection is cut
 *              → settled    the calls that were cut are settled
 *
 * A connection whose response said `connection: close` ends with that response, or some seconds after a long
 * response if the client does not end it (response-writer.ts). An idle connection is kept while the drain
 * goes on: its client may send a request at any moment, and would lose the request if the connection were
 * closed. The request is served, and its response says `connection: close`. So each idle connection brings at
 * most one more call, and no call is lost.
 *
 * Must hold: only `close`, and the close of the oldest of nine apps (listen-apps.ts), cut a connection that
 * has a call; then `isClosing` is true. Before the thread ends every socket is closed, or libuv aborts the
 * process (test/hostile/draining.test.ts). Each `onCallBegun`, in the turn in which the call gets its number,
 * is followed by one `onCallEnded`, or `close` never calls back.
 */
import type { TemplatedApp } from 'uWebSockets.js';
import { DescriptorGuard } from './descriptor-guard.js';
import { ListenApps, onIdleTick, type TlsFiles } from './listen-apps.js';
import { ReadTurns } from './read-turns.js';

/**
 * A drain without `keepsIdle` (when the gateway stops) ends after this time without a call, although
 * connections are open. By then a client that calls again as soon as it has its response has done so, even
 * over an ocean (some 200 ms there and back) or on a busy machine.
 */
const NO_CALL_MS = 400;
/**
 * New connections that are read in an event-loop turn, and that are resumed after it (read-turns.ts). The
 * first request of a connection takes up to 0.5 ms, or 1 ms on busy cores, if it brings 64 KiB or more of a
 * large body. So four take 2 to 4 ms of a turn at most. A small call waits for four turns.
 */
const NEW_CONNECTIONS_A_TURN = 4;

/** `keepsIdle`: another gateway serves in place of this one, so the drain waits for idle connections too. */
export interface DrainOptions {
  readonly keepsIdle: boolean;
}

export class Connections {
  readonly #apps: ListenApps;
  readonly #drain = new Drain(() => this.#apps.close());
  readonly #descriptors = new DescriptorGuard();
  readonly #newConnections = new ReadTurns(NEW_CONNECTIONS_A_TURN, NEW_CONNECTIONS_A_TURN);
  /** Set by `listen`, for `replaceTls`. */
  #address = { host: '', port: 0 };
  #isStopping = false;
  #isClosing = false;

  /** `route` is called for each new app, to add its routes. */
  constructor(route: (app: TemplatedApp) => void) {
    this.#apps = new ListenApps((app) => {
      // `change` is 1 if a connection begins, -1 if one ends.
      app.filter((res, change) => {
        this.#drain.onConnection(Number(change));
        const isNew = Number(change) === 1;
        // The connection counts as 1 of NEW_CONNECTIONS_A_TURN.
        if (isNew && this.#newConnections.take(res, 1))
          res.onAborted(() => void this.#newConnections.forget(res));
      });
      route(app);
    });
  }

  /** Whether responses must say `connection: close`: in a drain, or while descriptors are short. */
  get endsConnections(): boolean {
    return this.#drain.hasBegun || this.#descriptors.isShort;
  }

  /** Whether the process is short of file descriptors. While true, Intake admits no call. */
  get isOutOfDescriptors(): boolean {
    return this.#descriptors.isShort;
  }

  /**
   * Whether the gateway cuts connections: after `close`, and while the app of an old certificate is closed. A
   * connection that ends now was not ended by its client, so nobody pays for what the client did not get.
   */
  get isClosing(): boolean {
    return this.#isClosing || this.#apps.isClosingOldest;
  }

  /** Checks now whether descriptors are short. Called if a call may have failed for want of a descriptor. */
  checkDescriptors(): void {
    this.#descriptors.check();
  }

  /** The headers of a call have come. */
  onCallBegun(): void {
    this.#drain.onCallBegun();
  }

  /** The call of that request is over and settled. */
  onCallEnded(requestNumber: number): void {
    this.#drain.onCallEnded(requestNumber);
  }

  /** Listens on the port that all listeners share. False if the port or the certificate cannot be used. */
  listen(host: string, port: number, tls: TlsFiles | undefined): boolean {
    this.#address = { host, port };
    return this.#apps.listen(host, port, tls);
  }

  /**
   * Serves new connections with this certificate, or without TLS if undefined. Returns false, and changes
   * nothing, if the certificate cannot be used. A listener that stops does nothing and returns true.
   */
  replaceTls(tls: TlsFiles | undefined): boolean {
    if (this.#isStopping || this.#apps.serves(tls)) return true;
    return this.#apps.listen(this.#address.host, this.#address.port, tls);
  }

  /**
   * Stops accepting, at the next idle tick; responses from then on say `connection: close`. `lastRequest`
   * returns the number of the newest request. Calls `onDrained` once:
   *
   * - with `keepsIdle`, when every connection has ended: by its client, or by µWS after 10 s without a
   *   request
   * - without `keepsIdle`, also when there was no call for NO_CALL_MS. The open connections are cut first
   * - after `drainLate`, when the calls that began during the drain have ended. Earlier calls may still be in
   *   flight: then no connection is cut before `close`
   *
   * If `close` comes first, `onDrained` may be called or not: nothing is left to cut. A second `drain` does
   * nothing.
   */
  drain(lastRequest: () => number, { keepsIdle }: DrainOptions, onDrained: () => void): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    // Responses say `connection: close` only once the listening socket is closed. Otherwise a client whose
    // connection ended could open its next one here.
    this.#apps.stop(() => this.#drain.begin(lastRequest(), { keepsIdle }, onDrained));
  }

  /**
   * The drain's time is over, so the state becomes `late`. The calls that the drain then waits for get as
   * much time again, which the main thread measures.
   */
  drainLate(): void {
    this.#drain.beginLate();
  }

  /** Cuts every open connection, as if its client had left. Calls back once, when all calls are settled. */
  close(onSettled: () => void): void {
    this.#isStopping = true;
    this.#isClosing = true;
    this.#descriptors.close();
    this.#apps.close();
    this.#drain.close(onSettled);
  }
}

/** Counts connections and calls, and calls back when a drain or a close has ended. */
class Drain {
  /** Cuts every connection. Called while no call is in flight. */
  readonly #cutConnections: () => void;
  /** How many calls are in flight. */
  #callCount = 0;
  /** How many connections are open, also those without a call. */
  #connectionCount = 0;
  #hasBegun = false;
  /** Number of the last request before the drain. All requests are counted, also those that are no calls. */
  #lastRequestBefore = Infinity;
  /** How many of `#callCount` began during the drain: their requests' numbers exceed `#lastRequestBefore`. */
  #drainCallCount = 0;
  #keepsIdle = false;
  /** Whether the drain's time is over, so that the drain waits only for calls that began during it. */
  #isLate = false;
  #noCallTimer: NodeJS.Timeout | undefined;
  #onDrained: (() => void) | undefined;
  #onSettled: (() => void) | undefined;

  constructor(cutConnections: () => void) {
    this.#cutConnections = cutConnections;
  }

  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** The listening socket is closed. */
  begin(lastRequest: number, { keepsIdle }: DrainOptions, onDrained: () => void): void {
    this.#hasBegun = true;
    this.#lastRequestBefore = lastRequest;
    this.#keepsIdle = keepsIdle;
    this.#onDrained = onDrained;
    this.#checkDrained();
  }

  beginLate(): void {
    this.#isLate = true;
    this.#checkDrained();
  }

  /** `change` is 1 if a connection has begun, -1 if one has ended. */
  onConnection(change: number): void {
    this.#connectionCount += change;
    if (this.#hasBegun) this.#checkDrained();
  }

  onCallBegun(): void {
    this.#callCount += 1;
    if (this.#hasBegun) this.#drainCallCount += 1;
  }

  onCallEnded(requestNumber: number): void {
    this.#callCount -= 1;
    this.#callBackIfNoCall();
    if (!this.#hasBegun) return;
    if (requestNumber > this.#lastRequestBefore) this.#drainCallCount -= 1;
    this.#checkDrained();
  }

  /** Call it once every connection was cut. `onSettled` is called when no call is in flight. */
  close(onSettled: () => void): void {
    clearTimeout(this.#noCallTimer);
    this.#onDrained = undefined;
    this.#onSettled = onSettled;
    this.#callBackIfNoCall();
  }

  /** Calls back, after `close`, if no call is in flight. */
  #callBackIfNoCall(): void {
    if (this.#onSettled === undefined || this.#callCount > 0) return;
    // In a later turn, because this may run while the last frame of a call is being handled.
    setImmediate(this.#onSettled);
    this.#onSettled = undefined;
  }

  /** Called after each change: ends the drain if nothing is left to wait for, or sets the timer. */
  #checkDrained(): void {
    clearTimeout(this.#noCallTimer);
    if (this.#onDrained === undefined) return;
    if (this.#isLate) {
      if (this.#drainCallCount === 0) this.#end();
    } else if (this.#connectionCount === 0) {
      this.#end();
    } else if (!this.#keepsIdle && this.#callCount === 0) {
      // After an idle tick µWS has just read its sockets. Before it, a request that the kernel has received
      // and µWS has not read would be lost with its connection.
      const endIfNoCall = (): void => {
        if (this.#callCount === 0) this.#end();
      };
      this.#noCallTimer = setTimeout(() => onIdleTick(endIfNoCall), NO_CALL_MS);
    }
  }

  /** The drain has ended: cuts the connections that are still open, and calls back. */
  #end(): void {
    const onDrained = this.#onDrained;
    this.#onDrained = undefined;
    if (onDrained === undefined) return;
    // In a later turn, because this may run within a callback of µWS about a connection that is cut here.
    // Cutting and calling back are in the same turn, so that no call begins in between.
    setImmediate(() => {
      if (
        this.#callCount > 0 &&
        this.#connectionCount > 0 &&
        !this.#isLate &&
        this.#onSettled === undefined
      ) {
        // A call has begun meanwhile, so the drain goes on; but not if no connection is left, the drain is
        // late, or `close` was called.
        this.#onDrained = onDrained;
        this.#checkDrained();
        return;
      }
      if (this.#callCount === 0) this.#cutConnections();
      onDrained();
    });
  }
}
