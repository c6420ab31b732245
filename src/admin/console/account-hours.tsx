/**
 * The last day of an account, hour by hour, from the books. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import { get, queryOf, wordsOf } from './api.js';
import { Chart } from './chart.js';
import { Problem } from './controls.js';
import { roughMoney, short } from './format.js';
import { RANGE_SECONDS, type List, type UsageLine } from './views.js';

const HOUR_SECONDS = 3_600;
const HOURS = 24;
/** The books are a second behind; the chart has hours. */
const REFRESH_MS = 30_000;

export function AccountHours({ account }: { readonly account: string }) {
  const [lines, setLines] = useState<readonly UsageLine[]>();
  const [problem, setProblem] = useState<string>();
  useEffect(() => {
    const load = (): void => {
      const from = Math.floor(Date.now() / 1_000) - RANGE_SECONDS['24h'];
      get<List<UsageLine>>(`/usage${queryOf({ account, by: 'hour', from })}`).then(
        ({ data }) => setLines(data),
        (error: unknown) => setProblem(wordsOf(error)),
      );
    };
    load();
    const timer = setInterval(load, REFRESH_MS);
    return () => clearInterval(timer);
  }, [account]);

  const thisHour = Math.floor(Date.now() / 1_000 / HOUR_SECONDS) * HOUR_SECONDS;
  const times = Array.from({ length: HOURS }, (_, index) => thisHour - (HOURS - 1 - index) * HOUR_SECONDS);
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
