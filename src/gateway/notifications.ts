/**
 * Connects the notices of quotas (quota-notices.ts) with the gateway's registry and store, and sends their
 * webhooks. gateway.ts owns it, on the main thread of a gateway process.
 *
 * Must hold: every gateway records notices, but only the one with the admin interface sends webhooks, so
 * that none is sent twice (test/e2e/notify.test.ts).
 */
import { webhookKeyOf } from '../config/notify-schema.js';
import type { Settings } from '../config/schema.js';
import { SystemClock, type Clock } from '../core/clock.js';
import { ProxyError } from '../core/errors.js';
import type { QuotaLimits } from '../core/quotas.js';
import { asPicoUnits, type AccountIndex, type KeyIndex } from '../core/units.js';
import type { AccountStatement } from '../registry/account-statement.js';
import type { GroupStatement } from '../registry/groups.js';
import type { Registry } from '../registry/registry.js';
import type { NoticeRows, WaitingWebhook } from '../store/notice-rows.js';
import type { Log } from '../telemetry/log.js';
import type { WebhookCounts } from '../telemetry/metrics-source.js';
import { sendWebhook, type Delivery } from '../telemetry/webhook.js';
import type { Accounting } from './accounting.js';
import { GroupQuotas } from './gateway-metrics.js';
import { QuotaNotices, type ScopeUse } from './quota-notices.js';
import type { LiveSettings } from './reload.js';

export interface NotificationsOptions {
  readonly live: LiveSettings;
  readonly accounting: Accounting;
  readonly log: Log;
}

export class Notifications {
  readonly #options: NotificationsOptions;
  readonly #notices: QuotaNotices;
  readonly #outbox: WebhookOutbox;
  /** For the metrics. */
  readonly groupQuotas: GroupQuotas;

