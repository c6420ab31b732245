/**
 * The page of one call, which calls-page.tsx opens: from its arrival to its end, what was left of each quota
 * when it was admitted, its attempts, its tokens and cost, the error that the caller got and what to do about
 * it. Browser.
 *
 * Must hold: contents are requested only by a click, because the gateway logs each look at them. Test:
 * test/e2e/console-calls.test.ts, which clicks, but does not see an earlier request.
 */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { CallView, ContentsView } from '../admin/call-routes.js';
import { ERROR_MEANINGS, type ErrorMeaning } from '../core/error-meanings.js';
import { may, useView } from './api.js';
import { addressOf, callsAddress } from './browser.js';
import { toneOfCall } from './calls-page.js';
import { Badge, Button, CopyButton, ErrorText, Icon, Money, Name } from './controls.js';
import { exactMoment, milliseconds, money, number, words } from './format.js';
import { type Tile, Tiles } from './table.js';
import { ResetButton } from './upstreams-page.js';

export function CallPage({ id }: { readonly id: string }) {
  const { view: call, error, reload } = useView<CallView>(`/calls/${encodeURIComponent(id)}`);
  return (
    <>
      <p>
        <a class="back-link" href={addressOf('calls')}>
          <Icon name="back" /> All calls
        </a>
      </p>
      <div class="head">
        <h1>Call</h1>
        {error !== undefined && <Button onClick={reload}>Look again</Button>}
      </div>
      <p class="marks">
        <code>{id}</code>
        <CopyButton text={id} noun="the request’s id" />
        {call !== undefined && (
          <Badge tone={toneOfCall(call)}>
            {call.status} {outcomeOf(call)}
          </Badge>
        )}
      </p>
      <ErrorText text={error} />
      {call !== undefined && <CallDetails call={call} />}
    </>
  );
}

/** Stands beside the status, which is null if the caller left before there was one. */
function outcomeOf({ code }: CallView): string {
  if (code === null) return '';
  return code === 'client_gone' ? 'The caller left' : words(code);
}

function CallDetails({ call }: { readonly call: CallView }) {
  return (
    <>
      {call.error !== null && (
        <section aria-label="Error">
          <h2>What the caller was told</h2>
          <p class="notice bad">{call.error}</p>
          <Advice code={call.code} />
        </section>
      )}
      <Tiles label="The call" isSmall tiles={tilesOf(call)} />
      <dl class="facts">{factsOf(call)}</dl>
      <section>
        <h2>Course</h2>
        <Timeline call={call} />
      </section>
      {may('contents') && <Contents id={call.request_id} />}
    </>
  );
}

/** The contents of the call, once an operator asks for them. */
function Contents({ id }: { readonly id: string }) {
  const [wanted, setWanted] = useState(false);
  const path = wanted ? `/calls/${encodeURIComponent(id)}/contents` : undefined;
  const { view, error } = useView<ContentsView>(path);
  return (
    <section aria-label="Contents">
      <div class="head">
        <h2>Contents</h2>
        {wanted ? null : <Button onClick={() => setWanted(true)}>Show request and response</Button>}
      </div>
      {wanted ? null : <p class="muted">Shown on demand, and only if the settings keep them.</p>}
      <ErrorText text={error} />
      {view !== undefined && (
        <>
          <ContentsText title="Request" shown={view.request} />
          <ContentsText title="Response" shown={view.response} />
        </>
      )}
    </section>
  );
}

function ContentsText({ title, shown }: { readonly title: string; readonly shown: ContentsView['request'] }) {
  const { text, bytes, cut } = shown;
  return (
    <>
      <h3>
        {title}{' '}
        <span class="muted">
          {number(bytes)} bytes{cut ? ', of which the beginning is kept' : ''}
        </span>
      </h3>
      <pre class="contents" tabIndex={0} aria-label={title}>
        {text}
      </pre>
    </>
  );
}

