/**
 * `/admin/v1/calls`: the calls in the call log of this host, by a filter, newer than a cursor, or by request
 * id; and their contents. routes.ts lists these routes with the others, api.ts calls them. The console and
 * the commands read the views. Main thread of a gateway, and commands that work without one.
 *
 * Must hold: only roles of RIGHTS.contents see contents, and each read of them is logged, whatever the level
 * (test/e2e/operator-roles.test.ts, test/e2e/contents.test.ts). A filter finds exactly the calls that it
 * describes, also those of deleted keys, of groups and of removed models; a wrong query is rejected. With one
 * process a call is found by its id as soon as its caller has the response (`findEnded`).
 * test/unit/admin/call-routes.test.ts tests the functions below through the routes.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import type { CallFilter } from '../call-log/call-query.js';
import { idOfModel } from '../registry/catalog.js';
import { invalid, isIdOf, notFound } from '../registry/record-id.js';
import { parseMomentMs } from '../core/clock.js';
import { RIGHTS } from '../core/roles.js';
import type { ClippedText } from '../telemetry/contents-layout.js';
import { type CallRecord, callView } from '../telemetry/call-record.js';
import { checkFromTo, isDay, momentOf, pageLimit } from './fields.js';
import { quoted } from './input-reader.js';
import type { RecordReader } from './context.js';
import { defineRoute } from './route.js';
import { closedObject, Money, orNull, optionalText } from './views.js';

const PAGE_CALLS_MAX = 1_000;
const PAGE_CALLS_DEFAULT = 100;
/**
 * The largest group of which `membersOf` gives the ids of the accounts: the indexes of segments are searched
 * for each id. For a larger group `membersOf` gives a test whether an account is in the group, and each call
 * that passes the other filters is tested.
 */
const INDEXED_ACCOUNTS_MAX = 256;
const DAY_MS = 86_400_000;

/**
 * How long a listener may take to record a call after the last byte of its response. It takes microseconds
 * unless the machine is busy: then 14 % of 800 calls whose callers asked at once were not found.
 */
const RECORDING_MS = 100;

const TextOrNull = orNull(Type.String());
const Tokens = orNull(Type.Integer({ minimum: 0 }));
const Milliseconds = Type.Number({ minimum: 0 });
const Status = orNull(Type.Integer({ description: 'HTTP status; null if there was none' }));

/** An item of `attempts`: a CallAttempt (telemetry/call-record.ts). `start_ms`: since the call came. */
const AttemptSchema = closedObject({
  upstream: TextOrNull,
  model: TextOrNull,
  status: Status,
  code: orNull(Type.String(), 'why it failed; null if it did not'),
  start_ms: Milliseconds,
  duration_ms: Milliseconds,
  error: TextOrNull,
});

/** An item of `quotas`: a QuotaLeft (telemetry/call-record.ts). `left` is decimal text if it is money. */
const QuotaLeftSchema = closedObject({
  scope: Type.Enum(['account', 'key', 'group', 'model']),
  id: TextOrNull,
  quota: Type.String(),
  left: Type.Union([Type.Number(), Money]),
});

/**
 * telemetry/call-record.ts says what each field is, and when it is null. `callView` of that file makes all
 * fields but the names of account and key, which `viewOf` adds.
 */
export const CallView = closedObject({
  time: Type.String({ description: 'when the call ended; it came duration_ms before' }),
  request_id: Type.String({ description: 'the x-request-id of the response' }),
  route: Type.String(),
  account: TextOrNull,
  account_name: orNull(Type.String(), 'null if it is not in the books of this host'),
  key: TextOrNull,
  key_name: orNull(Type.String(), 'null if it is deleted'),
  model: orNull(Type.String(), 'that the caller named'),
  answered_model: TextOrNull,
  upstream: orNull(Type.String(), 'that was tried last'),
  stream: Type.Boolean(),
  cache: orNull(Type.Enum(['hit', 'miss'])),
  status: Status,
  code: orNull(Type.String(), 'null if the call went well'),
  prompt_tokens: Tokens,
  cached_tokens: Tokens,
  cache_write_tokens: Tokens,
  cache_write_1h_tokens: Tokens,
  completion_tokens: Tokens,
  reasoning_tokens: Tokens,
  source: TextOrNull,
  cost: orNull(Money),
  first_token_ms: orNull(Milliseconds),
  duration_ms: Milliseconds,
  queued_ms: Milliseconds,
  admitted_ms: orNull(Milliseconds),
  error: orNull(Type.String(), 'what the caller was told'),
  attempts: Type.Array(AttemptSchema),
  quotas: Type.Array(QuotaLeftSchema, { description: 'what each had left after the call was admitted' }),
});
export type CallView = Static<typeof CallView>;

