/**
 * The words that a listener and a worker share about one call in flight: credits and the cancel flag.
 *
 * One record of 16 bytes a call slot, all records in one SharedArrayBuffer:
 *
 *     word 0  credit bytes  what the worker may still send; the worker subtracts, the listener adds
 *     word 1  waiting       1 while the worker has paused its upstream for want of credits; the worker sets it, and
 *                           whoever takes it back to 0 by exchange owes the worker its wake-up
 *     word 2  cancelled     1 once the client has gone; the listener sets it, the worker reads it
 *     word 3  unused
 *
 * `postMessage` has no back-pressure, so this is what bounds the bytes between the two threads. A slot belongs to one
 * call from `open` by its listener until the worker's last frame for it, and only then to the next.
 */
import { invariant } from '../core/errors.js';
import { FRAME_BYTES_MAX } from '../core/limits.js';
import type { CallSlot } from '../core/units.js';

const WORDS_PER_CALL = 4;
const CREDIT_BYTES = 0;
const WAITING = 1;
const CANCELLED = 2;

export interface CallTableBuffer {
  readonly shared: SharedArrayBuffer;
  /** Credits of a new call, in bytes. With the frame that may overdraw them, they are what is held for a slow reader. */
  readonly windowBytes: number;
}

/**
 * The buffer for `callsMax` slots, each of which lets `bufferBytes` of an answer be between a worker and a client's socket.
 * Untouched records cost no memory. Main thread, once.
 */
export function createCallTable(callsMax: number, bufferBytes: number): CallTableBuffer {
  const windowBytes = bufferBytes - Math.min(FRAME_BYTES_MAX, bufferBytes >> 1);
  invariant(windowBytes > 0 && windowBytes < 2 ** 30, 'the window fits a credit word');
  return {
    shared: new SharedArrayBuffer(callsMax * WORDS_PER_CALL * Int32Array.BYTES_PER_ELEMENT),
    windowBytes,
  };
}

export class CallTable {
  readonly #words: Int32Array;
  readonly #windowBytes: number;
  /** A woken worker should find room for more than one chunk, else the two threads take turns at each of them. */
  readonly #resumeBytes: number;

  constructor(buffer: CallTableBuffer) {
    this.#words = new Int32Array(buffer.shared);
    this.#windowBytes = buffer.windowBytes;
    this.#resumeBytes = buffer.windowBytes >> 1;
  }

  /** Listener: a new call takes the slot. */
  open(slot: CallSlot): void {
    const base = slot * WORDS_PER_CALL;
    Atomics.store(this.#words, base + CREDIT_BYTES, this.#windowBytes);
    Atomics.store(this.#words, base + WAITING, 0);
    Atomics.store(this.#words, base + CANCELLED, 0);
  }

  /**
   * Worker: takes `bytes` of credit for a frame that is being sent. False where the credits are spent: the worker must
   * pause, and will be sent a Credit frame. The last frame may overdraw, so a window is exceeded by one frame at most.
   */
  spend(slot: CallSlot, bytes: number): boolean {
    const base = slot * WORDS_PER_CALL;
    if (Atomics.sub(this.#words, base + CREDIT_BYTES, bytes) - bytes > 0) return true;
    Atomics.store(this.#words, base + WAITING, 1);
    // The listener may have refunded between the two lines above and seen nobody waiting; then the worker goes on.
    if (Atomics.load(this.#words, base + CREDIT_BYTES) < this.#resumeBytes) return false;
    return Atomics.exchange(this.#words, base + WAITING, 0) === 1;
  }

  /** Listener: gives back what its socket has taken. True where the worker waits and must now be sent a Credit frame. */
  refund(slot: CallSlot, bytes: number): boolean {
    const base = slot * WORDS_PER_CALL;
    const credit = Atomics.add(this.#words, base + CREDIT_BYTES, bytes) + bytes;
    return credit >= this.#resumeBytes && Atomics.exchange(this.#words, base + WAITING, 0) === 1;
  }

  /** Listener: the client has gone. */
  cancel(slot: CallSlot): void {
    Atomics.store(this.#words, slot * WORDS_PER_CALL + CANCELLED, 1);
  }

  /** Worker: whether the client has gone, seen before the Cancel frame arrives. */
  isCancelled(slot: CallSlot): boolean {
    return Atomics.load(this.#words, slot * WORDS_PER_CALL + CANCELLED) === 1;
  }
}
