/**
 * The rejections that the listener itself decides on, as the records of which error responses are made. The
 * files of the phases use them. Rejections of quotas are in quota-rejections.ts. Pure; listener thread.
 *
 * Must hold: a message says what is wrong and what to do. `detail` is for the metrics, and never reaches a
 * caller (test/e2e/error-table.test.ts). Callers see the messages and codes, so to change one is to change
 * behaviour.
 *
 * A text of the request that a message repeats is cut by `shown` or `clipped`, which put `…` at a cut. By
 * the `…` call-log/secret-mask.ts finds a secret that was cut, and overwrites its beginning.
 *
 * core/errors.ts declares the codes and details. The detail `authority_lost` means that no coordinator could
 * decide; details that begin with `books_` are about accounting.
 */
import type { LeaseEnd } from '../channel/lease-channel.js';
import { secondsText, type ErrorCode, type ErrorRecord, type RejectionDetail } from '../core/errors.js';
import {
  DOOR_NAMES,
  DOOR_PATHS,
  type DoorName,
  PROMPT_OF,
  SERVICE_OF,
  type Service,
} from '../core/door-names.js';
import { DOORS } from '../doors/doors.js';
import { IDEMPOTENCY_KEY_CHARS_MAX, UPLOAD_MS_MAX } from '../core/limits.js';
import { decimalOf } from '../core/money.js';
import type { RoutingMember } from '../core/routing-members.js';
import type { PicoUnits } from '../core/units.js';
import { clipped } from '../core/wrong-input.js';
import type { OutputTokensField } from '../protocol/chat-call.js';
import type { ModelEntry } from '../registry/catalog.js';
import { FEWER_MEDIA } from './quota-rejections.js';
import { shown } from './request-head.js';

const rejection = (code: ErrorCode, message: string): ErrorRecord => ({ code, message });

/** Makes a 503. `reason` is the first sentence of its message; the second sentence says when to try again. */
function overloaded(detail: RejectionDetail | undefined, reason: string, retryAfterSeconds = 1): ErrorRecord {
  const message = `${reason} Retry after ${secondsText(retryAfterSeconds)}.`;
  return { code: 'overloaded', message, retryAfterSeconds, ...(detail === undefined ? {} : { detail }) };
}

// The server and its routes.

export const NOTHING_HERE = rejection(
  'not_found',
  `There is nothing at this path. The gateway serves POST ${DOORS.map(({ path }) => path).join(', ')}, GET /v1/models and GET /v1/models/{id}.`,
);
export const MODEL_NAME_MISSING = rejection(
  'not_found',
  'The name of a model is missing after /v1/models/. GET /v1/models lists the models.',
);
export const CHUNKED_BODY = rejection(
  'invalid_parameters',
  'Transfer-Encoding must be absent: only the POST of a call takes a body in chunks.',
);

// Authentication.

export const MISSING_KEY = rejection(
  'missing_api_key',
  'No API key was given. Send it as the header "Authorization: Bearer sk-…".',
);
export const MALFORMED_KEY = rejection(
  'invalid_api_key',
  'The API key has a wrong format. A key is "sk-" and 43 letters, digits, "-" or "_", sent as "Authorization: Bearer sk-…" without extra spaces.',
);
export const UNKNOWN_KEY = rejection(
  'invalid_api_key',
  'The API key is not known. Check that the whole key was copied and has not been deleted.',
);
export const DISABLED_KEY = rejection(
  'key_disabled',
  'The API key has been disabled. Ask the administrator to enable it, or use another key.',
);
export const EXPIRED_KEY = rejection(
  'key_disabled',
  'The API key has expired. Ask the administrator for a new one.',
);
export const DISABLED_ACCOUNT: ErrorRecord = {
  code: 'key_disabled',
  detail: 'account_disabled',
  message: 'The account of the API key has been disabled. Ask the administrator to enable it.',
};
export const ACCOUNT_WITHOUT_PLAN: ErrorRecord = {
  code: 'key_disabled',
  detail: 'account_disabled',
  message:
    'The plan of this account is not in the settings of the gateway. Ask the administrator to put it back, or to move the account to another plan.',
};

// The body and its Idempotency-Key.

/** Ends the work for a client that has left. No client gets this error. */
export const CLIENT_GONE = rejection('internal_error', 'the client left before its body was read');

