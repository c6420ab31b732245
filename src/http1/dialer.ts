/**
 * Opens sockets to one origin, plain or TLS. Each pool (pool.ts) has one dialer, by which its connections
 * (connection.ts) open their sockets. Upstream worker.
 *
 * All sockets of a thread read into one buffer, so that no read allocates memory. (libuv asks for memory
 * right before it reads, on all systems but Windows.)
 *
 * Must hold: `onBytes` uses or copies the bytes before it returns, because the next read overwrites them
 * (test/unit/http1/client.tls-flow.test.ts, test/fuzz/http1-answers.test.ts).
 */
import { connect, isIP, type Socket, type TcpNetConnectOpts } from 'node:net';
import {
  connect as connectTls,
  createSecureContext,
  type ConnectionOptions,
  type SecureContext,
} from 'node:tls';
import type { HttpTarget } from './http-client.js';

/** As much as one read gets from the kernel's socket buffers at their usual sizes. */
const READ_BYTES_MAX = 64 * 1024;
/** TCP keep-alive, against middleboxes that drop idle connections. */
const TCP_KEEP_ALIVE_MS = 60_000;
/** How long an address of a host is tried before the next is tried too, as RFC 8305 recommends. */
const NEXT_ADDRESS_MS = 250;

const READ_BUFFER = Buffer.allocUnsafeSlow(READ_BYTES_MAX);

/** What a socket reports to its connection. `onClose` comes last, and once. */
export interface SocketEvents {
  /** The socket can be written to; with TLS, the certificate is valid. */
  onOpen(): void;
  /** `bytes[0..length)` are valid until the call returns. */
  onBytes(bytes: Buffer, length: number): void;
  /** The upstream sends nothing more. */
  onEnd(): void;
  /** `onClose` follows. */
  onError(error: Error): void;
  onClose(): void;
}

export class Dialer {
  readonly isSecure: boolean;
  readonly #host: string;
  readonly #port: number;
  /** Undefined without TLS. */
  readonly #context: SecureContext | undefined;
  /** The last TLS session that the server gave. With it the next handshake costs half. */
  #tlsSession: Buffer | undefined;

  constructor({ origin, ca }: HttpTarget) {
    const url = new URL(origin);
    this.isSecure = url.protocol === 'https:';
    // An IPv6 address has brackets in a URL, which `connect` does not take.
    this.#host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    this.#port = Number(url.port) || (this.isSecure ? 443 : 80);
    // Made once, because reading a bundle of certificates takes milliseconds.
    this.#context = this.isSecure ? createSecureContext(ca === undefined ? {} : { ca }) : undefined;
  }

  /** Calls no method of `events` before this returns. */
  dial(events: SocketEvents): Socket {
    const options: TcpNetConnectOpts = {
      host: this.#host,
      port: this.#port,
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: NEXT_ADDRESS_MS,
      onread: {
        buffer: READ_BUFFER,
        callback: (length) => {
          events.onBytes(READ_BUFFER, length);
          // False would pause the socket. `Http1Connection.pause` does so by itself.
          return true;
        },
      },
    };
    const socket = this.#context === undefined ? connect(options) : this.#dialSecure(options, this.#context);
    socket.once(this.isSecure ? 'secureConnect' : 'connect', () => {
      socket.setNoDelay(true);
      socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
      events.onOpen();
    });
    socket.once('end', () => events.onEnd());
    socket.on('error', (error: Error) => events.onError(error));
    socket.once('close', () => events.onClose());
    return socket;
  }

  #dialSecure(tcp: TcpNetConnectOpts, secureContext: SecureContext): Socket {
    const options: ConnectionOptions & TcpNetConnectOpts = {
      ...tcp,
      secureContext,
      // An IP address is no server name (RFC 6066, 3). The certificate is checked against the address anyway.
      servername: isIP(this.#host) === 0 ? this.#host : '',
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: true,
      ...(this.#tlsSession === undefined ? {} : { session: this.#tlsSession }),
    };
    const socket = connectTls(options);
    socket.on('session', (tlsSession: Buffer) => (this.#tlsSession = tlsSession));
    return socket;
  }
}
