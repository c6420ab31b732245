/**
 * Ids of accounts, which only the main thread can look up, for batches of spans that name accounts by index: a batch waits until
 * those that it needs are known. Exporting thread.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { AccountIndex } from '../core/units.js';
import { SPAN_OF_CALL, type SpanRecord } from './span-record.js';

/** With more accounts in use they are asked for again. */
const IDS_MAX = 100_000;

export class AccountIds {
  readonly #ask: (accounts: readonly AccountIndex[]) => void;
  readonly #ready: (records: readonly SpanRecord[]) => void;
  readonly #ids = new Map<AccountIndex, string | null>();
  #asked = false;
  /** In the order in which they came; bounded by what may be on its way. */
  readonly #waiting: (readonly SpanRecord[])[] = [];
  #onEmpty: () => void = () => undefined;

  /** `ask` is answered by `learn`; `ready` gets the batches, one after the other. */
  constructor(
    ask: (accounts: readonly AccountIndex[]) => void,
    ready: (records: readonly SpanRecord[]) => void,
  ) {
    this.#ask = ask;
    this.#ready = ready;
  }

  /** Undefined where there is no such account any more, or it was not learned in time. */
  idOf(account: AccountIndex): string | undefined {
    return this.#ids.get(account) ?? undefined;
  }

  add(records: readonly SpanRecord[]): void {
    this.#waiting.push(records);
    this.#release();
  }

  learn(ids: readonly (readonly [AccountIndex, string | null])[]): void {
    if (this.#ids.size + ids.length > IDS_MAX) this.#ids.clear();
    for (const [account, id] of ids) this.#ids.set(account, id);
    this.#asked = false;
    this.#release();
  }

  /** To be called now and then: an index may be another account's by now. */
  forget(): void {
    this.#ids.clear();
  }

  /** Resolves when nothing waits any more, or after `timeoutMs`; what waits then goes without. */
  async finish(timeoutMs: number): Promise<void> {
    const empty = new Promise<void>((resolve) => (this.#onEmpty = resolve));
    this.#release();
    await Promise.race([empty, delay(timeoutMs)]);
    for (const records of this.#waiting.splice(0)) this.#ready(records);
  }

  #release(): void {
    while (this.#waiting.length > 0) {
      const unknown = this.#unknownOf(this.#waiting[0]!);
      if (unknown.size > 0) {
        if (!this.#asked) this.#ask([...unknown]);
        this.#asked = true;
        return;
      }
      this.#ready(this.#waiting.shift()!);
    }
    this.#onEmpty();
  }

  #unknownOf(records: readonly SpanRecord[]): Set<AccountIndex> {
    const unknown = new Set<AccountIndex>();
    for (const record of records)
      if (record.kind === SPAN_OF_CALL && !this.#ids.has(record.account)) unknown.add(record.account);
    return unknown;
  }
}
