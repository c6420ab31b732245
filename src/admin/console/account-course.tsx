/**
 * What an account calls, as it moves: from the last five minutes to the last day. Browser.
 */
import { useState } from 'preact/hooks';
import { useAccountHistory } from './account-history.js';
import { Chart, type Series } from './chart.js';
import { Problem } from './controls.js';
import { timesUntil } from './figures.js';
import { roughMoney, short } from './format.js';
import { RangeChoice } from './range-choice.js';
import { RANGE_SECONDS, type AccountFigures, type CourseSpan, type Range } from './views.js';

const SECONDS_PER_HOUR = 3_600;
/** The gateway sums a span up so long after its end. */
const TOLD_AFTER_SECONDS = 6;

export function AccountCourse({ account }: { readonly account: string }) {
  const [range, setRange] = useState<Range>('5m');
  const place = `/accounts/${encodeURIComponent(account)}/history`;
  const { history, problem } = useAccountHistory<CourseSpan>(place, range);
  return (
    <section aria-label="Course">
      <div class="head">
        <div>
          <h3>Calls of late</h3>
          <p class="muted">While it is among the 50 accounts with most calls.</p>
        </div>
        <RangeChoice value={range} onChoice={setRange} />
      </div>
      <Problem text={problem} />
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
  const line = (name: string, color: string, value: (figures: AccountFigures) => number): Series => ({
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