/** What an error means, and what an operator can do about it. ERROR_MEANINGS does not have `client_gone`. */
function Advice({ code }: { readonly code: string | null }) {
  const meanings: Readonly<Record<string, ErrorMeaning>> = ERROR_MEANINGS;
  if (code === null || !Object.hasOwn(meanings, code)) return null;
  const { when, operator } = meanings[code]!;
  return (
    <p class="muted">
      {withoutMarkdown(when)} {operator === null ? '' : withoutMarkdown(operator)}
    </p>
  );
}

/** Removes the marks of code, and of a link all but its words. */
const withoutMarkdown = (text: string): string =>
  text.replaceAll('`', '').replace(/\[([^[\]]+)\]\([^()]*\)/g, '$1');

function tilesOf(call: CallView): Tile[] {
  const { cost, prompt_tokens: prompt, cached_tokens: cached, reasoning_tokens: reasoning } = call;
  const tokens = (count: number | null): string => (count === null ? '–' : number(count));
  return [
    ['Duration', milliseconds(call.duration_ms), `ended ${exactMoment(Date.parse(call.time))}`],
    ['First token', milliseconds(call.first_token_ms), call.stream ? 'of the stream' : 'not streamed'],
    ['Prompt', tokens(prompt), cached === null ? 'not counted' : `${number(cached)} of them cached`],
    [
      'Completion',
      tokens(call.completion_tokens),
      reasoning === null ? 'not counted' : `${number(reasoning)} of them reasoning`,
    ],
    [
      'Cost',
      cost === null ? '–' : <Money amount={cost} />,
      call.source === null ? 'not charged' : `tokens ${words(call.source)}`,
    ],
  ];
}

function factsOf(call: CallView): ComponentChildren {
  const { account, key, model, answered_model: answered, upstream } = call;
  const facts: readonly (readonly [string, ComponentChildren])[] = [
    [
      'Account',
      account === null ? (
        '–'
      ) : (
        <NameLink to={addressOf('accounts', account)} text={call.account_name ?? account} />
      ),
    ],
    [
      'Key',
      key === null || account === null ? (
        '–'
      ) : (
        <>
          <NameLink to={addressOf('accounts', account)} text={call.key_name ?? key} />{' '}
          <a href={callsAddress({ key })}>its calls</a>
        </>
      ),
    ],
    ['Model', model === null ? '–' : <NameLink to={callsAddress({ model })} text={model} />],
    ...(answered === null || answered === model ? [] : [['Answered by', <Name text={answered} />] as const]),
    [
      'Upstream',
      upstream === null ? (
        '–'
      ) : (
        <>
          <NameLink to={addressOf('upstreams')} text={upstream} />{' '}
          <a href={callsAddress({ upstream, failed: 'true' })}>its failed calls</a>
        </>
      ),
    ],
    ['Route', <code>{call.route}</code>],
    ...(call.cache === null ? [] : [['Cache', call.cache] as const]),
  ];
  return facts.map(([name, value]) => (
    <div key={name}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  ));
}

function NameLink({ to, text }: { readonly to: string; readonly text: string }) {
  return (
    <a href={to}>
      <Name text={text} />
    </a>
  );
}

/** A line of the timeline. */
interface Step {
  /** After the call came; so is `untilMs`. */
  readonly atMs: number;
  /** Undefined if the step takes no time. */
  readonly untilMs?: number;
  readonly title: string;
  readonly bad?: boolean;
  readonly detail?: ComponentChildren;
}

/**
 * In the order of time; steps of the same moment stay in this order. A call may wait for room before several
 * attempts, but only the sum is known: it is shown as one wait after the admission.
 */
