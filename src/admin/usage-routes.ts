/**
 * `/admin/v1/usage`: sums of calls, tokens and cost, as JSON or as CSV (RFC 4180). routes.ts lists these
 * routes with the others, api.ts calls them. Main thread.
 *
 * Must hold: the CSV is safe to open in a spreadsheet, because no name becomes a formula
 * (test/unit/core/csv.test.ts). Charges are flushed before a sum is made, or the response has a warning.
 */
import { Type } from 'typebox';
import { csvOf } from '../core/csv.js';
import { parseMomentMs } from '../core/clock.js';
import { decimalOf } from '../core/money.js';
import { asWallMs } from '../core/units.js';
import { idOfModel } from '../registry/catalog.js';
import { invalid } from '../registry/record-id.js';
import type { UsageCursor, UsageNames } from '../registry/registry.js';
import {
  hourOf,
  secondsOfHour,
  USAGE_GROUPS,
  type UsageGroup,
  type UsageLine,
  type UsageRow,
  type UsageTotals,
} from '../registry/usage-report.js';
import { pageLimit } from './fields.js';
import { quoted } from './input-reader.js';
import { defineRoute, type Route, TextResponse } from './route.js';
import {
  closed,
  listSchema,
  type ListView,
  USAGE_STATS,
  UsageRowView,
  UsageView,
  optionalText,
} from './views.js';

const PAGE_LINES_MAX = 1_000;

/** A year has fewer hours, and a spreadsheet handles so many lines. They have about 1 MB. */
const CSV_LINES_MAX = 10_000;

/** Sums lack charges that are only in memory: while the disk is full, perhaps those of hours. */
const MAY_LACK_CALLS =
  'Calls of the last moments may be missing here: a process of the gateway could not write them now.';

const CSV_TYPE = 'text/csv; charset=utf-8';

const TIME_PARAMETERS = {
  from: optionalText('Unix seconds or a day (UTC)'),
  to: optionalText('Unix seconds or a day (UTC), which belongs to it'),
};
const LIMIT = pageLimit('lines of a page', PAGE_LINES_MAX, PAGE_LINES_MAX);

const RowsQuery = closed({
  ...TIME_PARAMETERS,
  cursor: optionalText('`next` of the page before'),
  limit: LIMIT,
});

const UsageQuery = closed({
  account: optionalText('id or name'),
  key: optionalText('id or name'),
  model: optionalText('id or alias'),
  ...TIME_PARAMETERS,
  by: Type.Optional(Type.Enum([...USAGE_GROUPS], { description: 'day by default' })),
  format: Type.Optional(Type.Enum(['json', 'csv'], { description: 'json by default' })),
  cursor: optionalText('`next` of the page before; JSON alone has pages'),
  limit: LIMIT,
});

export const USAGE_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/usage',
    summary: 'Sum up calls, tokens and cost.',
    query: UsageQuery,
    responseSchema: listSchema(UsageView),
    otherTypes: ['text/csv'],
    respond: async ({ query }, { registry, flushBooks, requesterLeft, warn }) => {
      const { account, key, model: modelName, from, to, by = 'day', format, cursor, limit } = query;
      if (format === 'csv' && (cursor !== undefined || limit !== undefined)) {
        throw invalid(`${cursor === undefined ? 'limit' : 'cursor'} must not be given with format=csv`);
      }
      const model = modelName === undefined ? undefined : idOfModel(modelName, registry.catalog);
      const request = { account, key, model, ...hoursOf(from, to), by };
      const requestText = JSON.stringify(request);
      // The first page keeps its lines for the later pages, which make a new report if they were dropped.
      const keptLines = cursor === undefined ? undefined : registry.keptReport.find(requestText);
      // Only a new report needs the flush, which must come before it.
      if (keptLines === undefined && !(await flushBooks())) warn(MAY_LACK_CALLS);
      const lines = keptLines ?? (await registry.reportUsage(request, requesterLeft));
      if (format === 'csv') return new TextResponse(CSV_TYPE, csvOfUsage(lines, by));
      const isNamed = by === 'account' || by === 'key';
      const viewOf = (line: UsageLine) =>
        viewOfUsage(line, by, isNamed ? registry.namesOf(line.name, line.accountId) : undefined);
      const page = pageOfLines(lines, viewOf, cursor, limit);
      if (page.next === null) registry.keptReport.drop(requestText);
      else if (keptLines === undefined) registry.keptReport.keep(requestText, lines);
      return page;
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/usage/rows',
    summary:
      'List the rows that usage is summed from: calls, tokens and cost of an account, key, model and hour. A page may be empty and have a `next`.',
    query: RowsQuery,
    responseSchema: listSchema(UsageRowView),
    respond: async ({ query }, { registry, flushBooks, warn }) => {
      const { from, to, cursor, limit = PAGE_LINES_MAX } = query;
      if (!(await flushBooks())) warn(MAY_LACK_CALLS);
      const { rows, next } = registry.usageRows(hoursOf(from, to), cursorOf(cursor), limit);
      return {
        data: rows.map((row) => viewOfRow(row, registry.namesOf(row.keyId, row.accountId))),
        next: next === undefined ? null : `${next.slot}_${next.hour}`,
      };
    },
  }),
];