const ContentsText = closedObject({
  text: Type.String({ description: 'its beginning, if it is longer than call_log.contents_body_bytes' }),
  bytes: Type.Integer({ minimum: 0, description: 'of the whole text' }),
  cut: Type.Boolean({ description: 'true: `text` is not all of it' }),
});

/** What a caller sent and got, with callers' keys masked. */
export const ContentsView = closedObject({
  request_id: Type.String(),
  time: Type.String({ description: 'when the call ended' }),
  request: ContentsText,
  response: ContentsText,
});
export type ContentsView = Static<typeof ContentsView>;

const CallsPageView = closedObject({
  data: Type.Array(CallView),
  next: orNull(Type.String(), '`cursor` of the page of older calls; null after the last one'),
  searched_to: orNull(
    Type.String(),
    'calls that ended later were searched: the page is short because its time was over, and `next` goes on',
  ),
  newest: Type.String({ description: '`after` of a look for newer calls' }),
  unread: Type.Array(Type.String(), {
    description:
      'files of the call log that could not be read, each with why: calls in them are missing here',
  }),
});
export type CallsPageView = Static<typeof CallsPageView>;

const MOMENT_FORMS = 'Unix seconds, a time such as 2025-01-31T12:00Z or a day (UTC)';

const CallsQuery = closedObject({
  account: optionalText('id or name'),
  group: optionalText('id or name: of accounts that are in it now, or in a group below it'),
  key: optionalText('id or name'),
  model: optionalText('that was named, or that answered'),
  upstream: optionalText('of one of the attempts'),
  status: optionalText('HTTP status, or a class such as 5xx'),
  code: optionalText('error code, or client_gone; of several, with commas between, any'),
  failed: Type.Optional(Type.Boolean({ description: 'true: has a code; false: has none' })),
  from: optionalText(`calls that ended then or later: ${MOMENT_FORMS}`),
  to: optionalText(`calls that ended before that time, or on or before that day: ${MOMENT_FORMS}`),
  limit: pageLimit('calls', PAGE_CALLS_MAX, PAGE_CALLS_DEFAULT),
  cursor: optionalText('`next` of the page before'),
  after: optionalText(
    '`newest` of a page or of the last look: gives the calls that were written since, oldest first',
  ),
});
export type CallsQuery = Static<typeof CallsQuery>;

export const CALL_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/calls',
    summary:
      'List the calls that this host has kept, those that ended last first. With several processes a call is there a second after its end.',
    query: CallsQuery,
    responseSchema: CallsPageView,
    respond: async ({ query }, { calls, registry, flushCalls }) => {
      // Calls of this process that ended just now may not be on disk yet, where all three routes look.
      flushCalls();
      const { limit = PAGE_CALLS_DEFAULT, cursor, after } = query;
      if (cursor !== undefined && after !== undefined) throw invalid('give one of cursor and after');
      const filter = filterOf(query, registry);
      const page =
        after === undefined
          ? await calls.page(filter, limit, cursor)
          : await calls.newerCalls(after, filter, limit);
      if (page === undefined) {
        const [name, text] = after === undefined ? ['cursor', cursor] : ['after', after];
        throw invalid(`${name} must be one that a page has given, got ${quoted(text)}`);
      }
      return {
        data: page.calls.map((call) => viewOf(call, registry)),
        next: page.next,
        searched_to: page.searchedToMs === null ? null : new Date(page.searchedToMs).toISOString(),
        newest: page.newest,
        unread: [...page.unread],
      };
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/calls/{call}',
    summary: "Show the call of that request id, the response's x-request-id.",
    responseSchema: CallView,
    respond: async ({ id }, { calls, registry, flushCalls }) => {
      const call = await findEnded(flushCalls, () => calls.find(id));
      if (call !== undefined) return viewOf(call, registry);
      throw notFound(
        `there is no call ${quoted(id)} on this host: a call is kept by the host that served it, from a second after ` +
          'its end, for as long as call_log says; of several hosts ask each',
      );
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/calls/{call}/contents',
    roles: RIGHTS.contents,
    summary:
      'Show the body of the request and the text of the response of a call, if call_log.contents has kept them. Who asked is in the log.',
    responseSchema: ContentsView,
    respond: async ({ id }, { contents, operator, from, log, flushCalls }) => {
      const callContents = await findEnded(flushCalls, () => contents.find(id));
      if (callContents === undefined) {
        throw notFound(
          `no contents of ${quoted(id)} are kept on this host: call_log.contents says of which calls they are, for ` +
            'contents_keep_hours, and of private keys they never are',
        );
      }
      log.record('an operator read the contents of a call', { who: operator.who, from, request: id });
      return {
        request_id: callContents.requestId,
        time: new Date(callContents.endedMs).toISOString(),
        request: contentsText(callContents.request),
        response: contentsText(callContents.response),
      };
    },
  }),
];

