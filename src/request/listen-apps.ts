/**
 * The µWS apps of one listener: the one that accepts connections, and those of former certificates.
 * connections.ts makes a ListenApps, and calls `listen`, `stop` and `close`. Listener thread.
 *
 * Facts of µWebSockets.js (µWS) and Linux that this file is built around:
 *
 * - A µWS app has one certificate for life, and open connections stay with the app that accepted them. So a
 * new certificate needs a new app, which listens beside the old one (SO_REUSEPORT) before that one stops.
 * - With SO_REUSEPORT each listening socket has a queue of its own. Closing the socket resets the connections
 * in that queue, which the kernel has made and µWS has not accepted yet.
 * - µWS accepts the whole queue each time it polls its sockets. So only connections that were made between
 * the last poll and the close are lost: within some microseconds, if the close follows an idle tick. To lose
 * none, let the kernel hand them to another listener: `net.ipv4.tcp_migrate_req=1`, Linux 5.14 and later.
 *
 * Must hold: no listening socket is closed twice, which ends the process. Before the thread ends every socket
 * is closed, or libuv aborts the process (test/unit/request/connections.test.ts,
 * test/hostile/draining.test.ts). A new certificate cuts no connection (test/e2e/tls.test.ts).
 */
import uWS, { type TemplatedApp, type us_listen_socket } from 'uWebSockets.js';

/** A turn of the event loop up to this long is idle. A turn takes 10 µs without work, 100 with a request. */
const IDLE_MS_MAX = 0.05;
/** The wait for an idle tick ends after this many turns: some 100 ms if each turn has a request. */
const TURNS_MAX = 1_000;
/**
 * Apps at a time: the app that accepts, and those of former certificates, which keep their connections. A
 * ninth app closes the oldest, which cuts its connections. Few are left by then, because a certificate lasts
 * for weeks. µWS keeps the memory of an app's routes until the thread ends.
 */
const APPS_MAX = 8;
/**
 * The cipher suites of TLS 1.2 that have forward secrecy: without it a stolen private key opens connections
 * that were recorded before. All suites of TLS 1.3 have it, and this list does not restrict them.
 */
const CIPHERS = 'ECDHE+AESGCM:ECDHE+CHACHA20';

/** Paths of a certificate and its key. config/setting-files.ts has checked that they belong together. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  /** Of the key; undefined if the key is not encrypted. */
  readonly passphrase: string | undefined;
  /** Digest of both files: a new certificate at the same paths has another. */
  readonly digest: string;
}

/** The µWS app that accepts connections, and former apps, whose connections go on. */
export class ListenApps {
  readonly #route: (app: TemplatedApp) => void;
  /** Oldest first. The last one accepts. */
  readonly #apps: TemplatedApp[] = [];
  /** The socket that listens; undefined before `listen` and after `stop` or `close`. */
  #socket: us_listen_socket | undefined;
  /** Listening sockets that are to be closed at the next idle tick. */
  readonly #retiring = new Set<us_listen_socket>();
  /** Of the certificate of the app that accepts; undefined without TLS. */
  #digest: string | undefined;
  /** True while the oldest app is being closed, when µWS calls back for each of its connections. */
  #isClosingOldest = false;

  constructor(route: (app: TemplatedApp) => void) {
    this.#route = route;
  }

  get isClosingOldest(): boolean {
    return this.#isClosingOldest;
  }

  /** Whether the app that accepts has this certificate; with undefined, whether it has none. */
  serves(tls: TlsFiles | undefined): boolean {
    return this.#socket !== undefined && this.#digest === tls?.digest;
  }

  /**
   * Opens a new app with `tls`, which accepts from now on, and stops the app before it. Returns false, and
   * changes nothing, if the certificate or the port cannot be used.
   */
  listen(host: string, port: number, tls: TlsFiles | undefined): boolean {
    const app = appOf(tls);
    if (app === undefined) return false;
    this.#route(app);
    let openedSocket: us_listen_socket | undefined;
    // µWS calls back before `listen` returns.
    app.listen(host, port, (socket) => {
      if (socket !== false) openedSocket = socket;
    });
    if (openedSocket === undefined) return false;
    this.stop(() => undefined);
    this.#socket = openedSocket;
    this.#digest = tls?.digest;
    this.#apps.push(app);
    if (this.#apps.length > APPS_MAX) this.#closeOldest();
    return true;
  }

  #closeOldest(): void {
    // If nine apps came before an idle tick, the oldest app's listening socket is still open. Then it is
    // closed here. `close` below would close it without our notice, and the idle tick would close it again,
    // which ends the process. Connections in these sockets' queues may be reset, which is rare enough.
    for (const socket of this.#retiring) this.#closeSocket(socket);
    this.#isClosingOldest = true;
    try {
      this.#apps.shift()?.close();
    } finally {
      this.#isClosingOldest = false;
    }
  }

  /** Closes the listening socket, if there is one, at the next idle tick, then calls `then` once. */
  stop(then: () => void): void {
    const socket = this.#socket;
    this.#socket = undefined;
    if (socket !== undefined) this.#retiring.add(socket);
    onIdleTick(() => {
      if (socket !== undefined) this.#closeSocket(socket);
      then();
    });
  }

  /**
   * Closes the sockets and cuts every connection. Needed before the thread ends: if µWS holds a socket then,
   * the whole process aborts.
   */
  close(): void {
    if (this.#socket !== undefined) this.#retiring.add(this.#socket);
    this.#socket = undefined;
    for (const socket of this.#retiring) this.#closeSocket(socket);
    for (const app of this.#apps.splice(0)) app.close();
  }

  #closeSocket(socket: us_listen_socket): void {
    // `close` may have closed it already.
    if (this.#retiring.delete(socket)) uWS.us_listen_socket_close(socket);
  }
}

/** Returns undefined if the certificate cannot be used. */
function appOf(tls: TlsFiles | undefined): TemplatedApp | undefined {
  if (tls === undefined) return uWS.App();
  const { certFile, keyFile, passphrase } = tls;
  try {
    return uWS.SSLApp({
      cert_file_name: certFile,
      key_file_name: keyFile,
      ...(passphrase === undefined ? {} : { passphrase }),
      ssl_ciphers: CIPHERS,
      // Most of many connections are idle: OpenSSL frees their buffers between messages.
      ssl_prefer_low_memory_usage: true,
    });
  } catch {
    // config/setting-files.ts has checked both files, so mostly they have changed since. `listen` returns
    // false.
    return undefined;
  }
}

/**
 * Calls `then` once, right after an idle tick, or after TURNS_MAX turns. The call is in the check phase of
 * the event loop, which follows the poll: µWS has just accepted and read what the kernel had.
 */
export function onIdleTick(then: () => void): void {
  let turns = 0;
  let lastTurnMs = -Infinity;
  const onTurn = (): void => {
    const nowMs = performance.now();
    if (nowMs - lastTurnMs <= IDLE_MS_MAX || turns >= TURNS_MAX) {
      then();
      return;
    }
    turns += 1;
    lastTurnMs = nowMs;
    setImmediate(onTurn);
  };
  setImmediate(onTurn);
}
