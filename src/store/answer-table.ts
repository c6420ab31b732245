/**
 * Kept answers on disk, the oldest first to go. Main thread.
 *
 * Changes are made inside of a transaction of the caller, so that an answer gets to disk with its charge or not at all.
 */
import { asAccountIndex } from '../core/units.js';
import type { AnswerKey, AnswerRecord } from '../registry/answer-record.js';
import { damaged, packAnswer, readAnswer } from './record-codec.js';
import type { Tables } from './tables.js';

/** What a row costs besides its bytes, about: so that many short answers are bounded too. */
const ROW_BYTES = 512;

/** Rows too old that one transaction removes: it blocks the main thread for some 10 ms. */
const EXPIRED_MAX = 1_000;

/** Oldest rows that are looked at together. */
const BATCH = 64;

const ANSWER_BYTES = 'answer_bytes';

export interface AnswerChanges {
  readonly kept: readonly AnswerRecord[];
  readonly forgotten: readonly AnswerKey[];
  readonly bounds: AnswerBounds;
}

export interface AnswerBounds {
  /** What ended at or before it is too old. */
  readonly expiredMs: number;
  /** Of all answers together. */
  readonly bytesMax: number;
}

/** What an answer counts for. */
export function answerBytesOf({ bytes }: AnswerRecord): number {
  return ROW_BYTES + (bytes?.length ?? 0);
}

/** The tables that it needs. */
type AnswerTables = Pick<Tables, 'path' | 'meta' | 'answers' | 'answerAges'>;

export class AnswerTable {
  readonly #tables: AnswerTables;

  constructor(tables: AnswerTables) {
    this.#tables = tables;
  }

  /** However old; undefined where there is none. Throws `StoreFault`. Costs a copy of the answer. */
  find(key: AnswerKey): AnswerRecord | undefined {
    const stored = this.#tables.answers.get([key.account, key.key]);
    return stored === undefined ? undefined : readAnswer(stored, key, this.#place(key));
  }

  /** When the oldest answer ended; undefined where there is none. Some µs. */
  oldestMs(): number | undefined {
    const [oldest] = Array.from(this.#tables.answerAges.getKeys({ limit: 1 }));
    return oldest?.[0];
  }

  /** What the answers count for. */
  get bytes(): number {
    const bytes = this.#tables.meta.get(ANSWER_BYTES) ?? 0;
    if (typeof bytes !== 'number')
      throw damaged(`${this.#tables.path}: record ${ANSWER_BYTES} of table meta`);
    return bytes;
  }

  /** In a transaction: makes the changes, then removes the oldest until what is left is within the bounds. */
  apply({ kept, forgotten, bounds }: AnswerChanges): void {
    let bytes = this.bytes;
    for (const key of forgotten) bytes -= this.#remove(key);
    for (const record of kept) bytes += this.#put(record);
    this.#tables.meta.putSync(ANSWER_BYTES, this.#evict(bytes, bounds));
  }

  /** Puts the record in the place of an older one; by how many bytes the sum grows. */
  #put(record: AnswerRecord): number {
    const { account, key, endedMs } = record;
    const removed = this.#remove(record);
    const bytes = answerBytesOf(record);
    this.#tables.answers.putSync([account, key], packAnswer(record));
    this.#tables.answerAges.putSync([endedMs, account, key], bytes);
    return bytes - removed;
  }

  /** The bytes that it counted for. */
  #remove(key: AnswerKey): number {
    const record = this.find(key);
    if (record === undefined) return 0;
    this.#tables.answers.removeSync([key.account, key.key]);
    this.#tables.answerAges.removeSync([record.endedMs, key.account, key.key]);
    return answerBytesOf(record);
  }

  /** The bytes that are left of `bytes`. */
  #evict(bytes: number, { expiredMs, bytesMax }: AnswerBounds): number {
    const { answers, answerAges } = this.#tables;
    let left = bytes;
    let expired = 0;
    for (;;) {
      // Read first and then removed: a range does not bear to be changed while it is walked.
      const oldest = Array.from(answerAges.getRange({ limit: BATCH }));
      for (const { key: age, value } of oldest) {
        const [endedMs, account, key] = age;
        const isExpired = endedMs <= expiredMs && expired < EXPIRED_MAX;
        if (!isExpired && left <= bytesMax) return left;
        if (typeof value !== 'number') throw damaged(this.#place({ account: asAccountIndex(account), key }));
        if (isExpired) expired++;
        answers.removeSync([account, key]);
        answerAges.removeSync(age);
        left -= value;
      }
      if (oldest.length < BATCH) return left;
    }
  }

  #place({ account, key }: AnswerKey): string {
    return `${this.#tables.path}: record ${account}/${key} of table answers`;
  }
}
