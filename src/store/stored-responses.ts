/**
 * Responses that are kept for repeats: those that wait for the flush which writes their charges, and those on disk. Main
 * thread.
 */
import type { Clock } from '../core/clock.js';
import { asAccountIndex } from '../core/units.js';
import { type ResponseKey, type ResponseRecord, nameOfResponse } from '../registry/stored-response.js';
import type { FlushedResponses } from './flush.js';
import { damaged, packResponse, readResponse } from './record-codec.js';
import type { Store } from './store.js';
import type { Tables } from './tables.js';

/*
 * Stored responses on disk, the oldest first to go. Main thread.
 *
 * Changes are made inside of a transaction of the caller, so that a response gets to disk with its charge or not at all.
 */

/** What a row costs besides its bytes, about: so that many short responses are bounded too. */
const ROW_BYTES = 512;

/** Rows too old that one transaction removes: it blocks the main thread for some 10 ms. */
const EXPIRED_MAX = 1_000;

/** Oldest rows that are looked at together. */
const BATCH = 64;

const RESPONSE_BYTES = 'answer_bytes';

export interface ResponseChanges {
  readonly kept: readonly ResponseRecord[];
  readonly forgotten: readonly ResponseKey[];
  readonly bounds: ResponseBounds;
}

export interface ResponseBounds {
  /** What ended at or before it is too old. */
  readonly expiredMs: number;
  /** Of all responses together. */
  readonly bytesMax: number;
}

/** What a response counts for. */
export function responseBytesOf({ bytes }: ResponseRecord): number {
  return ROW_BYTES + (bytes?.length ?? 0);
}

/** The tables that it needs. */
type ResponseTables = Pick<Tables, 'path' | 'meta' | 'answers' | 'answerAges'>;

export class ResponseTable {
  readonly #tables: ResponseTables;

  constructor(tables: ResponseTables) {
    this.#tables = tables;
  }

  /** However old; undefined where there is none. Throws `StoreFault`. Costs a copy of the response. */
  find(key: ResponseKey): ResponseRecord | undefined {
    const stored = this.#tables.answers.get([key.account, key.key]);
    return stored === undefined ? undefined : readResponse(stored, key, this.#place(key));
  }

  /** When the oldest answer ended; undefined where there is none. Some µs. */
  oldestMs(): number | undefined {
    const [oldest] = Array.from(this.#tables.answerAges.getKeys({ limit: 1 }));
    return oldest?.[0];
  }

  /** What the responses count for. */
  get bytes(): number {
    const bytes = this.#tables.meta.get(RESPONSE_BYTES) ?? 0;
    if (typeof bytes !== 'number')
      throw damaged(`${this.#tables.path}: record ${RESPONSE_BYTES} of table meta`);
    return bytes;
  }

  /** In a transaction: makes the changes, then removes the oldest until what is left is within the bounds. */
  apply({ kept, forgotten, bounds }: ResponseChanges): void {
    let bytes = this.bytes;
    for (const key of forgotten) bytes -= this.#remove(key);
    for (const record of kept) bytes += this.#put(record);
    this.#tables.meta.putSync(RESPONSE_BYTES, this.#evict(bytes, bounds));
  }

  /** Puts the record in the place of an older one; by how many bytes the sum grows. */
  #put(record: ResponseRecord): number {
    const { account, key, endedMs } = record;
    const removed = this.#remove(record);
    const bytes = responseBytesOf(record);
    this.#tables.answers.putSync([account, key], packResponse(record));
    this.#tables.answerAges.putSync([endedMs, account, key], bytes);
    return bytes - removed;
  }

  /** The bytes that it counted for. */
  #remove(key: ResponseKey): number {
    const record = this.find(key);
    if (record === undefined) return 0;
    this.#tables.answers.removeSync([key.account, key.key]);
    this.#tables.answerAges.removeSync([record.endedMs, key.account, key.key]);
    return responseBytesOf(record);
  }

  /** The bytes that are left of `bytes`. */
  #evict(bytes: number, { expiredMs, bytesMax }: ResponseBounds): number {
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

  #place({ account, key }: ResponseKey): string {
    return `${this.#tables.path}: record ${account}/${key} of table answers`;
  }
}

/** Bytes that wait for the disk: seconds of a busy gateway. While it takes none, further responses are kept without bytes. */
const WAITING_BYTES_MAX = 128 * 1024 * 1024;

