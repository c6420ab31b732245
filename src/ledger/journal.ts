/**
 * The journal carries the cost of each ended call from its listener to the main thread, which does the
 * accounting. Each listener has a ring in a shared buffer (journal-layout.ts). The listener appends a record
 * when it settles a call (request/settle.ts). The main thread drains the ring at each flush (store/flush.ts).
 *
 * The listener first writes a record, then counts it in `appended` by an atomic store. The main thread loads
 * `appended` before it reads records, so it finds each record whole. When the main thread has visited a
 * record, it counts the record in `drained`, and only then may the listener overwrite the record. The buffer
 * outlives its listener: the main thread drains what a dead listener has appended, and the next listener
 * continues there.
 *
 * With `durability: commit` the ends of responses wait in PendingCommits until their records are on disk.
 * request/delivery.ts and request/replay.ts hand it the ends.
 *
 * Must hold: a record is whole before `appended` counts it. Each word has one writer, which therefore needs
 * no compare-exchange. The listener calls `roomFor` with its calls in flight before it admits a call, so that
 * every charge finds room. Each pending end is called once, in the order of the journal. Further test:
 * test/unit/ledger/journal.pending-commits.test.ts.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { COMMIT_WAIT_MS_MAX } from '../core/limits.js';
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

  /** Whether one more record fits beside the `pending` ones, which calls in flight will append. 10 ns. */
  roomFor(pending: number): JournalCapacity {
    if (Atomics.load(this.words32, ring.REJECTING) === 1) return 'rejecting';
    if (this.#used() + pending < this.capacity) return 'room';
    this.#drained = Atomics.load(this.words32, ring.DRAINED);
    return this.#used() + pending < this.capacity ? 'room' : 'full';
  }

  /**
   * Appends the record of a call for which `roomFor` saw room before its admission; throws if the ring is
   * full. Returns the record's position, for `isCommitted`.
   */
  append(record: JournalRecord): number {
    if (this.#used() * 2 >= this.capacity) this.#checkHalfFull();
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

  #checkHalfFull(): void {
    this.#drained = Atomics.load(this.words32, ring.DRAINED);
    const used = this.#used();
    invariant(used < this.capacity, 'a call is admitted only if its record has room');
    const isHalfFull = used * 2 >= this.capacity;
    if (isHalfFull && !this.#wasHalfFull) this.#onHalfFull();
    this.#wasHalfFull = isHalfFull;
  }
}

/** A response whose end waits until its charge is on disk. One of its two methods is called, once. */
export interface PendingCommit {
  onCommitted(): void;
  /** The store fails or is too slow: the charge may not be on disk. */
  onUncommitted(): void;
}

interface PendingEnd {
  readonly position: number;
  /** Since when the end waits (monotonic). */
  readonly sinceMs: number;
  readonly end: PendingCommit;
}

/**
 * The ends of responses that wait for the disk (group commit). One question to the main thread is for all
 * ends that wait by then; ends that come before the reply share the next question. Charges reach the disk in
 * the order of the journal, so `#pending` is in the order in which ends are called. The calls in flight bound
 * how many ends wait, and `onSweep` bounds for how long. Listener thread.
 */
export class PendingCommits {
  readonly #journal: JournalWriter;
  readonly #clock: Clock;
  readonly #askCommit: () => void;
  #pending: PendingEnd[] = [];
  #isAsked = false; // whether a question to the main thread is scheduled, or waits for its reply

  /** `askCommit` asks the main thread for a commit. The listener passes the reply to `onCommit`. */
  constructor(journal: JournalWriter, clock: Clock, askCommit: () => void) {
    this.#journal = journal;
    this.#clock = clock;
    this.#askCommit = askCommit;
  }

  get size(): number {
    return this.#pending.length;
  }

  /** Holds `end` until the record at `position` of the journal is on disk. */
  hold(position: number, end: PendingCommit): void {
    this.#pending.push({ position, sinceMs: this.#clock.monotonicMs(), end });
    if (this.#isAsked) return;
    this.#isAsked = true;
    // Asked after this event-loop turn, so that one question is for all ends of the turn.
    setImmediate(this.#askCommit);
  }

  /** Called with the main thread's reply. If not `isCommitted`, the store fails: all pending ends give up. */
  onCommit(isCommitted: boolean): void {
    this.#isAsked = false;
    if (isCommitted) this.#endCommitted();
    else this.giveUpAll();
    if (this.#pending.length === 0) return;
    this.#isAsked = true;
    this.#askCommit();
  }

  /** Calls the ends whose charges are on disk, and gives up all others. Called if the listener fails, too. */
  giveUpAll(): void {
    this.#endCommitted();
    this.#giveUp(this.#pending.length);
  }

  /** Called about once a second: gives up the ends that have waited for COMMIT_WAIT_MS_MAX. */
  onSweep(): void {
    this.#endCommitted();
    const oldestMs = this.#clock.monotonicMs() - COMMIT_WAIT_MS_MAX;
    const firstInTime = this.#pending.findIndex(({ sinceMs }) => sinceMs > oldestMs);
    this.#giveUp(firstInTime < 0 ? this.#pending.length : firstInTime);
  }

  // An end leaves `#pending` just before it is called: if it throws, no other end is lost with it.
  #endCommitted(): void {
    let first = this.#pending[0];
    while (first !== undefined && this.#journal.isCommitted(first.position)) {
      this.#pending.shift();
      first.end.onCommitted();
      first = this.#pending[0];
    }
  }

  /** Gives up the first `count` ends, which are the oldest. */
  #giveUp(count: number): void {
    for (let given = 0; given < count; given++) this.#pending.shift()?.end.onUncommitted();
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
  recordCommitted(): void {
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
    record.outcome = ring.JOURNAL_OUTCOMES[outcome & ring.BYTE_MASK]!;
    record.source = outcome >>> ring.SOURCE_SHIFT;
    record.durationMs = words32[first32 + ring.DURATION_MS]!;
    return record;
  }
}
