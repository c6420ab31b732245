/**
 * What was said in the playground, and what each answer took. Browser.
 */
import { useEffect, useRef } from 'preact/hooks';
import { costOf } from './call-cost.js';
import type { Outcome } from './chat-stream.js';
import { Problem } from './controls.js';
import { milliseconds, money, number } from './format.js';
import type { Turn } from './playground-page.js';
import type { Model } from './views.js';

interface ConversationProps {
  readonly turns: readonly Turn[];
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
          <Problem text={turn.outcome.problem} />
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
