/**
 * `/admin/v1/usage`: what was called and what it cost, summed up. Main thread.
 */
import { Type } from 'typebox';
import { asWallMs } from '../core/units.js';
import { invalid } from '../registry/record-id.js';
import { hourOf, USAGE_GROUPS, type UsageLine } from '../registry/usage-report.js';
import { listSchema, type ListView } from './fields.js';
import { shown } from './input-reader.js';
import { CLOSED, TextResponse, defineRoute, type Route } from './route.js';
import { UsageView, csvOfUsage, viewOfUsage } from './usage-view.js';

const PAGE_LINES_MAX = 1_000;

/** A year of hours, or all accounts that a spreadsheet can still be worked with. About 1 MB. */
const CSV_LINES_MAX = 10_000;

const CSV_TYPE = 'text/csv; charset=utf-8';

const UsageQuery = Type.Object(
  {
    account: Type.Optional(Type.String({ description: 'id or name' })),
    key: Type.Optional(Type.String({ description: 'id or name' })),
    model: Type.Optional(Type.String({ description: 'id' })),
    from: Type.Optional(Type.String({ description: 'Unix seconds or a day (UTC)' })),
    to: Type.Optional(Type.String({ description: 'Unix seconds or a day (UTC), which belongs to it' })),
    by: Type.Optional(Type.Enum([...USAGE_GROUPS], { description: 'day by default' })),
    format: Type.Optional(Type.Enum(['json', 'csv'], { description: 'json by default' })),
    cursor: Type.Optional(Type.String({ description: '`next` of the page before; JSON alone has pages' })),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: PAGE_LINES_MAX,
        description: `lines of a page, ${PAGE_LINES_MAX} by default`,
      }),
    ),
  },
  CLOSED,
);

export const USAGE_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/usage',
    summary: 'Sum up calls, tokens and cost.',
    query: UsageQuery,
    responseSchema: listSchema(UsageView),
    otherTypes: ['text/csv'],
    answer: async ({ query }, { registry, flushBooks }) => {
      await flushBooks();
      const { account, key, model, from, to, by = 'day', format, cursor, limit } = query;
      const lines = registry.reportUsage({ account, key, model, ...hoursOf(from, to), by });
      if (format !== 'csv') {
        const isNamed = by === 'account' || by === 'key';
        const viewOf = (line: UsageLine) =>
          viewOfUsage(line, by, isNamed ? registry.namesOf(line.name) : undefined);
        return pageOfLines(lines, viewOf, cursor, limit);
      }
      if (cursor !== undefined || limit !== undefined) {
        throw invalid(`${cursor === undefined ? 'limit' : 'cursor'} must not be given with format=csv`);
      }
      if (lines.length > CSV_LINES_MAX) {
        throw invalid(
          `the CSV would have ${lines.length} lines and may have ${CSV_LINES_MAX}: give an account, a key, a model or a ` +
            'shorter time, or take JSON page by page',
        );
      }
      return new TextResponse(CSV_TYPE, csvOfUsage(lines, by));
    },
  }),
];

/** The cursor is the last line's name: lines that come in between two pages are then neither lost nor given twice. */
function pageOfLines<View>(
  lines: readonly UsageLine[],
  viewOf: (line: UsageLine) => View,
  cursor: string | undefined,
  limit = PAGE_LINES_MAX,
): ListView<View> {
  const rest = cursor === undefined ? lines : lines.filter(({ name }) => name > cursor);
  const page = rest.slice(0, limit);
  return { data: page.map(viewOf), next: rest.length > limit ? page.at(-1)!.name : null };
}

const DAY_MS = 86_400_000;
/** Of the year 9999, the last that a date can name. */
const LAST_HOUR = hourOf(asWallMs(Date.UTC(9_999, 11, 31, 23)));

/** The hours that the moments fall into belong to the report, as does the whole day `to`. */
function hoursOf(from: string | undefined, to: string | undefined): { fromHour: number; toHour: number } {
  return {
    fromHour: from === undefined ? 0 : hourOf(asWallMs(momentOf('from', from))),
    toHour:
      to === undefined ? LAST_HOUR : hourOf(asWallMs(momentOf('to', to) + (isDay(to) ? DAY_MS - 1 : 0))),
  };
}

function isDay(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text);
}

function momentOf(field: string, text: string): number {
  const moment = isDay(text) ? Date.parse(text) : /^\d{1,11}$/.test(text) ? Number(text) * 1_000 : NaN;
  if (!Number.isNaN(moment)) return moment;
  throw invalid(`${field} must be Unix seconds or a day such as 2025-01-31, got ${shown(text)}`);
}
