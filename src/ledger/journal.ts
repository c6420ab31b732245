/**
 * The journal carries the cost of each ended call from its listener to the main thread, which does the
 * accounting. Each listener has a ring in a shared buffer (journal-layout.ts). The listener appends a record
 * when it settles a call (request/settle.ts), and another if it takes the charge back. The main thread drains
 * the ring at each flush (store/flush.ts).
 *
 * The listener first writes a record, then counts it in `appended` by an atomic store. The main thread loads
 * `appended` before it reads records, so it finds each record whole. When the main thread has visited a
 * record, it counts the record in `drained`, and only then may the listener overwrite the record. The buffer
 * outlives its listener: the main thread drains what a dead listener has appended, and the next listener
 * continues there.
 *
 * Must hold: a record is whole before `appended` counts it. Each word has one writer, which therefore needs
 * no compare-exchange. Before the listener admits a call, it calls `roomFor` with how many records its calls
 * in flight may still append, so that every charge finds room.
 */
import { invariant } from '../core/errors.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '../core/units.js';
import * as ring from './journal-layout.js';
import type { JournalBuffer, JournalRecord } from './journal-layout.js';

/** What both sides know of the ring. A position is the number of records appended before, modulo 2^32. */
class Ring {
  protected readonly capacity: number;
  protected readonly words32: Int32Array;
  protected readonly floats: Float64Array;
  protected readonly words64: BigInt64Array;

  constructor({ shared, capacity }: JournalBuffer) {
    this.capacity = capacity;
    this.words32 = new Int32Array(shared);
    this.floats = new Float64Array(shared);
    this.words64 = new BigInt64Array(shared);
  }

  /** How many records there are from position `from` to before position `to`. */
  protected static countBetween(from: number, to: number): number {
    return (to - from) >>> 0;
  }

  /** Where in the ring the record at `position` is. The capacity is a power of two, so `&` is a remainder. */
  protected recordIndexOf(position: number): number {
    return (position >>> 0) & (this.capacity - 1);
  }

  /**
   * Whether the count in a word of the head (`countWord`) includes the record at `position`. Count and
   * position are less than 2^31 apart, so the sign of their difference decides, also after a wrap.
   */
  protected includes(countWord: number, position: number): boolean {
    return ((Atomics.load(this.words32, countWord) - position) | 0) > 0;
  }
}

/**
 * Whether a new call may be admitted. `full`: the main thread does not drain fast enough. `rejecting`: the
 * main thread has called `setRejecting`, because the store cannot be written.
 */
type JournalCapacity = 'room' | 'full' | 'rejecting';

/** The listener's side. */
export class JournalWriter extends Ring {
  #appended: number;
  /** The word `drained` as last read. It may have grown since: then more records fit than is known here. */
  #drained: number;
  #wasHalfFull = false;
  readonly #onHalfFull: () => void;

  /** Continues after an earlier listener. `onHalfFull` is called each time the ring becomes half full. */
  constructor(buffer: JournalBuffer, onHalfFull: () => void) {
    super(buffer);
    this.#onHalfFull = onHalfFull;
    this.#appended = Atomics.load(this.words32, ring.APPENDED);
    this.#drained = Atomics.load(this.words32, ring.DRAINED);
  }

