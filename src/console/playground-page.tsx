/**
 * The playground, which main.tsx shows: the operator chats with a model under an API key, and sees each
 * response as it streams, with its tokens, cost and time. Browser.
 *
 * Must hold: the key stays in this page's memory and is never stored in the browser
 * (test/e2e/console.test.ts).
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ListView, ModelView } from '../admin/views.js';
import { json, textOf, useView } from './api.js';
import { chat, type ChatRequest, type Message, type Outcome } from './chat-stream.js';
import { CodeSamples } from './code-samples.js';
import { Choice, ErrorText, Field, idsOf, TextField, useInput } from './controls.js';
import { costOf, milliseconds, money, number } from './format.js';

/** A message of the operator, and how the call that sent it went. */
interface Turn {
  readonly question: string;
  readonly model: string;
  readonly outcome: Outcome;
}

export function PlaygroundPage() {
  const { view, error: modelsError } = useView<ListView<ModelView>>('/models');
  const models = view?.data ?? [];
  const [error, setError] = useState<string>();
  const baseUrl = useInput();
  const key = useInput();
  const chosen = useInput();
  const system = useInput();
  const text = useInput();
  const [stream, setStream] = useState(true);
  const maxTokens = useInput();
  const temperature = useInput();
  const [turns, setTurns] = useState<readonly Turn[]>([]);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    // The console's own endpoint, outside /admin/v1: it is no part of the admin interface that programs use.
    json<{ base_url: string }>('GET', '/admin/playground').then(
      (found) => baseUrl.onValue(found.base_url),
      (reason: unknown) => setError(textOf(reason)),
    );
  }, []);

  const model = chosen.value === '' ? (models[0]?.id ?? '') : chosen.value;
  const request: ChatRequest = {
    model,
    messages: [
      ...(system.value === '' ? [] : [{ role: 'system', content: system.value } as const]),
      ...messagesOf(turns, text.value),
    ],
    ...(maxTokens.value === '' ? {} : { max_tokens: Number(maxTokens.value) }),
    ...(temperature.value === '' ? {} : { temperature: Number(temperature.value) }),
    stream,
    ...(stream ? { stream_options: { include_usage: true } } : {}),
  };
  const ask = async (): Promise<void> => {
    const question = text.value;
    const before = turns;
    const show = (outcome: Outcome): void => setTurns([...before, { question, model, outcome }]);
    setBusy(true);
    text.onValue('');
    show({ text: '' });
    // Never rejects, so the page is not left busy.
    await chat(key.value.trim(), request, show);
    setBusy(false);
  };
  return (
    <>
      <div class="head">
        <h1>Playground</h1>
        <button type="button" disabled={turns.length === 0 || busy} onClick={() => setTurns([])}>
          New conversation
        </button>
      </div>
      <ErrorText text={error ?? modelsError} />
      <div class="playground">
        <section class="card" aria-label="Call">
          <Choice label="Model" options={idsOf(models)} value={model} onValue={chosen.onValue} />
          <TextField
            label="API key"
            hint="Its limits count and its account pays. It stays in this page."
            type="password"
            placeholder="sk-…"
            {...key}
          />
          <TextField label="System message" {...system} />
          <div class="pair">
            <TextField label="Most tokens" type="number" min="1" placeholder="No bound" {...maxTokens} />
            <TextField
              label="Temperature"
              type="number"
              min="0"
              max="2"
              step="0.1"
              placeholder="1"
              {...temperature}
            />
          </div>
          <label class="check">
            <input
              type="checkbox"
              checked={stream}
              onChange={(event) => setStream(event.currentTarget.checked)}
            />
            Stream the answer
          </label>
        </section>
        <section class="card talk" aria-label="Conversation">
          <Conversation turns={turns} models={models} busy={busy} />
          <form
            onSubmit={(event) => {
              event.preventDefault();
              if (!busy) void ask();
            }}
          >
            <Field label="Message">
              {(id) => (
                <textarea
                  id={id}
                  rows={3}
                  required
                  value={text.value}
                  onInput={(event) => text.onValue(event.currentTarget.value)}
                  onKeyDown={(event) => {
                    if (event.key !== 'Enter' || event.shiftKey) return;
                    event.preventDefault();
                    event.currentTarget.form?.requestSubmit();
                  }}
                />
              )}
            </Field>
            <div class="actions">
              <small class="muted">Enter sends, Shift+Enter breaks the line.</small>
              <button type="submit" class="primary" disabled={busy || model === '' || key.value === ''}>
                Send
              </button>
            </div>
          </form>
        </section>
      </div>
      <CodeSamples baseUrl={baseUrl} request={request} />
    </>
  );
}

/**
 * The messages of the next call. While the message field is empty they are those of the last call that went
 * well, or a greeting before the first: the code samples always show a whole call.
 */
function messagesOf(turns: readonly Turn[], text: string): Message[] {
  // A turn whose call failed is not sent again: it may have no response, or part of one.
  const said = turns
    .filter(({ outcome }) => outcome.error === undefined)
    .flatMap(({ question, outcome }): Message[] => [
      { role: 'user', content: question },
      { role: 'assistant', content: outcome.text },
    ]);
  if (text !== '') return [...said, { role: 'user', content: text }];
  // Without the last response, the conversation ends with the message that was last sent.
  return said.length > 0 ? said.slice(0, -1) : [{ role: 'user', content: 'Hello!' }];
}

interface ConversationProps {
  readonly turns: readonly Turn[];
  readonly models: readonly ModelView[];
  readonly busy: boolean;
}

function Conversation({ turns, models, busy }: ConversationProps) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => box.current?.scrollTo({ top: box.current.scrollHeight }), [turns]);
  return (
    <div
      ref={box}
      class="turns"
      aria-live="polite"
      aria-busy={busy}
      tabIndex={0}
      role="log"
      aria-label="What was said"
    >
      {turns.length === 0 ? <p class="empty">Pick a model, give a key, and say something.</p> : null}
      {turns.map(({ question, model, outcome }, index) => (
        <article key={index} class="turn">
          <p class="said by-user">{question}</p>
          <p class="said by-model">
            {outcome.text}
            {busy && index === turns.length - 1 ? <i class="cursor" /> : null}
          </p>
          <ErrorText text={outcome.error} />
          <CallStats outcome={outcome} model={models.find(({ id }) => id === model)} />
        </article>
      ))}
    </div>
  );
}

interface CallStatsProps {
  readonly outcome: Outcome;
  readonly model: ModelView | undefined;
}

/** One line of the call's status, tokens, cost and times, which unfolds to the headers of its response. */
function CallStats({ outcome, model }: CallStatsProps) {
  const { status, usage, firstTokenMs, totalMs, headers } = outcome;
  if (status === undefined) return null;
  const tokens = usage && `${number(usage.prompt_tokens)} in, ${number(usage.completion_tokens)} out`;
  const facts: readonly (readonly [string, string | undefined])[] = [
    ['Status', String(status)],
    ['Tokens', tokens],
    ['Cost', usage && model && money(costOf(usage, model))],
    ['First token', firstTokenMs === undefined ? undefined : milliseconds(firstTokenMs)],
    ['Whole', totalMs === undefined ? undefined : milliseconds(totalMs)],
  ];
  return (
    <details class="taken">
      <summary>
        {facts.map(([name, value]) =>
          value === undefined ? null : (
            <span key={name}>
              {name} <b>{value}</b>
            </span>
          ),
        )}
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
