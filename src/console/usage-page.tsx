/**
 * The page of usage: calls, tokens and cost from the usage on disk, filtered and grouped, as charts, as a
 * table and as CSV. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import type { ListView, ModelView, UsageView } from '../admin/views.js';
import { get, queryOf, textOf, useView } from './api.js';
import { addressOf } from './browser.js';
import { chart, Charts, linesOf, timesUntil } from './chart.js';
import { Choice, ErrorText, idsOf, Money, Name, TextField } from './controls.js';
import { moment, number, roughMoney, short, sumOfMoney } from './format.js';
import { type Column, Table } from './table.js';

const GROUPS = ['day', 'hour', 'model', 'account', 'key'] as const;
type Group = (typeof GROUPS)[number];

const DAY_MS = 86_400_000;
/** How long the page waits for the next keystroke before it asks. */
const TYPING_MS = 250;

interface Question {
  readonly by: Group;
  /** Days (UTC); empty for no bound. */
  readonly from: string;
  readonly to: string;
  readonly model: string;
  /** Ids or names. */
  readonly account: string;
  readonly key: string;
}

export function UsagePage() {
  const [question, setQuestion] = useState<Question>(() => ({
    by: 'day',
    from: dayOf(Date.now() - 29 * DAY_MS),
    to: dayOf(Date.now()),
    model: '',
    account: '',
    key: '',
  }));
  const models = useView<ListView<ModelView>>('/models');
  const [lines, setLines] = useState<readonly UsageView[]>();
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<string>();
  const { by } = question;
  const inputOf = (name: Exclude<keyof Question, 'by'>) => ({
    value: question[name],
    onValue: (text: string): void => setQuestion({ ...question, [name]: text.trim() }),
  });

  const load = async (cursor: string | undefined, before: readonly UsageView[]): Promise<void> => {
    try {
      const page = await get<ListView<UsageView>>(`/usage${queryOf({ ...question, cursor })}`);
      setLines([...before, ...page.data]);
      setNext(page.next);
      setError(undefined);
    } catch (reason) {
      setError(textOf(reason));
    }
  };
  useEffect(() => {
    const timer = setTimeout(() => void load(undefined, []), lines === undefined ? 0 : TYPING_MS);
    return () => clearTimeout(timer);
  }, [question]);

  return (
    <>
      <div class="head">
        <h1>Usage</h1>
        <a
          class="button"
          href={`/admin/v1/usage${queryOf({ ...question, format: 'csv' })}`}
          download={`usage-by-${by}.csv`}
        >
          Download CSV
        </a>
      </div>
      <div class="filters">
        <Choice
          label="Lines by"
          value={by}
          options={GROUPS}
          onValue={(group) => setQuestion({ ...question, by: GROUPS.find((one) => one === group) ?? 'day' })}
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
      <ErrorText text={error ?? models.error} />
      {lines === undefined || error !== undefined ? null : lines.length === 0 ? (
        <p class="empty">No calls in this time.</p>
      ) : (
        <>
          {by === 'day' || by === 'hour' ? <UsageCharts {...question} lines={lines} by={by} /> : null}
          <UsageTable lines={lines} by={by} />
          {next === null ? null : (
            <button type="button" onClick={() => void load(next, lines)}>
              Show more
            </button>
          )}
        </>
      )}
    </>
  );
}

/** `2025-01-31`, UTC. */
function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, '2025-01-31'.length);
}

function secondsOf(day: string): number {
  return Date.parse(day) / 1_000;
}

const STEP_SECONDS = { day: 86_400, hour: 3_600 } as const;
/** The most times of one chart: the hours of a year of 366 days. */
const TIMES_MAX = 8_784;

interface UsageChartsProps {
  readonly lines: readonly UsageView[];
  readonly by: 'day' | 'hour';
  /** The first and the last day of the filter; empty: those of the rows. */
  readonly from: string;
  readonly to: string;
}

