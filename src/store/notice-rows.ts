/**
 * What operators have been told of quotas and balances, and the webhooks that wait to be sent. The notices of
 * gateway/quota-notices.ts write it and gateway/webhook-outbox.ts empties it, on the main threads of all
 * processes of a host: a transaction decides which of them tells. It is no part of the accounting: the audit
 * does not read it, and a row that cannot be read is as good as none.
 *
 *     ['told', id of the scope, quota]   → [period, percent, ends at ms]; of a balance [credited, 0, null]
 *     ['waits', told at ms, webhook id]  → body of the webhook
 */
import type { Database, Key } from 'lmdb';
import type { Tables } from './tables.js';

/**
 * Webhooks that wait, some 500 KB. If there are more, the oldest are dropped: an operator who was away for
 * long learns most from the latest.
 */
export const WEBHOOKS_WAITING_MAX = 1_000;
/** Rows that one sweep looks at: some 5 ms. */
const SWEPT_MAX = 2_000;
/** After its period a row is kept for so long, in case the calendar is set back. */
const KEPT_MS = 86_400_000;

type NoticeKey = ['told', string, string] | ['waits', number, string];
export type NoticeTable = Database<unknown, NoticeKey>;

/** No id begins with this character. */
const LAST = '~';
/** A new object for each call: lmdb writes into it. */
const waits = (): { start: Key; end: Key } => ({
  start: ['waits', 0, ''],
  end: ['waits', Number.MAX_SAFE_INTEGER, LAST],
});

/** What may be told of one scope. */
export interface NoticeMark {
  readonly scopeId: string;
  /** A quota's name, or `balance`. */
  readonly quota: string;
  /** Names the day or month; for a balance what was credited so far, which only grows. */
  readonly period: string;
  /** The highest threshold that is passed; 0 for a balance. */
  readonly percent: number;
  /** When the period ends; null if never. */
  readonly endsMs: number | null;
}

export interface WaitingWebhook {
  readonly id: string;
  readonly body: string;
  readonly toldMs: number;
}

type Told = readonly [period: string, percent: number, endsMs: number | null];

export class NoticeRows {
  readonly #tables: Pick<Tables, 'environment' | 'notices'>;
  /** Where the next sweep begins. */
  #sweepFrom: NoticeKey = ['told', '', ''];

  constructor(tables: Pick<Tables, 'environment' | 'notices'>) {
    this.#tables = tables;
  }

  /** Whether nobody has been told, in the mark's period, of a threshold as high as the mark's. Some µs. */
  isNew({ scopeId, quota, period, percent }: NoticeMark): boolean {
    const told = this.#tables.notices.get(['told', scopeId, quota]);
    if (!isTold(told)) return true;
    return told[0] !== period || told[1] < percent;
  }

  /**
   * Marks what is new as told, in one transaction, and has its webhooks wait, if `webhookOf` makes one.
   * Returns what was new, and how many older webhooks were dropped. Throws what the store throws.
   */
  tell<Mark extends NoticeMark>(
    marks: readonly Mark[],
    webhookOf: (mark: Mark) => WaitingWebhook | undefined,
  ): { readonly told: Mark[]; readonly dropped: number } {
    const { environment, notices } = this.#tables;
    return environment.write(() => {
      const told = marks.filter((mark) => this.isNew(mark));
      for (const mark of told) {
        const { scopeId, quota, period, percent, endsMs } = mark;
        notices.putSync(['told', scopeId, quota], [period, percent, endsMs]);
        const webhook = webhookOf(mark);
        if (webhook !== undefined) notices.putSync(['waits', webhook.toldMs, webhook.id], webhook.body);
      }
      return { told, dropped: this.#dropOldest() };
    });
  }

  /** Returns the webhooks that wait, the oldest first. */
  waiting(): WaitingWebhook[] {
    return Array.from(this.#tables.notices.getRange(waits()), ({ key, value }) => ({
      id: key[2],
      toldMs: Number(key[1]),
      body: String(value),
    }));
  }

  /** Removes a webhook that need not wait any more. Costs a disk flush. */
  remove({ toldMs, id }: WaitingWebhook): void {
    const { environment, notices } = this.#tables;
    environment.write(() => void notices.removeSync(['waits', toldMs, id]));
  }

  /** Removes what was told of periods that have ended, of the next SWEPT_MAX rows. */
  sweep(nowMs: number): void {
    const { environment, notices } = this.#tables;
    const range = { start: this.#sweepFrom, end: ['told', LAST, ''], limit: SWEPT_MAX };
    const rows = [...notices.getRange(range)];
    this.#sweepFrom = rows.length < SWEPT_MAX ? ['told', '', ''] : rows.at(-1)!.key;
    const ended = rows.filter(
      ({ value }) => !isTold(value) || (value[2] !== null && value[2] + KEPT_MS < nowMs),
    );
    if (ended.length === 0) return;
    environment.write(() => {
      for (const { key } of ended) notices.removeSync(key);
    });
  }

  #dropOldest(): number {
    const { notices } = this.#tables;
    const surplus = notices.getKeysCount(waits()) - WEBHOOKS_WAITING_MAX;
    if (surplus <= 0) return 0;
    for (const key of [...notices.getKeys({ ...waits(), limit: surplus })]) notices.removeSync(key);
    return surplus;
  }
}

function isTold(value: unknown): value is Told {
  if (!Array.isArray(value) || value.length !== 3) return false;
  const [period, percent, endsMs] = value as readonly unknown[];
  return (
    typeof period === 'string' &&
    typeof percent === 'number' &&
    (endsMs === null || typeof endsMs === 'number')
  );
}
