/**
 * The second stage of the exporting thread (span-export.thread.ts): holds batches of spans until the ids of
 * their accounts are known. Spans name accounts by index, and only the main thread can look up an id.
 *
 * Must hold:
 * - Batches go on in the order in which they came, each once.
 * - One request for ids runs at a time, and its reply has each account that was asked for, else all batches
 *   wait until `releaseAll`.
 * - SPANS_IN_FLIGHT_MAX (export-budget.ts) bounds the waiting spans: `ready` gives them back to the budget.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { AccountIndex } from '../core/units.js';
import { SPAN_OF_CALL, type SpanRecord } from './span-record.js';

/** How many ids are cached. The cache is emptied before it would have more. */
const IDS_MAX = 100_000;

export class AccountIds {
  readonly #ask: (accounts: readonly AccountIndex[]) => void;
  readonly #ready: (records: readonly SpanRecord[]) => void;
  /** By account. Null if the main thread could not read the id when it was asked. */
  readonly #ids = new Map<AccountIndex, string | null>();
  /** Whether `ask` was called and its reply has not come. One request for ids runs at a time. */
  #isAsking = false;
  /** Batches in the order of arrival. SPANS_IN_FLIGHT_MAX bounds their spans. */
  readonly #waiting: (readonly SpanRecord[])[] = [];
  /** Resolves the promise that `releaseAll` waits for. */
  #onNoneWaiting: () => void = () => undefined;

  /** `ask` requests ids from the main thread; the reply goes to `onIds`. `ready` gets batches in order. */
  constructor(
    ask: (accounts: readonly AccountIndex[]) => void,
    ready: (records: readonly SpanRecord[]) => void,
  ) {
    this.#ask = ask;
    this.#ready = ready;
  }

  /** Returns undefined if the id could not be read, or did not come before `releaseAll` gave up. */
  idOf(account: AccountIndex): string | undefined {
    return this.#ids.get(account) ?? undefined;
  }

  /** Adds a batch, which goes to `ready` at once if its ids are known and no batch waits before it. */
  add(records: readonly SpanRecord[]): void {
    this.#waiting.push(records);
    this.#release();
  }

  /** To be called with the reply to `ask`. An account whose id could not be read has null. */
  onIds(ids: readonly (readonly [AccountIndex, string | null])[]): void {
    if (this.#ids.size + ids.length > IDS_MAX) this.#ids.clear();
    for (const [account, id] of ids) this.#ids.set(account, id);
    this.#isAsking = false;
    this.#release();
  }

  /** To be called every 10 s, so that an id that could not be read is asked for again. */
  forget(): void {
    this.#ids.clear();
  }

  /**
   * Resolves when no batch waits, or after `timeoutMs`: then the waiting batches go to `ready` without ids.
   * Called once, at the end: the thread then ends by `process.exit`, so the timer need not be cleared.
   */
  async releaseAll(timeoutMs: number): Promise<void> {
    const empty = new Promise<void>((resolve) => (this.#onNoneWaiting = resolve));
    this.#release();
    await Promise.race([empty, delay(timeoutMs)]);
    for (const records of this.#waiting.splice(0)) this.#ready(records);
  }

  /**
   * Gives batches to `ready`, up to the first batch with an unknown id. Asks for that batch's ids, unless a
   * request runs already.
   */
  #release(): void {
    while (this.#waiting.length > 0) {
      const unknown = this.#unknownOf(this.#waiting[0]!);
      if (unknown.size > 0) {
        if (!this.#isAsking) this.#ask([...unknown]);
        this.#isAsking = true;
        return;
      }
      this.#ready(this.#waiting.shift()!);
    }
    this.#onNoneWaiting();
  }

  /** Returns the accounts whose ids are not cached. Only spans of calls name an account. */
  #unknownOf(records: readonly SpanRecord[]): Set<AccountIndex> {
    const unknown = new Set<AccountIndex>();
    for (const record of records)
      if (record.kind === SPAN_OF_CALL && !this.#ids.has(record.account)) unknown.add(record.account);
    return unknown;
  }
}
