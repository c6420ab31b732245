/** What each error means and what helps: for docs/errors.md and for whoever asks. Pure; any thread. */
import type { ErrorCode } from './errors.js';

export interface ErrorMeaning {
  /** When a caller is told it. */
  readonly when: string;
  /** What the caller or the operator does about it. */
  readonly remedy: string;
}

/** Every code has one: a new code without it does not compile. Markdown. */
export const ERROR_MEANINGS: Readonly<Record<ErrorCode, ErrorMeaning>> = {
  missing_api_key: {
    when: 'no `Authorization: Bearer …`',
    remedy: 'send the key',
  },
  invalid_api_key: {
    when: 'malformed, unknown or deleted key',
    remedy: 'copy the whole key, or `keys create`',
  },
  key_disabled: {
    when: 'the key or its account was disabled, or the key has expired',
    remedy: '`keys enable`, `accounts enable`, or a new key',
  },
  insufficient_quota: {
    when: "the balance does not cover the call's worst case",
    remedy: '`accounts credit`, a lower `max_tokens`, or `low_balance: clamp`',
  },
  rate_limit_exceeded: {
    when: "the minute's requests are used up; `Retry-After`, `X-RateLimit-*`",
    remedy: 'wait as long as the answer says, or `accounts set-plan`',
  },
  daily_limit_exceeded: {
    when: "the day's calls are used up (until 00:00 UTC+8); `Retry-After`",
    remedy: 'wait, or `accounts set-plan`',
  },
  model_not_found: {
    when: 'unknown, or not on the plan (404 under `/v1/models/{id}`)',
    remedy: '`GET /v1/models` lists what the key may use',
  },
  invalid_parameters: {
    when: 'a field breaks its rule, which the message names; also what a provider refused with 400',
    remedy: 'correct the request',
  },
  not_found: {
    when: 'nothing is served at this path',
    remedy: 'the base address ends with `/v1`',
  },
  method_not_allowed: {
    when: 'the path is there, the method is not; `Allow`',
    remedy: 'use the method that the answer names',
  },
  request_in_progress: {
    when: 'the call that first had this `Idempotency-Key` still runs; `Retry-After`',
    remedy: 'wait, then ask again',
  },
  conflict: {
    when: 'admin interface: what is asked for does not go with how things are: the key has been rotated, there is no `sharing`',
    remedy: 'look at it anew',
  },
  request_timeout: {
    when: 'nothing of the body came for `limits.client_idle_timeout_ms`, or it took half an hour; the connection ends',
    remedy: 'send the body without long pauses',
  },
  request_too_large: {
    when: "the body is above `limits.body_bytes` or the plan's `body_bytes`",
    remedy: 'send less, or raise the limit',
  },
  unsupported_media_type: {
    when: 'the body is compressed: `Content-Encoding`',
    remedy: 'send the JSON as it is',
  },
  internal_error: {
    when: 'our fault; not billed',
    remedy: 'retry; the log has the reason under the `x-request-id`',
  },
  provider_unavailable: {
    when: "the provider's fault, at every upstream of the model; not billed",
    remedy: 'retry; `status` shows which upstream fails',
  },
  overloaded: {
    when: 'as many calls in flight, or bytes of bodies in work, as allowed, or the books cannot be written; `Retry-After`',
    remedy: 'retry; raise `limits.calls_in_flight` or `limits.bodies_in_work_bytes`, or look at the disk',
  },
};
