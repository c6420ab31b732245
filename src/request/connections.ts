/**
 * The connections of one listener: which µWS app accepts them, and when they end. Listener thread.
 *
 *     serving → stopping (accepts no more connections) → draining (every response head says close)
 *             → at rest (all connections are cut) → over (the calls that were cut are settled)
 *
 * A connection that was told `close` ends with its response. One that was not told is kept: its client may
 * send the next request at any moment, and would lose it if the connection were closed. That request is
 * served, and its response says close. So a client that keeps its connections open sends one more call here
 * at most, and loses none.
 *
 * µWS facts: an app has one certificate for life, so a new certificate needs a new app, which listens beside
 * the old one (SO_REUSEPORT) before that one stops; open connections stay with the app that accepted them.
 * Closing a listening socket resets the connections that the kernel has made and nobody has accepted, since
 * SO_REUSEPORT gives each socket a queue of its own. µWS accepts all of them whenever it looks at its
 * sockets, so only those made between that look and the close are lost: microseconds, if the close follows an
 * idle tick. To lose none, let the kernel hand them to another listener: `net.ipv4.tcp_migrate_req=1`, Linux
 * 5.14 and later.
 */
import uWS, { type TemplatedApp, type us_listen_socket } from 'uWebSockets.js';
import { DescriptorGuard } from './descriptor-guard.js';

/**
 * A gateway that is stopped is at rest after so long without a call, although connections are open: a client
 * that calls again as soon as it has its response has done so by then, also over an ocean (some 200 ms there
 * and back) or on a busy machine.
 */
const REST_MS = 400;
/** An event-loop turn without work takes some 10 µs, one with a request some 100. */
const IDLE_MS_MAX = 0.05;
/** A listener that is never idle is not waited for: some 100 ms. */
const TURNS_MAX = 1_000;
/**
 * Apps that are kept for their connections. A certificate lasts for weeks; if it changes more often, the
 * connections of the eighth before are cut. The memory of an app's routes belongs to µWS until its thread
 * ends.
 */
const APPS_MAX = 8;
/** For TLS 1.2; those of 1.3 are all good. Without forward secrecy a stolen key reads what was recorded. */
const CIPHERS = 'ECDHE+AESGCM:ECDHE+CHACHA20';
/** A certificate's files, which were seen to belong together. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly passphrase: string | undefined;
  /** Of the contents of both. */
  readonly digest: string;
}

export class Connections {
  readonly #apps: ListenApps;
  readonly #draining = new Draining(() => this.#apps.close());
  readonly #descriptors = new DescriptorGuard();
  #address = { host: '', port: 0 };
  #stopping = false;
  #isClosing = false;

