/**
 * The page of usage, which main.tsx shows: calls, tokens and cost from the usage on disk, filtered and
 * grouped, as charts, as a table and as CSV. Browser.
 *
 * Must hold: if only the first pages of the rows have come, the page says that its sums lack the other rows
 * (test/e2e/console-pages.test.ts; other parts of the page: test/e2e/console.test.ts).
 */
import { useState } from 'preact/hooks';
import { ROOT } from '../admin/addresses.js';
import type { ListView, ModelView, UsageView } from '../admin/views.js';
import { queryOf } from './api.js';
import { useView, type ShownRows, usePagedRows } from './api-hooks.js';
import { addressOf, type CallFilters, callsAddress } from './address.js';
import { chart, Charts, seriesMaker, timesUntil } from './chart.js';
import { Button, Choice, ErrorText, idsOf, Money, Name, TextField } from './controls.js';
import { DAY_SECONDS, HOUR_SECONDS, moment, number, roughMoney, shortNumber, sumOfMoney } from './format.js';
import { type Column, Table } from './table.js';

const GROUPINGS = ['day', 'hour', 'model', 'account', 'key'] as const;
type Grouping = (typeof GROUPINGS)[number];

/** How much time a row stands for, if rows are by day or by hour. */
const STEP_SECONDS = { day: DAY_SECONDS, hour: HOUR_SECONDS } as const;

/**
 * What the page requests: the parameters of `GET /usage`. Days are those of UTC, both included; empty for no
 * bound. `account` and `key` are ids or names; empty for all, as `model`.
 */
type Query = Readonly<Record<'from' | 'to' | 'model' | 'account' | 'key', string> & { by: Grouping }>;

export function UsagePage() {
  const [query, setQuery] = useState<Query>(() => ({
    by: 'day',
    from: dayOf(Date.now() - 29 * STEP_SECONDS.day * 1_000),
    to: dayOf(Date.now()),
    model: '',
    account: '',
    key: '',
  }));
  const models = useView<ListView<ModelView>>('/models');
  const { shown, isCurrent, error, showMore } = usePagedRows<UsageView, Query>('/usage', trimmed(query));
  const inputOf = (name: Exclude<keyof Query, 'by'>) => ({
    value: query[name],
    onValue: (text: string): void => setQuery({ ...query, [name]: text }),
  });

  return (
    <>
      <div class="head">
        <h1>Usage</h1>
      </div>
      <div class="filters">
        <Choice
          label="Lines by"
          value={query.by}
          options={GROUPINGS}
          onValue={(chosen) =>
            setQuery({ ...query, by: GROUPINGS.find((grouping) => grouping === chosen) ?? 'day' })
          }
        />
        <TextField label="From (UTC)" type="date" {...inputOf('from')} />
        <TextField label="To (UTC)" type="date" {...inputOf('to')} />
        <Choice
          label="Model"
          options={[['', 'All'], ...idsOf(models.view?.data ?? [])]}
          {...inputOf('model')}
        />
        <TextField label="Account" placeholder="Id or name" {...inputOf('account')} />
        <TextField label="Key" placeholder="Id or name" {...inputOf('key')} />
      </div>
      {/* If rows of the query are shown, the error is that of `Show more`, and they stay. */}
      <ErrorText text={(isCurrent ? undefined : error) ?? models.error} />
      {shown !== undefined && (isCurrent || error === undefined) && (
        <ShownUsage {...shown} error={error} onMore={showMore} />
      )}
    </>
  );
}

interface ShownUsageProps extends ShownRows<UsageView, Query> {
  /** Undefined while a request waits for its rows. */
  readonly onMore: (() => void) | undefined;
  /** Why the last request for more rows failed; undefined if it did not. */
  readonly error: string | undefined;
}

