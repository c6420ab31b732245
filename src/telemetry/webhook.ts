/**
 * Makes one attempt to send a webhook by Standard Webhooks 1.0.0
 * (github.com/standard-webhooks/standard-webhooks): a POST of JSON with an id that stays the same over all
 * attempts, the time of the attempt, and an HMAC-SHA256 of id, time and body. gateway/webhook-outbox.ts calls
 * `sendWebhook` for each attempt; a `Delivery` is how an attempt ended. Main thread.
 *
 * Must hold:
 * - Whatever a receiver responds, the attempt ends within its timeout. The outbox makes one attempt at a
 *   time, so an attempt without an end would hold up all webhooks.
 * - The signature is the standard's, because receivers check it by their own libraries.
 * - A redirect counts as a failure and is not followed, because no operator has named its address.
 */
import { createHmac } from 'node:crypto';
import { packageVersion } from '../core/version.js';

/** The longest pause. A longer Retry-After is shortened to an hour. */
const PAUSE_MS_MAX = 3_600_000;
/** Standard Webhooks: a receiver that responds with 410 accepts no more webhooks. */
const GONE = 410;
const USER_AGENT = `tollgate/${packageVersion()}`;
/** A connection that brings a longer body is closed, so that a receiver cannot make the gateway read on. */
const RESPONSE_BYTES_MAX = 65_536;
const TIMEOUT_REASON = 'no answer within notify.timeout_ms';

export interface WebhookReceiver {
  readonly url: string;
  /** The bytes of the secret. */
  readonly key: Buffer;
  /** Bounds the whole attempt, from the connect to the end of the response. */
  readonly timeoutMs: number;
}

export interface Webhook {
  /** The same in all attempts. Has no full stop, which separates the parts of the signed text. */
  readonly id: string;
  /** JSON. */
  readonly body: string;
}

export interface Delivery {
  /** Whether the receiver accepted the webhook: it responded with a status from 200 to 299. */
  readonly sent: boolean;
  /** Why the webhook was not sent, for the log; absent if it was. Has no secret, nothing of the address. */
  readonly reason?: string;
  /** The least pause before the next attempt (Retry-After); absent if the receiver asks for none. */
  readonly pauseMs?: number;
  /** The receiver accepts no more webhooks, so the outbox removes this one. Absent otherwise. */
  readonly rejectedForGood?: boolean;
}

/** Returns the headers that sign a webhook sent at `seconds` since 1970. */
export function signedHeaders({ id, body }: Webhook, key: Buffer, seconds: number): Record<string, string> {
  const signature = createHmac('sha256', key).update(`${id}.${seconds}.${body}`).digest('base64');
  return {
    'webhook-id': id,
    'webhook-timestamp': String(seconds),
    'webhook-signature': `v1,${signature}`,
  };
}

/**
 * `nowMs` is wall-clock time: the signature has it in seconds, and a Retry-After with a date is compared with
 * it. Resolves within `timeoutMs`, and at once if `stop` is aborted. Never rejects, as long as `url` is an
 * http or https URL, which the schema of the settings checks.
 *
 * One attempt may have several events, such as a response and then a reset. Each event calls `resolve`. The
 * first call counts, because a promise ignores the others.
 */
export function sendWebhook(
  webhook: Webhook,
  { url, key, timeoutMs }: WebhookReceiver,
  nowMs: number,
  stop: AbortSignal,
): Promise<Delivery> {
  const body = Buffer.from(webhook.body);
  // Loaded here, and not at the start of each gateway, of which most send none.
  const send = process.getBuiltinModule(url.startsWith('https:') ? 'node:https' : 'node:http').request;
  return new Promise((resolve) => {
    const request = send(url, {
      method: 'POST',
      // No pooled connection, because the next webhook may be sent in hours.
      agent: false,
      signal: stop,
      headers: {
        'content-type': 'application/json',
        'content-length': body.length,
        'user-agent': USER_AGENT,
        ...signedHeaders(webhook, key, Math.floor(nowMs / 1_000)),
      },
    });
    const timer = setTimeout(() => {
      resolve({ sent: false, reason: TIMEOUT_REASON });
      request.destroy();
    }, timeoutMs);
    request.on('close', () => {
      clearTimeout(timer);
      // If the receiver switches protocols (101), Node closes the connection, because nobody listens to
      // `upgrade`. Node then emits neither `response` nor `error`.
      resolve({ sent: false, reason: 'the connection ended without an answer' });
    });
    request.on('response', (response) => {
      // `!`: the response of a request has a status.
      resolve(deliveryOf(response.statusCode!, response.headers['retry-after'], nowMs));
      // The body is read, so that the connection can end. The status has decided already, so an error in the
      // body does not matter. The timer runs until `close`, so it also cuts a body without an end.
      let bytes = 0;
      response.on('error', () => undefined);
      response.on('data', ({ length }: Buffer) => {
        bytes += length;
        if (bytes > RESPONSE_BYTES_MAX) request.destroy();
      });
    });
    request.on('error', (error: NodeJS.ErrnoException) =>
      resolve({ sent: false, reason: error.code ?? error.name }),
    );
    request.end(body);
  });
}

function deliveryOf(status: number, retryAfter: string | undefined, nowMs: number): Delivery {
  if (status >= 200 && status < 300) return { sent: true };
  const pauseMs = retryAfter === undefined ? undefined : pauseMsOf(retryAfter, nowMs);
  const isRedirect = status >= 300 && status < 400;
  return {
    sent: false,
    reason: isRedirect ? `status ${status}: redirects are not followed` : `status ${status}`,
    ...(pauseMs !== undefined && { pauseMs }),
    ...(status === GONE && { rejectedForGood: true }),
  };
}

/** Reads the seconds or the date of a Retry-After; undefined for other text, 0 for a date that is past. */
function pauseMsOf(retryAfter: string, nowMs: number): number | undefined {
  const ms = /^\d{1,9}$/.test(retryAfter) ? Number(retryAfter) * 1_000 : Date.parse(retryAfter) - nowMs;
  return Number.isFinite(ms) ? Math.min(Math.max(0, ms), PAUSE_MS_MAX) : undefined;
}
