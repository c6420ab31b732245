/**
 * Answers that are kept for repeats: those that wait for the flush which writes their charges, and those on disk. Main
 * thread.
 */
import type { Clock } from '../core/clock.js';
import { nameOfAnswer, type AnswerKey, type AnswerRecord } from '../registry/answer-record.js';
import type { AnswerBounds, AnswerChanges } from './answer-table.js';
import type { FlushedAnswers } from './flush.js';
import type { Store } from './store.js';

/** Bytes that wait for the disk: seconds of a busy gateway. While it takes none, further answers are kept without bytes. */
const WAITING_BYTES_MAX = 128 * 1024 * 1024;

/** Answers that wait for the disk, with or without bytes; beyond it one is not kept at all. */
const WAITING_MAX = 100_000;

/** Left on the disk besides the answers: for the pages that a commit copies. */
const ROOM_BYTES_MIN = 1024 * 1024;

const HOUR_MS = 3_600_000;

/** The record of a call in the journal of its listener. */
export interface ChargePlace {
  readonly listener: number;
  readonly position: number;
}

export interface KeptAnswersOptions {
  readonly store: Pick<Store, 'answers' | 'commit' | 'freeBytes' | 'refresh'>;
  readonly keepHours: number;
  /** Of all answers on disk. */
  readonly storeBytesMax: number;
  /** Whether the record has been taken out of its journal. */
  readonly isDrained: (charge: ChargePlace) => boolean;
  readonly clock: Clock;
}

interface Waiting extends ChargePlace {
  /** Undefined where one that may be on disk is to be removed. */
  readonly record: AnswerRecord | undefined;
  readonly key: AnswerKey;
}

/** What is known of a key; `unwritten` tells that it is not on disk yet. */
export interface FoundAnswer {
  readonly record: AnswerRecord;
  readonly unwritten: boolean;
}

export class KeptAnswers implements FlushedAnswers {
  readonly #options: KeptAnswersOptions;
  readonly #waiting = new Map<string, Waiting>();
  #waitingBytes = 0;

  constructor(options: KeptAnswersOptions) {
    this.#options = options;
  }

  /** The answer of a call that ended within `keepHours`. Throws `StoreFault`. */
  find(key: AnswerKey): FoundAnswer | undefined {
    const waiting = this.#waiting.get(nameOfAnswer(key));
    const record = waiting === undefined ? this.#options.store.answers.find(key) : waiting.record;
    if (record === undefined || record.endedMs <= this.#bounds.expiredMs) return undefined;
    return { record, unwritten: waiting !== undefined };
  }

  /** The same, with what other processes have written by now. */
  findAnew(key: AnswerKey): FoundAnswer | undefined {
    this.#options.store.refresh();
    return this.find(key);
  }

  /** To be written along with its charge; false where too many wait for that. */
  keep(record: AnswerRecord, { listener, position }: ChargePlace): boolean {
    if (this.#waiting.size >= WAITING_MAX) return false;
    const fits = this.#waitingBytes + (record.bytes?.length ?? 0) <= WAITING_BYTES_MAX;
    this.#wait({
      record: fits ? record : { ...record, bytes: undefined },
      key: record,
      listener,
      position,
    });
    return true;
  }

  /** Its charge is taken back, by the record at `charge`. */
  forget(key: AnswerKey, { listener, position }: ChargePlace): void {
    this.#wait({ record: undefined, key, listener, position });
  }

  /** The listener has died, and its journal has been drained: what it had not charged it never will. Returns the keys of that. */
  dropUncharged(listener: number): AnswerKey[] {
    const dropped: AnswerKey[] = [];
    for (const waiting of this.#waiting.values()) {
      if (waiting.listener !== listener || this.#options.isDrained(waiting)) continue;
      this.#drop(waiting);
      dropped.push(waiting.key);
    }
    return dropped;
  }

  due(): AnswerChanges | undefined {
    if (this.#waiting.size === 0) return undefined;
    if (!this.#hasRoom()) this.#dropBytes();
    const kept: AnswerRecord[] = [];
    const forgotten: AnswerKey[] = [];
    for (const waiting of this.#waiting.values()) {
      if (!this.#options.isDrained(waiting)) continue;
      if (waiting.record === undefined) forgotten.push(waiting.key);
      else kept.push(waiting.record);
    }
    return { kept, forgotten, bounds: this.#bounds };
  }

  noteWritten({ kept, forgotten }: AnswerChanges): void {
    for (const record of kept) {
      const waiting = this.#waiting.get(nameOfAnswer(record));
      if (waiting?.record === record) this.#drop(waiting);
    }
    for (const key of forgotten) {
      const waiting = this.#waiting.get(nameOfAnswer(key));
      if (waiting?.key === key) this.#drop(waiting);
    }
  }

  /** From now on what waits is known and has no bytes. */
  noteFailed(): void {
    this.#dropBytes();
  }

  /**
   * Whether the disk takes what waits. Looked at before, because a commit that fails for want of space while it writes long
   * values has ended the process with a damaged heap (lmdb 3.5.6, some of the runs); one of short rows just fails.
   */
  #hasRoom(): boolean {
    const bytes = this.#waitingBytes;
    return bytes === 0 || this.#options.store.freeBytes() >= 2 * bytes + ROOM_BYTES_MIN;
  }

  #dropBytes(): void {
    for (const waiting of [...this.#waiting.values()]) {
      const { record } = waiting;
      if (record?.bytes !== undefined) this.#wait({ ...waiting, record: { ...record, bytes: undefined } });
    }
  }

  /** To be called now and then: removes what is too old, where no new answers do it. Throws what the store throws. */
  expire(): void {
    const { store } = this.#options;
    const bounds = this.#bounds;
    const oldestMs = store.answers.oldestMs();
    if (oldestMs === undefined || oldestMs > bounds.expiredMs) return;
    store.commit(() => store.answers.apply({ kept: [], forgotten: [], bounds }));
  }

  get #bounds(): AnswerBounds {
    const { clock, keepHours, storeBytesMax } = this.#options;
    return { expiredMs: clock.wallMs() - keepHours * HOUR_MS, bytesMax: storeBytesMax };
  }

  #wait(waiting: Waiting): void {
    const name = nameOfAnswer(waiting.key);
    const former = this.#waiting.get(name);
    if (former !== undefined) this.#drop(former);
    this.#waiting.set(name, waiting);
    this.#waitingBytes += waiting.record?.bytes?.length ?? 0;
  }

  #drop(waiting: Waiting): void {
    this.#waiting.delete(nameOfAnswer(waiting.key));
    this.#waitingBytes -= waiting.record?.bytes?.length ?? 0;
  }
}
