/**
 * The µWS apps of a listener: one that accepts, over TLS where there is a certificate, and those before it whose connections
 * go on. Listener thread.
 *
 * An app has one certificate for life. With another, a new app listens beside the old one (SO_REUSEPORT) before that
 * stops; connections that are open stay with the app that accepted them.
 */
import uWS, { type TemplatedApp, type us_listen_socket } from 'uWebSockets.js';

/*
 * A turn of the event loop in which next to nothing happened. Listener thread.
 *
 * Closing a listening socket resets the connections that the kernel has made and nobody has accepted (SO_REUSEPORT gives each
 * socket a queue of its own). µWS accepts all there are whenever the sockets are looked at, so what is lost are connections
 * made between that look and the close. After a quiet turn these are microseconds. To have none lost at all the kernel must
 * hand them to another listener: `net.ipv4.tcp_migrate_req=1`, Linux 5.14 and later.
 */

/** A turn without work takes some 10 µs, one with a request some 100. */
const IDLE_MS_MAX = 0.05;
/** A listener that never rests is not waited for: some 100 ms. */
const TURNS_MAX = 1_000;

/** Calls back once, right after the sockets were looked at, in a later turn. */
export function onIdleTick(then: () => void): void {
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

/**
 * Apps that are kept for their connections: a certificate lasts for weeks. Where it is changed oftener the connections of the
 * eighth before are cut; the memory of an app's routes is µWS's, and is free again with its thread.
 */
const APPS_MAX = 8;

/** Of TLS 1.2; those of 1.3 are all good. Without forward secrecy whoever gets the key later reads what was recorded. */
const CIPHERS = 'ECDHE+AESGCM:ECDHE+CHACHA20';

/** A certificate's files, which were seen to belong together. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly passphrase: string | undefined;
  /** Of their contents. */
  readonly digest: string;
}

export class ListenApps {
  readonly #route: (app: TemplatedApp) => void;
  /** The one that accepts is the last. */
  readonly #apps: TemplatedApp[] = [];
  #socket: us_listen_socket | undefined;
  /** Those that are closed at the next good moment. */
  readonly #retiring = new Set<us_listen_socket>();
  #digest: string | undefined;

  /** `route` gives an app its routes. */
  constructor(route: (app: TemplatedApp) => void) {
    this.#route = route;
  }

  /** Whether a new app is needed for `tls`. */
  serves(tls: TlsFiles | undefined): boolean {
    return this.#socket !== undefined && this.#digest === tls?.digest;
  }

  /**
   * Accepts from now on with `tls`, beside the other listeners, and no more as before. False where the port can't be had, or
   * µWS cannot use the certificate: then nothing has changed.
   */
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
    this.#retire(() => undefined);
    this.#socket = opened;
    this.#digest = tls?.digest;
    this.#apps.push(app);
    if (this.#apps.length > APPS_MAX) this.#apps.shift()?.close();
    return true;
  }

  /** Accepts no more; calls back when that is so, soon and with no connection lost that was made. */
  stop(then: () => void): void {
    this.#retire(then);
  }

  /** Cuts every connection. µWS must hold no socket when its thread ends, else the whole process aborts. */
  close(): void {
    if (this.#socket !== undefined) this.#retiring.add(this.#socket);
    this.#socket = undefined;
    for (const socket of this.#retiring) this.#closeSocket(socket);
    for (const app of this.#apps.splice(0)) app.close();
  }

  #retire(then: () => void): void {
    const socket = this.#socket;
    this.#socket = undefined;
    if (socket !== undefined) this.#retiring.add(socket);
    onIdleTick(() => {
      if (socket !== undefined) this.#closeSocket(socket);
      then();
    });
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
      // Connections are many and mostly rest: their buffers are given back between messages.
      ssl_prefer_low_memory_usage: true,
    });
  } catch {
    return undefined;
  }
}