  /** Whether one more record fits beside `pending` others, which calls in flight may still append. 10 ns. */
  roomFor(pending: number): JournalCapacity {
    if (Atomics.load(this.words32, ring.REJECTING) === 1) return 'rejecting';
    if (this.#used() + pending < this.capacity) return 'room';
    this.#drained = Atomics.load(this.words32, ring.DRAINED);
    return this.#used() + pending < this.capacity ? 'room' : 'full';
  }

  /**
   * Appends the record of a call for which `roomFor` saw room before its admission. Throws if the ring is
   * full all the same. Returns the record's position, for `isCommitted`.
   */
  append(record: JournalRecord): number {
    // A full ring is more than half full, so `#checkFill` sees it.
    if (this.#used() * 2 >= this.capacity) this.#checkFill();
    const position = this.#appended;
    const recordIndex = this.recordIndexOf(position);
    const first64 = ring.HEAD_WORDS64 + recordIndex * ring.RECORD_WORDS64;
    const { floats, words64, words32 } = this;
    floats[first64 + ring.REQUEST] = record.request;
    floats[first64 + ring.ENDED_MS] = record.endedMs;
    floats[first64 + ring.PROMPT] = record.promptTokens;
    floats[first64 + ring.CACHED] = record.cachedTokens;
    floats[first64 + ring.CACHE_WRITE] = record.cacheWriteTokens;
    floats[first64 + ring.CACHE_WRITE_1H] = record.cacheWrite1hTokens;
    floats[first64 + ring.COMPLETION] = record.completionTokens;
    floats[first64 + ring.REASONING] = record.reasoningTokens;
    words64[first64 + ring.CHARGED] = record.charged;
    words64[first64 + ring.UNCOVERED] = record.uncovered;
    const first32 = ring.HEAD_WORDS32 + recordIndex * ring.RECORD_WORDS32;
    words32[first32 + ring.ACCOUNT] = record.account;
    words32[first32 + ring.KEY] = record.key;
    words32[first32 + ring.MODEL] = record.model;
    words32[first32 + ring.REQUESTED] = record.requested;
    words32[first32 + ring.OUTCOME] =
      ring.JOURNAL_OUTCOMES.indexOf(record.outcome) | (record.source << ring.SOURCE_SHIFT);
    words32[first32 + ring.DURATION_MS] = record.durationMs;
    this.#appended = (position + 1) | 0;
    Atomics.store(words32, ring.APPENDED, this.#appended);
    return position;
  }

  /**
   * The position of the next record. A listener sends a response that is to be stored to the main thread with
   * this position, before it appends the charge: so the main thread stores no response without its charge.
   */
  get nextPosition(): number {
    return this.#appended;
  }

  /** Whether the record at `position` is on disk. */
  isCommitted(position: number): boolean {
    return this.includes(ring.COMMITTED, position);
  }

  #used(): number {
    return Ring.countBetween(this.#drained, this.#appended);
  }

  /** Throws if the ring is full. Calls `onHalfFull` if it has become half full since the last check. */
  #checkFill(): void {
    this.#drained = Atomics.load(this.words32, ring.DRAINED);
    const used = this.#used();
    invariant(used < this.capacity, 'a call is admitted only if its record has room');
    const isHalfFull = used * 2 >= this.capacity;
    if (isHalfFull && !this.#wasHalfFull) this.#onHalfFull();
    this.#wasHalfFull = isHalfFull;
  }
}

/** The main thread's side. */
export class JournalReader extends Ring {
  /** Scratch: `#read` writes every field. */
  readonly #record = {} as { -readonly [Field in keyof JournalRecord]: JournalRecord[Field] };

  /**
   * Visits the records that were appended before `drain` was called, oldest first; returns how many. If
   * `visit` throws, `drain` does too, and that record and all later ones stay in the ring. The record is one
   * object that the next visit overwrites.
   */
  drain(visit: (record: JournalRecord) => void): number {
    const { words32 } = this;
    let drained = Atomics.load(words32, ring.DRAINED);
    const count = Ring.countBetween(drained, Atomics.load(words32, ring.APPENDED));
    for (let visited = 0; visited < count; visited++) {
      visit(this.#read(this.recordIndexOf(drained)));
      drained = (drained + 1) | 0;
      Atomics.store(words32, ring.DRAINED, drained);
    }
    return count;
  }

  /** Whether the record at `position` has been visited. */
  hasDrained(position: number): boolean {
    return this.includes(ring.DRAINED, position);
  }

  hasAppended(position: number): boolean {
    return this.includes(ring.APPENDED, position);
  }

  /** How full the ring is, 0 to 1. */
  fill(): number {
    const drained = Atomics.load(this.words32, ring.DRAINED);
    return Ring.countBetween(drained, Atomics.load(this.words32, ring.APPENDED)) / this.capacity;
  }

  /** Marks all drained records as on disk. Called after a flush that wrote them (store/flush.ts). */
  markCommitted(): void {
    Atomics.store(this.words32, ring.COMMITTED, Atomics.load(this.words32, ring.DRAINED));
  }

  /** While true, `roomFor` returns `rejecting`. */
  setRejecting(isRejecting: boolean): void {
    Atomics.store(this.words32, ring.REJECTING, isRejecting ? 1 : 0);
  }

  #read(recordIndex: number): JournalRecord {
    const first64 = ring.HEAD_WORDS64 + recordIndex * ring.RECORD_WORDS64;
    const { floats, words64, words32 } = this;
    const record = this.#record;
    record.request = floats[first64 + ring.REQUEST]!;
    record.endedMs = asWallMs(floats[first64 + ring.ENDED_MS]!);
    record.promptTokens = floats[first64 + ring.PROMPT]!;
    record.cachedTokens = floats[first64 + ring.CACHED]!;
    record.cacheWriteTokens = floats[first64 + ring.CACHE_WRITE]!;
    record.cacheWrite1hTokens = floats[first64 + ring.CACHE_WRITE_1H]!;
    record.completionTokens = floats[first64 + ring.COMPLETION]!;
    record.reasoningTokens = floats[first64 + ring.REASONING]!;
    record.charged = asPicoUnits(words64[first64 + ring.CHARGED]!);
    record.uncovered = asPicoUnits(words64[first64 + ring.UNCOVERED]!);
    const first32 = ring.HEAD_WORDS32 + recordIndex * ring.RECORD_WORDS32;
    record.account = asAccountIndex(words32[first32 + ring.ACCOUNT]!);
    record.key = asKeyIndex(words32[first32 + ring.KEY]!);
    record.model = words32[first32 + ring.MODEL]!;
    record.requested = words32[first32 + ring.REQUESTED]!;
    const outcome = words32[first32 + ring.OUTCOME]!;
    record.outcome = ring.JOURNAL_OUTCOMES[outcome & ring.OUTCOME_MASK]!;
    record.source = outcome >>> ring.SOURCE_SHIFT;
    record.durationMs = words32[first32 + ring.DURATION_MS]!;
    return record;
  }
}