/** Responses that wait for the disk, with or without bytes; beyond it one is not kept at all. */
const WAITING_MAX = 100_000;

/** Left on the disk besides the responses: for the pages that a commit copies. */
const ROOM_BYTES_MIN = 1024 * 1024;

const HOUR_MS = 3_600_000;

/** The record of a call in the journal of its listener. */
export interface ChargePosition {
  readonly listener: number;
  readonly position: number;
}

export interface StoredResponsesOptions {
  readonly store: Pick<Store, 'answers' | 'commit' | 'freeBytes' | 'refresh'>;
  readonly keepHours: number;
  /** Of all responses on disk. */
  readonly storeBytesMax: number;
  /** Whether the record has been taken out of its journal. */
  readonly isDrained: (charge: ChargePosition) => boolean;
  readonly clock: Clock;
}

interface Waiting extends ChargePosition {
  /** Undefined where one that may be on disk is to be removed. */
  readonly record: ResponseRecord | undefined;
  readonly key: ResponseKey;
}

/** What is known of a key; `unwritten` tells that it is not on disk yet. */
export interface FoundResponse {
  readonly record: ResponseRecord;
  readonly unwritten: boolean;
}

export class StoredResponses implements FlushedResponses {
  readonly #options: StoredResponsesOptions;
  readonly #waiting = new Map<string, Waiting>();
  #waitingBytes = 0;

  constructor(options: StoredResponsesOptions) {
    this.#options = options;
  }

  /** The response of a call that ended within `keepHours`. Throws `StoreFault`. */
  find(key: ResponseKey): FoundResponse | undefined {
    const waiting = this.#waiting.get(nameOfResponse(key));
    const record = waiting === undefined ? this.#options.store.answers.find(key) : waiting.record;
    if (record === undefined || record.endedMs <= this.#bounds.expiredMs) return undefined;
    return { record, unwritten: waiting !== undefined };
  }

  /** The same, with what other processes have written by now. */
  findAnew(key: ResponseKey): FoundResponse | undefined {
    this.#options.store.refresh();
    return this.find(key);
  }

  /** To be written along with its charge; false where too many wait for that. */
  keep(record: ResponseRecord, { listener, position }: ChargePosition): boolean {
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
  forget(key: ResponseKey, { listener, position }: ChargePosition): void {
    this.#wait({ record: undefined, key, listener, position });
  }

  /** The listener has died, and its journal has been drained: what it had not charged it never will. Returns the keys of that. */
  dropUncharged(listener: number): ResponseKey[] {
    const dropped: ResponseKey[] = [];
    for (const waiting of this.#waiting.values()) {
      if (waiting.listener !== listener || this.#options.isDrained(waiting)) continue;
      this.#drop(waiting);
      dropped.push(waiting.key);
    }
    return dropped;
  }

  due(): ResponseChanges | undefined {
    if (this.#waiting.size === 0) return undefined;
    if (!this.#hasRoom()) this.#dropBytes();
    const kept: ResponseRecord[] = [];
    const forgotten: ResponseKey[] = [];
    for (const waiting of this.#waiting.values()) {
      if (!this.#options.isDrained(waiting)) continue;
      if (waiting.record === undefined) forgotten.push(waiting.key);
      else kept.push(waiting.record);
    }
    return { kept, forgotten, bounds: this.#bounds };
  }

  noteWritten({ kept, forgotten }: ResponseChanges): void {
    for (const record of kept) {
      const waiting = this.#waiting.get(nameOfResponse(record));
      if (waiting?.record === record) this.#drop(waiting);
    }
    for (const key of forgotten) {
      const waiting = this.#waiting.get(nameOfResponse(key));
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

  get #bounds(): ResponseBounds {
    const { clock, keepHours, storeBytesMax } = this.#options;
    return { expiredMs: clock.wallMs() - keepHours * HOUR_MS, bytesMax: storeBytesMax };
  }

  #wait(waiting: Waiting): void {
    const name = nameOfResponse(waiting.key);
    const former = this.#waiting.get(name);
    if (former !== undefined) this.#drop(former);
    this.#waiting.set(name, waiting);
    this.#waitingBytes += waiting.record?.bytes?.length ?? 0;
  }

  #drop(waiting: Waiting): void {
    this.#waiting.delete(nameOfResponse(waiting.key));
    this.#waitingBytes -= waiting.record?.bytes?.length ?? 0;
  }
}