/** Finds what was recorded of a call, and if nothing was, looks once more after RECORDING_MS. */
async function findEnded<Found>(
  flushCalls: () => void,
  find: () => Promise<Found | undefined>,
): Promise<Found | undefined> {
  flushCalls();
  const found = await find();
  if (found !== undefined) return found;
  await sleep(RECORDING_MS);
  flushCalls();
  return find();
}

const decoder = new TextDecoder();

function contentsText({ bytes, bytesInAll }: ClippedText): Static<typeof ContentsText> {
  const isCut = bytesInAll > bytes.length;
  const text = decoder.decode(bytes);
  // A text that is cut within a character ends with the decoder's replacement character.
  return { text: isCut ? text.replace(/\ufffd$/, '') : text, bytes: bytesInAll, cut: isCut };
}

/** Adds the names that account and key have now, because the record of a call has only their ids. */
function viewOf(call: CallRecord, registry: RecordReader): CallView {
  const { account, key } = call;
  const view = callView(call);
  return {
    ...view,
    account_name: (account === null ? undefined : registry.usage.namesOf(account).account) ?? null,
    key_name: (key === null ? undefined : registry.usage.namesOf(key).key) ?? null,
    attempts: [...view.attempts],
    quotas: [...view.quotas],
  };
}

/**
 * Returns the filter that the query describes. `code` stays one text: call-log/call-query.ts splits it at its
 * commas. Throws `invalid_parameters`, or `not_found` if no account, group or key has the given name.
 */
function filterOf(query: CallsQuery, registry: RecordReader): CallFilter {
  const { account, group, key, model, upstream, status, code, failed, from, to } = query;
  const fromMs = from === undefined ? undefined : timeOf('from', from);
  const isToDay = to !== undefined && isDay(to);
  // The filter finds calls that ended before `toMs`. If `to` is a day, `toMs` is the start of the next day.
  const toMs = to === undefined ? undefined : timeOf('to', to) + (isToDay ? DAY_MS : 0);
  // `toMs` of a day does not belong to the day, so `from` must be at least a millisecond earlier.
  checkFromTo(fromMs ?? -Infinity, (toMs ?? Infinity) - (isToDay ? 1 : 0));
  return {
    // A text that is an id is not looked up, so that the calls of a deleted key are found by its id.
    account:
      account === undefined || isIdOf('acct_', account) ? account : registry.accounts.recordOf(account).id,
    accounts: group === undefined ? undefined : registry.groups.membersOf(group, INDEXED_ACCOUNTS_MAX),
    key: key === undefined || isIdOf('key_', key) ? key : registry.keys.recordOf(key, account).id,
    model: model === undefined ? undefined : idOfModel(model, registry.catalog),
    upstream,
    code,
    status: status === undefined ? undefined : statusOf(status),
    failed,
    fromMs,
    toMs,
  };
}

/** Returns the status, or the first digit of a class, as CallFilter expects: 502 for `502`, 5 for `5xx`. */
function statusOf(text: string): number {
  if (/^[1-5]\d\d$/.test(text)) return Number(text);
  if (/^[1-5]xx$/.test(text)) return Number(text[0]);
  throw invalid(`status must be an HTTP status such as 502, or a class such as 5xx, got ${quoted(text)}`);
}

/** A day with a time of the day, in UTC, such as `2025-01-31T12:00Z`; seconds and milliseconds may follow. */
const DAY_AND_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?Z$/;

/**
 * Returns the Unix milliseconds of a text that fits DAY_AND_TIME, or of Unix seconds or a day. `momentOf`
 * reads the last two, and throws `invalid_parameters` for any other text.
 */
function timeOf(field: string, text: string): number {
  const ms = DAY_AND_TIME.test(text) ? parseMomentMs(text) : NaN;
  return Number.isNaN(ms) ? momentOf(field, text, MOMENT_FORMS) : ms;
}