  constructor(options: NotificationsOptions) {
    const { live, accounting, log } = options;
    const { changed, idNames, ledger, store } = accounting.base;
    const settings = () => live.settings.notify;
    const clock = new SystemClock();
    this.#options = options;
    this.#notices = new QuotaNotices({
      settings,
      changed,
      read: async (accounts, keys) => {
        const accountIds = idsOf(accounts, (index) => idNames.accountIdOf(index));
        const limited = keys.filter((index) => hasQuotas(ledger.keys.limitsOf(index)));
        const keyIds = idsOf(limited, (index) => idNames.keyIdOf(index));
        return accounting.service.read((registry) => usesOf(registry, accountIds, keyIds));
      },
      rows: store.notices,
      claim: accounting.sharing.claim,
      clock,
      log,
    });
    this.groupQuotas = new GroupQuotas({
      service: accounting.service,
      records: () => store.groups.all(),
      showsNames: live.settings.metrics.account_labels,
      monotonicMs: () => clock.monotonicMs(),
    });
    this.#outbox = new WebhookOutbox({ settings, rows: store.notices, random: Math.random, clock, log });
  }

  /** To be called after each flush of the timer. Returns at once; errors are logged. */
  run(): void {
    void this.#notices.look().then(() => this.#outbox.look());
  }

  /** Begins to send the host's webhooks and to give samples of groups, until `follow`. */
  lead(): void {
    this.groupQuotas.turnOn(true);
    this.#outbox.open();
  }

  /** To be called when another gateway of the process group has the admin interface: it sends from now on. */
  follow(): void {
    this.groupQuotas.turnOn(false);
    this.#outbox.close();
  }

  /** For the metrics; undefined if no receiver is set. */
  get counts(): WebhookCounts | undefined {
    if (this.#options.live.settings.notify?.url === undefined) return undefined;
    return { ...this.#outbox.counts, dropped: this.#notices.dropped };
  }

  close(): void {
    this.#outbox.close();
  }
}

const hasQuotas = (limits: QuotaLimits): boolean =>
  Object.values(limits).some((limit) => limit !== undefined);

function idsOf<Index extends AccountIndex | KeyIndex>(
  indices: readonly Index[],
  idOf: (index: Index) => string | null,
): string[] {
  return indices.map(idOf).filter((id) => id !== null);
}

/** Reads the accounts, the keys, and all groups that the accounts are in. */
function usesOf(registry: Registry, accountIds: readonly string[], keyIds: readonly string[]): ScopeUse[] {
  const accounts = accountIds.map((id) => registry.accounts.find(id));
  const groupIds = new Set(accounts.flatMap(({ group }) => (group === undefined ? [] : [group.id])));
  const groups: GroupStatement[] = [];
  for (const id of groupIds) {
    const group = registry.groups.find(id);
    groups.push(group);
    // The loop also visits the parents that it adds to the set.
    if (group.record.parentId !== undefined) groupIds.add(group.record.parentId);
  }
  return [
    ...accounts.map(accountUseOf),
    ...keyIds.flatMap((id) => keyUseOf(registry, id) ?? []),
    ...groups.map(({ record: { id, name }, quotas }) => ({ kind: 'group' as const, id, name, quotas })),
  ];
}

function accountUseOf({ record, available, held, quotas }: AccountStatement): ScopeUse {
  const { id, name, credited } = record;
  const balance = { left: asPicoUnits(available + held), credited };
  return { kind: 'account', id, name, quotas, balance };
}

/** Undefined if the key was deleted meanwhile. */
function keyUseOf(registry: Registry, keyId: string): ScopeUse | undefined {
  try {
    const { record, accountName, quotas } = registry.keys.find(keyId);
    const { id, name, accountId } = record;
    return { kind: 'key', id, name, account: { id: accountId, name: accountName }, quotas };
  } catch (error) {
    if (error instanceof ProxyError && error.code === 'not_found') return undefined;
    throw error;
  }
}

const PAUSE_MS_MIN = 1_000;
const PAUSE_MS_MAX = 300_000;
/** An older notice helps nobody any more. */
const AGE_MS_MAX = 86_400_000;
/** How often the store is asked to remove the marks of quotas whose period ended a day ago. */
const SWEEP_MS = 60_000;

export interface WebhookOutboxOptions {
  /** The settings in force now; a reload replaces them. */
  readonly settings: () => Settings['notify'];
  readonly rows: Pick<NoticeRows, 'waiting' | 'remove' | 'sweep'>;
  /** In [0, 1). */
  readonly random: () => number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Sends the webhooks that wait in the store (store/notice-rows.ts). Only the process of a host with the admin
 * interface sends, so that each webhook has one sender; a later process sends what it leaves.
 *
 * A webhook that fails goes behind those that were tried less often, so a receiver that rejects one gets the
 * others. After each failure nothing is sent for a pause that doubles from a second to five minutes and is
 * never shorter than a Retry-After; a success ends it. A webhook that is a day old is given up. If the
 * process dies between the receiver's response and the removal from the store, the webhook is sent again with
 * its id.
 *
 * Must hold: webhooks are sent one at a time, and one that fails does not hold back the others
 * (test/unit/gateway/notifications.webhook-outbox.test.ts).
 */
export class WebhookOutbox {
  readonly #options: WebhookOutboxOptions;
  readonly #stop = new AbortController();
  /** Failed attempts by the webhook's id. */
  readonly #attempts = new Map<string, number>();
  #isOpen = false;
  #isSending = false;
  /** Failures of all webhooks since the last success. */
  #failures = 0;
  #resumesMs = -Infinity;
  #sweptMs = -Infinity;
  readonly #counts = { sent: 0, failedAttempts: 0, givenUp: 0 };

  constructor(options: WebhookOutboxOptions) {
    this.#options = options;
  }

  get counts(): Omit<WebhookCounts, 'dropped'> {
    return this.#counts;
  }

  /** Begins to send. */
  open(): void {
    this.#isOpen = true;
  }

  /** Stops sending, because another process sends or this one ends. Cuts the running attempt. */
  close(): void {
    this.#isOpen = false;
    this.#stop.abort();
  }

  /** Sends what is due. To be called every second or so. Resolves when nothing is due; never rejects. */
  async look(): Promise<void> {
    if (this.#isSending || !this.#isOpen) return;
    this.#isSending = true;
    try {
      this.#sweep();
      while (this.#mayTry()) {
        const next = this.#next();
        if (next === undefined) break;
        await this.#try(next);
      }
    } catch (error) {
      // The store is full or read-only: the webhook stays in it and may be sent twice.
      this.#pauseFor(0);
      this.#options.log.error('webhooks cannot be read or removed', { error: String(error) });
    } finally {
      this.#isSending = false;
    }
  }

  #mayTry(): boolean {
    const { settings, clock } = this.#options;
    return this.#isOpen && settings()?.url !== undefined && clock.monotonicMs() >= this.#resumesMs;
  }

  /** Returns the webhook that was tried least often; of several the oldest. */
  #next(): WaitingWebhook | undefined {
    const waiting = this.#options.rows.waiting();
    const known = new Set(waiting.map(({ id }) => id));
    for (const id of this.#attempts.keys()) if (!known.has(id)) this.#attempts.delete(id);
    const triesOf = ({ id }: WaitingWebhook): number => this.#attempts.get(id) ?? 0;
    return waiting.reduce<WaitingWebhook | undefined>(
      (least, webhook) => (least === undefined || triesOf(webhook) < triesOf(least) ? webhook : least),
      undefined,
    );
  }

  async #try(webhook: WaitingWebhook): Promise<void> {
    const { settings, rows, clock, log } = this.#options;
    const nowMs = clock.wallMs();
    if (nowMs - webhook.reportedMs > AGE_MS_MAX) {
      this.#giveUp(webhook, 'it is a day old');
      return;
    }
    const { url, secret, timeout_ms: timeoutMs } = settings()!;
    const receiver = { url: url!, key: webhookKeyOf(secret!)!, timeoutMs };
    const delivery = await sendWebhook(webhook, receiver, nowMs, this.#stop.signal);
    if (delivery.sent) {
      rows.remove(webhook);
      this.#counts.sent += 1;
      if (this.#failures > 0) log.warn('webhooks are taken again', { receiver: hostOf(url!) });
      this.#failures = 0;
    } else if (this.#isOpen) this.#failed(webhook, delivery, url!);
  }

  #failed(webhook: WaitingWebhook, { reason, pauseMs, rejectedForGood }: Delivery, url: string): void {
    this.#counts.failedAttempts += 1;
    if (rejectedForGood === true) {
      this.#giveUp(webhook, reason!);
      return;
    }
    this.#attempts.set(webhook.id, (this.#attempts.get(webhook.id) ?? 0) + 1);
    if (this.#failures === 0)
      this.#options.log.warn('a webhook was not taken; it is tried again', {
        webhook: webhook.id,
        receiver: hostOf(url),
        reason,
      });
    this.#pauseFor(pauseMs ?? 0);
  }

  #giveUp(webhook: WaitingWebhook, reason: string): void {
    this.#options.rows.remove(webhook);
    this.#counts.givenUp += 1;
    this.#options.log.error('a webhook was given up', { webhook: webhook.id, reason, body: webhook.body });
  }

  #pauseFor(leastMs: number): void {
    const { clock, random } = this.#options;
    const fullMs = Math.min(PAUSE_MS_MIN * 2 ** Math.min(this.#failures, 20), PAUSE_MS_MAX);
    this.#failures += 1;
    this.#resumesMs = clock.monotonicMs() + Math.max(leastMs, fullMs * (0.5 + random() / 2));
  }

  #sweep(): void {
    const { rows, clock } = this.#options;
    if (clock.monotonicMs() - this.#sweptMs < SWEEP_MS) return;
    this.#sweptMs = clock.monotonicMs();
    rows.sweep(clock.wallMs());
  }
}

/** Returns the part of the address that may be logged: path and query may hold a secret. */
function hostOf(url: string): string {
  return new URL(url).host;
}
