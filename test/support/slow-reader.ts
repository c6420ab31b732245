/**
 * A client that reads so many bytes a second and no more, whatever waits for it in the kernel's buffers.
 */
import { connect, type Socket } from 'node:net';

const READS_PER_SECOND = 4;

export class SlowReader {
  readonly socket: Socket;
  /** Resolves when the connection has ended, from whichever side. */
  readonly closed: Promise<void>;
  /** What was read; only while `keep` was asked for. */
  readonly parts: Buffer[] = [];
  readBytes = 0;
  isClosed = false;
  #timer: NodeJS.Timeout | undefined;
  #paceBytes: number;

  /** Sends a call and reads `bytesPerSecond` of its response from then on. 0 reads nothing. */
  constructor(
    port: number,
    key: string,
    body: object,
    bytesPerSecond: number,
    keep = false,
    headers: Readonly<Record<string, string>> = {},
    path = '/v1/chat/completions',
  ) {
    const pieceBytes = 1024 * 64;
    const buffer = Buffer.alloc(
      bytesPerSecond === 0 ? 1 : Math.min(pieceBytes, bytesPerSecond / READS_PER_SECOND),
    );
    this.#paceBytes = bytesPerSecond / READS_PER_SECOND;
    let left = this.#paceBytes;
    this.socket = connect({
      host: '127.0.0.1',
      port,
      onread: {
        buffer,
        callback: (count) => {
          this.readBytes += count;
          if (keep) this.parts.push(Buffer.from(buffer.subarray(0, count)));
          left -= count;
          return left > 0;
        },
      },
    });
    const text = JSON.stringify(body);
    const more = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    this.socket.write(
      `POST ${path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\n` +
        `content-type: application/json\r\n${more.join('')}content-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
    );
    this.socket.on('error', () => undefined); // A reset is a way to end.
    this.#timer = setInterval(() => {
      left = this.#paceBytes;
      if (left > 0) this.socket.resume();
    }, 1_000 / READS_PER_SECOND);
    this.closed = new Promise((resolve) => {
      this.socket.once('close', () => {
        this.isClosed = true;
        clearInterval(this.#timer);
        resolve();
      });
    });
  }

  /** Changes the pace from the next read on. */
  set bytesPerSecond(value: number) {
    this.#paceBytes = value / READS_PER_SECOND;
  }

  leave(): void {
    this.socket.destroy();
  }

  text(): string {
    return Buffer.concat(this.parts).toString('latin1');
  }
}
