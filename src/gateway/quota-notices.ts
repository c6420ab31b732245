/**
 * Finds notices: a quota of a day or a month is nearly used up, or a balance is low. Each notice is reported
 * by a line in the log, and by a webhook if the settings name a receiver (webhook-outbox.ts sends it).
 * notifications.ts owns a QuotaNotices, on the main thread of each gateway process.
 *
 *     flush → ChangedScopes (changed-scopes.ts) → check: use of each scope and of the groups above it
 *           → passed a threshold? → claimed among the hosts? → marked in the store with its webhook
 *           → line in the log
 *
 * Each threshold is reported once a day or month. The store writes the mark and the webhook in one
 * transaction, so only one process of a host reports a notice, and none reports it again after a restart. Of
 * several hosts, the first to claim a notice at the server of sharing reports it. While the server cannot be
 * reached, each host reports the notice, but with the same webhook id, by which receivers find repeats.
 *
 * Must hold: a threshold is reported once, and a host whose claim fails does not report it. A check that
 * fails loses no notice, unless all checks fail for a day, because nothing else may bring its scopes back.
 */
import { createHash } from 'node:crypto';
import type { Settings } from '../config/schema.js';
import type { Clock } from '../core/clock.js';
import { decimalOf, picoUnitsOf } from '../core/money.js';
import { QUOTA_KINDS } from '../core/quotas.js';
import type { AccountIndex, KeyIndex, PicoUnits } from '../core/units.js';
import type { QuotaUse } from '../registry/quota-use.js';
import type { NoticeMark, NoticeRows, WaitingWebhook } from '../store/notice-rows.js';
import type { Log } from '../telemetry/log.js';
import type { ChangedScopes } from './changed-scopes.js';

/** How many accounts, and how many keys, one check reads: some 10 ms on the main thread. */
const CHECKED_SCOPES_MAX = 200;
/** How many notices one check logs one by one. A further line says how many others there are. */
const LOG_LINES_MAX = 100;
/**
 * How long the server of sharing keeps the claim of a low balance. The time may be long, because after each
 * credit a low balance is a new notice with another claim.
 */
const BALANCE_CLAIM_MS = 31 * 86_400_000;
/** How much longer than its day or month a claim lasts, because the clocks of hosts differ. */
const CLAIM_OVERLAP_MS = 3_600_000;
/**
 * How long scopes whose check fails are checked again. A disk may be full for a night, and then no notice can
 * be marked. An older notice helps nobody any more. Not for ever: a scope that can never be read would keep
 * those from being read that are checked with it. (A damaged row does not, see notifications.ts.)
 */
const FAILURE_MS_MAX = 86_400_000;

/** A scope, and what all hosts that share the scope have used of its quotas. */
export interface ScopeUse {
  readonly kind: 'account' | 'key' | 'group';
  readonly id: string;
  readonly name: string;
  /** Present for a key. */
  readonly account?: { readonly id: string; readonly name: string };
  readonly quotas: readonly QuotaUse[];
  /** Present for an account. `left` includes what calls hold, so it only falls until the next credit. */
  readonly balance?: { readonly left: PicoUnits; readonly credited: PicoUnits };
}

interface Notice extends NoticeMark {
  readonly scope: ScopeUse;
  /** The use of the quota, with `resetsMs`. Undefined for a low balance: then the scope has a `balance`. */
  readonly use: QuotaUse | undefined;
  /** For a low balance: the bound of the settings. The webhook's id is made of it too. */
  readonly lowBalance: PicoUnits | undefined;
}

type NotifySettings = NonNullable<Settings['notify']>;

/**
 * Returns a notice of the highest threshold that each quota has passed, and a notice of a low balance, also
 * if they were reported before. A notice of a low balance has `percent` 0. Exported for the test.
 */
