/**
 * The call table: words that a listener and a worker share about each call in flight (credit-based flow
 * control, the cancel flag, which upstream has the call). listener-channel.ts uses it on the listener's
 * thread, worker-channel.ts on the worker's; the main thread only makes its memory.
 *
 * One record of 28 bytes a call slot, all records in one SharedArrayBuffer:
 *
 *     word 0  credit bytes  what the worker may still send; the worker subtracts, the listener adds
 *     word 1  waiting       1 while the worker has paused its upstream for lack of credits. The worker sets
 *                           the word; the side that exchanges it for 0 makes the worker continue
 *     word 2  generation    the generation (open-calls.ts) of the call that has the slot, inverted once its
 *                           client has left. The listener sets the word, the worker reads it
 *     word 3  resume bytes  credits at which a waiting worker continues; the listener sets it in `open`
 *     word 4  upstream      bits 0-15: 1 + the slot of the upstream that got the call last, 0 for none;
 *                           from bit 16: 0 if that upstream serves the model that the call names, else the
 *                           number of the fallback, from 1. The worker sets the word, the listener reads it,
 *                           and clears it before the next call
 *     word 5  queued        milliseconds that the call has waited because its upstreams were at their
 *                           limits; set and cleared as word 4
 *     word 6  tried         when the upstream of word 4 got the call: units of 10 µs of the monotonic clock,
 *                           modulo 2^32; set before word 4, valid only if word 4 names an upstream
 *
 * `postMessage` has no back-pressure, so the credits bound the bytes between the two threads. A call's
 * _window_ is here, as in TCP, the credits that it begins with: so many bytes, and one frame, may be under
 * way.
 *
 * Must hold: a slot belongs to one call from `begin` by its listener until the worker's last frame for it, or
 * until that listener has died (test/unit/channel/link.test.ts). Only the sides named above write each word,
 * and by atomics. A plain read is enough for a word that was stored before a frame that has come.
 */
import { invariant } from '../core/errors.js';
import { FRAME_BYTES_MAX } from '../core/limits.js';
import type { CallSlot, MonotonicMs } from '../core/units.js';
import { generationOfCall, slotOfCall, type CallId } from './open-calls.js';

const WORDS_PER_CALL = 7;
const CREDIT_BYTES = 0;
const WAITING = 1;
const GENERATION = 2;
const RESUME_BYTES = 3;
const UPSTREAM = 4;
const QUEUED_MS = 5;
const TRIED = 6;
/** Units of the word `tried` in a millisecond. The word wraps after 11.9 hours. */
const TRIED_UNITS_PER_MS = 100;
/** A second. The clocks of two threads differ by far less, some microseconds (core/clock.ts). */
const CLOCKS_APART_UNITS_MAX = 1_000 * TRIED_UNITS_PER_MS;
/** The two fields of the word `upstream`. The unit test checks that UPSTREAM_SLOTS_MAX fits the mask. */
const FALLBACK_SHIFT = 16;
const UPSTREAM_MASK = 0xffff;

/**
 * The windows of a listener's calls add up to about this before new calls get smaller windows. So 42 calls
 * have whole windows by the default of `stream_buffer_bytes`, and 20,000 slow readers hold 0.6 GB in their
 * windows instead of 4. A lone stream needs its whole window: 50 MB took 0.3 s, and 1.5 s with a sixth of the
 * window. Many streams do not: eight at once were as fast with either.
 */
const WINDOWS_BYTES_MAX = 8 * 1024 * 1024;
/** No window is smaller, unless the settings make all smaller. */
const WINDOW_BYTES_MIN = FRAME_BYTES_MAX / 2;

export interface CallTableBuffer {
  readonly shared: SharedArrayBuffer;
  /**
   * The most credits that a new call gets, in bytes. Of a slow reader's response so many bytes are buffered,
   * and the one frame that may overdraw the credits.
   */
  readonly windowBytes: number;
}

