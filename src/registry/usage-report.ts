/**
 * Usage rows, and the reports that sum them for an operator. A row has the totals of the calls of one
 * account, key, model and hour. usage-reader.ts makes reports from the store's rows; admin/usage-routes.ts
 * keeps a report in KeptReport, which has a timer. Everything but KeptReport is pure. Main thread.
 *
 * Must hold:
 * - A report has at most LINES_MAX lines, however many rows it sums; beyond, `add` throws. A report in work
 *   may have the lines of one page more.
 * - After every commit the `cost` of all rows of an account adds up to the `spent` of its spending record,
 *   and likewise `uncovered`. The flush writes both at once, and the audit compares them
 *   (test/unit/store/audit.test.ts).
 */
import { type AccountIndex, asPicoUnits, type PicoUnits, type WallMs } from '../core/units.js';
import { invalid } from './record-id.js';

const HOUR_MS = 3_600_000;

/**
 * What identifies a row of usage. Key and model are named by id: a key's slot is given again, a model's index
 * ends with a restart.
 */
export interface UsageRowKey {
  readonly account: AccountIndex;
  /** Hours since 1970-01-01T00:00Z: the hour in which the calls ended. */
  readonly hour: number;
  readonly keyId: string;
  readonly modelId: string;
}

/** Totals, so writing a row twice changes nothing. */
export interface UsageTotals {
  /** Admitted calls that ended, served or not. */
  readonly calls: number;
  /** Calls that ended in an error. Such calls cost nothing. */
  readonly failedCalls: number;
  /** Calls whose tokens were estimated from lengths, for example because the client left mid-stream. */
  readonly estimatedCalls: number;
  /** Calls that named another model, and were answered by this model as a fallback. */
  readonly fallbackCalls: number;
  readonly promptTokens: number;
  /** Parts of the prompt and of the completion; core/token-counts.ts says which part contains which. */
  readonly cachedTokens: number;
  readonly cacheWriteTokens: number;
  readonly cacheWrite1hTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  /** What was taken from the balance. */
  readonly cost: PicoUnits;
  /** What the calls cost beyond `cost`: uncovered charges. */
  readonly uncovered: PicoUnits;
}

export interface UsageRecord extends UsageRowKey, UsageTotals {}

const NO_COUNTS = {
  calls: 0,
  failedCalls: 0,
  estimatedCalls: 0,
  fallbackCalls: 0,
  promptTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
};
const COUNT_NAMES = Object.keys(NO_COUNTS) as (keyof typeof NO_COUNTS)[];

export const NO_USAGE: UsageTotals = { ...NO_COUNTS, cost: asPicoUnits(0n), uncovered: asPicoUnits(0n) };

/** A row with the id of its account. */
export interface UsageRow extends UsageRecord {
  readonly accountId: string;
}

/** Selects rows. Both ends of the hours are included. */
export interface UsageRange {
  readonly account: AccountIndex;
  readonly fromHour: number;
  /** The row of `fromHour` with which to begin; absent: its first. */
  readonly fromRow?: Pick<UsageRow, 'keyId' | 'modelId'> | undefined;
  readonly toHour: number;
}

export function hourOf(wallMs: WallMs): number {
  return Math.floor(wallMs / HOUR_MS);
}

/** Returns the Unix seconds at which the hour begins. */
export function secondsOfHour(hour: number): number {
  return (hour * HOUR_MS) / 1_000;
}

/** By what a report can sum rows: a line for each account, or for each day. */
export const USAGE_DIMENSIONS = ['account', 'key', 'model', 'day', 'hour'] as const;
export type UsageDimension = (typeof USAGE_DIMENSIONS)[number];

/** A field that is undefined does not restrict the report. */
export interface UsageSelection {
  readonly keyId: string | undefined;
  readonly modelId: string | undefined;
  readonly by: UsageDimension;
}

/**
 * `name` is the id of a key, a model or an account, a day (UTC) as `2025-01-31`, or the Unix seconds at which
 * an hour began.
 */
export interface UsageLine extends UsageTotals {
  readonly name: string;
  /** Undefined unless the line is of a key. */
  readonly accountId: string | undefined;
}

/** How many lines a report may have, of some 500 bytes of memory each. */
const LINES_MAX = 100_000;

/** Sums rows, which come in any order. */
export class UsageReport {
  readonly #selection: UsageSelection;
  /** The lines by their names. */
  readonly #lines = new Map<string, GrowingLine>();

  constructor(selection: UsageSelection) {
    this.#selection = selection;
  }

  /** Adds the selected rows of a page. Throws `invalid_parameters` if it makes more than LINES_MAX lines. */
  add(rows: Iterable<UsageRow>): void {
    const { keyId, modelId, by } = this.#selection;
    for (const row of rows) {
      if (keyId !== undefined && row.keyId !== keyId) continue;
      if (modelId !== undefined && row.modelId !== modelId) continue;
      const name = nameOf(row, by);
      let line = this.#lines.get(name);
      if (line === undefined) {
        line = { name, accountId: by === 'key' ? row.accountId : undefined, ...NO_USAGE };
        this.#lines.set(name, line);
      }
      addTo(line, row);
    }
    if (this.#lines.size > LINES_MAX) {
      throw invalid(
        `the report would have more than ${LINES_MAX} lines: give an account, a key, a model or a shorter time`,
      );
    }
  }

  /** Ordered by name, as texts are. */
  lines(): UsageLine[] {
    return [...this.#lines.values()].sort((line, other) => (line.name < other.name ? -1 : 1));
  }
}

/** How long a report is kept: enough to read some hundred pages. The numbers of a page are at most so old. */
const REPORT_KEPT_MS = 60_000;

/**
 * Keeps the last report that has further pages, so that the next page does not sum all rows again. Pages of
 * two reports that are read in turns are summed each time.
 */
export class KeptReport {
  #requestText = '';
  #lines: readonly UsageLine[] | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** Returns the report that was kept with that `requestText`; undefined if it is not kept any more. */
  find(requestText: string): readonly UsageLine[] | undefined {
    return this.#requestText === requestText ? this.#lines : undefined;
  }

  /** Keeps `lines` instead of the report before. `requestText`: all that the lines depend on. */
  keep(requestText: string, lines: readonly UsageLine[]): void {
    clearTimeout(this.#timer);
    this.#requestText = requestText;
    this.#lines = lines;
    this.#timer = setTimeout(() => this.drop(requestText), REPORT_KEPT_MS).unref();
  }

  /** Call when the last page of the report was read. Does nothing if another report is kept. */
  drop(requestText: string): void {
    if (this.#requestText !== requestText) return;
    clearTimeout(this.#timer);
    this.#lines = undefined;
  }
}

function nameOf(row: UsageRow, by: UsageDimension): string {
  switch (by) {
    case 'account':
      return row.accountId;
    case 'key':
      return row.keyId;
    case 'model':
      return row.modelId;
    case 'day':
      return new Date(secondsOfHour(row.hour) * 1_000).toISOString().slice(0, '2025-01-31'.length);
    case 'hour':
      return String(secondsOfHour(row.hour));
  }
}

/** A line while it is summed: changed in place, so that millions of rows make no millions of objects. */
type GrowingLine = { -readonly [Name in keyof UsageLine]: UsageLine[Name] };

function addTo(line: GrowingLine, row: UsageTotals): void {
  for (const name of COUNT_NAMES) line[name] += row[name];
  line.cost = asPicoUnits(line.cost + row.cost);
  line.uncovered = asPicoUnits(line.uncovered + row.uncovered);
}