/** Reads `next` of `/usage/rows`: a key's slot and an hour. Throws `invalid_parameters`. */
function cursorOf(cursor = '0_0'): UsageCursor {
  const [, slot, hour] = /^(\d{1,8})_(\d{1,8})$/.exec(cursor) ?? [];
  if (slot === undefined) throw invalid(`cursor must be the next of the page before, got ${quoted(cursor)}`);
  return { slot: Number(slot), hour: Number(hour) };
}

function viewOfRow(row: UsageRow, names: UsageNames): UsageRowView {
  return {
    hour: new Date(secondsOfHour(row.hour) * 1_000).toISOString().replace('.000', ''),
    account: row.accountId,
    account_name: names.account ?? null,
    key: row.keyId,
    key_name: names.key ?? null,
    model: row.modelId,
    ...statsOf(row),
  };
}

function viewOfUsage(line: UsageLine, by: UsageGroup, names: UsageNames | undefined): UsageView {
  return {
    [by]: by === 'hour' ? Number(line.name) : line.name,
    ...(names && { account_name: names.account ?? null }),
    ...(names && by === 'key' ? { key_name: names.key ?? null } : {}),
    ...statsOf(line),
  };
}

function statsOf(line: UsageTotals): Pick<UsageRowView, keyof typeof USAGE_STATS> {
  return {
    calls: line.calls,
    failed_calls: line.failedCalls,
    estimated_calls: line.estimatedCalls,
    prompt_tokens: line.promptTokens,
    cached_tokens: line.cachedTokens,
    completion_tokens: line.completionTokens,
    cost: decimalOf(line.cost),
    uncovered: decimalOf(line.uncovered),
    fallback_calls: line.fallbackCalls,
    cache_write_tokens: line.cacheWriteTokens,
    cache_write_1h_tokens: line.cacheWrite1hTokens,
    reasoning_tokens: line.reasoningTokens,
  };
}

/**
 * The cursor is the last line's name, so no line is skipped or repeated if lines appear between two pages.
 * `lines` must be in the order of their names.
 */
function pageOfLines<View>(
  lines: readonly UsageLine[],
  viewOf: (line: UsageLine) => View,
  cursor: string | undefined,
  limit = PAGE_LINES_MAX,
): ListView<View> {
  const linesAfter = cursor === undefined ? lines : lines.filter(({ name }) => name > cursor);
  const page = linesAfter.slice(0, limit);
  return { data: page.map(viewOf), next: linesAfter.length > limit ? page.at(-1)!.name : null };
}

const DAY_MS = 86_400_000;
/** The last hour of the year 9999, the last year that a day in a query can name. */
const LAST_HOUR = hourOf(asWallMs(Date.UTC(9_999, 11, 31, 23)));

/** The report includes the hours that `from` and `to` fall into, and the whole day if `to` is a day. */
function hoursOf(from: string | undefined, to: string | undefined): { fromHour: number; toHour: number } {
  const fromMs = from === undefined ? 0 : momentOf('from', from);
  const toMs = to === undefined ? Infinity : momentOf('to', to) + (isDay(to) ? DAY_MS - 1 : 0);
  checkFromTo(fromMs, toMs);
  return {
    fromHour: hourOf(asWallMs(fromMs)),
    toHour: toMs === Infinity ? LAST_HOUR : hourOf(asWallMs(toMs)),
  };
}

/**
 * Throws if `from` is after `to`: the response would look like that of a period without calls. `from` and
 * `to` must have the same unit. call-routes.ts and change-routes.ts call this function too.
 */
export function checkFromTo(from: number, to: number): void {
  if (from > to) throw invalid('from must not be after to');
}

/** Whether a text names a day. call-routes.ts calls this function and `momentOf` too. */
export function isDay(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text);
}

/**
 * Returns the Unix milliseconds of a text of Unix seconds, or of the start of a day. Throws
 * `invalid_parameters` for any other text. The message names `field` and `acceptedForms`, because a caller
 * may accept more forms than this function.
 */
export function momentOf(
  field: string,
  text: string,
  acceptedForms = 'Unix seconds or a day such as 2025-01-31',
): number {
  const ms = isDay(text) ? parseMomentMs(text) : /^\d{1,11}$/.test(text) ? Number(text) * 1_000 : NaN;
  if (!Number.isNaN(ms)) return ms;
  throw invalid(`${field} must be ${acceptedForms}, got ${quoted(text)}`);
}

/** Money is exact, with all decimals. Throws `invalid_parameters` if there are too many lines. */
function csvOfUsage(lines: readonly UsageLine[], by: UsageGroup): string {
  if (lines.length > CSV_LINES_MAX) {
    throw invalid(
      `the CSV would have ${lines.length} lines and may have ${CSV_LINES_MAX}: give an account, a key, a model or a ` +
        'shorter time, or take JSON page by page',
    );
  }
  const names = [by, ...Object.keys(USAGE_STATS)] as (keyof UsageView)[];
  const rows = lines.map((line) => {
    const view = viewOfUsage(line, by, undefined);
    return names.map((name) => view[name]!);
  });
  return csvOf(names, rows);
}
