/**
 * `/admin/v1/usage`: a report with a line for each day, hour, model, account or key, as JSON or as CSV (RFC
 * 4180). `/admin/v1/usage/rows`: the rows of the store that reports sum (registry/usage-report.ts). routes.ts
 * lists these routes with the others, api.ts calls them. Main thread.
 *
 * Must hold: no name in the CSV becomes a formula of a spreadsheet (test/unit/core/csv.test.ts). Charges in
 * memory are flushed before a report is made or rows are read, or the response has a warning.
 */
import * as Type from 'typebox';
import { csvOf } from '../core/csv.js';
import { decimalOf } from '../core/money.js';
import { asWallMs } from '../core/units.js';
import { idOfModel } from '../registry/catalog.js';
import { invalid } from '../registry/record-id.js';
import type { UsageCursor, UsageNames } from '../registry/usage-reader.js';
import {
  hourOf,
  secondsOfHour,
  USAGE_DIMENSIONS,
  type UsageDimension,
  type UsageLine,
  type UsageRow,
  type UsageTotals,
} from '../registry/usage-report.js';
import { checkFromTo, isDay, momentOf, pageLimit } from './fields.js';
import { quoted } from './input-reader.js';
import { defineRoute, TextResponse } from './route.js';
import {
  closedObject,
  listSchema,
  type ListView,
  USAGE_STATS,
  UsageRowView,
  UsageView,
  optionalText,
} from './views.js';

const PAGE_LINES_MAX = 1_000;

/** More lines than a year has hours: about 1 MB of text, which spreadsheets open without trouble. */
const CSV_LINES_MAX = 10_000;

/** The warning if the flush failed. While the disk is full, the charges of some hours may be in memory. */
const MAY_LACK_CALLS =
  'Calls of the last moments may be missing here: a process of the gateway could not write them now.';

const CSV_TYPE = 'text/csv; charset=utf-8';

const TIME_PARAMETERS = {
  from: optionalText('Unix seconds or a day (UTC)'),
  to: optionalText('Unix seconds or a day (UTC), which belongs to it'),
};
const PAGE_LIMIT = pageLimit('lines of a page', PAGE_LINES_MAX, PAGE_LINES_MAX);

const RowsQuery = closedObject({
  ...TIME_PARAMETERS,
  cursor: optionalText('`next` of the page before'),
  limit: PAGE_LIMIT,
});

const UsageQuery = closedObject({
  account: optionalText('id or name'),
  key: optionalText('id or name'),
  model: optionalText('id or alias'),
  ...TIME_PARAMETERS,
  by: Type.Optional(Type.Enum([...USAGE_DIMENSIONS], { description: 'day by default' })),
  format: Type.Optional(Type.Enum(['json', 'csv'], { description: 'json by default' })),
  cursor: optionalText('`next` of the page before; JSON alone has pages'),
  limit: PAGE_LIMIT,
});

export const USAGE_ROUTES = [
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
      // The order of the fields is fixed, so the requests for all pages of one report have the same text.
      const requestText = JSON.stringify(request);
      // The request for the first page makes the report, which is kept for the requests for later pages.
      const keptLines = cursor === undefined ? undefined : registry.usage.keptReport.find(requestText);
      // The flush comes before the report, which reads the charges from the store.
      if (keptLines === undefined && !(await flushBooks())) warn(MAY_LACK_CALLS);
      const lines = keptLines ?? (await registry.usage.report(request, requesterLeft));
      if (format === 'csv') return new TextResponse(CSV_TYPE, csvOfLines(lines, by));
      const hasNames = by === 'account' || by === 'key';
      const viewOf = (line: UsageLine): UsageView =>
        viewOfLine(line, by, hasNames ? registry.usage.namesOf(line.name, line.accountId) : undefined);
      const page = pageOfLines(lines, viewOf, cursor, limit);
      if (page.next === null) registry.usage.keptReport.drop(requestText);
      else if (keptLines === undefined) registry.usage.keptReport.keep(requestText, lines);
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
      const { rows, next } = registry.usage.rows(hoursOf(from, to), rowCursorOf(cursor), limit);
      return {
        data: rows.map((row) => viewOfRow(row, registry.usage.namesOf(row.keyId, row.accountId))),
        next: next === undefined ? null : `${next.slot}_${next.hour}`,
      };
    },
  }),
];

/** `next` of `/usage/rows`: a key's slot and an hour, by default the first. Throws `invalid_parameters`. */
function rowCursorOf(cursor = '0_0'): UsageCursor {
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

/** `names`: of the account and the key; undefined unless lines are by account or by key, and for the CSV. */
function viewOfLine(line: UsageLine, by: UsageDimension, names: UsageNames | undefined): UsageView {
  return {
    [by]: by === 'hour' ? Number(line.name) : line.name,
    ...(names && { account_name: names.account ?? null }),
    ...(names && by === 'key' ? { key_name: names.key ?? null } : {}),
    ...statsOf(line),
  };
}

function statsOf(totals: UsageTotals): Pick<UsageRowView, keyof typeof USAGE_STATS> {
  return {
    calls: totals.calls,
    failed_calls: totals.failedCalls,
    estimated_calls: totals.estimatedCalls,
    prompt_tokens: totals.promptTokens,
    cached_tokens: totals.cachedTokens,
    completion_tokens: totals.completionTokens,
    cost: decimalOf(totals.cost),
    uncovered: decimalOf(totals.uncovered),
    fallback_calls: totals.fallbackCalls,
    cache_write_tokens: totals.cacheWriteTokens,
    cache_write_1h_tokens: totals.cacheWrite1hTokens,
    reasoning_tokens: totals.reasoningTokens,
  };
}

/**
 * The cursor is the name of the last line that was sent (UsageLine). So no line is skipped or repeated if the
 * report is made again between two pages. `lines` must be in the order of their names.
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
const HOUR_MAX = hourOf(asWallMs(Date.UTC(9_999, 11, 31, 23)));

/** The hours of `from` and `to`, both included; of a day `to` its last hour. Throws `invalid_parameters`. */
function hoursOf(from: string | undefined, to: string | undefined): { fromHour: number; toHour: number } {
  const fromMs = from === undefined ? 0 : momentOf('from', from);
  const toMs = to === undefined ? Infinity : momentOf('to', to) + (isDay(to) ? DAY_MS - 1 : 0);
  checkFromTo(fromMs, toMs);
  return {
    fromHour: hourOf(asWallMs(fromMs)),
    toHour: toMs === Infinity ? HOUR_MAX : hourOf(asWallMs(toMs)),
  };
}

/** Throws `invalid_parameters` if there are more than CSV_LINES_MAX lines. */
function csvOfLines(lines: readonly UsageLine[], by: UsageDimension): string {
  if (lines.length > CSV_LINES_MAX) {
    throw invalid(
      `the CSV would have ${lines.length} lines and may have ${CSV_LINES_MAX}: give an account, a key, a model or a ` +
        'shorter time, or take JSON page by page',
    );
  }
  const columns = [by, ...Object.keys(USAGE_STATS)] as (keyof UsageView)[];
  const cells = lines.map((line) => {
    const view = viewOfLine(line, by, undefined);
    // Each line has the field `by` and all USAGE_STATS.
    return columns.map((column) => view[column]!);
  });
  return csvOf(columns, cells);
}
