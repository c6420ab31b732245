/**
 * One end of the channel between a listener and a worker: a MessagePort, and a ring for each direction.
 * listener-channel.ts has a FramePort for each worker, worker-channel.ts one for its listener, on their
 * threads. gateway/upstream-workers.ts makes the channels between threads, and
 * gateway/listener-with-worker.thread.ts those within a thread.
 *
 * A message costs some µs whatever it carries, and V8's serialiser 1 µs and more for each frame in it. So
 * frames are records of the ring. One message announces those of an event-loop turn by their bytes: `1540`.
 * A frame that cannot go by the ring (see frame-codec.ts) is _posted_: the message is then a list, such as
 * `[1200, frame, 340]`, with the frame between the bytes of the records before and after it. `setImmediate`
 * sends the message after all sockets of the turn were served, so no frame waits longer than its turn.
 *
 * Must hold: frames arrive in the order in which they were pushed, whether by the ring or posted
 * (test/unit/channel/frame-port.test.ts). `onFrame` uses no bytes for longer than the constructor says,
 * because their record is then given back, and posted bytes are freed. No test notices a longer use: it reads
 * other bytes, or none.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { asBuffer, freeBytes } from '../core/bytes.js';
import { invariant } from '../core/errors.js';
import { createSpscRing, SpscReader, SpscWriter } from '../core/spsc-ring.js';
import { readFrame, RECORD_BYTES_MAX, writeFrame } from './frame-codec.js';
import { FRAME_CALL, type DataFrame, type EndFrame, type Frame } from './messages.js';

/** What carries a FramePort's messages: a MessagePort, or a LocalPort. */
interface FrameTransport {
  /** `transfer` are the buffers in `message` that the sender gives up. */
  postMessage(message: unknown, transfer?: ArrayBuffer[]): void;
  /** `close`: the other end was closed, or its thread has ended. */
  // oxlint-disable-next-line typescript/no-explicit-any -- as MessagePort declares it
  on(event: 'message' | 'close', listener: (message: any) => void): unknown;
  close(): void;
}

/**
 * One end of a channel, as its thread gets it. A MessagePort must be in the transfer list of the message that
 * hands the end to its thread.
 */
export interface FrameChannel<Port extends FrameTransport = FrameTransport> {
  readonly port: Port;
  readonly incoming: SharedArrayBuffer;
  readonly outgoing: SharedArrayBuffer;
}

/** Bytes of the ring of one direction: twenty bodies of 12 KB. If the ring is full, frames are posted. */
const RING_BYTES = 256 * 1024;
invariant(RECORD_BYTES_MAX <= RING_BYTES / 2, 'any record fits an empty ring (core/spsc-ring.ts)');

/** The two ends of a new channel between threads. Main thread. */
export function createFrameChannel(): readonly [FrameChannel<MessagePort>, FrameChannel<MessagePort>] {
  const { port1, port2 } = new MessageChannel();
  return channelOf(port1, port2);
}

/** The two ends of a new channel within this thread. */
export function createLocalChannel(): readonly [FrameChannel, FrameChannel] {
  const port1 = new LocalPort();
  const port2 = new LocalPort();
  port1.peer = port2;
  port2.peer = port1;
  return channelOf(port1, port2);
}

/**
 * One end of a channel within a thread. A message arrives when the callback that sent it has returned, so
 * that neither end is called while it works. Messages that arrive before `on('message')` are kept. They are
 * few, because they come only while the worker's task starts, and only from calls that have a call slot.
 */
class LocalPort implements FrameTransport {
  /** The other end; undefined once this end is closed. */
  peer: LocalPort | undefined;
  #listener: ((message: never) => void) | undefined;
  #earlyMessages: unknown[] = [];

