/**
 * The calls of accounts in the last minutes and hours: charts of one account, which accounts-page.tsx shows,
 * and a table of the busiest accounts, which overview-page.tsx shows. Browser.
 *
 * Must hold: values of one range are never shown as those of another (test/e2e/console-rules.test.ts).
 */
import { useState } from 'preact/hooks';
import type {
  AccountSpanView,
  AccountStatsView,
  BusyAccountView,
  HistoryView,
  ListView,
  UsageView,
} from '../admin/views.js';
import { queryOf } from './api.js';
import { useView } from './api-hooks.js';
import { addressOf, callsAddress } from './address.js';
import { chart, Charts, seriesMaker, timesUntil } from './chart.js';
import { ErrorText, RangeChoice } from './controls.js';
import { HOUR_SECONDS, roughMoney, shortNumber } from './format.js';
import { type Range, rangeSeconds } from './live.js';
import { Table } from './table.js';

/** A span of the range `5m` lasts two seconds, one of the other ranges ten seconds or more. */
const refreshMs = (range: Range): number => (range === '5m' ? 2_000 : 10_000);

/** `path`: `/history/accounts`, or the path of one account's history; below `/admin/v1`. */
function useAccountHistory<Row>(path: string, range: Range) {
  const { view, error } = useView<HistoryView<Row>>(`${path}?range=${range}`, refreshMs(range));
  // After a change of the range `view` is that of the former range until the new one comes.
  return { history: view?.range === range ? view : undefined, error };
}

/**
 * A span is complete 4 s after its end (REPORTING_SECONDS of telemetry/account-history.ts), and in the range
 * `5m` it is fetched up to 2 s later. So the charts end this long before now.
 */
const SPAN_DELAY_SECONDS = 6;

/** Charts of an account's calls, tokens and spend in the range that the operator chooses. */
export function AccountRangeCharts({ account }: { readonly account: string }) {
  const [range, setRange] = useState<Range>('5m');
  const path = `/accounts/${encodeURIComponent(account)}/history`;
  const { history, error } = useAccountHistory<AccountSpanView>(path, range);
  return (
    <section aria-label="Course">
      <div class="head">
        <div>
          <h3>Calls of late</h3>
          <p class="muted">While it is among the 50 accounts with most calls.</p>
        </div>
        <RangeChoice value={range} onValue={setRange} />
      </div>
      <ErrorText text={error} />
      {history !== undefined && <SpanCharts history={history} seconds={rangeSeconds(range)} />}
    </section>
  );
}

interface SpanChartsProps {
  /** The spans in which any account called. While this account was not among the busiest, its stats are 0. */
  readonly history: HistoryView<AccountSpanView>;
  /** Length of the range. */
  readonly seconds: number;
}

function SpanCharts({ history: { data, seconds: spanSeconds }, seconds }: SpanChartsProps) {
  const lastTime = Math.floor((Date.now() / 1_000 - SPAN_DELAY_SECONDS) / spanSeconds) * spanSeconds;
  const times = timesUntil(lastTime, spanSeconds, seconds / spanSeconds);
  // The value of a span is drawn at its end.
  const seriesOf = seriesMaker(times, new Map(data.map((span) => [span.start + spanSeconds, span])));
  const perSecond = (name: string, color: string, value: (stats: AccountStatsView) => number) =>
    seriesOf(name, color, (span) => value(span) / spanSeconds);
  return (
    <Charts
      times={times}
      seconds={seconds}
      charts={[
        chart('Calls', 'per second', shortNumber, [perSecond('calls', '--series-1', ({ calls }) => calls)]),
        chart('Tokens', 'per second', shortNumber, [
          perSecond('prompt', '--series-1', (stats) => stats.prompt_tokens),
          perSecond('completion', '--series-5', (stats) => stats.completion_tokens),
        ]),
        chart('Spend', 'per hour, at this pace', roughMoney, [
          perSecond('spend', '--series-1', ({ cost }) => Number(cost) * HOUR_SECONDS),
        ]),
      ]}
    />
  );
}

const HOURS = 24;
/** Slower than the other charts, because only the bar of the present hour changes. */
const HOURS_REFRESH_MS = 30_000;

/** Charts with a bar for each of the last 24 hours, from the account's usage on disk. */
export function AccountHourCharts({ account }: { readonly account: string }) {
  const thisHour = Math.floor(Date.now() / 1_000 / HOUR_SECONDS) * HOUR_SECONDS;
  const times = timesUntil(thisHour, HOUR_SECONDS, HOURS);
  const path = `/usage${queryOf({ account, by: 'hour', from: times[0] })}`;
  const { view, error } = useView<ListView<UsageView>>(path, HOURS_REFRESH_MS);
  // Every row has `hour`, because the query groups by hour.
  const seriesOf = seriesMaker(times, new Map(view?.data.map((row) => [row.hour ?? 0, row])));
  return (
    <section>
      <h3>Last 24 hours</h3>
      <ErrorText text={error} />
      {view !== undefined && (
        <Charts
          times={times}
          seconds={(HOURS - 1) * HOUR_SECONDS}
          barSeconds={HOUR_SECONDS}
          charts={[
            chart('Calls', 'per hour', shortNumber, [seriesOf('calls', '--series-1', ({ calls }) => calls)]),
            chart('Spend', 'per hour', roughMoney, [
              seriesOf('cost', '--series-1', ({ cost }) => Number(cost)),
            ]),
          ]}
        />
      )}
    </section>
  );
}

/** How many of the fifty accounts that the gateway lists are shown. The CSV has all fifty. */
const BUSY_ROWS_MAX = 10;

export function BusyAccounts({ range }: { readonly range: Range }) {
  const { history, error } = useAccountHistory<BusyAccountView>('/history/accounts', range);
  if (error !== undefined) return <ErrorText text={error} />;
  if (history === undefined) return null;
  if (history.data.length === 0) return <p class="empty">No calls in this time.</p>;
  const from = String(Math.floor(Date.now() / 1_000) - rangeSeconds(range));
  const callsOf = ({ account }: BusyAccountView): string => callsAddress({ account, from });
  return (
    <Table
      label="Busiest accounts"
      rows={history.data.slice(0, BUSY_ROWS_MAX)}
      allRows={() => ({ rows: history.data, hasMore: false })}
      keyOf={({ account }) => account}
      columns={[
        { head: 'Account', text: ({ name }) => name, href: ({ account }) => addressOf('accounts', account) },
        { head: 'Calls', figure: (stats) => stats.calls, format: shortNumber, href: callsOf },
        {
          head: 'Tokens',
          figure: (stats) => stats.prompt_tokens + stats.completion_tokens,
          format: shortNumber,
          href: callsOf,
        },
        {
          head: 'Cost',
          csvValue: ({ cost }) => cost,
          cell: (stats) => <a href={callsOf(stats)}>{roughMoney(Number(stats.cost))}</a>,
          class: 'figure',
        },
      ]}
    />
  );
}