/** A day or hour without a call has no row, and is 0 in the charts. */
function UsageCharts({ lines, by, from, to }: UsageChartsProps) {
  const step = STEP_SECONDS[by];
  // By the Unix seconds at which the day or hour begins.
  const known = new Map(lines.map((line) => [line.hour ?? secondsOf(line.day ?? '1970-01-01'), line]));
  const moments = [...known.keys()].sort((left, right) => left - right);
  // By day the chart reaches to the day `to`. By hour it ends with the last hour that had a call: `to`
  // is a day, by default today, and not all of its hours have begun.
  const last = Math.max(moments.at(-1) ?? 0, to === '' || by === 'hour' ? 0 : secondsOf(to));
  const first = from === '' ? (moments[0] ?? 0) : Math.min(moments[0] ?? 0, secondsOf(from));
  const count = Math.min(TIMES_MAX, Math.round((last - first) / step) + 1);
  const times = timesUntil(last, step, count);
  const line = linesOf(times, known);
  const unit = `per ${by}`;
  return (
    <Charts
      times={times}
      seconds={last - first}
      barSeconds={step}
      charts={[
        chart('Calls', unit, short, [
          line('calls', '--series-1', ({ calls }) => calls),
          line('failed', '--series-3', (usage) => usage.failed_calls),
        ]),
        chart('Tokens', unit, short, [
          line('all', '--series-1', (usage) => usage.prompt_tokens + usage.completion_tokens),
          line('completion', '--series-5', (usage) => usage.completion_tokens),
        ]),
        chart('Cost', unit, roughMoney, [line('cost', '--series-1', ({ cost }) => Number(cost))]),
      ]}
    />
  );
}

interface UsageTableProps {
  readonly lines: readonly UsageView[];
  readonly by: Group;
}

/** The last row has the sums. A bar in each row compares its cost with the highest cost of a row. */
function UsageTable({ lines, by }: UsageTableProps) {
  const most = Math.max(...lines.map(({ cost }) => Number(cost)));
  // A column of counts with their sum. `figure` is the class of columns of numbers, see `Column`.
  const counts = (head: string, count: (line: UsageView) => number): Column<UsageView> => {
    const sum = lines.reduce((total, line) => total + count(line), 0);
    return [head, (line) => number(count(line)), 'figure', number(sum)];
  };
  const sum = sumOfMoney(lines.map(({ cost }) => cost));
  return (
    <Table
      label="Usage"
      rows={lines}
      keyOf={idOf}
      columns={[
        // In the last row this column says `Sum`.
        [by === 'day' ? 'day (UTC)' : by, (line) => <LineName line={line} />, undefined, 'Sum'],
        counts('Calls', ({ calls }) => calls),
        counts('Failed', (line) => line.failed_calls),
        counts('Prompt tokens', (line) => line.prompt_tokens),
        counts('Cached', (line) => line.cached_tokens),
        counts('Completion tokens', (line) => line.completion_tokens),
        ['Cost', ({ cost }) => <Money amount={cost} />, 'figure', <Money amount={sum} />],
        [
          { hidden: 'Share of the cost' },
          ({ cost }) => (
            <i class="share" style={{ width: `${most > 0 ? (100 * Number(cost)) / most : 0}%` }} />
          ),
          'share-cell',
        ],
      ]}
    />
  );
}

/** What the row is grouped by, to read: of an account or key the name, or the id if it was deleted. */
function LineName({ line }: { readonly line: UsageView }) {
  const { account, key, hour } = line;
  if (account !== undefined) {
    return (
      <a href={addressOf('accounts', account)}>
        <Name text={line.account_name ?? account} />
      </a>
    );
  }
  if (hour !== undefined) return <>{moment(hour)}</>;
  return <Name text={(key === undefined ? undefined : line.key_name) ?? idOf(line)} />;
}

/** What the row is grouped by: the one of these members that it has. */
function idOf({ account, key, model, day, hour }: UsageView): string {
  return account ?? key ?? model ?? day ?? String(hour);
}
