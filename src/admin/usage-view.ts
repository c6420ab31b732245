/**
 * How a line of a usage report looks to an operator, in JSON and in CSV. Pure; main thread.
 */
import { type Static, Type } from 'typebox';
import { decimalOf } from '../core/money.js';
import type { UsageNames } from '../registry/registry.js';
import type { UsageGroup, UsageLine } from '../registry/usage-report.js';
import { Moment, Money } from './fields.js';
import { CLOSED } from './route.js';

/*
 * Tables as CSV (RFC 4180), safe to open in a spreadsheet. Pure; main thread.
 */

/**
 * A text that begins so would be run as a formula by a spreadsheet: it gets an apostrophe before it (OWASP, CSV injection).
 * Numbers are written as they are, so that a negative one stays a number.
 */
const FORMULA_START = /^[=+\-@\t\r]/;
const TO_QUOTE = /[",\r\n]/;

export type CsvCell = string | number;

/** A line of names, then one for each row; every line ends with CR LF. */
export function csvOf(names: readonly string[], rows: readonly (readonly CsvCell[])[]): string {
  return [names, ...rows].map((row) => `${row.map(cellText).join(',')}\r\n`).join('');
}

function cellText(cell: CsvCell): string {
  if (typeof cell === 'number') return String(cell);
  const safe = FORMULA_START.test(cell) && !isDecimal(cell) ? `'${cell}` : cell;
  return TO_QUOTE.test(safe) || safe.startsWith("'") ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Money is text here and a number there. */
function isDecimal(text: string): boolean {
  return /^-?\d+(\.\d+)?$/.test(text);
}

const Count = Type.Integer({ minimum: 0 });

const STATS = {
  calls: Count,
  failed_calls: Count,
  estimated_calls: Count,
  prompt_tokens: Count,
  cached_tokens: Count,
  completion_tokens: Count,
  cost: Money,
  uncovered: Money,
};

const Name = (of: string) =>
  Type.Union([Type.String(), Type.Null()], { description: `name of the ${of}; null where it was deleted` });

/** One of the first five is there: what the lines are by; with an id its names. */
export const UsageView = Type.Object(
  {
    account: Type.Optional(Type.String({ description: 'id of the account' })),
    key: Type.Optional(Type.String({ description: 'id of the key' })),
    model: Type.Optional(Type.String()),
    day: Type.Optional(Type.String({ description: 'UTC, such as 2025-01-31' })),
    hour: Type.Optional(Moment),
    account_name: Type.Optional(Name('account')),
    key_name: Type.Optional(Name('key')),
    ...STATS,
  },
  CLOSED,
);

export type UsageView = Readonly<Static<typeof UsageView>>;

export function viewOfUsage(line: UsageLine, by: UsageGroup, names: UsageNames | undefined): UsageView {
  return {
    [by]: by === 'hour' ? Number(line.name) : line.name,
    ...(names && { account_name: names.account ?? null }),
    ...(names && by === 'key' ? { key_name: names.key ?? null } : {}),
    calls: line.calls,
    failed_calls: line.failedCalls,
    estimated_calls: line.estimatedCalls,
    prompt_tokens: line.promptTokens,
    cached_tokens: line.cachedTokens,
    completion_tokens: line.completionTokens,
    cost: decimalOf(line.cost),
    uncovered: decimalOf(line.uncovered),
  };
}

/** Money has all of its decimals. */
export function csvOfUsage(lines: readonly UsageLine[], by: UsageGroup): string {
  const names = [by, ...Object.keys(STATS)] as (keyof UsageView)[];
  const rows = lines.map((line) => {
    const view = viewOfUsage(line, by, undefined);
    return names.map((name) => view[name]!);
  });
  return csvOf(names, rows);
}
