/**
 * A model of how µWS 20.41 sends a chunked answer (AsyncSocket.h and HttpResponse.h): the cork of 16 KiB,
 * what is kept for a socket that takes no more, and what is lost. The kernel's side is the test's: `accept`
 * says how much of a send it takes.
 */
import type { HttpResponse } from 'uWebSockets.js';

const CORK_BYTES = 16 * 1024;

const text = (value: Uint8Array | string): Buffer =>
  typeof value === 'string' ? Buffer.from(value) : Buffer.from(value);

/** What a client makes of the bytes of a chunked answer; undefined where the framing is broken. */
export function chunkedBodyOf(answer: Buffer): Buffer | undefined {
  const parts: Buffer[] = [];
  let at = answer.indexOf('\r\n\r\n') + 4;
  for (;;) {
    const lineEnd = answer.indexOf('\r\n', at);
    const size = answer.toString('latin1', at, lineEnd);
    if (lineEnd === -1 || !/^[0-9a-f]+$/.test(size)) return undefined;
    const start = lineEnd + 2;
    at = start + Number.parseInt(size, 16);
    if (answer.toString('latin1', at, at + 2) !== '\r\n') return undefined;
    if (at === start) return answer.length === at + 2 ? Buffer.concat(parts) : undefined;
    parts.push(answer.subarray(start, at));
    at += 2;
  }
}

export class UwsSocket {
  /** What µWS keeps until the socket takes it. */
  kept: Buffer = Buffer.alloc(0);
  /** Bytes that µWS took and dropped. */
  lostBytes = 0;
  ended = false;
  /** The connection was closed, with what was kept. */
  closed = false;
  /** A send was not taken whole: the kernel will tell when there is room. */
  waits = false;
  readonly #accept: (bytes: number) => number;
  readonly #sent: Buffer[] = [];
  #cork: Buffer | undefined;
  #chunked = false;
  #onWritable: (() => void) | undefined;

  readonly res = {
    cork: (write: () => void) => {
      this.#cork = Buffer.alloc(0);
      write();
      this.#uncork(Buffer.alloc(0));
    },
    writeHeader: (name: string, value: string) => void this.#write(text(`${name}: ${value}\r\n`)),
    write: (bytes: Uint8Array | string) => {
      if (!this.#chunked) this.#write(text('transfer-encoding: chunked\r\n'));
      this.#chunked = true;
      this.#write(text(`\r\n${bytes.length.toString(16)}\r\n`));
      return this.#write(text(bytes));
    },
    end: () => {
      this.#write(text('\r\n0\r\n\r\n'));
      this.ended = true;
      this.#onWritable = undefined;
    },
    onWritable: (callback: () => void) => (this.#onWritable = callback),
    close: () => (this.closed = true),
    pause: () => undefined,
    resume: () => undefined,
  } as unknown as HttpResponse;

  /** `accept` gets the length of a send and gives how many bytes of it the kernel takes. */
  constructor(accept: (bytes: number) => number) {
    this.#accept = accept;
  }

  /** What the client has got. */
  get sent(): Buffer {
    return Buffer.concat(this.#sent);
  }

  /** The kernel has room. */
  writable(): void {
    this.waits = false;
    if (this.#onWritable !== undefined) this.#onWritable();
    else this.#write(Buffer.alloc(0));
  }

  #send(bytes: Buffer): Buffer {
    const taken = this.#accept(bytes.length);
    this.#sent.push(bytes.subarray(0, taken));
    if (taken < bytes.length) this.waits = true;
    return bytes.subarray(taken);
  }

  /** Whether the socket took it, as far as that was tried. */
  #write(bytes: Buffer): boolean {
    if (this.kept.length > 0) {
      this.kept = this.#send(this.kept);
      if (this.kept.length > 0) {
        this.kept = Buffer.concat([this.kept, bytes]);
        return false;
      }
    }
    if (bytes.length === 0) return true;
    if (this.#cork === undefined) {
      this.kept = this.#send(bytes);
      return this.kept.length === 0;
    }
    if (this.#cork.length + bytes.length > CORK_BYTES) return this.#uncork(bytes);
    this.#cork = Buffer.concat([this.#cork, bytes]);
    return true;
  }

  #uncork(more: Buffer): boolean {
    const corked = this.#cork;
    this.#cork = undefined;
    if (corked !== undefined && corked.length > 0 && !this.#write(corked)) {
      this.lostBytes += more.length;
      return false;
    }
    return this.#write(more);
  }
}
