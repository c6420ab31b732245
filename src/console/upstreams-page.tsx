/**
 * The page of upstreams, and of models with their prices, which main.tsx shows. overview-page.tsx shows the
 * table of upstreams too, and call-page.tsx the button that resets them. Browser (test/e2e/console.test.ts).
 *
 * Must hold: the counts of an upstream are compared with its own earlier counts, also after a restart, and
 * after a reload that has moved the upstream in the list. “Last failure” leads to no other call than the one
 * that failed last (test/e2e/console-numbers.test.ts).
 */
import { useState } from 'preact/hooks';
import type { ListView, ModelView, TokenPricesView } from '../admin/views.js';
import { grownBy } from '../telemetry/history.js';
import type { UpstreamStatus } from '../telemetry/status-document.js';
import { post } from './api.js';
import { useAction, useView } from './api-hooks.js';
import { may } from './session.js';
import { callAddress, callsAddress } from './address.js';
import { Badge, Button, ErrorText, type Tone } from './controls.js';
import { ago, isoOf, moment, number, shortNumber, words } from './format.js';
import type { Snapshot } from './live.js';
import { Table } from './table.js';

export function UpstreamsPage({ snapshots }: { readonly snapshots: readonly Snapshot[] }) {
  const models = useView<ListView<ModelView>>('/models');
  return (
    <>
      <div class="head">
        <h1>Upstreams</h1>
        <ResetButton />
      </div>
      <ErrorText text={models.error} />
      <UpstreamTable snapshots={snapshots} />
      <p class="muted">
        An upstream that fails too often is not called for a while, then tried with single calls, then healthy
        again.
      </p>
      <section>
        <h2>Last errors</h2>
        <ErrorTable upstreams={snapshots.at(-1)?.upstreams ?? []} />
      </section>
      <section>
        <h2>Models</h2>
        <Table
          label="Models"
          rows={models.view?.data ?? []}
          keyOf={({ id }) => id}
          columns={[
            { head: 'Model', text: ({ id }) => id },
            { head: 'Owned by', text: (model) => model.owned_by },
            { head: 'Other names', text: ({ aliases }) => aliases.join(', ') },
            { head: 'Serves', text: ({ serves }) => serves.join(', ') },
            ...PRICE_PARTS.map(([part, head]) => ({ head, money: ({ price }: ModelView) => price[part] })),
            {
              head: 'Long prompts',
              csvValue: (model) => longPricesOf(model).join('; '),
              cell: (model) => longPricesOf(model).map((text) => <div key={text}>{text}</div>),
            },
            { head: 'Call', money: ({ price }) => price.call },
            { head: 'Cached response', money: ({ price }) => price.cached_response },
            { head: 'Most tokens', figure: (model) => model.max_output_tokens },
          ]}
        />
        <p class="muted">Prices are per million tokens; that of a call is added to those of its tokens.</p>
      </section>
    </>
  );
}

/** The parts of a price in the order of their columns, and the heads of these. */
const PART_HEADS: Readonly<Record<keyof TokenPricesView, string>> = {
  input: 'Input',
  cached_input: 'Cached input',
  cache_write: 'Cache write',
  cache_write_1h: 'For 1 h',
  output: 'Output',
  reasoning: 'Reasoning',
};
const PRICE_PARTS = Object.entries(PART_HEADS) as [keyof TokenPricesView, string][];

/** Returns a text for each long price, with all of its parts. */
function longPricesOf({ price: { long } }: ModelView): string[] {
  return long.map((prices) => {
    const texts = PRICE_PARTS.map(([part, head]) => `${head.toLowerCase()} ${prices[part]}`);
    return `above ${number(prices.above)}: ${texts.join(', ')}`;
  });
}

/** Resets the breakers of the model's upstreams, or of all: calls go to them again at once. */
export function ResetButton({ model }: { readonly model?: string | undefined }) {
  const [isDone, setDone] = useState(false);
  const { error, isBusy, run } = useAction(async () => {
    setDone(false);
    await post('/upstreams/reset', model === undefined ? {} : { model });
    setDone(true);
  });
  if (!may('upstreams')) return null;
  return (
    <div class="marks">
      <Button disabled={isBusy} onClick={() => run()}>
        {model === undefined ? 'Call all again now' : 'Call again now'}
      </Button>
      <span role="status">{isDone ? 'Done: called again.' : ''}</span>
      <ErrorText text={error} />
    </div>
  );
}

/** The last errors of all upstreams, newest first. */
function ErrorTable({ upstreams }: { readonly upstreams: readonly UpstreamStatus[] }) {
  const rows = upstreams
    .flatMap(({ model, name, last_errors: errors }) => errors.map((error) => ({ model, name, ...error })))
    .sort((first, second) => second.at - first.at);
  if (rows.length === 0) return <p class="empty">No errors since the start.</p>;
  return (
    <Table
      label="Last errors"
      rows={rows}
      keyOf={(row, index) => `${row.request_id} ${row.name} ${index}`}
      columns={[
        { head: 'When', seconds: ({ at }) => at },
        { head: 'Model', text: ({ model }) => model },
        { head: 'Upstream', text: ({ name }) => name },
        { head: 'Kind', text: ({ kind }) => words(kind) },
        { head: 'Status', figure: ({ status }) => status },
        {
          head: 'Call',
          csvValue: (row) => row.request_id,
          cell: ({ request_id: id }) => (
            <a href={callAddress(id)}>
              <code>{id}</code>
            </a>
          ),
        },
        { head: 'Error', csvValue: ({ error }) => error, cell: ({ error }) => error ?? '–', class: 'value' },
      ]}
    />
  );
}

