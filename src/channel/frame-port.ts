/**
 * One end of the link between a listener and a worker: a port, and a ring of memory for each direction. Frames of one turn of the event
 * loop leave as one message. Listener or upstream worker.
 *
 * A message costs some µs whatever it carries, and V8's serialiser 1 µs and more for each frame in it. So frames are records of the ring,
 * of which a message says how many bytes there are; what the ring does not take is posted, in its order. `setImmediate` runs after all
 * sockets of the turn have been served, so nothing waits longer than the turn that produced it. A turn that brings much (500 fast streams
 * at once: 32 MB) leaves in several messages, so that no batch grows with it.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { readFrame, writeFrame } from './frame-codec.js';
import { createFrameRing, FrameRingReader, FrameRingWriter } from './frame-ring.js';
import { FRAME_CALL, FRAME_DATA, FRAME_END, type Frame } from './messages.js';

/** What a thread is given of a link; `port` is to be transferred. */
export interface FrameChannel {
  readonly port: MessagePort;
  readonly incoming: SharedArrayBuffer;
  readonly outgoing: SharedArrayBuffer;
}

/** The two ends of a new link. */
export function createFrameChannel(): readonly [FrameChannel, FrameChannel] {
  const { port1, port2 } = new MessageChannel();
  const one = createFrameRing();
  const other = createFrameRing();
  return [
    { port: port1, incoming: one, outgoing: other },
    { port: port2, incoming: other, outgoing: one },
  ];
}

/** Bytes of the ring that have been written, or a frame that was posted. */
type Item = number | Frame;

/**
 * Bytes in a frame that is posted: few of them as the string that has them as its characters, which V8 copies as it is; many as an array
 * of their own, which is handed over. A buffer costs 4 µs whatever its length, and its memory counts against the heap of both threads.
 */
type Carried = string | Uint8Array;

const STRING_BYTES_MAX = 4 * 1024;

/** What the frames of one message carry, about. Far above what a turn of small calls brings. */
const BATCH_BYTES_MAX = 256 * 1024;

/** Of Data and End. */
const PAYLOAD_INDEX = 2;
const LARGE_BODY_INDEX = 10;

export class FramePort {
  readonly #port: MessagePort;
  readonly #out: FrameRingWriter;
  readonly #in: FrameRingReader;
  #items: Item[] = [];
  #owned: ArrayBuffer[] = [];
  #carriedBytes = 0;
  #scheduled = false;
  readonly #flush = (): void => {
    this.#scheduled = false;
    this.flush();
  };

  /** Bytes in what `onFrames` is given are valid during the call only. */
  constructor({ port, incoming, outgoing }: FrameChannel, onFrames: (frames: Frame[]) => void) {
    this.#port = port;
    this.#out = new FrameRingWriter(outgoing);
    this.#in = new FrameRingReader(incoming);
    port.on('message', (message: number | Item[]) => {
      onFrames(this.#framesOf(message));
      this.#in.giveBack();
    });
  }

  /** The bytes of a frame are copied, but for those of a large body, which are handed over with all of their buffer. */
  push(frame: Frame): void {
    if (!writeFrame(this.#out, frame)) this.#post(frame);
    if (this.#carriedBytes >= BATCH_BYTES_MAX) {
      this.flush();
    } else if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(this.#flush);
    }
  }

  /** Sends what has been pushed so far. */
  flush(): void {
    const unreportedBytes = this.#out.takeUnreported();
    if (this.#items.length === 0) {
      if (unreportedBytes > 0) this.#port.postMessage(unreportedBytes);
      return;
    }
    if (unreportedBytes > 0) this.#items.push(unreportedBytes);
    const items = this.#items;
    const owned = this.#owned;
    this.#items = [];
    this.#owned = [];
    this.#carriedBytes = 0;
    this.#port.postMessage(items, owned);
  }

  close(): void {
    this.flush();
    this.#port.close();
  }

  #post(frame: Frame): void {
    const unreportedBytes = this.#out.takeUnreported();
    if (unreportedBytes > 0) this.#items.push(unreportedBytes);
    const kind = frame[0];
    if (kind === FRAME_DATA || kind === FRAME_END) {
      const payload = carried(frame[PAYLOAD_INDEX] as Uint8Array);
      this.#items.push(frame.with(PAYLOAD_INDEX, payload));
      this.#account(payload);
    } else {
      this.#items.push(frame);
      if (kind === FRAME_CALL && frame[LARGE_BODY_INDEX] !== undefined)
        this.#account(frame[LARGE_BODY_INDEX] as Uint8Array);
    }
  }

  #account(payload: Carried): void {
    this.#carriedBytes += payload.length;
    if (typeof payload !== 'string') this.#owned.push(payload.buffer as ArrayBuffer);
  }

  #framesOf(message: number | Item[]): Frame[] {
    const frames: Frame[] = [];
    const add = (at: number): void => void frames.push(readFrame(this.#in, at));
    if (typeof message === 'number') {
      this.#in.read(message, add);
      return frames;
    }
    for (const item of message) {
      if (typeof item === 'number') this.#in.read(item, add);
      else frames.push(unpacked(item));
    }
    return frames;
  }
}

/** As it was pushed. */
function unpacked(frame: Frame): Frame {
  const payload = frame[PAYLOAD_INDEX];
  const isText = (frame[0] === FRAME_DATA || frame[0] === FRAME_END) && typeof payload === 'string';
  return isText ? frame.with(PAYLOAD_INDEX, bytesOf(payload)) : frame;
}

/** No Buffer, whose `slice` does not copy. */
function bytesOf(text: string): Uint8Array {
  const { buffer, byteOffset, length } = Buffer.from(text, 'latin1');
  return new Uint8Array(buffer, byteOffset, length);
}

/** Costs a copy. */
function carried(bytes: Uint8Array): Carried {
  if (bytes.length <= STRING_BYTES_MAX)
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
  const own = Buffer.allocUnsafeSlow(bytes.length);
  own.set(bytes);
  return own;
}