export const BODIES_FULL = overloaded(
  'bodies_in_work',
  'The gateway has as many bytes of requests in work as it may.',
);
export const ACCOUNT_BODIES_FULL = overloaded(
  'account_bodies_in_work',
  'The account has as many bytes of requests in work as one account may.',
);
export const UPLOAD_TOO_SLOW = rejection(
  'request_timeout',
  `The body was not whole after ${UPLOAD_MS_MAX / 60_000} minutes. Send it faster, or send less.`,
);
export const uploadStalled = (idleMs: number): ErrorRecord =>
  rejection('request_timeout', `Nothing of the body came for ${idleMs} ms. Send it without long pauses.`);
export const bodyTooLarge = (bodyBytesMax: number, door: DoorName): ErrorRecord =>
  rejection(
    'request_too_large',
    `The body is longer than the ${bodyBytesMax} bytes that are accepted. Shorten the ${PROMPT_OF[door]}.`,
  );
/** `coding` is the header Content-Encoding. Returns undefined if the body is not compressed. */
export const compressedBody = (coding: string | undefined): ErrorRecord | undefined =>
  coding === undefined || coding === '' || coding.toLowerCase() === 'identity'
    ? undefined
    : rejection(
        'unsupported_media_type',
        `Content-Encoding must be absent, got ${shown(coding)}. Send the JSON uncompressed.`,
      );
export const parseTooLate = (waitMs: number): ErrorRecord =>
  overloaded(
    'large_bodies',
    `The gateway could not read this large request within ${waitMs} ms, because it has too many of them.`,
    5,
  );

export const WRONG_IDEMPOTENCY_KEY = rejection(
  'invalid_parameters',
  `the header Idempotency-Key must be 1 to ${IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters`,
);

/**
 * The rejections if the main thread does not grant the idempotency lock, by the state of its reply (LockReply
 * of channel/idempotency-channel.ts).
 */
export const LOCK_REJECTIONS = {
  in_progress: {
    code: 'request_in_progress',
    message:
      'A request with this Idempotency-Key is still running. Retry after 1 second to get its answer, or send another key.',
    retryAfterSeconds: 1,
  },
  other_body: rejection(
    'invalid_parameters',
    'the header Idempotency-Key was used before with another request body. Send the same body, or another key.',
  ),
  not_stored: rejection(
    'invalid_parameters',
    'the request with this Idempotency-Key was answered and charged, and its answer could not be kept. Send another key to make a new call.',
  ),
  busy: overloaded(undefined, 'The gateway has as many requests with an Idempotency-Key in work as it may.'),
} as const satisfies Record<string, ErrorRecord>;

// Admission.

export const CALLS_FULL = overloaded('calls_in_flight', 'The gateway has as many calls in flight as it may.');
export const ACCOUNT_CALLS_FULL = overloaded(
  'account_calls_in_flight',
  'The account has as many calls in flight as one account may.',
);
export const QUOTA_SCOPES_FULL = overloaded(
  'quota_scopes',
  'The gateway counts the quotas of as many accounts, keys, groups and models as it can.',
  5,
);
/** The journal has no space for one more call besides those in flight. */
export const JOURNAL_FULL = overloaded('books_behind', 'The gateway is behind with its books.');
/** Says to retry after five seconds, because a full disk rarely has space again within one second. */
export const JOURNAL_CLOSED = overloaded(
  'books_closed',
  'The gateway cannot write its books and takes no calls.',
  5,
);
const COORDINATOR_LOST = overloaded(
  'authority_lost',
  'The gateway cannot reach those it shares its limits with.',
);
/** A 503 and no 429, because perhaps no limit is used up. */
export const LEASE_LATE = overloaded(
  'lease_late',
  'The gateway could not find out in time what is left of the limits that its processes share.',
);

/**
 * Returns the rejection if no coordinator could decide on the lease. Undefined if one has decided: after
 * `try` the request takes of its quotas again, and for a refusal quota-rejections.ts makes the rejection.
 */