  /** Ignores `transfer`: the receiver gets the same buffers, which the sender does not use any more. */
  postMessage(message: unknown): void {
    const { peer } = this;
    if (peer !== undefined) queueMicrotask(() => peer.#receive(message));
  }

  on(event: 'message' | 'close', listener: (message: never) => void): void {
    // Both ends are in one thread and end with it, so no `close` needs to be reported.
    if (event === 'close') return;
    this.#listener = listener;
    // The cast, here and below: `listener` takes what the FramePort at the other end has posted.
    for (const message of this.#earlyMessages.splice(0)) listener(message as never);
  }

  /** Closes this end alone, which then drops what the other end sends. */
  close(): void {
    this.peer = undefined;
    this.#listener = () => undefined;
  }

  #receive(message: unknown): void {
    if (this.#listener === undefined) this.#earlyMessages.push(message);
    else this.#listener(message as never);
  }
}

function channelOf<Port extends FrameTransport>(
  port1: Port,
  port2: Port,
): readonly [FrameChannel<Port>, FrameChannel<Port>] {
  const ring1 = createSpscRing(RING_BYTES);
  const ring2 = createSpscRing(RING_BYTES);
  return [
    { port: port1, incoming: ring1, outgoing: ring2 },
    { port: port2, incoming: ring2, outgoing: ring1 },
  ];
}

/** A posted frame. Up to STRING_BYTES_MAX bytes are a string of as many characters. */
type Packed<F extends DataFrame | EndFrame> = Omit<F, 'bytes'> & { readonly bytes: string | Uint8Array };
type PostedFrame = Exclude<Frame, DataFrame | EndFrame> | Packed<DataFrame> | Packed<EndFrame>;

/**
 * A part of a message, one of three: the number of bytes of records that follow in the ring; the large body
 * of the call whose record came last; a posted frame.
 */
type Item = number | Uint8Array | PostedFrame;

/** A buffer costs more: 4 µs for its transfer, and V8 collects more often, as it counts it in both heaps. */
const STRING_BYTES_MAX = 4 * 1024;

/**
 * Bytes of posted frames after which a message is sent. All bytes of a message are in memory at once: 32 MB
 * if 500 fast streams had one message for a turn. A turn of small calls brings far fewer.
 */
const BATCH_BYTES_MAX = 256 * 1024;

/** `Sent` and `Received`: the frames of this side, and those of the other. */
export class FramePort<Sent extends Frame, Received extends Frame> {
  readonly #port: FrameTransport;
  readonly #out: SpscWriter;
  readonly #in: SpscReader;
  readonly #onFrame: (frame: Received, hasNext: boolean) => void;
  readonly #onRecord = (recordAt: number): void => this.#deliverBefore(readFrame(this.#in, recordAt));
  readonly #onTurnEnd = (): void => {
    this.#isScheduled = false;
    this.#flush();
  };
  /** The items of the next message. Empty if all frames go by the ring: then the message is one number. */
  #items: Item[] = [];
  #transfer: ArrayBuffer[] = [];
  /** Bytes of the posted frames and large bodies in `#items`. */
  #postedBytes = 0;
  /** Whether `#onTurnEnd` will run. */
  #isScheduled = false;
  /**
   * The frame that was read last. It is delivered only when the next item has been read, because that item
   * may be the frame's large body, or another frame of the same call (`hasNext`).
   */
  #pending: Frame | undefined;

  /**
   * `onFrame` gets each frame that arrives. With `hasNext` the next frame is of the same call and follows at
   * once. Bytes of a frame are valid until `onFrame` returns; bytes of a frame with `hasNext` until `onFrame`
   * has returned for the next frame too.
   */
  constructor(
    { port, incoming, outgoing }: FrameChannel,
    onFrame: (frame: Received, hasNext: boolean) => void,
  ) {
    this.#port = port;
    this.#out = new SpscWriter(outgoing);
    this.#in = new SpscReader(incoming);
    this.#onFrame = onFrame;
    port.on('message', (message: number | Item[]) => this.#receive(message));
  }

  /** Whether no frame waits for the end of this turn of the event loop. */
  get isFlushed(): boolean {
    return !this.#isScheduled;
  }

  /**
   * Queues a frame; after `close` it is lost. Its bytes are copied. The whole buffer of a large body is
   * transferred, so nobody may need anything in that buffer later.
   */
  push(frame: Sent): void {
    if (!writeFrame(this.#out, frame)) this.#post(frame);
    else if (frame.kind === FRAME_CALL && frame.request.largeBody !== undefined)
      this.#addItem(frame.request.largeBody, frame.request.largeBody);
    if (this.#postedBytes >= BATCH_BYTES_MAX) {
      this.#flush();
    } else if (!this.#isScheduled) {
      this.#isScheduled = true;
      setImmediate(this.#onTurnEnd);
    }
  }

  /** Sends the queued frames, then closes the channel (of a LocalPort, this end). */
  close(): void {
    this.#flush();
    this.#port.close();
  }

  #flush(): void {
    const recordBytes = this.#out.takeUnannounced();
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

  /** Queues a frame that cannot go by the ring. */
  #post(frame: Frame): void {
    if ('bytes' in frame) {
      const bytes = packed(frame.bytes);
      this.#addItem({ ...frame, bytes }, bytes);
    } else {
      this.#addItem(frame, frame.kind === FRAME_CALL ? frame.request.largeBody : undefined);
    }
  }

  /** `bytes`: those in the item. They count toward BATCH_BYTES_MAX, and a buffer is transferred. */
  #addItem(item: Item, bytes: string | Uint8Array | undefined): void {
    // The records so far come before the item, so that frames keep their order.
    const recordBytes = this.#out.takeUnannounced();
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
        else if (item instanceof Uint8Array) this.#addBody(item);
        else this.#deliverBefore(unpacked(item));
      }
    }
    this.#deliverBefore(undefined);
    if (typeof message !== 'number') freePosted(message);
    // Last: `onFrame` must be through with the bytes of all frames.
    this.#in.giveBack();
  }

  /** Puts the large body into the frame of its call, which was read last. */
  #addBody(largeBody: Uint8Array): void {
    const frame = this.#pending;
    invariant(frame?.kind === FRAME_CALL, 'a body follows its call');
    this.#pending = { ...frame, request: { ...frame.request, largeBody } };
  }

  /** Delivers the pending frame, and keeps `next` as the pending one; undefined at the end of a message. */
  #deliverBefore(next: Frame | undefined): void {
    const frame = this.#pending;
    this.#pending = next;
    // The cast: the other side's `push` takes no other frames.
    if (frame !== undefined) this.#onFrame(frame as Received, frame.id === next?.id);
  }
}

/** Frees the bytes of posted frames. `onFrame` is through with them, and nobody else has them. */
function freePosted(items: readonly Item[]): void {
  for (const item of items)
    if (typeof item === 'object' && 'kind' in item && 'bytes' in item && typeof item.bytes !== 'string')
      freeBytes(item.bytes);
}

/** Copies `bytes`, because the sender may write to their memory again. */
function packed(bytes: Uint8Array): string | Uint8Array {
  if (bytes.length <= STRING_BYTES_MAX) return asBuffer(bytes).toString('latin1');
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  return new Uint8Array(copy.buffer);
}

/** The frame as it was pushed. Its bytes are no Buffer, for the reason at `bytesOf` of frame-codec.ts. */
function unpacked(frame: PostedFrame): Frame {
  if (!('bytes' in frame) || typeof frame.bytes !== 'string') return frame as Frame;
  const { buffer, byteOffset, length } = Buffer.from(frame.bytes, 'latin1');
  return { ...frame, bytes: new Uint8Array(buffer, byteOffset, length) };
}