export function noticesOf(
  scope: ScopeUse,
  { at: thresholds, low_balance: lowBalanceText }: NotifySettings,
): Notice[] {
  const notices: Notice[] = [];
  for (const use of scope.quotas) {
    const { quota, used, resetsMs } = use;
    const percent = Math.max(0, ...passedBy(used, use, thresholds));
    if (percent === 0 || resetsMs === undefined) continue;
    const period = new Date(resetsMs).toISOString();
    const mark = { scopeId: scope.id, quota, period, percent, endsMs: resetsMs };
    notices.push({ ...mark, scope, use, lowBalance: undefined });
  }
  const lowBalance = lowBalanceText === undefined ? undefined : picoUnitsOf(lowBalanceText);
  if (lowBalance !== undefined && scope.balance !== undefined && scope.balance.left < lowBalance) {
    const period = String(scope.balance.credited);
    const mark = { scopeId: scope.id, quota: 'balance', period, percent: 0, endsMs: null };
    notices.push({ ...mark, scope, use: undefined, lowBalance });
  }
  return notices;
}

export interface QuotaNoticesOptions {
  /** Returns undefined if the settings want no notices. */
  readonly settings: () => Settings['notify'];
  readonly changed: ChangedScopes;
  /** Reads the use of the accounts and keys, and of all groups that the accounts are in. */
  readonly read: (accounts: readonly AccountIndex[], keys: readonly KeyIndex[]) => Promise<ScopeUse[]>;
  /** The store's marks of notices that were reported. */
  readonly rows: Pick<NoticeRows, 'isNew' | 'tell'>;
  /**
   * Resolves with whether this host, of all that share the scope, may report the notice of that webhook id.
   * True also if this host has claimed the id before, or the server cannot be asked. The server forgets the
   * claim after `forMs`. Undefined if this is the only host.
   */
  readonly claim: ((id: string, forMs: number) => Promise<boolean>) | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** Returns the thresholds that `amount` of a quota passes: none for a quota that is not of a day or month. */
function passedBy(amount: bigint, { quota, limit }: QuotaUse, thresholds: readonly number[]): number[] {
  const { per } = QUOTA_KINDS[quota];
  if (per !== 'day' && per !== 'month') return [];
  return thresholds.filter((percent) => amount * 100n >= limit * BigInt(percent));
}

/** Returns whether a quota would pass a further threshold if all that is granted (`leased`) were used. */
function mayHavePassed(scope: ScopeUse, thresholds: readonly number[]): boolean {
  return scope.quotas.some((use) => {
    const passed = (amount: bigint): number => passedBy(amount, use, thresholds).length;
    return passed(use.used + (use.leased ?? 0n)) > passed(use.used);
  });
}

export class QuotaNotices {
  readonly #options: QuotaNoticesOptions;
  #isChecking = false;
  /** Since when all checks fail; monotonic. Undefined while they succeed. */
  #failingSinceMs: number | undefined;
  #droppedWebhooks = 0;

  constructor(options: QuotaNoticesOptions) {
    this.#options = options;
  }

  /** How many webhooks were dropped since the start, because too many wait (store/notice-rows.ts). */
  get dropped(): number {
    return this.#droppedWebhooks;
  }