  /** `route` gives a new app its routes. */
  constructor(route: (app: TemplatedApp) => void) {
    this.#apps = new ListenApps((app) => {
      // 1 if a connection begins, -1 if one ends.
      app.filter((_, change) => {
        this.#draining.onConnection(Number(change));
      });
      route(app);
    });
  }

  /** Whether responses that begin now end their connections. */
  get endsConnections(): boolean {
    return this.#draining.hasBegun || this.#descriptors.isShort;
  }

  /** While true no call is admitted. */
  get isOutOfDescriptors(): boolean {
    return this.#descriptors.isShort;
  }

  /** Whether this side is cutting all connections. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  /** Looks for a shortage now. */
  lookForDescriptors(): void {
    this.#descriptors.look();
  }

  onCallBegun(): void {
    this.#draining.onCallBegun();
  }

  onCallEnded(requestNumber: number): void {
    this.#draining.onCallEnded(requestNumber);
  }

  /** Listens beside the other listeners. False if the port can't be had, or the certificate can't be used. */
  listen(host: string, port: number, tls: TlsFiles | undefined): boolean {
    this.#address = { host, port };
    return this.#apps.listen(host, port, tls);
  }

  /** New connections get this certificate, or none. False if it can't be used: then nothing changes. */
  replaceTls(tls: TlsFiles | undefined): boolean {
    if (this.#stopping || this.#apps.serves(tls)) return true;
    return this.#apps.listen(this.#address.host, this.#address.port, tls);
  }

  /**
   * Stops accepting. Responses from then on end their connections. Calls back once, when all connections are
   * cut: with `keepsIdle` when the clients have ended them (µWS ends one after 10 s without a request), else
   * when there was no call for REST_MS. `lastRequest` returns the number of the last request that has begun.
   */
  drain(lastRequest: () => number, keepsIdle: boolean, onDrained: () => void): void {
    if (this.#stopping) return;
    this.#stopping = true;
    // Not before: a client whose connection ended would make its next one here.
    this.#apps.stop(() => this.#draining.begin(lastRequest(), keepsIdle, onDrained));
  }

  /** The drain's time is over: it waits only for calls that have begun since it has. */
  drainLate(): void {
    this.#draining.beginLate();
  }

  /** Cuts every connection, as if each client had left. Calls back once, when the calls are settled. */
  close(onSettled: () => void): void {
    this.#stopping = true;
    this.#isClosing = true;
    this.#descriptors.close();
    this.#apps.close();
    this.#draining.close(onSettled);
  }
}

/** What a listener that stops waits for before every connection is cut. */
class Draining {
  /** Cuts every connection: none of them has a call. */
  readonly #cut: () => void;
  #calls = 0;
  #connections = 0;
  #begun = false;
  /** Number of the last request that began before the drain. */
  #lastBefore = Infinity;
  /** Calls in flight that began during the drain. */
  #lateCalls = 0;
  #keepsIdle = false;
  /** Only late calls are still waited for. */
  #isLate = false;
  #restTimer: NodeJS.Timeout | undefined;
  #onDrained: (() => void) | undefined;
  #onCallsOver: (() => void) | undefined;

  constructor(cut: () => void) {
    this.#cut = cut;
  }

  get hasBegun(): boolean {
    return this.#begun;
  }

  /** No connection is accepted any more. */
  begin(lastRequest: number, keepsIdle: boolean, onDrained: () => void): void {
    this.#begun = true;
    this.#lastBefore = lastRequest;
    this.#keepsIdle = keepsIdle;
    this.#onDrained = onDrained;
    this.#look();
  }

  beginLate(): void {
    this.#isLate = true;
    this.#look();
  }

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

  /** Every connection was cut. */
  close(onCallsOver: () => void): void {
    clearTimeout(this.#restTimer);
    this.#onDrained = undefined;
    this.#onCallsOver = onCallsOver;
    this.#lookForCalls();
  }

  #lookForCalls(): void {
    if (this.#onCallsOver === undefined || this.#calls > 0) return;
    // Later, because this may run within the last frame of a call.
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
      // After an idle tick, so that no request is cut that the kernel has and nobody has read.
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
    // Both in one turn, so that no call begins in between. Not within a callback of µWS, which may be about a
    // connection that is cut here.
    setImmediate(() => {
      if (this.#calls === 0) this.#cut();
      onDrained();
    });
  }
}

/** The app that accepts connections, and those before it whose connections go on. */
class ListenApps {
  readonly #route: (app: TemplatedApp) => void;
  /** The last one accepts. */
  readonly #apps: TemplatedApp[] = [];
  #socket: us_listen_socket | undefined;
  /** Sockets that are closed at the next idle tick. */
  readonly #retiring = new Set<us_listen_socket>();
  #digest: string | undefined;

  constructor(route: (app: TemplatedApp) => void) {
    this.#route = route;
  }

  /** False if a new app is needed for `tls`. */
  serves(tls: TlsFiles | undefined): boolean {
    return this.#socket !== undefined && this.#digest === tls?.digest;
  }

  /** Accepts with `tls` from now on. False if that failed, and then nothing has changed. */
  listen(host: string, port: number, tls: TlsFiles | undefined): boolean {
    const app = appOf(tls);
    if (app === undefined) return false;
    this.#route(app);
    let opened: us_listen_socket | undefined;
    // µWS calls back before it returns.
    app.listen(host, port, (socket) => {
      if (socket !== false) opened = socket;
    });
    if (opened === undefined) return false;
    this.stop(() => undefined);
    this.#socket = opened;
    this.#digest = tls?.digest;
    this.#apps.push(app);
    if (this.#apps.length > APPS_MAX) this.#apps.shift()?.close();
    return true;
  }

  /** Accepts no more. Calls back soon, when the socket is closed. */
  stop(then: () => void): void {
    const socket = this.#socket;
    this.#socket = undefined;
    if (socket !== undefined) this.#retiring.add(socket);
    onIdleTick(() => {
      if (socket !== undefined) this.#closeSocket(socket);
      then();
    });
  }

  /** Cuts every connection. If µWS holds a socket when its thread ends, the whole process aborts. */
  close(): void {
    if (this.#socket !== undefined) this.#retiring.add(this.#socket);
    this.#socket = undefined;
    for (const socket of this.#retiring) this.#closeSocket(socket);
    for (const app of this.#apps.splice(0)) app.close();
  }

  #closeSocket(socket: us_listen_socket): void {
    // It may have been closed with its app.
    if (this.#retiring.delete(socket)) uWS.us_listen_socket_close(socket);
  }
}

function appOf(tls: TlsFiles | undefined): TemplatedApp | undefined {
  if (tls === undefined) return uWS.App();
  const { certFile, keyFile, passphrase } = tls;
  try {
    return uWS.SSLApp({
      cert_file_name: certFile,
      key_file_name: keyFile,
      ...(passphrase === undefined ? {} : { passphrase }),
      ssl_ciphers: CIPHERS,
      // There are many connections and most are idle: their buffers are given back between messages.
      ssl_prefer_low_memory_usage: true,
    });
  } catch {
    return undefined;
  }
}

/** Calls back once, after an idle tick and right after µWS looked at its sockets. */
function onIdleTick(then: () => void): void {
  let turns = 0;
  let beforeMs = -Infinity;
  const look = (): void => {
    const nowMs = performance.now();
    if (nowMs - beforeMs <= IDLE_MS_MAX || turns >= TURNS_MAX) {
      then();
      return;
    }
    turns += 1;
    beforeMs = nowMs;
    setImmediate(look);
  };
  setImmediate(look);
}