function ShownUsage({ filter: query, data: rows, next, onMore, error }: ShownUsageProps) {
  const { by, from, to } = query;
  if (rows.length === 0) return <p class="empty">No calls in this time.</p>;
  return (
    <>
      {(by === 'day' || by === 'hour') && <UsageCharts from={from} to={to} rows={rows} by={by} />}
      {next !== null && (
        <p class="muted">
          These are the first {number(rows.length)} lines: the sums and charts are without the others.
        </p>
      )}
      <UsageTable rows={rows} query={query} hasMore={next !== null} />
      <ErrorText text={error} />
      {next !== null && (
        <Button disabled={onMore === undefined} onClick={onMore}>
          Show more
        </Button>
      )}
    </>
  );
}

/** Returns the query as it is sent: without spaces around typed names. */
function trimmed({ account, key, ...others }: Query): Query {
  return { ...others, account: account.trim(), key: key.trim() };
}

/** Returns the day in UTC: `2025-01-31`. */
function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, '2025-01-31'.length);
}

/** Returns the Unix seconds at which the day begins in UTC. */
function secondsOf(day: string): number {
  return Date.parse(day) / 1_000;
}

/** The most points of one chart: the hours of a year of 366 days. Older points are not drawn. */
const POINTS_MAX = 8_784;

interface UsageChartsProps {
  readonly rows: readonly UsageView[];
  readonly by: 'day' | 'hour';
  /** The first and the last day of the filter; empty: those of the rows. */
  readonly from: string;
  readonly to: string;
}

/**
 * A day or hour without a call has no row, and is 0 in the charts. So is one whose row has not come: the page
 * then says that rows are missing.
 */
function UsageCharts({ rows, by, from, to }: UsageChartsProps) {
  const stepSeconds = STEP_SECONDS[by];
  // The rows by the Unix seconds at which their day or hour begins. Each row has `day` or `hour`.
  const rowsByStart = new Map(rows.map((row) => [row.hour ?? secondsOf(row.day ?? '1970-01-01'), row]));
  const starts = [...rowsByStart.keys()].sort((first, second) => first - second);
  // Charts by day reach to the day `to`. Charts by hour end with the last hour that had a call, because the
  // last hours of `to`, which is today by default, may not have begun.
  const lastStart = Math.max(starts.at(-1) ?? 0, to === '' || by === 'hour' ? 0 : secondsOf(to));
  const firstStart = from === '' ? (starts[0] ?? 0) : Math.min(starts[0] ?? 0, secondsOf(from));
  const count = Math.min(POINTS_MAX, Math.round((lastStart - firstStart) / stepSeconds) + 1);
  const times = timesUntil(lastStart, stepSeconds, count);
  const seriesOf = seriesMaker(times, rowsByStart);
  const unit = `per ${by}`;
  return (
    <Charts
      times={times}
      seconds={(count - 1) * stepSeconds}
      barSeconds={stepSeconds}
      charts={[
        chart('Calls', unit, shortNumber, [
          seriesOf('calls', '--series-1', ({ calls }) => calls),
          seriesOf('failed', '--series-3', (row) => row.failed_calls),
        ]),
        chart('Tokens', unit, shortNumber, [
          seriesOf('all', '--series-1', (row) => row.prompt_tokens + row.completion_tokens),
          seriesOf('completion', '--series-5', (row) => row.completion_tokens),
        ]),
        chart('Cost', unit, roughMoney, [seriesOf('cost', '--series-1', ({ cost }) => Number(cost))]),
      ]}
    />
  );
}

interface UsageTableProps {
  readonly rows: readonly UsageView[];
  readonly query: Query;
  /** Whether the query has more rows than these. */
  readonly hasMore: boolean;
}