/**
 * The buffer for `callsMax` slots. Of each response at most `bufferBytes` are between a worker and the
 * client's socket, as long as no frame is longer than FRAME_BYTES_MAX and `bufferBytes` are two such frames:
 * a window and the frame that overdraws it. Events of a stream are never cut, because the listener's comments
 * may come only between events: a long one makes a longer frame. For fewer bytes the window is half of them,
 * so there may be half of them and a frame. Untouched records cost no memory. The main thread calls it once.
 */
export function createCallTable(callsMax: number, bufferBytes: number): CallTableBuffer {
  const windowBytes = bufferBytes - Math.min(FRAME_BYTES_MAX, bufferBytes >> 1);
  invariant(windowBytes > 0 && windowBytes < 2 ** 30, 'the window fits a credit word');
  return {
    shared: new SharedArrayBuffer(callsMax * WORDS_PER_CALL * Int32Array.BYTES_PER_ELEMENT),
    windowBytes,
  };
}

/** What a worker calls. All other methods are the listener's. */
export type WorkerCallTable = Pick<
  CallTable,
  'slots' | 'isCancelled' | 'spend' | 'recordUpstream' | 'recordQueued'
>;

export class CallTable {
  readonly #words: Int32Array;
  readonly #windowBytes: number;

  constructor(buffer: CallTableBuffer) {
    this.#words = new Int32Array(buffer.shared);
    this.#windowBytes = buffer.windowBytes;
  }

  /** How many call slots all listeners have together. */
  get slots(): number {
    return this.#words.length / WORDS_PER_CALL;
  }

