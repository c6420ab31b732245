/**
 * The notices of quotas and balances that operators were told, and the webhooks that wait to be sent: a
 * transactional outbox. gateway/quota-notices.ts writes it and gateway/webhook-outbox.ts empties it, on the
 * main threads of all processes of a host. The table is no part of the accounting: the audit does not read
 * it, and a row that cannot be read counts as missing.
 *
 * Must hold: a notice is marked as told in the transaction that queues its webhook, so that of several
 * processes one tells it, and no crash in between drops a webhook. Rows are judged in the transaction that
 * changes them. A webhook is sent at least once: a crash between its delivery and `remove` sends it again,
 * with the same id (docs/operations.md).
 *
 *     ['told', id of the scope, quota]   → [period, percent, ends at ms]; of a balance [credited, 0, null]
 *     ['waits', told at ms, webhook id]  → body of the webhook
 */
import type { Key } from 'lmdb';
import { AFTER_ALL_NUMBERS } from './record-codec.js';
import type { Tables } from './tables.js';

/**
 * Webhooks that wait at most, some 500 KB. If there are more, the oldest are dropped: after a long outage of
 * the receiver the latest are of most use.
 */
export const WEBHOOKS_WAITING_MAX = 1_000;
/** Notices that one sweep looks at: some 5 ms. */
const NOTICES_SWEPT_MAX = 2_000;
/** A notice is kept for a day after its period, in case the wall clock is set back. */
const KEPT_AFTER_PERIOD_MS = 86_400_000;

type NoticeKey = ['told', string, string] | ['waits', number, string];

/** Ordered after every id: ids of records and webhooks are letters, digits, `_` and `-`. */
const AFTER_ALL_IDS = '~';
/** Returns the range of waiting webhooks. Each call makes an object, because lmdb writes into it. */
const waitingRange = (): { start: Key; end: Key } => ({
  start: ['waits', 0, ''],
  end: ['waits', AFTER_ALL_NUMBERS, AFTER_ALL_IDS],
});

/** What identifies a notice of a scope, told or not. (The mark of a node is something else.) */
export interface NoticeMark {
  readonly scopeId: string;
  /** A quota's name, or `balance`. */
  readonly quota: string;
  /** Names the day or month; for a balance what was credited so far: each credit and debit begins another. */
  readonly period: string;
  /** The highest threshold that is exceeded; 0 for a balance. */
  readonly percent: number;
  /** When the period ends; null if never. */
  readonly endsMs: number | null;
}

export interface WaitingWebhook {
  readonly id: string;
  /** JSON, as it is sent. */
  readonly body: string;
  /** When operators were told; webhooks are sent in this order. */
  readonly reportedMs: number;
}

type ToldRow = readonly [period: string, percent: number, endsMs: number | null];

export class NoticeRows {
  readonly #tables: Pick<Tables, 'environment' | 'notices'>;
  /** The key of the row with which the next sweep begins. */
  #nextSweptKey: NoticeKey = ['told', '', ''];

  constructor(tables: Pick<Tables, 'environment' | 'notices'>) {
    this.#tables = tables;
  }

  /** False if a threshold as high was told in the same period. Takes some µs. */
  isNew({ scopeId, quota, period, percent }: NoticeMark): boolean {
    const stored = this.#tables.notices.get(['told', scopeId, quota]);
    if (!isToldRow(stored)) return true;
    const [toldPeriod, toldPercent] = stored;
    return toldPeriod !== period || toldPercent < percent;
  }

  /**
   * In one transaction, records the new `marks` as told and queues the webhook that `webhookOf` makes of
   * each; undefined queues none. Returns the new marks, and how many older webhooks were dropped. Throws what
   * the store throws.
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
        if (webhook !== undefined) notices.putSync(['waits', webhook.reportedMs, webhook.id], webhook.body);
      }
      return { told, dropped: this.#dropOldest() };
    });
  }

  /** Returns the webhooks that wait, the oldest first. Leaves out damaged rows, which `sweep` removes. */
  waiting(): WaitingWebhook[] {
    const webhooks: WaitingWebhook[] = [];
    for (const { key, value } of this.#tables.notices.getRange(waitingRange()))
      if (typeof value === 'string') webhooks.push({ id: key[2], reportedMs: Number(key[1]), body: value });
    return webhooks;
  }

  /** Removes a webhook that was delivered or given up. Costs an fsync. */
  remove({ reportedMs, id }: WaitingWebhook): void {
    const { environment, notices } = this.#tables;
    environment.write(() => void notices.removeSync(['waits', reportedMs, id]));
  }

  /**
   * Goes through the next NOTICES_SWEPT_MAX notices. Removes a notice that is damaged or whose period ended
   * KEPT_AFTER_PERIOD_MS ago, and all damaged webhooks.
   */
  sweep(nowMs: number): void {
    const { environment, notices } = this.#tables;
    const range = { start: this.#nextSweptKey, end: ['told', AFTER_ALL_IDS, ''], limit: NOTICES_SWEPT_MAX };
    const rows = [...notices.getRange(range)];
    this.#nextSweptKey = rows.length < NOTICES_SWEPT_MAX ? ['told', '', ''] : rows.at(-1)!.key;
    const isRemovable = ({ key, value }: { key: NoticeKey; value: unknown }): boolean =>
      key[0] === 'told' ? !isToldRow(value) || hasEndedLong(value, nowMs) : typeof value !== 'string';
    const removable = [...rows, ...notices.getRange(waitingRange())].filter(isRemovable);
    if (removable.length === 0) return;
    environment.write(() => {
      // Asked again, because another process may have told a notice of the next period since.
      for (const { key } of removable)
        if (isRemovable({ key, value: notices.get(key) })) notices.removeSync(key);
    });
  }

  /** Returns how many webhooks were dropped. Call in a transaction. */
  #dropOldest(): number {
    const { notices } = this.#tables;
    const surplus = notices.getKeysCount(waitingRange()) - WEBHOOKS_WAITING_MAX;
    if (surplus <= 0) return 0;
    for (const key of [...notices.getKeys({ ...waitingRange(), limit: surplus })]) notices.removeSync(key);
    return surplus;
  }
}

function hasEndedLong([, , endsMs]: ToldRow, nowMs: number): boolean {
  return endsMs !== null && endsMs + KEPT_AFTER_PERIOD_MS < nowMs;
}

function isToldRow(value: unknown): value is ToldRow {
  if (!Array.isArray(value) || value.length !== 3) return false;
  const [period, percent, endsMs] = value as readonly unknown[];
  return (
    typeof period === 'string' &&
    typeof percent === 'number' &&
    (endsMs === null || typeof endsMs === 'number')
  );
}
