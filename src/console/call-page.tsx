/**
 * The page of one call, which main.tsx shows and calls-page.tsx links to: the call from its arrival to its
 * end, what was left of each quota when the call was admitted, its attempts, its tokens and cost, the error
 * that the caller got and what to do about the error. Browser.
 *
 * Must hold: contents are requested only by a click, because the gateway logs each look at them
 * (test/e2e/console-rules.test.ts; other parts of the page: test/e2e/console-calls.test.ts).
 */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { CallView, ContentsView } from '../admin/call-routes.js';
import { ERROR_MEANINGS, type ErrorMeaning } from '../core/error-meanings.js';
import { useView } from './api-hooks.js';
import { may } from './session.js';
import { addressOf, callsAddress } from './address.js';
import { toneOfCall } from './calls-page.js';
import { Badge, Button, CopyButton, ErrorText, Icon, Money, Name, type Tile, Tiles } from './controls.js';
import { exactMoment, milliseconds, money, number, words } from './format.js';
import { ResetButton } from './upstreams-page.js';

/** `id`: the request id. */
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

/** Returns the text beside the status; empty for a call that went well. */
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
  const [isRequested, setRequested] = useState(false);
  const path = isRequested ? `/calls/${encodeURIComponent(id)}/contents` : undefined;
  const { view, error } = useView<ContentsView>(path);
  return (
    <section aria-label="Contents">
      <div class="head">
        <h2>Contents</h2>
        {isRequested ? null : <Button onClick={() => setRequested(true)}>Show request and response</Button>}
      </div>
      {isRequested ? null : <p class="muted">Shown on demand, and only if the settings keep them.</p>}
      <ErrorText text={error} />
      {view !== undefined && (
        <>
          <ContentsText title="Request" contents={view.request} />
          <ContentsText title="Response" contents={view.response} />
        </>
      )}
    </section>
  );
}

interface ContentsTextProps {
  readonly title: string;
  readonly contents: ContentsView['request'];
}

function ContentsText({ title, contents: { text, bytes, cut } }: ContentsTextProps) {
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

/** What an error means, and what an operator can do; nothing for `client_gone`, which is no error. */
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

/** Meanings are Markdown, for docs/errors.md. Removes the backquotes of code, and the addresses of links. */
const withoutMarkdown = (text: string): string =>
  text.replaceAll('`', '').replace(/\[([^[\]]+)\]\([^()]*\)/g, '$1');

/** Null numbers, such as the tokens of a call that was rejected, are shown as a dash. */
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
  const accountAddress = addressOf('accounts', account ?? '');
  const facts: readonly (readonly [string, ComponentChildren])[] = [
    ['Account', <NameLink to={accountAddress} text={call.account_name ?? account} />],
    [
      'Key',
      <NameLink to={accountAddress} text={call.key_name ?? key}>
        <a href={callsAddress({ key: key ?? '' })}>its calls</a>
      </NameLink>,
    ],
    ['Model', <NameLink to={callsAddress({ model: model ?? '' })} text={model} />],
    ...(answered === null || answered === model ? [] : [['Answered by', <Name text={answered} />] as const]),
    [
      'Upstream',
      <NameLink to={addressOf('upstreams')} text={upstream}>
        <a href={callsAddress({ upstream: upstream ?? '', failed: 'true' })}>its failed calls</a>
      </NameLink>,
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

interface NameLinkProps {
  readonly to: string;
  /** Null, as a call has for what is not known of it, is shown as a dash, without a link or the children. */
  readonly text: string | null;
  readonly children?: ComponentChildren;
}

function NameLink({ to, text, children }: NameLinkProps) {
  if (text === null) return <>–</>;
  return (
    <>
      <a href={to}>
        <Name text={text} />
      </a>{' '}
      {children}
    </>
  );
}

interface Step {
  /** Milliseconds since the call came, as `untilMs`. */
  readonly atMs: number;
  /** Undefined if the step takes no time. */
  readonly untilMs?: number;
  readonly title: string;
  /** Whether it is drawn as a failure; false by default. */
  readonly isBad?: boolean;
  readonly detail?: ComponentChildren;
}

/**
 * Returns the steps in the order of time; steps of the same moment stay in the order below. A call may wait
 * before several attempts, while its upstreams are at their limits. Only the sum of the waits is known, so
 * one wait is shown, after the admission.
 */
function stepsOf(call: CallView): Step[] {
  const {
    admitted_ms: admittedMs,
    first_token_ms: firstTokenMs,
    duration_ms: durationMs,
    queued_ms: queuedMs,
  } = call;
  const steps: Step[] = [
    { atMs: 0, title: 'Arrived', detail: exactMoment(Date.parse(call.time) - durationMs) },
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
      isBad: isFailed(attempt),
      detail: <AttemptDetail attempt={attempt} model={call.model} />,
    })),
    ...(firstTokenMs === null ? [] : [{ atMs: firstTokenMs, title: 'First token' }]),
    {
      atMs: durationMs,
      title: call.code === 'client_gone' ? 'The caller left' : 'End',
      isBad: call.code !== null,
      detail: call.code === null ? `status ${call.status}` : words(call.code),
    },
  ];
  return steps.toSorted((first, second) => first.atMs - second.atMs);
}

/** The least duration above 0 of a record. A call of 0 ms is drawn with it, to avoid a division by 0. */
const DURATION_MS_MIN = 0.001;

function Timeline({ call }: { readonly call: CallView }) {
  const durationMs = Math.max(call.duration_ms, DURATION_MS_MIN);
  const percent = (ms: number): number => Math.min(100, Math.max(0, (100 * ms) / durationMs));
  return (
    <ol class="timeline">
      {stepsOf(call).map(({ atMs, untilMs = atMs, title, isBad = false, detail }, index) => (
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
              class={isBad ? 'bad' : ''}
              style={{ left: `${percent(atMs)}%`, width: `${percent(untilMs) - percent(atMs)}%` }}
            />
          </span>
        </li>
      ))}
    </ol>
  );
}

/** Decimals of money that is left: fewer than costs of calls have, because balances and limits are larger. */
const LEFT_DECIMALS_MAX = 4;

function QuotasLeft({ quotas }: { readonly quotas: CallView['quotas'] }) {
  if (quotas.length === 0) return <>no quotas</>;
  return (
    <ul class="lines">
      {quotas.map(({ scope, id, quota, left }) => (
        <li key={`${scope} ${id} ${quota}`}>
          {typeof left === 'string' ? money(left, LEFT_DECIMALS_MAX) : number(left)} left of {words(quota)},{' '}
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

/** Whether the upstream has failed. It has not if the attempt was `cancelled`: the caller had left. */
const isFailed = ({ code }: CallView['attempts'][number]): boolean => code !== null && code !== 'cancelled';

function AttemptDetail({ attempt, model }: AttemptDetailProps) {
  const { status, code, error } = attempt;
  // ResetButton resets all upstreams of a model, because the gateway cannot reset a single one.
  const resetModel = attempt.model ?? model ?? undefined;
  return (
    <>
      {status === null ? 'no status' : `status ${status}`}
      {code === null ? '' : `, ${isFailed(attempt) ? words(code) : 'stopped, as the caller had left'}`}
      {attempt.model === null || attempt.model === model ? '' : `, model ${attempt.model}`}
      {/* The error of an upstream that sent only a status repeats that status. */}
      {error !== null && error !== `status ${status}` && <p class="said-error">{error}</p>}
      {isFailed(attempt) && <ResetButton model={resetModel} />}
    </>
  );
}
