/**
 * One end of the port between a listener and a worker: frames of one turn of the event loop leave as one message.
 * Listener or upstream worker.
 *
 * A message costs some µs whatever it carries, and a frame in it 1 µs. `setImmediate` runs after all sockets of the turn have been
 * served, so nothing waits longer than the turn that produced it. A turn that brings much (500 fast streams at once: 32 MB) leaves in
 * several messages, so that no batch grows with it.
 */
import type { MessagePort } from 'node:worker_threads';

/** `unknown` elements: frames are checked by their kind where they are read. */
export type Frame = readonly unknown[];

/**
 * Bytes in a frame: few of them as the string that has them as its characters, which V8 copies as it is; many as an array of their
 * own, which is handed over. A buffer costs 4 µs whatever its length, and its memory counts against the heap of both threads.
 */
export type Carried = string | Uint8Array;

const STRING_BYTES_MAX = 4 * 1024;

/** What the frames of one message carry, about. Far above what a turn of small calls brings. */
const BATCH_BYTES_MAX = 256 * 1024;

/** Costs a copy. */
export function carried(bytes: Uint8Array): Carried {
  if (bytes.length <= STRING_BYTES_MAX) {
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
  }
  const own = Buffer.allocUnsafeSlow(bytes.length);
  own.set(bytes);
  return own;
}

/** What `carried` was given. Not for long: it may share its memory with others. */
export function bytesOfCarried(from: Carried): Uint8Array {
  if (typeof from !== 'string') return from;
  const { buffer, byteOffset, length } = Buffer.from(from, 'latin1');
  // No Buffer, whose `slice` does not copy.
  return new Uint8Array(buffer, byteOffset, length);
}

export class FramePort {
  readonly #port: MessagePort;
  #frames: Frame[] = [];
  #owned: ArrayBuffer[] = [];
  #carriedBytes = 0;
  #scheduled = false;
  readonly #flush = (): void => {
    this.#scheduled = false;
    this.flush();
  };

  constructor(port: MessagePort, onFrames: (frames: Frame[]) => void) {
    this.#port = port;
    port.on('message', onFrames);
  }

  /** `payload` is in the frame; an array is handed over, with all of its buffer. */
  push(frame: Frame, payload: Carried = ''): void {
    this.#frames.push(frame);
    if (typeof payload !== 'string') this.#owned.push(payload.buffer as ArrayBuffer);
    this.#carriedBytes += payload.length;
    if (this.#carriedBytes >= BATCH_BYTES_MAX) {
      this.#send();
      return;
    }
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(this.#flush);
  }

  /** Sends what has been pushed so far. */
  flush(): void {
    if (this.#frames.length > 0) this.#send();
  }

  close(): void {
    this.flush();
    this.#port.close();
  }

  #send(): void {
    const frames = this.#frames;
    const owned = this.#owned;
    this.#frames = [];
    this.#owned = [];
    this.#carriedBytes = 0;
    this.#port.postMessage(frames, owned);
  }
}