/** Rows with their sums below. A bar in each row compares the row's cost with the highest cost of a row. */
function UsageTable({ rows, query, hasMore }: UsageTableProps) {
  const { by } = query;
  const highestCost = Math.max(...rows.map(({ cost }) => Number(cost)));
  const callsAddressOf = (row: GroupingFields): string => callsAddress(callFiltersOf(row, query));
  // A count links to its calls. The sum links to all calls of the query, even if rows are missing.
  const countColumn = (
    head: string,
    count: (row: UsageView) => number,
    href: (row: GroupingFields) => string = callsAddressOf,
  ): Column<UsageView> => ({
    head,
    figure: count,
    href,
    foot: <a href={href({})}>{number(rows.reduce((total, row) => total + count(row), 0))}</a>,
  });
  const costSum = sumOfMoney(rows.map(({ cost }) => cost));
  const uncoveredSum = sumOfMoney(rows.map((row) => row.uncovered));
  return (
    <Table
      label="Usage"
      rows={rows}
      keyOf={groupingValueOf}
      csv={
        // The gateway makes this file, with all rows of the query and all columns.
        <p class="table-end">
          <a
            class="button quiet"
            href={`${ROOT}/usage${queryOf({ ...query, format: 'csv' })}`}
            download={`usage-by-${by}.csv`}
          >
            Download CSV
          </a>
        </p>
      }
      columns={[
        {
          head: by === 'day' ? 'day (UTC)' : by,
          cell: (row) => <RowName row={row} />,
          foot: hasMore ? `Sum of these ${number(rows.length)}` : 'Sum',
        },
        countColumn('Calls', ({ calls }) => calls),
        countColumn(
          'Failed',
          (row) => row.failed_calls,
          (row) => callsAddress({ ...callFiltersOf(row, query), failed: 'true' }),
        ),
        countColumn('Prompt tokens', (row) => row.prompt_tokens),
        countColumn('Cached', (row) => row.cached_tokens),
        countColumn('Written', (row) => row.cache_write_tokens),
        countColumn('Completion tokens', (row) => row.completion_tokens),
        countColumn('Reasoning', (row) => row.reasoning_tokens),
        {
          head: 'Cost',
          money: ({ cost }) => cost,
          href: callsAddressOf,
          foot: (
            <a href={callsAddressOf({})}>
              <Money amount={costSum} />
            </a>
          ),
        },
        // The column is there only if there are uncovered charges, so that operators notice them.
        ...(rows.some((row) => Number(row.uncovered) !== 0)
          ? [
              {
                head: 'Uncovered',
                money: (row: UsageView) => row.uncovered,
                foot: <Money amount={uncoveredSum} />,
              },
            ]
          : []),
        {
          head: { hidden: 'Share of the cost' },
          cell: ({ cost }) => (
            <i
              class="share"
              style={{ width: `${highestCost > 0 ? (100 * Number(cost)) / highestCost : 0}%` }}
            />
          ),
          class: 'share-cell',
        },
      ]}
    />
  );
}

/** The fields by which rows are grouped. A row has one of them. The sums below the rows have none. */
type GroupingFields = Partial<Pick<UsageView, 'account' | 'key' | 'model' | 'day' | 'hour'>>;

/** Returns the filters of the page of calls that find the calls of a row; of `{}` all calls of the query. */
function callFiltersOf({ account, key, model, day, hour }: GroupingFields, query: Query): CallFilters {
  const { from, to } = query;
  const start = hour ?? (day === undefined ? undefined : secondsOf(day));
  const times =
    start === undefined
      ? {
          from: from === '' ? '' : String(secondsOf(from)),
          to: to === '' ? '' : String(secondsOf(to) + STEP_SECONDS.day),
        }
      : { from: String(start), to: String(start + STEP_SECONDS[hour === undefined ? 'day' : 'hour']) };
  return {
    account: account ?? query.account,
    key: key ?? query.key,
    model: model ?? query.model,
    ...times,
  };
}

/** Shows what the row is grouped by: of an account or key the name, or the id if there is no name. */
function RowName({ row }: { readonly row: UsageView }) {
  const { account, key, hour } = row;
  if (account !== undefined) {
    return (
      <a href={addressOf('accounts', account)}>
        <Name text={row.account_name ?? account} />
      </a>
    );
  }
  // Hours are shown in the browser's time zone, as all moments of the console. Days are those of UTC.
  if (hour !== undefined) return <>{moment(hour)}</>;
  return <Name text={(key === undefined ? undefined : row.key_name) ?? groupingValueOf(row)} />;
}

/** Returns the value of the one field of GroupingFields that the row has. */
function groupingValueOf({ account, key, model, day, hour }: UsageView): string {
  return account ?? key ?? model ?? day ?? String(hour);
}