export function coordinatorRejection(end: LeaseEnd): ErrorRecord | undefined {
  if (end === 'lost') return COORDINATOR_LOST;
  if (end === 'late') return LEASE_LATE;
  if (end === 'try' || 'refused' in end) return undefined;
  return overloaded(
    'authority_lost',
    'The server that keeps the limits may have lost what it granted, and waits.',
    Math.max(1, Math.ceil(end.lostForMs / 1_000)),
  );
}

/** How much of a model's name a message repeats. */
const MODEL_CHARS_SHOWN = 100;

export const unknownModel = (model: string): ErrorRecord =>
  rejection(
    'model_not_found',
    `The model ${JSON.stringify(clipped(model, MODEL_CHARS_SHOWN))} does not exist or is not on your plan. GET /v1/models lists those that are.`,
  );

/** The rejection of a call at a door whose service the model does not have. */
export function notServed({ id, serves }: Pick<ModelEntry, 'id' | 'serves'>, service: Service): ErrorRecord {
  const doors = DOOR_NAMES.filter((name) => serves.includes(SERVICE_OF[name]));
  const paths = doors.map((name) => `POST ${DOOR_PATHS[name]}`);
  return rejection(
    'invalid_parameters',
    `The model ${id} does not serve ${service}. It serves ${serves.join(', ')}: use ${paths.join(' or ')}.`,
  );
}

/** What a message adds to a member's name that says neither where the member is nor what is wrong. */
const MEMBERS_WITHIN: Partial<Record<RoutingMember, string>> = {
  file_id: ' (a file that the provider stores)',
  storage_url:
    ' (an address that the provider reads with its own rights; data:, http: and https: addresses may be given)',
  audio_id: ' (audio.id of a message)',
  extra_body: ' (with other members than google)',
  hosted_tools: ' (a tool in tools that the provider runs)',
  context_management: ' (with edits that do more than clear, or as compaction or compaction_trigger)',
  item_reference:
    ' (an item of input that is read by its id: send store: false, and the items themselves, reasoning with encrypted_content)',
};
export const routingMember = (member: RoutingMember): ErrorRecord =>
  rejection(
    'invalid_parameters',
    `${member}${MEMBERS_WITHIN[member] ?? ''} must not be given: by it an upstream may serve another call than the one that is priced, serve it before those of others, bill more than its tokens, or use what it stores for others. Who runs the gateway can let it through with pass_members of the model.`,
  );

/**
 * The rejection of a call that the balance cannot pay; `hold` is what the call may cost at worst. `hold` and
 * `balance` are in pico-units. `isHit`: the call costs the price of a cached response, whatever it asks for.
 * `outputField`: the member by which the caller can lower the output so far that the balance pays the call;
 * undefined if it does not even pay the prompt. `hasMedia`: the result of `holdsMedia` of
 * quota-rejections.ts.
 */
export const callTooCostly = (
  hold: PicoUnits,
  balance: PicoUnits,
  isHit: boolean,
  outputField: OutputTokensField | undefined,
  hasMedia: boolean,
): ErrorRecord => {
  const cheaperCall = `, or ${outputField === undefined ? 'shorten the request' : `lower ${outputField}`}${hasMedia ? `, or ${FEWER_MEDIA}` : ''}`;
  return rejection(
    'insufficient_quota',
    `The call may cost up to ${decimalOf(hold)} and the balance is ${decimalOf(balance)}. Top up the account${isHit ? '' : cheaperCall}.`,
  );
};

/**
 * As `callTooCostly`, for a large body that has not come whole: for `beyondBalance` of admit.ts. `hold` is
 * what such a call holds at least, at the lowest prices of the plan. Both amounts are in pico-units.
 */
export const bodyTooCostly = (hold: bigint, balance: PicoUnits, door: DoorName): ErrorRecord =>
  rejection(
    'insufficient_quota',
    `A call of this size may cost ${decimalOf(hold)} at least and the balance is ${decimalOf(balance)}. Top up the account, or shorten the ${PROMPT_OF[door]}.`,
  );

// Delivery.

export const NO_WORKER = overloaded('no_worker', 'The gateway is replacing its workers.');
export const STOPPED = rejection(
  'internal_error',
  'The gateway has stopped before the call was answered. The call was not billed; try it again.',
);
export const NOT_COMMITTED = rejection(
  'internal_error',
  'The gateway could not write the charge of this call to its books and has withheld the answer. The call was not billed; try it again.',
);
