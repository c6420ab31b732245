/**
 * What was said in the playground, and what each response took. Browser.
 */
import { useEffect, useRef } from 'preact/hooks';
import type { Outcome, Usage } from './chat-stream.js';
import { ErrorText } from './controls.js';
import { milliseconds, money, number } from './format.js';
import type { Exchange } from './playground-page.js';
import type { Model } from './views.js';

/*
 * What a call costs, exactly, from a model's prices. Pure; browser.
 */

/** Prices have six decimals per million tokens, so a token costs whole millionths of a millionth. */
const PRICE_DECIMALS = 6;
const COST_DECIMALS = 12;

/** Decimal text. */
export function costOf(usage: Usage, { price }: Model): string {
  const cached = BigInt(usage.prompt_tokens_details?.cached_tokens ?? 0);
  const cost =
    (BigInt(usage.prompt_tokens) - cached) * picoUnits(price.input) +
    cached * picoUnits(price.cached_input) +
    BigInt(usage.completion_tokens) * picoUnits(price.output);
  const digits = cost.toString().padStart(COST_DECIMALS + 1, '0');
  return `${digits.slice(0, -COST_DECIMALS)}.${digits.slice(-COST_DECIMALS)}`;
}

function picoUnits(price: string): bigint {
  const [whole = '0', decimals = ''] = price.split('.');
  return BigInt(whole + decimals.slice(0, PRICE_DECIMALS).padEnd(PRICE_DECIMALS, '0'));
}

interface ConversationProps {
  readonly turns: readonly Exchange[];
  readonly models: readonly Model[];
  readonly busy: boolean;
}

export function Conversation({ turns, models, busy }: ConversationProps) {
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const box = end.current?.parentElement;
    if (box !== null && box !== undefined) box.scrollTop = box.scrollHeight;
  }, [turns]);
  return (
    <div class="turns" aria-live="polite" aria-busy={busy} tabIndex={0} role="log" aria-label="What was said">
      {turns.length === 0 ? <p class="empty">Pick a model, give a key, and say something.</p> : null}
      {turns.map((turn, index) => (
        <article key={index} class="turn">
          <p class="said by-user">{turn.question}</p>
          <p class="said by-model">
            {turn.outcome.text}
            {busy && index === turns.length - 1 ? <i class="cursor" /> : null}
          </p>
          <ErrorText text={turn.outcome.problem} />
          <Taken outcome={turn.outcome} model={models.find(({ id }) => id === turn.model)} />
        </article>
      ))}
      <div ref={end} />
    </div>
  );
}

function Taken({ outcome, model }: { readonly outcome: Outcome; readonly model: Model | undefined }) {
  const { status, usage, firstTokenMs, totalMs, headers } = outcome;
  if (status === undefined) return null;
  const facts: readonly (readonly [string, string])[] = [
    ['Status', String(status)],
    ...(usage === undefined
      ? []
      : ([
          ['Tokens', `${number(usage.prompt_tokens)} in, ${number(usage.completion_tokens)} out`],
          ...(model === undefined ? [] : ([['Cost', money(costOf(usage, model))]] as const)),
        ] as const)),
    ...(firstTokenMs === undefined ? [] : ([['First token', milliseconds(firstTokenMs)]] as const)),
    ...(totalMs === undefined ? [] : ([['Whole', milliseconds(totalMs)]] as const)),
  ];
  return (
    <details class="taken">
      <summary>
        {facts.map(([name, value]) => (
          <span key={name}>
            {name} <b>{value}</b>
          </span>
        ))}
      </summary>
      <dl class="headers">
        {headers?.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
