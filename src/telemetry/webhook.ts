/**
 * Sends one webhook as Standard Webhooks 1.0.0 says (github.com/standard-webhooks/standard-webhooks): a POST
 * of JSON with an id that stays the same over all attempts, the time of the attempt, and an HMAC-SHA256 of
 * both and the body. gateway/webhook-outbox.ts calls it on the main thread.
 *
 * Must hold: whatever a receiver responds, the attempt to send ends in time. The outbox sends one webhook
 * after the other, so an attempt without an end would be the last one. The signature is the standard's.
 * Redirects are not followed, because no operator has named their address; the outbox tries again later, as
 * after any failure (test/unit/telemetry/webhook.test.ts).
 */
import { createHmac } from 'node:crypto';
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { packageVersion } from '../core/version.js';

/** The longest pause that a receiver may ask for. */
const PAUSE_MS_MAX = 3_600_000;
const GONE = 410;
const USER_AGENT = `tollgate/${packageVersion()}`;
/** How much of a response is read: responses to webhooks are short. */
const RESPONSE_BYTES_MAX = 65_536;
const TIMEOUT_REASON = 'no answer within notify.timeout_ms';

export interface WebhookReceiver {
  readonly url: string;
  /** The bytes of the secret. */
  readonly key: Buffer;
  readonly timeoutMs: number;
}

export interface Webhook {
  /** Has no full stop, because full stops separate the parts of the signed text. */
  readonly id: string;
  /** JSON. */
  readonly body: string;
}

export interface Delivery {
  readonly sent: boolean;
  /** Why it was not sent, for the log. Has no secret, and nothing of the address. */
  readonly reason?: string;
  /** The pause that the receiver asks for (Retry-After). */
  readonly pauseMs?: number;
  /** The receiver wants no more webhooks, so the outbox removes this one. */
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
 * Makes one attempt to send. `nowMs` is wall-clock time: the signature has it in seconds, and a Retry-After
 * with a date is compared with it. Resolves within `timeoutMs`, and at once if `stop` is aborted. Never
 * rejects, as long as `url` is an http or https URL, which the schema of the settings checks. Only status and
 * Retry-After of the response are used.
 *
 * Several events may come for one attempt, such as a response and then a reset. Each of them resolves. The
 * first one counts, because a promise ignores the others.
 */
export function sendWebhook(
  webhook: Webhook,
  { url, key, timeoutMs }: WebhookReceiver,
  nowMs: number,
  stop: AbortSignal,
): Promise<Delivery> {
  const body = Buffer.from(webhook.body);
  const send = url.startsWith('https:') ? requestHttps : requestHttp;
  return new Promise((resolve) => {
    const request = send(url, {
      method: 'POST',
      // A connection of its own: the next webhook may be sent in hours.
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
      // `upgrade`. It emits neither `response` nor `error` then.
      resolve({ sent: false, reason: 'the connection ended without an answer' });
    });
    request.on('response', (response) => {
      resolve(deliveryOf(response.statusCode!, response.headers['retry-after'], nowMs));
      // The body is read so that the receiver can finish it. An error in it does not matter. The timer runs
      // until `close`, so it also ends a body that never ends.
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
    // Standard Webhooks: a receiver that responds with 410 wants no more webhooks.
    ...(status === GONE && { rejectedForGood: true }),
  };
}

/** Reads seconds, or a date; undefined if it is neither. */
function pauseMsOf(retryAfter: string, nowMs: number): number | undefined {
  const ms = /^\d{1,9}$/.test(retryAfter) ? Number(retryAfter) * 1_000 : Date.parse(retryAfter) - nowMs;
  return Number.isFinite(ms) ? Math.min(Math.max(0, ms), PAUSE_MS_MAX) : undefined;
}
