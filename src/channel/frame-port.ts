/**
 * One end of the channel between a listener and a worker: a MessagePort, and a ring of memory for each
 * direction. Frames queued in one event-loop turn are sent as one message. Listener or upstream worker.
 *
 * A message costs some µs whatever it carries, and V8's serialiser 1 µs and more for each frame in it. So
 * frames are records of the ring, and the message only says how many bytes of records there are; a frame that
 * the ring does not take is posted, in its order. `setImmediate` runs after all sockets of the turn have been
 * served, so no frame waits longer than the turn that produced it. A turn that produces much (500 fast
 * streams at once: 32 MB) is sent as several messages, so that no batch grows with it.
 *
 * Must hold: frames arrive in the order in which they were pushed, whether by the ring or posted. Test:
 * test/unit/channel/frame-port.test.ts.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { invariant } from '../core/errors.js';
import { createSpscRing, SpscReader, SpscWriter } from '../core/spsc-ring.js';
import { readFrame, writeFrame } from './frame-codec.js';
import { FRAME_CALL, type DataFrame, type EndFrame, type Frame } from './messages.js';

/** What a thread is given of a channel; `port` is to be transferred. */
export interface FrameChannel {
  readonly port: MessagePort;
  readonly incoming: SharedArrayBuffer;
  readonly outgoing: SharedArrayBuffer;
}

/** Twenty bodies of 12 KB in one direction; a sender that finds the ring full posts its frames. */
const RING_BYTES = 256 * 1024;

/** The two ends of a new channel. */
export function createFrameChannel(): readonly [FrameChannel, FrameChannel] {
  const { port1, port2 } = new MessageChannel();
  const one = createSpscRing(RING_BYTES);
  const other = createSpscRing(RING_BYTES);
  return [
    { port: port1, incoming: one, outgoing: other },
    { port: port2, incoming: other, outgoing: one },
  ];
}

/**
 * Bytes in a frame that is posted. Few bytes become a string of as many characters, which V8 copies as it is;
 * many become an array of their own, which is transferred. A buffer costs 4 µs whatever its length, and
 * counts against the heap of both threads.
 */
type Packed<F extends DataFrame | EndFrame> = Omit<F, 'bytes'> & { readonly bytes: string | Uint8Array };
type PostedFrame = Exclude<Frame, DataFrame | EndFrame> | Packed<DataFrame> | Packed<EndFrame>;

/**
 * Bytes of records that have been written, the large body of the call in the record before it, or a frame
 * that is posted.
 */
type Item = number | Uint8Array | PostedFrame;

const STRING_BYTES_MAX = 4 * 1024;

/** What the posted frames of one message carry, about. Far above what a turn of small calls brings. */
const BATCH_BYTES_MAX = 256 * 1024;

export class FramePort {
  readonly #port: MessagePort;
  readonly #out: SpscWriter;
  readonly #in: SpscReader;
  readonly #onFrame: (frame: Frame, more: boolean) => void;
  readonly #onRecord = (at: number): void => this.#take(readFrame(this.#in, at));
  readonly #onTurnEnd = (): void => {
    this.#scheduled = false;
    this.#flush();
  };
  #items: Item[] = [];
  #transfer: ArrayBuffer[] = [];
  #postedBytes = 0;
  #scheduled = false;
  /**
   * The frame that was read last: what follows may be its body, and says whether the next frame is of the
   * same call.
   */
  #taken: Frame | undefined;

  /**
   * `onFrame` gets each frame that arrives; `more`: the next frame is of the same call and follows at once.
   * Bytes of a frame are valid during the call only, or with `more` until the next call.
   */
  constructor({ port, incoming, outgoing }: FrameChannel, onFrame: (frame: Frame, more: boolean) => void) {
    this.#port = port;
    this.#out = new SpscWriter(outgoing);
    this.#in = new SpscReader(incoming);
    this.#onFrame = onFrame;
    port.on('message', (message: number | Item[]) => this.#receive(message));
  }

  /**
   * Queues a frame. Its bytes are copied; only those of a large body are transferred, with their whole
   * buffer.
   */
  push(frame: Frame): void {
    if (!writeFrame(this.#out, frame)) this.#post(frame);
    else if (frame.kind === FRAME_CALL && frame.request.largeBody !== undefined)
      this.#add(frame.request.largeBody, frame.request.largeBody);
    if (this.#postedBytes >= BATCH_BYTES_MAX) {
      this.#flush();
    } else if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(this.#onTurnEnd);
    }
  }

  close(): void {
    this.#flush();
    this.#port.close();
  }

  #flush(): void {
    const recordBytes = this.#out.takeUnreported();
    if (this.#items.length === 0) {
      if (recordBytes > 0) this.#port.postMessage(recordBytes);
      return;
    }
    if (recordBytes > 0) this.#items.push(recordBytes);
    this.#port.postMessage(this.#items, this.#transfer);
    this.#items = [];
    this.#transfer = [];
    this.#postedBytes = 0;
  }

  #post(frame: Frame): void {
    if ('bytes' in frame) {
      const bytes = packed(frame.bytes);
      this.#add({ ...frame, bytes }, bytes);
    } else {
      this.#add(frame, frame.kind === FRAME_CALL ? frame.request.largeBody : undefined);
    }
  }

  /** `bytes` are those in the item that count, and are transferred. */
  #add(item: Item, bytes: string | Uint8Array | undefined): void {
    const recordBytes = this.#out.takeUnreported();
    if (recordBytes > 0) this.#items.push(recordBytes);
    this.#items.push(item);
    if (bytes === undefined) return;
    this.#postedBytes += bytes.length;
    if (typeof bytes !== 'string') this.#transfer.push(bytes.buffer as ArrayBuffer);
  }

  #receive(message: number | Item[]): void {
    if (typeof message === 'number') {
      this.#in.read(message, this.#onRecord);
    } else {
      for (const item of message) {
        if (typeof item === 'number') this.#in.read(item, this.#onRecord);
        else if (item instanceof Uint8Array) this.#takeBody(item);
        else this.#take(unpacked(item));
      }
    }
    this.#take(undefined);
    this.#in.giveBack();
  }

  #takeBody(largeBody: Uint8Array): void {
    const frame = this.#taken;
    invariant(frame?.kind === FRAME_CALL, 'a body follows its call');
    this.#taken = { ...frame, request: { ...frame.request, largeBody } };
  }

  #take(next: Frame | undefined): void {
    const frame = this.#taken;
    this.#taken = next;
    if (frame !== undefined) this.#onFrame(frame, frame.id === next?.id);
  }
}

/** Costs a copy. */
function packed(bytes: Uint8Array): string | Uint8Array {
  if (bytes.length <= STRING_BYTES_MAX)
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
  const own = Buffer.allocUnsafeSlow(bytes.length);
  own.set(bytes);
  return own;
}

/** As it was pushed. Not a Buffer, whose `slice` would not copy. */
function unpacked(frame: PostedFrame): Frame {
  if (!('bytes' in frame) || typeof frame.bytes !== 'string') return frame as Frame;
  const { buffer, byteOffset, length } = Buffer.from(frame.bytes, 'latin1');
  return { ...frame, bytes: new Uint8Array(buffer, byteOffset, length) };
}
