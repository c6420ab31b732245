/**
 * What an account calls, as it moves: from the last five minutes to the last day. Browser.
 */
import { useState } from 'preact/hooks';
import { queryOf } from './api.js';
import { Chart, type Series } from './chart.js';
import { ErrorText, RangeChoice } from './controls.js';
import { timesUntil } from './stats.js';
import { roughMoney, short } from './format.js';
import { usePolled } from './live.js';
import {
  type AccountStats,
  type AccountHistory,
  type CourseSpan,
  type List,
  type Range,
  RANGE_SECONDS,
  type UsageLine,
} from './views.js';

/*
 * The history of accounts as it is asked for, again and again while it is looked at. Browser.
 */

/** A new span comes every two seconds in the shortest range, every ten in the next; nobody waits for one longer. */
const HISTORY_REFRESH_MS: Readonly<Record<Range, number>> = {
  '5m': 2_000,
  '1h': 10_000,
  '6h': 10_000,
  '24h': 10_000,
};

export interface Asked<Line> {
  /** Undefined until it has come. */
  readonly history: AccountHistory<Line> | undefined;
  readonly problem: string | undefined;
}

/** `place`: `/history/accounts`, or of one account. */
export function useAccountHistory<Line>(place: string, range: Range): Asked<Line> {
  const { answer, problem: error } = usePolled<AccountHistory<Line>>(
    `${place}?range=${range}`,
    HISTORY_REFRESH_MS[range],
  );
  // What was asked for before is not shown as what is asked for now.
  return { history: answer?.range === range ? answer : undefined, problem: error };
}

const SECONDS_PER_HOUR = 3_600;
/** The gateway sums a span up so long after its end. */
const TOLD_AFTER_SECONDS = 6;

export function AccountCourse({ account }: { readonly account: string }) {
  const [range, setRange] = useState<Range>('5m');
  const place = `/accounts/${encodeURIComponent(account)}/history`;
  const { history, problem: error } = useAccountHistory<CourseSpan>(place, range);
  return (
    <section aria-label="Course">
      <div class="head">
        <div>
          <h3>Calls of late</h3>
          <p class="muted">While it is among the 50 accounts with most calls.</p>
        </div>
        <RangeChoice value={range} onChoice={setRange} />
      </div>
      <ErrorText text={error} />
      {history === undefined ? null : (
        <CourseCharts spans={history.data} spanSeconds={history.seconds} seconds={RANGE_SECONDS[range]} />
      )}
    </section>
  );
}

interface CourseProps {
  /** Those in which anybody called. */
  readonly spans: readonly CourseSpan[];
  readonly spanSeconds: number;
  readonly seconds: number;
}

function CourseCharts({ spans, spanSeconds, seconds }: CourseProps) {
  const told = Math.floor((Date.now() / 1_000 - TOLD_AFTER_SECONDS) / spanSeconds) * spanSeconds;
  const times = timesUntil(told, spanSeconds, seconds / spanSeconds);
  const byEnd = new Map(spans.map((span) => [span.start + spanSeconds, span]));
  const line = (name: string, color: string, value: (stats: AccountStats) => number): Series => ({
    name,
    color,
    values: times.map((time) => {
      const span = byEnd.get(time);
      return span === undefined ? 0 : value(span) / spanSeconds;
    }),
  });
  const common = { times, seconds };
  return (
    <div class="charts">
      <Chart
        {...common}
        title="Calls"
        unit="per second"
        format={short}
        series={[line('calls', '--series-1', ({ calls }) => calls)]}
      />
      <Chart
        {...common}
        title="Tokens"
        unit="per second"
        format={short}
        series={[
          line('prompt', '--series-1', ({ prompt_tokens: prompt }) => prompt),
          line('completion', '--series-5', ({ completion_tokens: completion }) => completion),
        ]}
      />
      <Chart
        {...common}
        title="Spend"
        unit="per hour, at this pace"
        format={roughMoney}
        series={[line('spend', '--series-1', ({ cost }) => Number(cost) * SECONDS_PER_HOUR)]}
      />
    </div>
  );
}

/*
 * The last day of an account, hour by hour, from the books. Browser.
 */

const HOUR_SECONDS = 3_600;
const HOURS = 24;
/** The books are a second behind; the chart has hours. */
const HOURS_REFRESH_MS = 30_000;

export function AccountHours({ account }: { readonly account: string }) {
  const thisHour = Math.floor(Date.now() / 1_000 / HOUR_SECONDS) * HOUR_SECONDS;
  const times = timesUntil(thisHour, HOUR_SECONDS, HOURS);
  const place = `/usage${queryOf({ account, by: 'hour', from: times[0] })}`;
  const { answer, problem: error } = usePolled<List<UsageLine>>(place, HOURS_REFRESH_MS);
  const lines = answer?.data;
  const valuesOf = (value: (line: UsageLine) => number): number[] =>
    times.map((time) => {
      const line = lines?.find(({ hour }) => hour === time);
      return line === undefined ? 0 : value(line);
    });
  const common = { times, seconds: (HOURS - 1) * HOUR_SECONDS, barSeconds: HOUR_SECONDS };
  return (
    <section>
      <h3>Last 24 hours</h3>
      <ErrorText text={error} />
      {lines === undefined ? null : (
        <div class="charts">
          <Chart
            {...common}
            title="Calls"
            unit="per hour"
            format={short}
            series={[{ name: 'calls', color: '--series-1', values: valuesOf(({ calls }) => calls) }]}
          />
          <Chart
            {...common}
            title="Spend"
            unit="per hour"
            format={roughMoney}
            series={[{ name: 'cost', color: '--series-1', values: valuesOf(({ cost }) => Number(cost)) }]}
          />
        </div>
      )}
    </section>
  );
}
