/**
 * Says what each error code means and what to do about it. scripts/write-docs.mjs (`npm run docs`) writes
 * docs/errors.md from this file; no gateway loads it. Pure.
 *
 * Must hold: `retry` fits the status. An error that the caller must mend is never to be retried; a failure of
 * the gateway or of a provider always is. After a change of a text run `npm run docs`.
 */
import type { ErrorCode, RejectionDetail } from './errors.js';

/**
 * Whether the same request can succeed later. `no`: not unless something is changed. `wait`: after the
 * seconds of `Retry-After`, which is always sent, but for `retryExcept`. `back-off`: after growing pauses, or
 * after `Retry-After` if it is sent.
 */
type RetryAdvice = 'no' | 'wait' | 'back-off';

export interface ErrorMeaning {
  /** When a caller gets the error. */
  readonly when: string;
  /** What the caller does about the error. */
  readonly caller: string;
  /** What the operator of the gateway does about the error; null if only the caller can do something. */
  readonly operator: string | null;
  readonly retry: RetryAdvice;
  /** When `retry` does not hold. */
  readonly retryExcept?: string;
}

/** Whole sentences of Markdown. The record does not compile if it lacks a code of core/errors.ts. */
export const ERROR_MEANINGS: Readonly<Record<ErrorCode, ErrorMeaning>> = {
  missing_api_key: {
    when: 'The request has no header `Authorization: Bearer …`, or its token is empty.',
    caller: 'Send the key with every request.',
    operator: null,
    retry: 'no',
  },
  invalid_api_key: {
    when: 'The key is malformed, unknown or deleted.',
    caller: 'Copy the whole key, `sk-` and 43 characters. If it was deleted or rotated, ask for a new one.',
    operator: 'Make a new key: `tollgate keys create`. A key is shown once and cannot be shown again.',
    retry: 'no',
  },
  key_disabled: {
    when: 'The key or its account was disabled, or the key has expired.',
    caller: 'Ask whoever runs the gateway.',
    operator: '`tollgate keys enable`, `tollgate accounts enable`, or a new key if it has expired.',
    retry: 'no',
  },
  insufficient_quota: {
    when: "The balance does not cover the call's worst case: the whole prompt and as many tokens as the call may generate.",
    caller: 'Lower `max_tokens`, shorten the prompt, or top up.',
    operator:
      '`tollgate accounts credit`. With `low_balance: clamp` the gateway lowers `max_tokens` to what the balance pays.',
    retry: 'no',
  },
  rate_limit_exceeded: {
    when: 'The requests or the tokens of the minute are used up: of the key, of the plan, or of a group that the account is in. The message says whose, and what.',
    caller:
      'Wait for the seconds of `Retry-After`. If the tokens are used up, a lower `max_tokens` may fit now.',
    operator:
      'Raise the quota that the message names: of the key, of the group, or by a larger plan (`tollgate accounts set-plan`).',
    retry: 'wait',
  },
  daily_limit_exceeded: {
    when: 'The calls or the tokens of the day are used up: of the key, of the plan, or of a group that the account is in. The day of calls begins at 00:00 UTC+8, that of tokens at midnight in `quota_timezone`.',
    caller: 'Wait for the seconds of `Retry-After`; they may be hours.',
    operator:
      'Raise the quota that the message names: of the key, of the group, or by a larger plan (`tollgate accounts set-plan`).',
    retry: 'wait',
  },
  budget_exceeded: {
    when: 'The calls or the tokens of the month, or the spending of the day or of the month, are used up: of the key, of the plan, or of a group that the account is in. The message says whose, and when the next day or month begins.',
    caller:
      'Wait for the seconds of `Retry-After`; they may be weeks. If the message says that something is left, a lower `max_tokens` may fit now.',
    operator: 'Raise the quota that the message names: of the key, of the group, or of the plan.',
    retry: 'wait',
  },
  model_not_found: {
    when: 'The model is unknown, or the plan does not have it. `GET /v1/models/{id}` gives it with status 404.',
    caller: 'Name a model of `GET /v1/models`, which lists what the key may use.',
    operator: 'Add the model to `models`, or to the `models` of the plan.',
    retry: 'no',
  },
  invalid_parameters: {
    when: 'A field of the body, or a header, breaks its rule, which the message names. Or the call asks for more tokens, or may cost more, than a quota ever allows. Or the provider refused the request with its own 400: the message is the provider’s.',
    caller: 'Correct the request as the message says.',
    operator: null,
    retry: 'no',
  },
  not_found: {
    when: 'The gateway serves nothing at this path.',
    caller: 'Use a base address that ends with `/v1`.',
    operator: null,
    retry: 'no',
  },
  method_not_allowed: {
    when: 'The path exists, but not for this method.',
    caller: 'Use a method that the header `Allow` names.',
    operator: null,
    retry: 'no',
  },
  request_in_progress: {
    when: 'The call that first had this `Idempotency-Key` is still running.',
    caller:
      'Wait for the seconds of `Retry-After`, then send the same request: it gets the response of the first.',
    operator: null,
    retry: 'wait',
  },
  conflict: {
    when: 'Admin interface alone: the change does not fit the present state. The key was rotated before, or there is no `sharing`. Or the change is made on other hosts, or may be, and not on this one yet.',
    caller: 'Read the state again, then decide again.',
    operator: null,
    retry: 'no',
  },
  request_timeout: {
    when: 'Nothing of the body came for `limits.client_idle_timeout_ms`, or the whole body took longer than half an hour. The connection ends.',
    caller: 'Send the body without long pauses, on a new connection.',
    operator: 'If callers are slow by nature, raise `limits.client_idle_timeout_ms`.',
    retry: 'back-off',
  },
  request_too_large: {
    when: "The body is longer than `limits.body_bytes`, or than the plan's `body_bytes`.",
    caller: 'Send less.',
    operator: 'Raise the limit; each body in work takes twice its length in memory.',
    retry: 'no',
  },
  unsupported_media_type: {
    when: 'The body is compressed: the request has a header `Content-Encoding`.',
    caller: 'Send the JSON as it is.',
    operator: null,
    retry: 'no',
  },
  internal_error: {
    when: 'The gateway failed. The call is not billed and does not count toward the day.',
    caller: 'Retry. If it stays, report the `x-request-id`.',
    operator: 'The log has the reason under the `x-request-id`.',
    retry: 'back-off',
  },
  provider_unavailable: {
    when: 'The provider failed, at every upstream of the model. The call is not billed and does not count toward the day.',
    caller: 'Retry.',
    operator:
      '`tollgate status` shows which upstream fails, and `tollgate upstreams test` why. [A second upstream](providers.md) takes over.',
    retry: 'back-off',
  },
  overloaded: {
    when: 'The gateway has no capacity for this call now. The message names which bound was reached.',
    caller: 'Wait for the seconds of `Retry-After`. Send fewer calls at a time.',
    operator:
      'The metric `tollgate_refusals_total` counts refusals by `reason`, which names [the bound](#reasons-behind-a-code).',
    retry: 'wait',
    retryExcept:
      'An answer of the admin interface has no `Retry-After` if the accounts and keys of this host have diverged from those that [hosts share](sharing.md#what-happens-when): an operator must decide first.',
  },
  insufficient_role: {
    when: "Admin interface alone: the operator's role may not use this route. The message names the roles that may.",
    caller: 'Ask an operator with one of these roles.',
    operator: '`tollgate operators set-role`, if the operator is to have one of [these roles](roles.md).',
    retry: 'no',
  },
};

