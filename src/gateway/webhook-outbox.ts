/**
 * Sends the webhooks that wait in the store (store/notice-rows.ts): signed POSTs about quotas and balances.
 * notifications.ts owns one outbox, on the main thread of each gateway process. Only the outbox of the
 * primary, the process with the admin interface, is open.
 *
 * The webhook that failed least often is tried next, so a receiver that rejects one still gets the others.
 *
 *     the attempt                     the webhook               the next attempt
 *     succeeds (status 2xx)           leaves the store          at once
 *     is rejected for good (410)      leaves the store, logged  at once
 *     fails otherwise                 waits                     after a pause
 *     is cut by `close`               waits                     by the next outbox to open
 *
 * The pause doubles with each failure in a row, from a second to five minutes, less a random amount of up to
 * a half, but is never shorter than the receiver's Retry-After. It ends at once if a reload changes the
 * receiver or the secret. A webhook that is a day old is given up: it leaves the store and is logged. A clock
 * that is ahead for some minutes makes no webhook old.
 *
 * A webhook may be sent twice, with the same id: if the process dies after the receiver's response and before
 * the webhook has left the store, and while the admin interface passes from one process to another.
 *
 * Must hold: webhooks are sent one at a time, and a webhook that fails does not keep the others waiting for
 * good. Each webhook leaves the store, sent or given up.
 */
import { webhookKeyOf } from '../config/notify-schema.js';
import type { Settings } from '../config/schema.js';
import { RetentionCalendar } from '../core/retention.js';
import type { Clock } from '../core/clock.js';
import type { NoticeRows, WaitingWebhook } from '../store/notice-rows.js';
import type { Log } from '../telemetry/log.js';
import type { WebhookCounts } from '../telemetry/metrics-source.js';
import { sendWebhook, type Delivery } from '../telemetry/webhook.js';

const PAUSE_MS_MIN = 1_000;
const PAUSE_MS_MAX = 300_000;
/** An older notice helps nobody any more. */
const WEBHOOK_AGE_MS_MAX = 86_400_000;
/** How often the store removes the notices whose day or month ended more than a day ago. */
const SWEEP_PERIOD_MS = 60_000;

interface WebhookOutboxOptions {
  /** The settings in force now; a reload replaces them. */
  readonly settings: () => Settings['notify'];
  /** The store's notices. The outbox also makes the store remove old ones (`sweep`). */
  readonly rows: Pick<NoticeRows, 'waiting' | 'remove' | 'sweep'>;
  /** Uniform in [0, 1), for the random amount of a pause. */
  readonly random: () => number;
  readonly clock: Clock;
  readonly log: Log;
}

export class WebhookOutbox {
  readonly #options: WebhookOutboxOptions;
  /** Tells how old a webhook is. It does not follow a wall clock that is ahead for some minutes. */
  readonly #calendar: RetentionCalendar;
  /** Aborted by `close`, to cut the running attempt. `open` replaces an aborted one. */
  #stop = new AbortController();
  /** How often this process has failed to send each webhook, by its id. */
  readonly #failuresById = new Map<string, number>();
  #isOpen = false;
  #isSending = false;
  /** Failures, and so pauses, since the last success. */
  #failuresInARow = 0;
  /** When the pause ends, and when the last sweep was. Both are monotonic. */
  #resumesMs = -Infinity;
  /** The settings with which the last attempt has failed: the pause is that of their receiver and secret. */
  #pausedSettings: Settings['notify'];
  #sweptMs = -Infinity;
  readonly #counts = { sent: 0, failedAttempts: 0, givenUp: 0 };

  constructor(options: WebhookOutboxOptions) {
    this.#options = options;
    this.#calendar = new RetentionCalendar(options.clock);
  }

  get counts(): Omit<WebhookCounts, 'dropped'> {
    return this.#counts;
  }

