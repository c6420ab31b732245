/**
 * Usage over days or hours as charts; a day without a call has no line, and is nothing in the chart. Browser.
 */
import { Chart } from './chart.js';
import { timesUntil } from './stats.js';
import { roughMoney, short } from './format.js';
import type { UsageLine } from './views.js';

const SECONDS: Readonly<Record<'day' | 'hour', number>> = { day: 86_400, hour: 3_600 };
/** Moments of one chart: a year of hours. */
const MOMENTS_MAX = 8_784;

interface UsageChartProps {
  readonly lines: readonly UsageLine[];
  readonly by: 'day' | 'hour';
  /** Days that the chart begins and ends with; empty for those of the first and the last line. */
  readonly from: string;
  readonly to: string;
}

export function UsageChart({ lines, by, from, to }: UsageChartProps) {
  const step = SECONDS[by];
  const known = new Map(lines.map((line) => [momentOf(line), line]));
  const moments = [...known.keys()].sort((left, right) => left - right);
  const last = Math.max(moments.at(-1) ?? 0, to === '' || by === 'hour' ? 0 : secondsOf(to));
  const first = from === '' ? (moments[0] ?? 0) : Math.min(moments[0] ?? 0, secondsOf(from));
  const count = Math.min(MOMENTS_MAX, Math.round((last - first) / step) + 1);
  const times = timesUntil(last, step, count);
  const valuesOf = (value: (line: UsageLine) => number): number[] =>
    times.map((time) => {
      const line = known.get(time);
      return line === undefined ? 0 : value(line);
    });
  const common = { times, seconds: last - first, barSeconds: step, unit: `per ${by}` };
  return (
    <div class="charts">
      <Chart
        {...common}
        title="Calls"
        format={short}
        series={[
          { name: 'calls', color: '--series-1', values: valuesOf(({ calls }) => calls) },
          { name: 'failed', color: '--series-3', values: valuesOf((line) => line.failed_calls) },
        ]}
      />
      <Chart
        {...common}
        title="Tokens"
        format={short}
        series={[
          {
            name: 'all',
            color: '--series-1',
            values: valuesOf((line) => line.prompt_tokens + line.completion_tokens),
          },
          { name: 'completion', color: '--series-5', values: valuesOf((line) => line.completion_tokens) },
        ]}
      />
      <Chart
        {...common}
        title="Cost"
        format={roughMoney}
        series={[{ name: 'cost', color: '--series-1', values: valuesOf(({ cost }) => Number(cost)) }]}
      />
    </div>
  );
}

function momentOf({ day, hour }: UsageLine): number {
  return hour ?? secondsOf(day ?? '1970-01-01');
}

function secondsOf(day: string): number {
  return Date.parse(day) / 1_000;
}
