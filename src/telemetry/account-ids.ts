/**
 * The second stage of the exporting thread (span-export.thread.ts): holds batches of spans until the ids of
 * their accounts are known. Spans name accounts by index, and only the main thread can look up an id.
 *
 * Must hold:
 * - Batches go on in the order in which they came, each once.
 * - One request for ids runs at a time. An account that its reply lacks has no id: it is not asked for again
 *   at once, or a reply that always lacks it would make requests without end.
 * - SPANS_IN_FLIGHT_MAX (export-budget.ts) bounds the waiting spans: `ready` gives them back to the budget.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { AccountIndex } from '../core/units.js';
import { SPANS_IN_FLIGHT_MAX } from './export-budget.js';
import { SPAN_OF_CALL, type SpanRecord } from './span-record.js';

/**
 * How many ids are cached: some 100,000, and more than the accounts of all waiting batches, or one batch
 * might never have all its ids. The cache is emptied before it would have more.
 */
const IDS_MAX = 6 * SPANS_IN_FLIGHT_MAX;

/** Takes a batch. `idOf` is for this call alone, because the cache is emptied from time to time. */
type Ready = (
  records: readonly SpanRecord[],
  /** Returns undefined if the id could not be read, or did not come before `releaseAll` gave up. */
  idOf: (account: AccountIndex) => string | undefined,
) => void;

export class AccountIds {
  readonly #ask: (accounts: readonly AccountIndex[]) => void;
  readonly #ready: Ready;
  /** By account. Null if the main thread could not read the id when it was asked. */
  readonly #ids = new Map<AccountIndex, string | null>();
  readonly #idOf = (account: AccountIndex): string | undefined => this.#ids.get(account) ?? undefined;
  /** The accounts that `ask` got; undefined while no reply is awaited. */
  #asked: ReadonlySet<AccountIndex> | undefined;
  /** Batches in the order of arrival. SPANS_IN_FLIGHT_MAX bounds their spans. */
  readonly #waiting: (readonly SpanRecord[])[] = [];
  /** Resolves the promise that `releaseAll` waits for. */
  #onNoneWaiting: () => void = () => undefined;

  /** `ask` requests ids from the main thread; the reply goes to `onIds`. `ready` gets batches in order. */
  constructor(ask: (accounts: readonly AccountIndex[]) => void, ready: Ready) {
    this.#ask = ask;
    this.#ready = ready;
  }

  /** Adds a batch, which goes to `ready` at once if its ids are known and no batch waits before it. */
  add(records: readonly SpanRecord[]): void {
    this.#waiting.push(records);
    this.#release();
  }

  /** To be called with the reply to `ask`. An account whose id could not be read has null, or is left out. */
  onIds(ids: readonly (readonly [AccountIndex, string | null])[]): void {
    const asked = this.#asked ?? new Set<AccountIndex>();
    if (this.#ids.size + asked.size > IDS_MAX) this.#ids.clear();
    for (const account of asked) this.#ids.set(account, null);
    for (const [account, id] of ids) if (asked.has(account)) this.#ids.set(account, id);
    this.#asked = undefined;
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
    for (const records of this.#waiting.splice(0)) this.#ready(records, this.#idOf);
  }

  /**
   * Gives batches to `ready`, up to the first batch with an unknown id. Asks for that batch's ids, unless a
   * request runs already.
   */
  #release(): void {
    while (this.#waiting.length > 0) {
      const unknown = this.#unknownOf(this.#waiting[0]!);
      if (unknown.size > 0) {
        if (this.#asked !== undefined) return;
        this.#asked = unknown;
        this.#ask([...unknown]);
        return;
      }
      this.#ready(this.#waiting.shift()!, this.#idOf);
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
