/**
 * A TCP connection that sends what it is given, right or wrong, and reads HTTP responses one by one.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { within } from '../../bench/support/child.js';

export interface RawAnswer {
  readonly status: number;
  /** Lower-case names. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

interface Head {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly bodyStart: number;
}

const HEAD_END = '\r\n\r\n';
const CONNECT_TIMEOUT_MS = 60_000;
const ANSWER_TIMEOUT_MS = 60_000;

function headOf(bytes: Buffer): Head | undefined {
  const end = bytes.indexOf(HEAD_END);
  if (end === -1) return undefined;
  const [statusLine = '', ...lines] = bytes.subarray(0, end).toString('latin1').split('\r\n');
  const headers = new Map(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  return { status: Number(statusLine.split(' ')[1]), headers, bodyStart: end + HEAD_END.length };
}

/** A chunked body from `start`: its text and where it ends; undefined while it is not whole. */
function chunkedBody(
  bytes: Buffer,
  start: number,
): { readonly body: string; readonly end: number } | undefined {
  const parts: Buffer[] = [];
  let at = start;
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd === -1) return undefined;
    const size = Number.parseInt(bytes.subarray(at, lineEnd).toString('latin1'), 16);
    const dataStart = lineEnd + 2;
    const dataEnd = dataStart + size;
    if (bytes.length < dataEnd + 2) return undefined;
    if (size === 0) return { body: Buffer.concat(parts).toString(), end: dataEnd + 2 };
    parts.push(bytes.subarray(dataStart, dataEnd));
    at = dataEnd + 2;
  }
}

export class RawConnection {
  readonly socket: Socket;
  /** Resolves when the other side has closed, or the connection broke. */
  readonly closed: Promise<void>;
  #received: Buffer = Buffer.alloc(0);
  #ended = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (bytes: Buffer) => {
      this.#received = Buffer.concat([this.#received, bytes]);
    });
    socket.on('error', () => undefined); // A reset is a way to close.
    this.closed = new Promise((resolve) => {
      socket.once('close', () => {
        this.#ended = true;
        resolve();
      });
    });
  }

  static async open(port: number): Promise<RawConnection> {
    const socket = connect({ host: '127.0.0.1', port });
    await within(once(socket, 'connect'), CONNECT_TIMEOUT_MS, 'connect');
    return new RawConnection(socket);
  }

  send(bytes: string | Uint8Array): void {
    this.socket.write(bytes);
  }

  /** One byte a turn of the event loop, each a segment of its own. */
  async sendByteByByte(bytes: string | Uint8Array): Promise<void> {
    for (const byte of Buffer.from(bytes)) {
      await new Promise<void>((sent) => this.socket.write(Uint8Array.of(byte), () => setImmediate(sent)));
    }
  }

  /**
   * The next whole response, also an interim one (100). Rejects when the connection closes before, or after
   * 30 s.
   */
  answer(): Promise<RawAnswer> {
    return within(this.#nextAnswer(), ANSWER_TIMEOUT_MS, 'answer');
  }

  /** What has come and is not read yet. */
  pending(): string {
    return this.#received.toString();
  }

  close(): void {
    this.socket.destroy();
  }

  async #nextAnswer(): Promise<RawAnswer> {
    for (;;) {
      const answer = this.#take();
      if (answer !== undefined) return answer;
      if (this.#ended) throw new Error(`closed before a whole answer; got: ${this.pending().slice(0, 300)}`);
      await Promise.race([once(this.socket, 'data'), this.closed]);
    }
  }

  #take(): RawAnswer | undefined {
    const head = headOf(this.#received);
    if (head === undefined) return undefined;
    const { status, headers, bodyStart } = head;
    if (headers.get('transfer-encoding') === 'chunked') {
      const chunked = chunkedBody(this.#received, bodyStart);
      if (chunked === undefined) return undefined;
      this.#received = this.#received.subarray(chunked.end);
      return { status, headers, body: chunked.body };
    }
    const length = Number(headers.get('content-length') ?? 0);
    const end = bodyStart + length;
    if (this.#received.length < end) return undefined;
    const body = this.#received.subarray(bodyStart, end).toString();
    this.#received = this.#received.subarray(end);
    return { status, headers, body };
  }
}