  /**
   * Listener, first for each call: the slot belongs to the call from now on. Clears what was recorded of the
   * slot's last call. The word `tried` may stay, because it means nothing without an upstream.
   */
  begin(id: CallId): void {
    const base = slotOfCall(id) * WORDS_PER_CALL;
    Atomics.store(this.#words, base + GENERATION, generationOfCall(id));
    Atomics.store(this.#words, base + UPSTREAM, 0);
    Atomics.store(this.#words, base + QUEUED_MS, 0);
  }

  /** Listener, after `begin`: the call goes to a worker. `inFlight`: the listener's calls, with this one. */
  open(slot: CallSlot, inFlight: number): void {
    const base = slot * WORDS_PER_CALL;
    const shareBytes = Math.max(WINDOW_BYTES_MIN, Math.floor(WINDOWS_BYTES_MAX / inFlight));
    const windowBytes = Math.min(this.#windowBytes, shareBytes);
    Atomics.store(this.#words, base + CREDIT_BYTES, windowBytes);
    // A worker that continues should have credits for several chunks. With fewer it pauses again after each.
    Atomics.store(this.#words, base + RESUME_BYTES, windowBytes >> 1);
    Atomics.store(this.#words, base + WAITING, 0);
  }

  /**
   * Worker: takes `bytes` of credit for a frame that was just queued, right after `isCancelled` of the call
   * was false: so no other call has the slot. False if the credits are spent: the worker must pause, and gets
   * a Credit frame later. Only the frame before the pause may overdraw, so more than the window by one frame
   * may be under way.
   */
  spend(slot: CallSlot, bytes: number): boolean {
    const base = slot * WORDS_PER_CALL;
    if (Atomics.sub(this.#words, base + CREDIT_BYTES, bytes) - bytes > 0) return true;
    // If the word was 1 before, an earlier frame has paused the worker, and the Credit frame is still to
    // come: the refund that reaches RESUME_BYTES adds first, and exchanges the word afterwards.
    if (Atomics.exchange(this.#words, base + WAITING, 1) === 1) return false;
    // The listener may have refunded after the `sub` and before the exchange, while the word was 0. Then the
    // worker sets it to 0 again and continues, unless the listener is faster and sends a Credit frame.
    const credit = Atomics.load(this.#words, base + CREDIT_BYTES);
    if (credit < Atomics.load(this.#words, base + RESUME_BYTES)) return false;
    return Atomics.exchange(this.#words, base + WAITING, 0) === 1;
  }

  /** Listener: the client's socket has taken `bytes`. If true, the worker waits: send it a Credit frame. */
  refund(slot: CallSlot, bytes: number): boolean {
    const base = slot * WORDS_PER_CALL;
    const credit = Atomics.add(this.#words, base + CREDIT_BYTES, bytes) + bytes;
    if (credit < Atomics.load(this.#words, base + RESUME_BYTES)) return false;
    return Atomics.exchange(this.#words, base + WAITING, 0) === 1;
  }

  /** Worker: an upstream gets the call (words 4 and 6). Does nothing if another call has the slot by now. */
  recordUpstream(id: CallId, upstreamSlot: number, fallback: number, nowMs: MonotonicMs): void {
    if (!this.#hasSlot(id)) return;
    const base = slotOfCall(id) * WORDS_PER_CALL;
    Atomics.store(this.#words, base + TRIED, Math.floor(nowMs * TRIED_UNITS_PER_MS) | 0);
    Atomics.store(this.#words, base + UPSTREAM, (1 + upstreamSlot) | (fallback << FALLBACK_SHIFT));
  }

  /** Worker: the call has waited for `queuedMs` so far. Does nothing if another call has the slot by now. */
  recordQueued(id: CallId, queuedMs: number): void {
    if (!this.#hasSlot(id)) return;
    Atomics.store(this.#words, slotOfCall(id) * WORDS_PER_CALL + QUEUED_MS, Math.ceil(queuedMs));
  }

  // The next three methods are called once the call's last frame has come, while its listener still keeps the
  // slot, and read words that were stored before that frame. So a plain read of 32 bits is enough, and saves
  // the 13 ns of `Atomics.load`.

  /** Listener: how long the call waited because its upstreams were at their limits; 0 if it did not. */
  queuedMsOf(slot: CallSlot): number {
    return this.#words[slot * WORDS_PER_CALL + QUEUED_MS]!;
  }

  /** Listener: the slot of the upstream that got the call last; undefined if none did. */
  upstreamOf(slot: CallSlot): number | undefined {
    const word = this.#words[slot * WORDS_PER_CALL + UPSTREAM]! & UPSTREAM_MASK;
    return word === 0 ? undefined : word - 1;
  }

  /**
   * Listener: how many ms after `sinceMs` the upstream of `upstreamOf` got the call. Means nothing if no
   * upstream got the call. 0 if the threads' clocks say before `sinceMs`. Exact up to 11.9 hours; a longer
   * time has lost a multiple of 11.9 hours.
   */
  triedMs(slot: CallSlot, sinceMs: MonotonicMs): number {
    const tried = this.#words[slot * WORDS_PER_CALL + TRIED]!;
    const units = (tried - Math.floor(sinceMs * TRIED_UNITS_PER_MS)) >>> 0;
    return units >= 2 ** 32 - CLOCKS_APART_UNITS_MAX ? 0 : units / TRIED_UNITS_PER_MS;
  }

  /**
   * Listener: the number of the fallback, or 0 (word 4). Final once the response has begun. An atomic read,
   * because no End has come yet.
   */
  fallbackOf(slot: CallSlot): number {
    return Atomics.load(this.#words, slot * WORDS_PER_CALL + UPSTREAM) >>> FALLBACK_SHIFT;
  }

  /** Listener: the client has left. A Cancel or Stop frame follows. */
  cancel(id: CallId): void {
    Atomics.store(this.#words, slotOfCall(id) * WORDS_PER_CALL + GENERATION, ~generationOfCall(id));
  }

  /**
   * Whether the call still has its slot, also if its client has left. False if its listener has died and the
   * next one has given the slot to another call.
   */
  #hasSlot(id: CallId): boolean {
    const generation = Atomics.load(this.#words, slotOfCall(id) * WORDS_PER_CALL + GENERATION);
    return generation === generationOfCall(id) || ~generation === generationOfCall(id);
  }

  /**
   * Both sides: whether the client has left. The worker knows it before the Cancel frame arrives. Also true
   * if another call has the slot: see `#hasSlot`.
   */
  isCancelled(id: CallId): boolean {
    const word = slotOfCall(id) * WORDS_PER_CALL + GENERATION;
    return Atomics.load(this.#words, word) !== generationOfCall(id);
  }
}