  /** The next `sendWaiting` sends. May be called again after `close`. */
  open(): void {
    this.#isOpen = true;
    if (this.#stop.signal.aborted) this.#stop = new AbortController();
  }

  /** Stops sending, because another process sends or this one ends. Cuts the running attempt. */
  close(): void {
    this.#isOpen = false;
    this.#stop.abort();
  }

  /**
   * Sends webhooks until none waits or a pause begins. To be called every second or so; does nothing while an
   * earlier call sends, or while the outbox is closed. Never rejects.
   */
  async sendWaiting(): Promise<void> {
    const nowMs = this.#calendar.nowMs();
    if (this.#isSending || !this.#isOpen) return;
    this.#isSending = true;
    try {
      this.#sweep(nowMs);
      while (this.#mayTry()) {
        const next = this.#nextWebhook();
        if (next === undefined) break;
        await this.#attempt(next, nowMs);
      }
    } catch (error) {
      // The store is full or read-only: the webhook stays in the store, and may be sent twice.
      this.#pauseFor(0, this.#options.settings());
      this.#options.log.error('webhooks cannot be read or removed', { error: String(error) });
    } finally {
      this.#isSending = false;
    }
  }

  #mayTry(): boolean {
    const notify = this.#options.settings();
    if (!this.#isOpen || notify?.url === undefined) return false;
    if (this.#options.clock.monotonicMs() >= this.#resumesMs) return true;
    // An operator who has mended the settings need not wait.
    return notify.url !== this.#pausedSettings?.url || notify.secret !== this.#pausedSettings.secret;
  }

  /** Returns the webhook that has failed least often here, of several the oldest; undefined if none waits. */
  #nextWebhook(): WaitingWebhook | undefined {
    // Oldest first.
    const waiting = this.#options.rows.waiting();
    const waitingIds = new Set(waiting.map(({ id }) => id));
    for (const id of this.#failuresById.keys()) if (!waitingIds.has(id)) this.#failuresById.delete(id);
    const failuresOf = ({ id }: WaitingWebhook): number => this.#failuresById.get(id) ?? 0;
    return waiting.reduce<WaitingWebhook | undefined>(
      (next, webhook) => (next === undefined || failuresOf(webhook) < failuresOf(next) ? webhook : next),
      undefined,
    );
  }

  /** `nowMs` is by the RetentionCalendar. `#mayTry` has checked that the settings have a receiver. */
  async #attempt(webhook: WaitingWebhook, nowMs: number): Promise<void> {
    const { settings, rows, clock, log } = this.#options;
    const notify = settings()!;
    if (nowMs - webhook.reportedMs > WEBHOOK_AGE_MS_MAX) {
      this.#giveUp(webhook, 'it is a day old');
      return;
    }
    const { url, secret, timeout_ms: timeoutMs } = notify;
    const receiver = { url: url!, key: webhookKeyOf(secret!)!, timeoutMs };
    const { signal } = this.#stop;
    const sendResult = await sendWebhook(webhook, receiver, clock.wallMs(), signal);
    if (sendResult.sent) {
      rows.remove(webhook);
      this.#counts.sent += 1;
      if (this.#failuresInARow > 0) log.warn('webhooks are taken again', { receiver: hostOf(url!) });
      this.#failuresInARow = 0;
    } else if (!signal.aborted) this.#onFailure(webhook, sendResult, notify);
  }

  /** Gives the webhook up, or pauses before the next attempt at any webhook. */
  #onFailure(
    webhook: WaitingWebhook,
    { reason, pauseMs, rejectedForGood }: Delivery,
    notify: NonNullable<Settings['notify']>,
  ): void {
    this.#counts.failedAttempts += 1;
    if (rejectedForGood === true) {
      this.#giveUp(webhook, reason!);
      return;
    }
    this.#failuresById.set(webhook.id, (this.#failuresById.get(webhook.id) ?? 0) + 1);
    if (this.#failuresInARow === 0)
      this.#options.log.warn('a webhook was not taken; it is tried again', {
        webhook: webhook.id,
        receiver: hostOf(notify.url!),
        reason,
      });
    this.#pauseFor(pauseMs ?? 0, notify);
  }

  #giveUp(webhook: WaitingWebhook, reason: string): void {
    this.#options.rows.remove(webhook);
    this.#counts.givenUp += 1;
    this.#options.log.error('a webhook was given up', { webhook: webhook.id, reason, body: webhook.body });
  }

  /**
   * Begins the pause before the next attempt: at least `pauseMsMin`, the receiver's Retry-After. `notify`:
   * the settings of the attempt that has failed.
   */
  #pauseFor(pauseMsMin: number, notify: Settings['notify']): void {
    this.#pausedSettings = notify;
    const { clock, random } = this.#options;
    // PAUSE_MS_MAX is reached after 9 failures; 20 keeps the power finite.
    const fullMs = Math.min(PAUSE_MS_MIN * 2 ** Math.min(this.#failuresInARow, 20), PAUSE_MS_MAX);
    this.#failuresInARow += 1;
    this.#resumesMs = clock.monotonicMs() + Math.max(pauseMsMin, fullMs * (0.5 + random() / 2));
  }

  /** Makes the store remove old notices, once in SWEEP_PERIOD_MS. */
  #sweep(nowMs: number): void {
    const { rows, clock } = this.#options;
    if (clock.monotonicMs() - this.#sweptMs < SWEEP_PERIOD_MS) return;
    this.#sweptMs = clock.monotonicMs();
    rows.sweep(nowMs);
  }
}

/** Returns the host, which may be logged: path and query may contain a secret. */
function hostOf(url: string): string {
  return new URL(url).host;
}
