/**
 * How the upstreams are, and the models with their prices. The overview shows the table of upstreams too.
 * Browser.
 */
import { useState } from 'preact/hooks';
import type { ListView, ModelView } from '../admin/views.js';
import type { UpstreamStatus } from '../telemetry/status-document.js';
import { post, useAction, useView } from './api.js';
import { Badge, ErrorText, Money, Name, type Tone } from './controls.js';
import { ago, moment, number, short, words } from './format.js';
import type { Snapshot } from './live.js';
import { Table } from './table.js';

export function UpstreamsPage({ snapshots }: { readonly snapshots: readonly Snapshot[] }) {
  const models = useView<ListView<ModelView>>('/models');
  const [done, setDone] = useState(false);
  const { error, busy, run } = useAction(async () => {
    setDone(false);
    await post('/upstreams/reset');
    setDone(true);
  });
  return (
    <>
      <div class="head">
        <h1>Upstreams</h1>
        <button type="button" disabled={busy} onClick={() => run()}>
          Call all again now
        </button>
      </div>
      <ErrorText text={error ?? models.error} />
      <p role="status">{done ? 'Done: all upstreams are called again.' : ''}</p>
      <UpstreamTable snapshots={snapshots} />
      <p class="muted">
        An upstream that fails too often is not called for a while, then tried with single calls, then healthy
        again.
      </p>
      <section>
        <h2>Models</h2>
        <Table
          label="Models"
          rows={models.view?.data ?? []}
          keyOf={({ id }) => id}
          columns={[
            ['Model', ({ id }) => <Name text={id} />],
            ['Owned by', (model) => <Name text={model.owned_by} />],
            ['Other names', ({ aliases }) => (aliases.length === 0 ? '–' : aliases.join(', '))],
            ['Input', ({ price }) => <Money amount={price.input} />, 'figure'],
            ['Cached input', ({ price }) => <Money amount={price.cached_input} />, 'figure'],
            ['Cache write', ({ price }) => <Money amount={price.cache_write} />, 'figure'],
            ['For 1 h', ({ price }) => <Money amount={price.cache_write_1h} />, 'figure'],
            ['Output', ({ price }) => <Money amount={price.output} />, 'figure'],
            ['Reasoning', ({ price }) => <Money amount={price.reasoning} />, 'figure'],
            ['Call', ({ price }) => <Money amount={price.call} />, 'figure'],
            ['Most tokens', (model) => number(model.max_output_tokens), 'figure'],
          ]}
        />
        <p class="muted">Prices are per million tokens; that of a call is added to those of its tokens.</p>
      </section>
    </>
  );
}

const STATES: Readonly<Record<UpstreamStatus['breaker'], readonly [Tone, string]>> = {
  closed: ['good', 'Healthy'],
  half_open: ['warn', 'Being tried'],
  open: ['bad', 'Not called'],
};

/** An upstream now, and what came since the first snapshot. */
interface UpstreamRow {
  readonly now: UpstreamStatus;
  readonly attempts: number;
  readonly failures: number;
}

/** What the breaker says; if it lets calls through, how those of the last seconds went. */
function stateOf({ now, attempts, failures }: UpstreamRow, seconds: number): readonly [Tone, string] {
  if (now.breaker !== 'closed' || failures <= 0) return STATES[now.breaker];
  const tone = 2 * failures >= attempts ? 'bad' : 'warn';
  return [tone, `${short(failures)} of ${short(attempts)} failed in ${number(Math.round(seconds))} s`];
}

export function UpstreamTable({ snapshots }: { readonly snapshots: readonly Snapshot[] }) {
  const first = snapshots[0];
  const last = snapshots.at(-1);
  const seconds = (last?.atSeconds ?? 0) - (first?.atSeconds ?? 0);
  const rows = (last?.upstreams ?? []).map((now, index): UpstreamRow => {
    const then = first?.upstreams[index];
    const before = then?.name === now.name ? then : now;
    return { now, attempts: now.attempts - before.attempts, failures: now.failures - before.failures };
  });
  return (
    <Table
      label="Upstreams"
      rows={rows}
      keyOf={({ now: { model, name } }, index) => `${model} ${name} ${index}`}
      columns={[
        ['Model', ({ now }) => <Name text={now.model} />],
        ['Upstream', ({ now }) => <Name text={now.name} />],
        [
          'State',
          (row) => {
            const [tone, text] = stateOf(row, seconds);
            return <Badge tone={tone}>{text}</Badge>;
          },
        ],
        ['In flight', ({ now }) => short(now.calls_in_flight), 'figure'],
        ['Limits', ({ now }) => <Limits of={now} />],
        ['Waiting', ({ now }) => short(now.waiting_calls), 'figure'],
        ['Calls/s', ({ attempts }) => (seconds > 0 ? number(attempts / seconds) : '–'), 'figure'],
        ['Calls', ({ now }) => short(now.attempts), 'figure'],
        ['Failed', ({ now }) => short(now.failures), 'figure'],
        ['Last failure', ({ now }) => <LastFailure of={now} />],
        ['Priority', ({ now }) => now.priority, 'figure'],
        ['Weight', ({ now }) => now.weight, 'figure'],
      ]}
    />
  );
}

function Limits({ of: { quotas } }: { readonly of: UpstreamStatus }) {
  if (quotas.length === 0) return <>–</>;
  return (
    <>
      {quotas.map(({ quota, limit, used }) => (
        <div key={quota}>
          {words(quota)}: {number(used)} of {number(limit)}
        </div>
      ))}
    </>
  );
}

function LastFailure({ of: { last_failure: last } }: { readonly of: UpstreamStatus }) {
  if (last === null) return <>–</>;
  return (
    <span title={moment(last.at)}>
      {words(last.kind)}, {ago(last.at, Date.now())}
    </span>
  );
}
