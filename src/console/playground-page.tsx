/**
 * The playground, which main.tsx shows: the operator chats with a model under an API key, and sees each
 * response as it streams, with its tokens, cost and time; and the same request as a program would send it.
 * Browser.
 *
 * Must hold: the key stays in this page's memory, and is never stored in the browser. The code samples name a
 * variable in its place (test/e2e/console.test.ts). A call ends when the page is left
 * (test/e2e/console-pages.test.ts).
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { CallView } from '../admin/call-routes.js';
import type { ListView, ModelView } from '../admin/views.js';
import { get, requestJson, textOf, useView } from './api.js';
import { chat, type ChatRequest, type Message, type Outcome } from './chat-stream.js';
import {
  Button,
  ButtonChoice,
  Choice,
  CopyButton,
  ErrorText,
  Field,
  idsOf,
  type Input,
  TextField,
  useInput,
} from './controls.js';
import { milliseconds, money, number } from './format.js';

/** A message of the operator, and the outcome of the call that sent it. */
interface Turn {
  readonly question: string;
  readonly outcome: Outcome;
}

export function PlaygroundPage() {
  const { view, error: modelsError } = useView<ListView<ModelView>>('/models');
  const models = view?.data ?? [];
  const [error, setError] = useState<string>();
  const baseUrl = useInput();
  const key = useInput();
  /** Empty until the operator chooses a model; the first one is then used. */
  const chosenModel = useInput();
  const systemMessage = useInput();
  const question = useInput();
  const [isStream, setStream] = useState(true);
  const maxTokens = useInput();
  const temperature = useInput();
  const [turns, setTurns] = useState<readonly Turn[]>([]);
  const [isBusy, setBusy] = useState(false);
  const [leaving] = useState(() => new AbortController());
  useEffect(() => () => leaving.abort(), []);
  useEffect(() => {
    // This path is not below /admin/v1, because it is not for programs (admin/playground.ts).
    requestJson<{ base_url: string }>('GET', '/admin/playground').then(
      (view) => baseUrl.onValue(view.base_url),
      (reason: unknown) => setError(textOf(reason)),
    );
  }, []);

  const model = chosenModel.value === '' ? (models[0]?.id ?? '') : chosenModel.value;
  const request: ChatRequest = {
    model,
    messages: [
      ...(systemMessage.value === '' ? [] : [{ role: 'system', content: systemMessage.value } as const]),
      ...messagesOf(turns, question.value),
    ],
    ...(maxTokens.value === '' ? {} : { max_tokens: Number(maxTokens.value) }),
    ...(temperature.value === '' ? {} : { temperature: Number(temperature.value) }),
    stream: isStream,
    ...(isStream ? { stream_options: { include_usage: true } } : {}),
  };
  const ask = async (): Promise<void> => {
    const sentQuestion = question.value;
    const earlierTurns = turns;
    const show = (outcome: Outcome): void => setTurns([...earlierTurns, { question: sentQuestion, outcome }]);
    setBusy(true);
    question.onValue('');
    show({ text: '' });
    // `chat` never rejects, so `setBusy(false)` is reached.
    await chat(key.value.trim(), request, show, leaving.signal);
    setBusy(false);
  };
  return (
    <>
      <div class="head">
        <h1>Playground</h1>
        <Button disabled={turns.length === 0 || isBusy} onClick={() => setTurns([])}>
          New conversation
        </Button>
      </div>
      <ErrorText text={error ?? modelsError} />
      <div class="playground">
        <section class="card" aria-label="Call">
          <Choice label="Model" options={idsOf(models)} value={model} onValue={chosenModel.onValue} />
          <TextField
            label="API key"
            hint="Its limits count and its account pays. It stays in this page."
            type="password"
            placeholder="sk-…"
            {...key}
          />
          <TextField label="System message" {...systemMessage} />
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
              checked={isStream}
              onChange={(event) => setStream(event.currentTarget.checked)}
            />
            Stream the answer
          </label>
        </section>
        <section class="card talk" aria-label="Conversation">
          <Conversation turns={turns} isBusy={isBusy} />
          <form
            onSubmit={(event) => {
              event.preventDefault();
              if (!isBusy) void ask();
            }}
          >
            <Field label="Message">
              {(id) => (
                <textarea
                  id={id}
                  rows={3}
                  required
                  value={question.value}
                  onInput={(event) => question.onValue(event.currentTarget.value)}
                  onKeyDown={(event) => {
                    // While a text is composed (Japanese, Chinese, Korean), Enter only takes the candidate.
                    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
                    event.preventDefault();
                    event.currentTarget.form?.requestSubmit();
                  }}
                />
              )}
            </Field>
            <div class="actions">
              <small class="muted">Enter sends, Shift+Enter breaks the line.</small>
              <button type="submit" class="primary" disabled={isBusy || model === '' || key.value === ''}>
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
 * Returns the messages of the next call. While the message field is empty these are the messages of the last
 * call that went well, or a greeting before the first, so that the code samples always show a whole call.
 */
function messagesOf(turns: readonly Turn[], question: string): Message[] {
  // A turn whose call failed is not sent again, because it may have no response, or a part of one.
  const history = turns
    .filter(({ outcome }) => outcome.error === undefined)
    .flatMap(({ question: sentQuestion, outcome }): Message[] => [
      { role: 'user', content: sentQuestion },
      { role: 'assistant', content: outcome.text },
    ]);
  if (question !== '') return [...history, { role: 'user', content: question }];
  // Without the last response, the conversation ends with the question that was last sent.
  return history.length > 0 ? history.slice(0, -1) : [{ role: 'user', content: 'Hello!' }];
}

interface ConversationProps {
  readonly turns: readonly Turn[];
  readonly isBusy: boolean;
}

function Conversation({ turns, isBusy }: ConversationProps) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => box.current?.scrollTo({ top: box.current.scrollHeight }), [turns]);
  return (
    <div
      ref={box}
      class="turns"
      aria-live="polite"
      aria-busy={isBusy}
      tabIndex={0}
      role="log"
      aria-label="What was said"
    >
      {turns.length === 0 && <p class="empty">Pick a model, give a key, and say something.</p>}
      {turns.map(({ question, outcome }, index) => (
        <article key={index} class="turn">
          <p class="said by-user">{question}</p>
          <p class="said by-model">
            {outcome.text}
            {isBusy && index === turns.length - 1 ? <i class="cursor" /> : null}
          </p>
          <ErrorText text={outcome.error} />
          <CallStats outcome={outcome} />
        </article>
      ))}
    </div>
  );
}

