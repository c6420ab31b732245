/**
 * Sends the webhooks that wait in the store (store/notice-rows.ts), one at a time. Only the process of a host
 * with the admin interface sends, so that each webhook has one sender; a later process sends what it leaves.
 * notifications.ts creates it, on the main thread of a gateway process.
 *
 * A webhook that fails goes behind those that were tried less often, so a receiver that rejects one gets the
 * others. After each failure nothing is sent for a pause that doubles from a second to five minutes and is
 * never shorter than a Retry-After; a success ends it. A webhook that is a day old is given up. If the
 * process dies between the receiver's response and the removal from the store, the webhook is sent again with
 * its id.
 *
 * Must hold: webhooks are sent one at a time, and one that fails does not hold back the others
 * (test/unit/gateway/webhook-outbox.test.ts).
 */
import type { Settings } from '../config/schema.js';
import { webhookKeyOf } from '../config/notify-schema.js';
import type { Clock } from '../core/clock.js';
import type { NoticeRows, WaitingWebhook } from '../store/notice-rows.js';
import type { Log } from '../telemetry/log.js';
import type { WebhookCounts } from '../telemetry/metrics-source.js';
import { sendWebhook, type Delivery } from '../telemetry/webhook.js';

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
