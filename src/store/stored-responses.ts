/**
 * Stored responses for replays by Idempotency-Key, which wait for the flush that writes their charges. The
 * idempotency service and the flush use them on the main thread of a gateway process. On disk they are in a
 * ResponseTable.
 *
 * Must hold: a response gets to disk in the transaction of its charge or not at all; otherwise a caller pays
 * twice after a crash, or replays what nobody paid (test/unit/store/stored-responses.test.ts).
 */
import { RetentionCalendar, type Clock } from '../core/clock.js';
import { nameOfResponse, type ResponseKey, type ResponseRecord } from '../registry/stored-response.js';
import type { FlushedResponses } from './flush.js';
import type { ResponseBounds, ResponseChanges } from './response-table.js';
import type { Store } from './store.js';

/** Memory budget of responses that wait for the disk: seconds of a busy gateway. Others lose their bytes. */
const WAITING_BYTES_MAX = 128 * 1024 * 1024;

/** Responses that may wait, with or without bytes. Beyond that number a response is not kept at all. */
const WAITING_MAX = 100_000;

/** Free bytes that a disk needs besides the responses, for the pages that a commit copies. */
const ROOM_BYTES_MIN = 1024 * 1024;

const HOUR_MS = 3_600_000;

/** The record of a call's charge: its position in the journal of its listener. */
interface ChargePosition {
  readonly listener: number;
  readonly position: number;
}

export interface StoredResponsesOptions {
  readonly store: Pick<Store, 'answers' | 'commit' | 'freeBytes' | 'refresh'>;
  readonly keepHours: number;
  /** Bytes of all responses on disk. */
  readonly storeBytesMax: number;
  /** Whether the record has been taken out of its journal. */
  readonly isDrained: (charge: ChargePosition) => boolean;
  /** Whether the listener has appended the record to its journal. */
  readonly isCharged: (charge: ChargePosition) => boolean;
  readonly clock: Clock;
}

interface Waiting extends ChargePosition {
  /** Undefined if the response, which may be on disk, is to be removed. */
  readonly record: ResponseRecord | undefined;
  readonly key: ResponseKey;
}

/** `unwritten`: it is not on disk yet. */
export interface FoundResponse {
  readonly record: ResponseRecord;
  readonly unwritten: boolean;
}

export class StoredResponses implements FlushedResponses {
  readonly #options: StoredResponsesOptions;
  readonly #waiting = new Map<string, Waiting>();
  readonly #calendar: RetentionCalendar;
  #waitingBytes = 0;

  constructor(options: StoredResponsesOptions) {
    this.#options = options;
    this.#calendar = new RetentionCalendar(options.clock);
  }

  /** Returns the response if its call ended within `keepHours`. Throws StoreError. */
  find(key: ResponseKey): FoundResponse | undefined {
    const waiting = this.#waiting.get(nameOfResponse(key));
    const record = waiting === undefined ? this.#options.store.answers.find(key) : waiting.record;
    const { clock, keepHours } = this.#options;
    // By the wall clock: one that is ahead hides a response, but only `#bounds` removes it for good.
    if (record === undefined || record.endedMs <= clock.wallMs() - keepHours * HOUR_MS) return undefined;
    return { record, unwritten: waiting !== undefined };
  }

  /** As `find`, including what other processes have written by now. */
  findAnew(key: ResponseKey): FoundResponse | undefined {
    this.#options.store.refresh();
    return this.find(key);
  }

  /** Keeps a response until it is written with its charge. Returns false if too many wait for that. */
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

  /** Removes the response: its charge is taken back by the record at `charge`. */
  forget(key: ResponseKey, { listener, position }: ChargePosition): void {
    this.#wait({ record: undefined, key, listener, position });
  }

  /**
   * Drops the responses that a dead listener has not charged, because it never will. Call it before its
   * successor appends to the journal. Those whose charge is still in the journal stay, because a drain may
   * have failed, and a later one takes it. Returns the keys of the dropped responses.
   */
  dropUncharged(listener: number): ResponseKey[] {
    const dropped: ResponseKey[] = [];
    for (const waiting of this.#waiting.values()) {
      if (waiting.listener !== listener || this.#options.isCharged(waiting)) continue;
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

  recordWritten({ kept, forgotten }: ResponseChanges): void {
    for (const record of kept) {
      const waiting = this.#waiting.get(nameOfResponse(record));
      if (waiting?.record === record) this.#drop(waiting);
    }
    for (const key of forgotten) {
      const waiting = this.#waiting.get(nameOfResponse(key));
      if (waiting?.key === key) this.#drop(waiting);
    }
  }

  /** Waiting responses lose their bytes: a replay is then recognised, but cannot be served. */
  recordFailed(): void {
    this.#dropBytes();
  }

  /**
   * Whether the disk has room for what waits. Checked before, because a commit that runs out of space while
   * it writes long values has ended some processes with a damaged heap (lmdb 3.5.6). A commit of short rows
   * just fails. False if the disk does not tell: charges must not wait for an answer about responses.
   */
  #hasRoom(): boolean {
    const bytes = this.#waitingBytes;
    try {
      return bytes === 0 || this.#options.store.freeBytes() >= 2 * bytes + ROOM_BYTES_MIN;
    } catch {
      return false;
    }
  }

  #dropBytes(): void {
    for (const waiting of [...this.#waiting.values()]) {
      const { record } = waiting;
      if (record?.bytes !== undefined) this.#wait({ ...waiting, record: { ...record, bytes: undefined } });
    }
  }

  /**
   * Removes expired responses when no new ones do it, as many as one transaction may; returns whether there
   * may be more. Called now and then; throws what the store throws.
   */
  expire(): boolean {
    const { store } = this.#options;
    return store.answers.expire(this.#bounds, (work) => store.commit(work));
  }

  get #bounds(): ResponseBounds {
    const { keepHours, storeBytesMax } = this.#options;
    return { expiredMs: this.#calendar.nowMs() - keepHours * HOUR_MS, bytesMax: storeBytesMax };
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
