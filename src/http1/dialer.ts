/**
 * Opens sockets to one origin, plain or TLS. Upstream worker.
 *
 * All sockets of a thread read into one buffer: what a read brought is used or copied before the next read, so that no memory is
 * taken for each. (libuv asks for memory right before it reads, on all systems but Windows.)
 */
import { connect, isIP, type Socket, type TcpNetConnectOpts } from 'node:net';
import type { HttpTarget } from './http-client.js';
import {
  connect as connectTls,
  createSecureContext,
  type ConnectionOptions,
  type SecureContext,
} from 'node:tls';

/** What one read may bring: as much as the system's socket buffers give in one go at the usual sizes. */
const READ_BYTES_MAX = 64 * 1024;
/** TCP's own, against what drops idle connections on the way. */
const TCP_KEEP_ALIVE_MS = 60_000;
/** As RFC 8305 recommends: then the next address is tried. */
const NEXT_ADDRESS_MS = 250;

const READ_BUFFER = Buffer.allocUnsafeSlow(READ_BYTES_MAX);

export interface SocketEvents {
  /** It can be written to; over TLS: the certificate is good. */
  onOpen(): void;
  /** `bytes[0..length)` belongs to the receiver until it returns. */
  onBytes(bytes: Buffer, length: number): void;
  /** The other side sends nothing more. */
  onEnd(): void;
  onError(error: Error): void;
  onClose(): void;
}

export class Dialer {
  readonly isSecure: boolean;
  readonly #host: string;
  readonly #port: number;
  readonly #context: SecureContext | undefined;
  /** The last that the other side gave: saves a connection half of its handshake. */
  #session: Buffer | undefined;

  constructor({ origin, ca }: HttpTarget) {
    const url = new URL(origin);
    this.isSecure = url.protocol === 'https:';
    this.#host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    this.#port = Number(url.port) || (this.isSecure ? 443 : 80);
    // Once: to read a bundle of certificates takes milliseconds.
    this.#context = this.isSecure ? createSecureContext(ca === undefined ? {} : { ca }) : undefined;
  }

  /** Calls nothing of `events` before it has returned. */
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
      // An address is no server name (RFC 6066, 3); the certificate is checked against it all the same.
      servername: isIP(this.#host) === 0 ? this.#host : '',
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: true,
      ...(this.#session === undefined ? {} : { session: this.#session }),
    };
    const socket = connectTls(options);
    socket.on('session', (session: Buffer) => (this.#session = session));
    return socket;
  }
}
