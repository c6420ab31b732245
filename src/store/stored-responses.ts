/**
 * Responses for replays by Idempotency-Key, which wait in memory for the flush of their charge, and are then
 * on disk (response-table.ts). gateway/idempotency-service.ts makes StoredResponses, of which flush.ts calls
 * `due`, then `recordWritten` or `recordFailed`. Main thread of a gateway process.
 *
 * Must hold: a response gets to disk in the transaction of its charge or not at all. Otherwise a caller pays
 * twice after a crash, or replays a response that nobody paid (test/durability/crash-idempotency.test.ts).
 * `due` returns the very objects that wait: `recordWritten` tells newer ones by their identity.
 */
import { RetentionCalendar } from '../core/retention.js';
import type { Clock } from '../core/clock.js';
import { nameOfResponse, type ResponseKey, type ResponseRecord } from '../registry/stored-response.js';
import type { FlushedResponses } from './flush.js';
import type { ResponseBounds, ResponseChanges } from './response-table.js';
import type { Store } from './store.js';

/** The most bytes that wait, some seconds of a busy gateway. Further responses wait without their bytes. */
const WAITING_BYTES_MAX = 128 * 1024 * 1024;

/** Responses that may wait, with or without bytes. If so many wait, `keep` returns false. */
const WAITING_MAX = 100_000;

/** Free bytes that a commit needs besides the responses, for the pages that it copies. */
const COMMIT_DISK_BYTES = 1024 * 1024;

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
  /** Whether the flush has taken the record of the charge out of its journal. */
  readonly isDrained: (charge: ChargePosition) => boolean;
  /** Whether the listener has appended the record of the charge to its journal. */
  readonly isCharged: (charge: ChargePosition) => boolean;
  readonly clock: Clock;
}

/** A response, or a removal, that waits for the flush of the record at `position`. */
interface WaitingResponse extends ChargePosition {
  /** Undefined if the response, which may be on disk, is to be removed. */
  readonly record: ResponseRecord | undefined;
  readonly key: ResponseKey;
}

/** What `find` has found. `isUnwritten`: the response is not on disk yet. */
export interface FoundResponse {
  readonly record: ResponseRecord;
  readonly isUnwritten: boolean;
}

export class StoredResponses implements FlushedResponses {
  readonly #options: StoredResponsesOptions;
  /** The newest response, or removal, of each key, by the name that `nameOfResponse` makes. */
  readonly #waiting = new Map<string, WaitingResponse>();
  readonly #calendar: RetentionCalendar;
  /** Bytes of the responses in `#waiting`. */
  #waitingBytes = 0;

  constructor(options: StoredResponsesOptions) {
    this.#options = options;
    this.#calendar = new RetentionCalendar(options.clock);
  }

  /** Returns the response if its call ended within the last `keepHours`. Throws StoreError. */
  find(key: ResponseKey): FoundResponse | undefined {
    const waiting = this.#waiting.get(nameOfResponse(key));
    const record = waiting === undefined ? this.#options.store.answers.find(key) : waiting.record;
    const { clock, keepHours } = this.#options;
    // A wall clock that jumps ahead hides responses here, but removes none: `#bounds` follows the jump only
    // after an hour (RetentionCalendar).
    if (record === undefined || record.endedMs <= clock.wallMs() - keepHours * HOUR_MS) return undefined;
    return { record, isUnwritten: waiting !== undefined };
  }

  /** As `find`, which alone may miss what another process has just written. */
  refreshAndFind(key: ResponseKey): FoundResponse | undefined {
    this.#options.store.refresh();
    return this.find(key);
  }