  /**
   * Checks up to CHECKED_SCOPES_MAX accounts and keys that have changed. To be called after each flush. Does
   * nothing while a check runs. Never rejects.
   */
  async check(): Promise<void> {
    const { settings, changed, read, claim, clock, log } = this.#options;
    const notify = settings();
    if (this.#isChecking || notify === undefined) return;
    const scopesToCheck = changed.take(CHECKED_SCOPES_MAX, clock.monotonicMs());
    const { accounts, keys } = scopesToCheck;
    if (accounts.length + keys.length === 0) return;
    this.#isChecking = true;
    try {
      const scopes = await read(accounts, keys);
      // The hosts together may have passed a threshold. No host knows that until the others report their use.
      if (claim !== undefined && scopes.some((scope) => mayHavePassed(scope, notify.at)))
        changed.addAgain(scopesToCheck, clock.monotonicMs());
      await this.#report(scopes);
      if (this.#failingSinceMs !== undefined) log.warn('quotas are looked at again');
      this.#failingSinceMs = undefined;
    } catch (error) {
      if (this.#failingSinceMs === undefined)
        log.error('quotas were not looked at, operators may be told late', { error: String(error) });
      const nowMs = clock.monotonicMs();
      this.#failingSinceMs ??= nowMs;
      // No flush may add the scope again: if its quota is used up, its calls are refused.
      if (nowMs - this.#failingSinceMs < FAILURE_MS_MAX) changed.addAgain(scopesToCheck, nowMs);
    } finally {
      this.#isChecking = false;
    }
  }

  /** Marks, logs and queues the notices that are new. */
  async #report(scopes: readonly ScopeUse[]): Promise<void> {
    const { settings, rows, claim, log } = this.#options;
    const notify = settings();
    if (notify === undefined) return;
    const newNotices = scopes
      .flatMap((scope) => noticesOf(scope, notify))
      .filter((notice) => rows.isNew(notice));
    if (newNotices.length === 0) return;
    const claimed = new Set<Notice>();
    for (const notice of newNotices) {
      if (claim === undefined || (await claim(webhookIdOf(notice), this.#claimMs(notice))))
        claimed.add(notice);
    }
    // A notice that another host has claimed is marked too, so that this host does not ask again.
    const { told: marked, dropped } = rows.tell(newNotices, (notice) =>
      notify.url === undefined || !claimed.has(notice) ? undefined : this.#webhookOf(notice),
    );
    this.#droppedWebhooks += dropped;
    if (dropped > 0) log.error('webhooks were dropped: too many wait for their receiver', { dropped });
    this.#log(marked.filter((notice) => claimed.has(notice)));
  }

  #log(notices: readonly Notice[]): void {
    const { log } = this.#options;
    for (const notice of notices.slice(0, LOG_LINES_MAX)) {
      const { scope, use, percent } = notice;
      const { kind, id, name } = scope;
      if (use === undefined)
        log.warn('a balance is low', { scope: kind, id, name, balance: decimalOf(scope.balance!.left) });
      else {
        const { quota, resetsMs } = use;
        const used = textOf(use, use.used);
        const limit = textOf(use, use.limit);
        const resets = new Date(resetsMs!).toISOString();
        const message = percent === 100 ? 'a quota is used up' : `${percent} % of a quota is used`;
        log.warn(message, { scope: kind, id, name, quota, used, limit, resets });
      }
    }
    if (notices.length > LOG_LINES_MAX)
      log.warn('more quotas have passed a threshold', { more: notices.length - LOG_LINES_MAX });
  }

  #webhookOf(notice: Notice): WaitingWebhook {
    const reportedMs = this.#options.clock.wallMs();
    const { kind, id, name, account } = notice.scope;
    const scope = { scope: kind, id, name, ...(account && { account }) };
    const [type, data]: [string, object] =
      notice.use === undefined
        ? ['balance.low', balanceDataOf(notice)]
        : ['quota.threshold_reached', quotaDataOf(notice.use, notice.percent)];
    const body = { type, timestamp: new Date(reportedMs).toISOString(), data: { ...scope, ...data } };
    return { id: webhookIdOf(notice), body: JSON.stringify(body), reportedMs };
  }

  /** How long the server of sharing is to keep the claim. */
  #claimMs({ endsMs }: Notice): number {
    if (endsMs === null) return BALANCE_CLAIM_MS;
    return Math.max(0, endsMs - this.#options.clock.wallMs()) + CLAIM_OVERLAP_MS;
  }
}

function balanceDataOf({ scope, lowBalance }: Notice): object {
  return { balance: decimalOf(scope.balance!.left), low_balance: decimalOf(lowBalance!) };
}

/** The webhook's data about a quota. `noticesOf` has left out quotas without `resetsMs`. */
function quotaDataOf(use: QuotaUse, percent: number): object {
  const { quota, used, limit, resetsMs } = use;
  const isMoney = QUOTA_KINDS[quota].unit === 'money';
  return {
    quota,
    threshold_percent: percent,
    used: isMoney ? decimalOf(used) : Number(used),
    limit: isMoney ? decimalOf(limit) : Number(limit),
    resets: new Date(resetsMs!).toISOString(),
  };
}

function textOf({ quota }: QuotaUse, amount: bigint): string {
  return QUOTA_KINDS[quota].unit === 'money' ? decimalOf(amount) : String(amount);
}

/**
 * Returns an id that is the same on every host and after every restart. The id has no full stop, because the
 * text that is signed separates its parts by full stops.
 */
function webhookIdOf({ scopeId, quota, period, percent, lowBalance }: Notice): string {
  // 27 characters are 162 bits of the digest.
  const identity = JSON.stringify([scopeId, quota, period, percent, lowBalance?.toString()]);
  return `msg_${createHash('sha256').update(identity).digest('base64url').slice(0, 27)}`;
}
