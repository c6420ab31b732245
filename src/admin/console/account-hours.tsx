/**
 * The last day of an account, hour by hour, from the books. Browser.
 */
import { queryOf } from './api.js';
import { Chart } from './chart.js';
import { Problem } from './controls.js';
import { timesUntil } from './figures.js';
import { roughMoney, short } from './format.js';
import { usePolled } from './polled.js';
import type { List, UsageLine } from './views.js';

const HOUR_SECONDS = 3_600;
const HOURS = 24;
/** The books are a second behind; the chart has hours. */
const REFRESH_MS = 30_000;

export function AccountHours({ account }: { readonly account: string }) {
  const thisHour = Math.floor(Date.now() / 1_000 / HOUR_SECONDS) * HOUR_SECONDS;
  const times = timesUntil(thisHour, HOUR_SECONDS, HOURS);
  const place = `/usage${queryOf({ account, by: 'hour', from: times[0] })}`;
  const { answer, problem } = usePolled<List<UsageLine>>(place, REFRESH_MS);
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
      <Problem text={problem} />
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
