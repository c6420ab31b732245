/**
 * Responses for replays by Idempotency-Key. They wait in memory for the flush that writes their charges, and
 * are then on disk (response-table.ts). gateway/idempotency-service.ts owns them and passes on what flush.ts
 * calls. Main thread of a gateway process.
 *
 * Must hold: a response gets to disk in the transaction of its charge or not at all; otherwise a caller pays
 * twice after a crash, or replays what nobody paid.
 */
import { RetentionCalendar, type Clock } from '../core/clock.js';
import { nameOfResponse, type ResponseKey, type ResponseRecord } from '../registry/stored-response.js';
import type { FlushedResponses } from './flush.js';
import type { ResponseBounds, ResponseChanges } from './response-table.js';
import type { Store } from './store.js';

/** Memory budget of bytes that wait for the disk: seconds of a busy gateway. Beyond it they are dropped. */
const WAITING_BYTES_MAX = 128 * 1024 * 1024;

/** Responses that may wait, with or without bytes. Beyond that number `keep` keeps none. */
const WAITING_MAX = 100_000;

/** Free bytes that a disk needs besides the responses, for the pages that a commit copies. */
const ROOM_BYTES_MIN = 1024 * 1024;

const HOUR_MS = 3_600_000;

/** Where the record of a call's charge is: `position` in the journal of `listener`, an index. */
interface ChargePosition {
  readonly listener: number;
  readonly position: number;
}

export interface StoredResponsesOptions {
  readonly store: Pick<Store, 'answers' | 'commit' | 'freeBytes' | 'refresh'>;
  readonly keepHours: number;
  /** Bound of the bytes of all responses on disk. */
  readonly storeBytesMax: number;
  /** Whether the flush has taken the record out of its journal. */
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

/** `unwritten`: the response is not on disk yet. */
export interface FoundResponse {
  readonly record: ResponseRecord;
  readonly unwritten: boolean;
}

export class StoredResponses implements FlushedResponses {
  readonly #options: StoredResponsesOptions;
  /** By nameOfResponse: of each key the newest. */
  readonly #waiting = new Map<string, Waiting>();
  readonly #calendar: RetentionCalendar;
  /** Bytes in `#waiting`. */
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
    // The wall clock: if it is ahead, it hides a response, but only `#bounds` removes one for good.
    if (record === undefined || record.endedMs <= clock.wallMs() - keepHours * HOUR_MS) return undefined;
    return { record, unwritten: waiting !== undefined };
  }

  /** As `find`, and sees what other processes have written by now. */
  findAnew(key: ResponseKey): FoundResponse | undefined {
    this.#options.store.refresh();
    return this.find(key);
  }

  /** Keeps a response until it is written with its charge. Returns false if too many wait: none is kept. */
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

  /** Removes the response, whose charge the record at that position takes back. Nothing bounds these. */
  forget(key: ResponseKey, { listener, position }: ChargePosition): void {
    this.#wait({ record: undefined, key, listener, position });
  }

  /**
   * Drops the responses that a dead listener has not charged, and never will. Call it before the listener's
   * successor appends to the journal. A response whose charge is still in the journal stays, because a later
   * drain takes the charge. Returns the keys of the dropped responses.
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

  /** Called after the journals were drained: else a response misses its charge's transaction. */
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

  /** A newer response of the same key stays: it is not on disk. */
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

  /** Waiting responses lose their bytes: a replay is then known, but rejected. */
  recordFailed(): void {
    this.#dropBytes();
  }

  /**
   * Whether the disk has room for what waits. Checked before the commit: one that ran out of space while it
   * wrote long values has ended processes with a damaged heap (lmdb 3.5.6). A commit of short rows just
   * fails. False if the free bytes cannot be read, so that charges do not wait for that.
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
   * Removes expired responses, as many as one transaction may; returns whether there may be more. Needed when
   * no response comes: then `due` removes none. Throws what the store throws.
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