const STATES: Readonly<Record<UpstreamStatus['breaker'], readonly [Tone, string]>> = {
  closed: ['good', 'Healthy'],
  half_open: ['warn', 'Being tried'],
  open: ['bad', 'Not called'],
};

interface UpstreamRow {
  /** Its status in the newest snapshot. */
  readonly upstream: UpstreamStatus;
  /** Counted since the oldest snapshot, as `failures`. */
  readonly attempts: number;
  readonly failures: number;
}

/**
 * Returns tone and text of a badge: the state of the breaker, or the share of failed attempts if the breaker
 * is closed and attempts have failed. `seconds`: between the oldest and the newest snapshot.
 */
function stateOf({ upstream, attempts, failures }: UpstreamRow, seconds: number): readonly [Tone, string] {
  if (upstream.breaker !== 'closed' || failures <= 0) return STATES[upstream.breaker];
  const tone = 2 * failures >= attempts ? 'bad' : 'warn';
  return [
    tone,
    `${shortNumber(failures)} of ${shortNumber(attempts)} failed in ${number(Math.round(seconds))} s`,
  ];
}

/** Attempts are shown as calls, because an upstream sees each attempt as a call. */
export function UpstreamTable({ snapshots }: { readonly snapshots: readonly Snapshot[] }) {
  const oldest = snapshots[0];
  const newest = snapshots.at(-1);
  const seconds = (newest?.atSeconds ?? 0) - (oldest?.atSeconds ?? 0);
  const rows = (newest?.upstreams ?? []).map((upstream): UpstreamRow => {
    // Compared by name and not by position, because a reload adds, removes and reorders upstreams.
    const isSame = ({ model, name }: UpstreamStatus): boolean =>
      model === upstream.model && name === upstream.name;
    const earlier = oldest?.upstreams.find(isSame) ?? upstream;
    const attempts = grownBy(earlier.attempts, upstream.attempts);
    return { upstream, attempts, failures: grownBy(earlier.failures, upstream.failures) };
  });
  return (
    <Table
      label="Upstreams"
      rows={rows}
      keyOf={({ upstream: { model, name } }, index) => `${model} ${name} ${index}`}
      columns={[
        { head: 'Model', text: ({ upstream }) => upstream.model },
        { head: 'Upstream', text: ({ upstream }) => upstream.name },
        {
          head: 'State',
          csvValue: (row) => stateOf(row, seconds)[1],
          cell: (row) => {
            const [tone, text] = stateOf(row, seconds);
            return (
              <>
                <Badge tone={tone}>{text}</Badge>{' '}
                {row.upstream.breaker !== 'closed' && <ResetButton model={row.upstream.model} />}
              </>
            );
          },
        },
        { head: 'In flight', figure: ({ upstream }) => upstream.calls_in_flight, format: shortNumber },
        {
          head: 'Limits',
          csvValue: ({ upstream }) => limitsOf(upstream).join('; '),
          cell: ({ upstream }) => limitsOf(upstream).map((text) => <div key={text}>{text}</div>),
        },
        { head: 'Waiting', figure: ({ upstream }) => upstream.waiting_calls, format: shortNumber },
        { head: 'Calls/s', figure: ({ attempts }) => (seconds > 0 ? attempts / seconds : null) },
        {
          head: 'Calls',
          figure: ({ upstream }) => upstream.attempts,
          format: shortNumber,
          href: ({ upstream }) => callsAddress({ upstream: upstream.name, model: upstream.model }),
        },
        {
          head: 'Failed',
          figure: ({ upstream }) => upstream.failures,
          format: shortNumber,
          href: ({ upstream }) =>
            callsAddress({ upstream: upstream.name, model: upstream.model, failed: 'true' }),
        },
        {
          head: 'Last failure',
          csvValue: ({ upstream: { last_failure: failure } }) =>
            failure === null ? null : `${words(failure.kind)}, ${isoOf(failure.at)}`,
          cell: ({ upstream }) => <LastFailure upstream={upstream} />,
        },
        { head: 'Priority', figure: ({ upstream }) => upstream.priority },
        { head: 'Weight', figure: ({ upstream }) => upstream.weight },
      ]}
    />
  );
}

function limitsOf({ quotas }: UpstreamStatus): string[] {
  return quotas.map(({ quota, limit, used }) => `${words(quota)}: ${number(used)} of ${number(limit)}`);
}

/** By how much the moment of a failure in the metrics may differ from that of its error: both are rounded. */
const SAME_MOMENT_SECONDS = 1;

/** A link to the call whose attempt failed last, once that call has ended: then its error is listed. */
function LastFailure({ upstream }: { readonly upstream: UpstreamStatus }) {
  const { last_failure: failure, last_errors: errors } = upstream;
  if (failure === null) return <>–</>;
  const content = (
    <span title={moment(failure.at)}>
      {words(failure.kind)}, {ago(failure.at, Date.now())}
    </span>
  );
  const lastError = errors.find(
    ({ kind, at }) => kind === failure.kind && Math.abs(at - failure.at) <= SAME_MOMENT_SECONDS,
  );
  return lastError === undefined ? content : <a href={callAddress(lastError.request_id)}>{content}</a>;
}