/** With several processes a call is found only a second after its end, so it is searched for again. */
const RECORD_PAUSE_MS = 1_000;
const RECORD_TRIES_MAX = 3;

/** Returns the record of an ended call in the call log; undefined until it is found, or if there is none. */
function useRecord(requestId: string | undefined): CallView | undefined {
  const [call, setCall] = useState<CallView>();
  useEffect(() => {
    setCall(undefined);
    if (requestId === undefined) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const look = (triesLeft: number): void => {
      get<CallView>(`/calls/${encodeURIComponent(requestId)}`).then(
        (found) => {
          if (!isOver) setCall(found);
        },
        () => {
          if (!isOver && triesLeft > 1) timer = setTimeout(look, RECORD_PAUSE_MS, triesLeft - 1);
        },
      );
    };
    look(RECORD_TRIES_MAX);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [requestId]);
  return call;
}

/**
 * One line of the call's status, tokens, cost and times, which unfolds to the headers of its response. Tokens
 * and cost are those that were charged, so they are read from the record and not from the response. The
 * response may have other numbers: the gateway may not believe what the upstream reports, and a fallback or
 * the response cache may have answered.
 */
function CallStats({ outcome }: { readonly outcome: Outcome }) {
  const { status, firstTokenMs, totalMs, headers } = outcome;
  const requestId = headers?.find(([name]) => name === 'x-request-id')?.[1];
  const call = useRecord(totalMs === undefined ? undefined : requestId);
  if (status === undefined) return null;
  const { prompt_tokens: prompt = null, completion_tokens: completion = null, cost = null } = call ?? {};
  const tokens = prompt === null ? undefined : `${number(prompt)} in, ${number(completion ?? 0)} out`;
  const facts: readonly (readonly [string, string | undefined])[] = [
    ['Status', String(status)],
    ['Tokens', tokens],
    ['Cost', cost === null ? undefined : money(cost)],
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

/** What makes the code sample of each language. */
const SAMPLES = { curl: curlOf, TypeScript: typescriptOf, Python: pythonOf };
type Language = keyof typeof SAMPLES;
const LANGUAGES = Object.keys(SAMPLES) as Language[];

function curlOf(baseUrl: string, request: ChatRequest): string {
  // Within single quotes a shell leaves everything unchanged but the quote itself.
  const body = JSON.stringify(request, null, 2).replaceAll("'", `'\\''`);
  return `curl ${baseUrl}/chat/completions \\
  -H "Authorization: Bearer $TOLLGATE_KEY" \\
  -H "Content-Type: application/json" \\
  ${request.stream ? '--no-buffer ' : ''}-d '${body}'`;
}

function typescriptOf(baseUrl: string, request: ChatRequest): string {
  const call = `await client.chat.completions.create(${JSON.stringify(request, null, 2)})`;
  const usage = request.stream
    ? `const stream = ${call};
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? '');
}`
    : `const completion = ${call};
console.log(completion.choices[0]?.message.content);`;
  return `import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: ${JSON.stringify(baseUrl)},
  apiKey: process.env.TOLLGATE_KEY,
});

${usage}`;
}

function pythonOf(baseUrl: string, request: ChatRequest): string {
  const fields = Object.entries(request).map(([name, value]) => `    ${name}=${pythonLiteral(value, 1)},`);
  const call = `client.chat.completions.create(\n${fields.join('\n')}\n)`;
  const usage = request.stream
    ? `stream = ${call}
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`
    : `completion = ${call}
print(completion.choices[0].message.content)`;
  return `import os
from openai import OpenAI

client = OpenAI(
    base_url=${JSON.stringify(baseUrl)},
    api_key=os.environ["TOLLGATE_KEY"],
)

${usage}`;
}

/** Returns a Python literal: JSON with other words for null, true and false, indented by `depth` levels. */
function pythonLiteral(value: unknown, depth: number): string {
  const indent = '    '.repeat(depth + 1);
  const outerIndent = '    '.repeat(depth);
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (value === null) return 'None';
  if (Array.isArray(value)) {
    return `[\n${value.map((item) => `${indent}${pythonLiteral(item, depth + 1)},`).join('\n')}\n${outerIndent}]`;
  }
  if (typeof value === 'object') {
    const members = Object.entries(value).map(
      ([name, member]) => `${JSON.stringify(name)}: ${pythonLiteral(member, depth + 1)}`,
    );
    return `{${members.join(', ')}}`;
  }
  return JSON.stringify(value);
}

interface CodeSamplesProps {
  readonly baseUrl: Input;
  readonly request: ChatRequest;
}

function CodeSamples({ baseUrl, request }: CodeSamplesProps) {
  const [language, setLanguage] = useState<Language>('curl');
  const code = SAMPLES[language](baseUrl.value, request);
  return (
    <section class="card">
      <div class="head">
        <h2>As code</h2>
        <div class="head-end">
          <ButtonChoice label="Language" value={language} options={LANGUAGES} onValue={setLanguage} />
          <CopyButton text={code} noun="the code" />
        </div>
      </div>
      <TextField
        label="Base address"
        hint="As callers reach this gateway; its own view of it to begin with. The key is taken from the variable TOLLGATE_KEY."
        {...baseUrl}
      />
      <pre tabIndex={0} role="region" aria-label={`Request in ${language}`}>
        <code>{code}</code>
      </pre>
    </section>
  );
}
