/**
 * An upstream that breaks HTTP on purpose, over bare sockets: each path has its own script, which gets the
 * socket once the request is whole and writes what it likes.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { eventually } from './gateway.js';
import type { Scope } from './mock.js';

/**
 * Writes its response, right or wrong. `stream` is what the request asked for; `reached` resolves once the
 * caller has some of it, if the test tells by `reach`.
 */
export type FaultScript = (socket: Socket, stream: boolean, reached: Promise<void>) => void;

/**
 * Name of a connection to a script that has not had a request: the HTTP client may have opened it for a call
 * that another one took, and keeps it for the next call as long as any other.
 */
export const UNUSED = 'no request yet';

const HEAD_END = '\r\n\r\n';
/**
 * Between the parts of a response, so that most are read apart. No test may rest on it: a busy gateway reads
 * two at once. Where the first begins a stream and the second breaks it, take `sendOnceReached`.
 */
const PART_MS = 20;
const DRIP_MS = 40;

export class FaultServer {
  /** Connections of all listeners that are open, with the name of their last request. */
  readonly sockets = new Map<Socket, string>();
  /** Requests of each path, by its first part. */
  readonly requests = new Map<string, number>();
  readonly #scope: Scope;
  /** By path, of its last request for a stream. */
  readonly #reached = new Map<string, () => void>();

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** A listener of its own; its port. */
  async listen(name: string, onConnection: (socket: Socket) => void): Promise<number> {
    const server: Server = createServer((socket) => {
      this.track(socket, name);
      onConnection(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#scope.teardown(() => {
      for (const socket of this.sockets.keys()) socket.destroy();
      server.close();
    });
    return (server.address() as AddressInfo).port;
  }

  track(socket: Socket, name: string): void {
    socket.setNoDelay(true);
    this.sockets.set(socket, name);
    socket.on('error', () => undefined);
    socket.on('close', () => this.sockets.delete(socket));
  }

  /** A listener for scripts: `http://127.0.0.1:port/<name>/…` runs the script of that name. */
  scripted(scripts: ReadonlyMap<string, FaultScript>): Promise<number> {
    return this.listen(UNUSED, (socket) => {
      let received: Buffer = Buffer.alloc(0);
      socket.on('data', (bytes: Buffer) => {
        received = Buffer.concat([received, bytes]);
        const end = received.indexOf(HEAD_END);
        if (end === -1) return;
        const head = received.toString('latin1', 0, end);
        const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        const bodyStart = end + HEAD_END.length;
        if (received.length < bodyStart + length) return;
        const body = received.toString('utf8', bodyStart, bodyStart + length);
        received = received.subarray(bodyStart + length);
        const name = /^POST \/([^/]+)\//.exec(head)?.[1] ?? '';
        this.sockets.set(socket, name);
        this.requests.set(name, (this.requests.get(name) ?? 0) + 1);
        // Some providers say it in the path.
        const isStream =
          /^POST \S*(?:stream)/i.test(head) || (JSON.parse(body) as { stream?: boolean }).stream === true;
        const reached = new Promise<void>((resolve) => {
          if (isStream) this.#reached.set(name, resolve);
        });
        scripts.get(name)?.(socket, isStream, reached);
      });
    });
  }

  /** The caller of the last request to `name` has some of the response. */
  reach(name: string): void {
    this.#reached.get(name)?.();
  }
}

/** Status line and headers with the empty line after them. `status` may have a reason: `200 OK`. */
export function head(status: number | string, headers: Readonly<Record<string, string>> = {}): string {
  const line = typeof status === 'number' ? `${status} Fault` : status;
  const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${line}\r\n${fields.join('')}\r\n`;
}

/** One chunk of a chunked body. */
export const chunked = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
export const LAST_CHUNK = '0\r\n\r\n';

type End = 'close' | 'reset' | 'stall';

/**
 * Resolves when the other side, on this host, has read all that was written, or has left: a reset drops what
 * it has not read, which on a busy machine is much.
 */
function allRead({ localPort, remotePort }: Socket): Promise<true> {
  const portOf = (address: string | undefined): number => Number.parseInt(address?.split(':')[1] ?? '', 16);
  return eventually('all is read', () => {
    const lines = readFileSync('/proc/net/tcp', 'latin1').split('\n').slice(1);
    const isUnread = lines.some((line) => {
      const [, local, remote, , queues = ''] = line.trim().split(/\s+/);
      const [sent, received] = queues.split(':').map((bytes) => Number.parseInt(bytes, 16));
      const [from, to] = [portOf(local), portOf(remote)];
      return (
        (from === localPort && to === remotePort && sent! > 0) ||
        (from === remotePort && to === localPort && received! > 0)
      );
    });
    return isUnread ? undefined : true;
  });
}

/**
 * Writes the parts with a short pause between them, then closes, resets, or waits for the other side to
 * leave. A reset waits until the parts were read.
 */
export function send(socket: Socket, parts: readonly (string | Uint8Array)[], end: End): void {
  const [part, ...rest] = parts;
  if (part === undefined) {
    if (end === 'close') socket.end();
    else if (end === 'reset') void allRead(socket).then(() => socket.resetAndDestroy());
    return;
  }
  socket.write(part);
  setTimeout(() => send(socket, rest, end), PART_MS);
}

/**
 * Writes the first parts of a stream, and when its caller has some of it the others: until then, another
 * upstream may be asked.
 */
export function sendOnceReached(
  reached: Promise<void>,
  socket: Socket,
  first: readonly (string | Uint8Array)[],
  rest: readonly (string | Uint8Array)[],
  end: End,
): void {
  send(socket, first, 'stall');
  void reached.then(() => send(socket, rest, end));
}

/** Writes `piece` for as long as the other side takes it, up to `bytesMax`, then `last`, and closes. */
export function flood(socket: Socket, piece: string, bytesMax: number, last = ''): void {
  let bytes = 0;
  const write = (): void => {
    while (bytes < bytesMax) {
      bytes += piece.length;
      if (socket.destroyed) return;
      if (!socket.write(piece)) {
        socket.once('drain', write);
        return;
      }
    }
    socket.end(last);
  };
  write();
}

/** Writes `piece` every few milliseconds until the other side leaves. */
export function drip(socket: Socket, piece: string): void {
  const timer = setInterval(() => socket.write(piece), DRIP_MS);
  socket.on('close', () => clearInterval(timer));
}
