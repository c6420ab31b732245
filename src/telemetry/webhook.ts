/**
 * Sends one webhook as Standard Webhooks 1.0.0 says (github.com/standard-webhooks/standard-webhooks): a POST
 * of JSON with an id that stays the same over all attempts, the time of the attempt, and an HMAC-SHA256 of
 * both and the body. gateway/webhook-outbox.ts calls it on the main thread. It never follows a redirect: the
 * body would go where no operator has said.
 *
 * Must hold: whatever a receiver answers, the attempt ends in time, else no webhook is ever sent again; and
 * the signature is the standard's. Test: unit/telemetry/webhook.
 */
import { createHmac } from 'node:crypto';
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { packageVersion } from '../core/version.js';

/** A receiver may ask for a pause; one that asks for more than an hour is asked again after an hour. */
const PAUSE_MS_MAX = 3_600_000;
const GONE = 410;
const USER_AGENT = `tollgate/${packageVersion()}`;
/** An answer is short. One that goes on is cut. */
const ANSWER_BYTES_MAX = 65_536;
const LATE = 'no answer within notify.timeout_ms';

export interface WebhookReceiver {
  readonly url: string;
  /** The bytes of the secret. */
  readonly key: Buffer;
  readonly timeoutMs: number;
}

export interface Webhook {
  /** Without a full stop: it is part of what is signed. */
  readonly id: string;
  /** JSON. */
  readonly body: string;
}

export interface Delivery {
  readonly sent: boolean;
  /** Why not; no part of the address but host and port, no secret. */
  readonly reason?: string;
  /** For how long the receiver wants no attempt. */
  readonly pauseMs?: number;
  /** Whether it will never be taken. */
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
 * Makes one attempt; `nowMs` is the time of the calendar. Resolves within `timeoutMs`, and at once if `stop`
 * is aborted; never rejects. What the receiver answers beyond its status and Retry-After is dropped.
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
      resolve({ sent: false, reason: LATE });
      request.destroy();
    }, timeoutMs);
    request.on('close', () => {
      clearTimeout(timer);
      // A receiver that switches protocols: Node tells of no response and of no error.
      resolve({ sent: false, reason: 'the connection ended without an answer' });
    });
    request.on('response', (response) => {
      resolve(deliveryOf(response.statusCode!, response.headers['retry-after'], nowMs));
      // The rest is read to let the receiver end as it likes. Nobody minds if it breaks off.
      let bytes = 0;
      response.on('error', () => undefined);
      response.on('data', ({ length }: Buffer) => {
        bytes += length;
        if (bytes > ANSWER_BYTES_MAX) request.destroy();
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
    // The specification: a receiver that is gone wants no more.
    ...(status === GONE && { rejectedForGood: true }),
  };
}

/** Seconds, or a date. */
function pauseMsOf(retryAfter: string, nowMs: number): number | undefined {
  const ms = /^\d{1,9}$/.test(retryAfter) ? Number(retryAfter) * 1_000 : Date.parse(retryAfter) - nowMs;
  return Number.isFinite(ms) ? Math.min(Math.max(0, ms), PAUSE_MS_MAX) : undefined;
}