  /**
   * Keeps a response until it is written with its charge. Replaces a waiting response of the same key.
   * Returns false, and keeps nothing, if WAITING_MAX responses of other keys wait.
   */
  keep(record: ResponseRecord, { listener, position }: ChargePosition): boolean {
    if (this.#waiting.size >= WAITING_MAX && !this.#waiting.has(nameOfResponse(record))) return false;
    const { account, key } = record;
    const fits = this.#waitingBytes + (record.bytes?.length ?? 0) <= WAITING_BYTES_MAX;
    this.#addWaiting({
      record: fits ? record : { ...record, bytes: undefined },
      // Not the record: it would keep the bytes in memory when these do not fit, or are dropped later.
      key: { account, key },
      listener,
      position,
    });
    return true;
  }

  /** Removes the response, in the flush of the record that takes its charge back. WAITING_MAX is no bound. */
  forget(key: ResponseKey, { listener, position }: ChargePosition): void {
    this.#addWaiting({ record: undefined, key, listener, position });
  }

  /**
   * Drops the responses that a dead listener has not charged, and never will; returns their keys. Call it
   * before the listener's successor appends to the journal. If the charge is there, a flush writes both.
   */
  dropUncharged(listener: number): ResponseKey[] {
    const dropped: ResponseKey[] = [];
    // A Map may be deleted from while it is iterated.
    for (const waiting of this.#waiting.values()) {
      if (waiting.listener !== listener || this.#options.isCharged(waiting)) continue;
      this.#drop(waiting);
      dropped.push(waiting.key);
    }
    return dropped;
  }

  /**
   * Returns the changes to be written now; undefined if nothing waits. Call after the journals were drained,
   * or a response misses the transaction of its charge.
   */
  due(): ResponseChanges | undefined {
    if (this.#waiting.size === 0) return undefined;
    if (!this.#hasDiskSpace()) this.#dropBytes();
    const kept: ResponseRecord[] = [];
    const forgotten: ResponseKey[] = [];
    for (const waiting of this.#waiting.values()) {
      if (!this.#options.isDrained(waiting)) continue;
      if (waiting.record === undefined) forgotten.push(waiting.key);
      else kept.push(waiting.record);
    }
    return { kept, forgotten, bounds: this.#bounds };
  }

  /** Drops what is on disk now. A response of the same key that came since stays: it is not on disk. */
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

  /** All waiting responses lose their bytes: a replay is then recognized, but rejected. */
  recordFailed(): void {
    this.#dropBytes();
  }

  /**
   * Whether the disk has space for all bytes that wait. `due` asks before the commit, because a commit that
   * ran out of space within long values has ended processes with a damaged heap (lmdb 3.5.6); with short rows
   * it just fails. False if the free bytes cannot be read: then charges are written alone.
   */
  #hasDiskSpace(): boolean {
    const bytes = this.#waitingBytes;
    try {
      return bytes === 0 || this.#options.store.freeBytes() >= 2 * bytes + COMMIT_DISK_BYTES;
    } catch {
      return false;
    }
  }

  #dropBytes(): void {
    // Copied: `#addWaiting` puts entries at the end of the map, where a loop over the map would meet them.
    for (const waiting of [...this.#waiting.values()]) {
      const { record } = waiting;
      if (record?.bytes !== undefined)
        this.#addWaiting({ ...waiting, record: { ...record, bytes: undefined } });
    }
  }

  /**
   * Removes expired responses, as many as one transaction may; returns whether there may be more. A flush
   * removes some too, but only if it writes responses. Throws what the store throws.
   */
  expire(): boolean {
    const { store } = this.#options;
    return store.answers.expire(this.#bounds, (work) => store.commit(work));
  }

  get #bounds(): ResponseBounds {
    const { keepHours, storeBytesMax } = this.#options;
    return { expiredMs: this.#calendar.nowMs() - keepHours * HOUR_MS, bytesMax: storeBytesMax };
  }

  /** Adds `waiting`, in place of what waits with the same key. */
  #addWaiting(waiting: WaitingResponse): void {
    const name = nameOfResponse(waiting.key);
    const former = this.#waiting.get(name);
    if (former !== undefined) this.#drop(former);
    this.#waiting.set(name, waiting);
    this.#waitingBytes += waiting.record?.bytes?.length ?? 0;
  }

  /** `waiting` must be in `#waiting`. */
  #drop(waiting: WaitingResponse): void {
    this.#waiting.delete(nameOfResponse(waiting.key));
    this.#waitingBytes -= waiting.record?.bytes?.length ?? 0;
  }
}