function stepsOf(call: CallView): Step[] {
  const { admitted_ms: admittedMs, first_token_ms: firstMs, duration_ms: endMs, queued_ms: queuedMs } = call;
  const steps: Step[] = [
    { atMs: 0, title: 'Arrived', detail: exactMoment(Date.parse(call.time) - endMs) },
    ...(admittedMs === null
      ? []
      : [{ atMs: admittedMs, title: 'Admitted', detail: <QuotasLeft quotas={call.quotas} /> }]),
    ...(queuedMs > 0
      ? [{ atMs: admittedMs ?? 0, untilMs: (admittedMs ?? 0) + queuedMs, title: 'Waited for room' }]
      : []),
    ...call.attempts.map((attempt) => ({
      atMs: attempt.start_ms,
      untilMs: attempt.start_ms + attempt.duration_ms,
      title: `Attempt on ${attempt.upstream ?? 'an upstream that is gone'}`,
      bad: isFailed(attempt),
      detail: <AttemptDetail attempt={attempt} model={call.model} />,
    })),
    ...(firstMs === null ? [] : [{ atMs: firstMs, title: 'First token' }]),
    {
      atMs: endMs,
      title: call.code === 'client_gone' ? 'The caller left' : 'End',
      bad: call.code !== null,
      detail: call.code === null ? `status ${call.status}` : words(call.code),
    },
  ];
  return steps.toSorted((left, right) => left.atMs - right.atMs);
}

/** So that a call of 0 ms divides nothing by 0. The records are exact to this. */
const DURATION_MS_MIN = 0.001;

function Timeline({ call }: { readonly call: CallView }) {
  const whole = Math.max(call.duration_ms, DURATION_MS_MIN);
  const percent = (ms: number): number => Math.min(100, Math.max(0, (100 * ms) / whole));
  return (
    <ol class="timeline">
      {stepsOf(call).map(({ atMs, untilMs = atMs, title, bad = false, detail }, index) => (
        <li key={index}>
          <span class="figure muted">{milliseconds(atMs)}</span>
          <div>
            <p>
              <b>{title}</b>
              {untilMs > atMs && <span class="muted"> {milliseconds(untilMs - atMs)}</span>}
            </p>
            {detail !== undefined && <div class="muted">{detail}</div>}
          </div>
          <span class="course" aria-hidden="true">
            <i
              class={bad ? 'bad' : ''}
              style={{ left: `${percent(atMs)}%`, width: `${percent(untilMs) - percent(atMs)}%` }}
            />
          </span>
        </li>
      ))}
    </ol>
  );
}

/** Fewer than prices have: what is left of a balance or of a limit of spending is a larger amount. */
const DECIMALS_LEFT = 4;

function QuotasLeft({ quotas }: { readonly quotas: CallView['quotas'] }) {
  if (quotas.length === 0) return <>no quotas</>;
  return (
    <ul class="lines">
      {quotas.map(({ scope, id, quota, left }) => (
        <li key={`${scope} ${id} ${quota}`}>
          {typeof left === 'string' ? money(left, DECIMALS_LEFT) : number(left)} left of {words(quota)},{' '}
          {scope === 'account' ? 'the account' : scope}
          {(scope === 'group' || scope === 'model') && <> {id}</>}
        </li>
      ))}
    </ul>
  );
}

interface AttemptDetailProps {
  readonly attempt: CallView['attempts'][number];
  /** The model that the caller named. */
  readonly model: string | null;
}

/** `cancelled` is no failure of the upstream: the caller had left. */
const isFailed = ({ code }: CallView['attempts'][number]): boolean => code !== null && code !== 'cancelled';

function AttemptDetail({ attempt, model }: AttemptDetailProps) {
  const { status, code, error } = attempt;
  // Resets the breakers of all upstreams of the model: the gateway knows no smaller reset.
  const resetModel = attempt.model ?? model ?? undefined;
  return (
    <>
      {status === null ? 'no status' : `status ${status}`}
      {code === null ? '' : `, ${isFailed(attempt) ? words(code) : 'stopped, as the caller had left'}`}
      {attempt.model === null || attempt.model === model ? '' : `, model ${attempt.model}`}
      {error !== null && error !== `status ${status}` && <p class="said-error">{error}</p>}
      {isFailed(attempt) && <ResetButton model={resetModel} />}
    </>
  );
}