/**
 * What each value of the label `reason` of `tollgate_refusals_total` means that is no error code: a
 * RejectionDetail. Says which bound was reached, and which setting changes it, in whole sentences of
 * Markdown. The record does not compile if it lacks a detail.
 */
export const REJECTION_MEANINGS: Readonly<Record<RejectionDetail, string>> = {
  account_disabled: '`key_disabled`: the account was disabled, not the key.',
  calls_in_flight: 'All `limits.calls_in_flight` are in use.',
  account_calls_in_flight:
    "The account has all of `limits.calls_in_flight_per_account`, or of the plan's `calls_in_flight`, in use.",
  key_calls_in_flight: 'The key has all of its `calls_in_flight` in use.',
  group_calls_in_flight: 'A group that the account is in has all of its `calls_in_flight` in use.',
  quota_scopes: 'As many accounts, keys, groups and rules for models have quotas as the gateway can count.',
  tokens_per_minute: '`rate_limit_exceeded`: the tokens of the minute, not the requests.',
  tokens_per_day: '`daily_limit_exceeded`: the tokens of the day, not the calls.',
  calls_per_month: '`budget_exceeded`: the calls of the month.',
  tokens_per_month: '`budget_exceeded`: the tokens of the month.',
  spend_per_day: '`budget_exceeded`: the spending of the day.',
  spend_per_month: '`budget_exceeded`: the spending of the month.',
  beyond_quota:
    '`invalid_parameters`: the call asks for more than a quota allows when nothing of it is used.',
  books_behind: 'The journal of ended calls is full: the disk takes charges more slowly than calls end.',
  books_closed:
    'The disk takes no charges, and `on_store_error: refuse` or `durability: commit` is set. Look at the disk.',
  authority_lost:
    'The server of `sharing` cannot be reached and what was leased is used up: [hosts](sharing.md).',
  lease_late:
    'Processes share the limits, and one was not told within seconds what is left of them: it was stopped, or waited for the processor, the disk or a process that was killed. No limit need be used up.',
  no_worker: 'The upstream workers are being replaced, after a failure or at a reload.',
  large_bodies:
    'Too many bodies above `limits.parse_inline_bytes` wait to be parsed (`limits.parse_wait_ms`).',
  bodies_in_work: 'Bodies in work take all of `limits.bodies_in_work_bytes`.',
  account_bodies_in_work: 'The bodies of one account take half of `limits.bodies_in_work_bytes`.',
  file_descriptors: 'The system gives the process no more sockets: raise the limit of open files.',
};
