/**
 * What was called and what it cost, from the books: as a chart, as a table, as CSV. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import { get, queryOf, textOf } from './api.js';
import { Choice, ErrorText, TextField } from './controls.js';
import { UsageChart } from './usage-chart.js';
import { UsageTable } from './usage-table.js';
import type { List, Model, UsageLine } from './views.js';

export const USAGE_GROUPS = ['day', 'hour', 'model', 'account', 'key'] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

const DAY_MS = 86_400_000;
/** Between two keystrokes of somebody who types. */
const TYPING_MS = 250;

interface Question {
  readonly by: UsageGroup;
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
  const [models, setModels] = useState<readonly Model[]>([]);
  const [lines, setLines] = useState<readonly UsageLine[]>();
  const [next, setNext] = useState<string | null>(null);
  const [problem, setError] = useState<string>();
  const { by, from, to, model, account, key } = question;
  const change = (part: Partial<Question>): void => setQuestion({ ...question, ...part });

  const load = async (cursor: string | undefined, before: readonly UsageLine[]): Promise<void> => {
    const page = await get<List<UsageLine>>(`/usage${queryOf({ ...question, cursor })}`);
    setLines([...before, ...page.data]);
    setNext(page.next);
    setError(undefined);
  };
  const tell = (error: unknown): void => setError(textOf(error));
  useEffect(() => {
    const timer = setTimeout(() => void load(undefined, []).catch(tell), lines === undefined ? 0 : TYPING_MS);
    return () => clearTimeout(timer);
  }, [question]);
  useEffect(() => {
    get<List<Model>>('/models').then(({ data }) => setModels(data), tell);
  }, []);

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
          options={USAGE_GROUPS.map((group) => [group, group] as const)}
          onChoice={(group) => change({ by: USAGE_GROUPS.find((known) => known === group) ?? 'day' })}
        />
        <TextField label="From (UTC)" type="date" value={from} onText={(text) => change({ from: text })} />
        <TextField label="To (UTC)" type="date" value={to} onText={(text) => change({ to: text })} />
        <Choice
          label="Model"
          value={model}
          options={[['', 'All'], ...models.map(({ id }) => [id, id] as const)]}
          onChoice={(id) => change({ model: id })}
        />
        <TextField
          label="Account"
          placeholder="Id or name"
          value={account}
          onText={(text) => change({ account: text.trim() })}
        />
        <TextField
          label="Key"
          placeholder="Id or name"
          value={key}
          onText={(text) => change({ key: text.trim() })}
        />
      </div>
      <ErrorText text={problem} />
      {lines === undefined || problem !== undefined ? null : lines.length === 0 ? (
        <p class="empty">No calls in this time.</p>
      ) : (
        <>
          {by === 'day' || by === 'hour' ? <UsageChart lines={lines} by={by} from={from} to={to} /> : null}
          <UsageTable lines={lines} by={by} />
          {next === null ? null : (
            <button type="button" onClick={() => void load(next, lines).catch(tell)}>
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
