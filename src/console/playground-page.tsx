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
import { PLAYGROUND_PATH } from '../admin/addresses.js';
import type { CallView } from '../admin/call-routes.js';
import type { ListView, ModelView } from '../admin/views.js';
import { get, requestJson } from './api.js';
import { useRead, useView } from './api-hooks.js';
import { chat, type ChatRequest, type Message, type CallProgress } from './chat-stream.js';
import { CodeSamples } from './code-samples.js';
import { Button, Choice, ErrorText, Field, idsOf, type Input, TextField, useInput } from './controls.js';
import { milliseconds, money, number } from './format.js';

/** A message of the operator, and what came of the call that sent it. */
interface Turn {
  readonly userText: string;
  readonly outcome: CallProgress;
}

export function PlaygroundPage() {
  const { view, error: modelsError } = useView<ListView<ModelView>>('/models');
  const models = view?.data ?? [];
  const { view: address, error } = useRead(PLAYGROUND_PATH, (path) =>
    requestJson<{ base_url: string }>('GET', path),
  );
  /** Undefined until the operator types an address. */
  const [typedUrl, setTypedUrl] = useState<string>();
  const baseUrl = { value: typedUrl ?? address?.base_url ?? '', onValue: setTypedUrl };
  const fields = useCallFields();
  const typedText = useInput();
  const [turns, setTurns] = useState<readonly Turn[]>([]);
  const [isBusy, setBusy] = useState(false);
  const [pageController] = useState(() => new AbortController());
  useEffect(() => () => pageController.abort(), []);

  const model = fields.chosenModel.value === '' ? (models[0]?.id ?? '') : fields.chosenModel.value;
  const request = requestOf(fields, model, messagesOf(turns, typedText.value));
  const key = fields.key.value.trim();
  const canSend = !isBusy && model !== '' && key !== '';
  const ask = async (): Promise<void> => {
    const sentText = typedText.value;
    const earlierTurns = turns;
    const show = (outcome: CallProgress): void =>
      setTurns([...earlierTurns, { userText: sentText, outcome }]);
    setBusy(true);
    typedText.onValue('');
    show({ text: '' });
    // `chat` never rejects, so `setBusy` is called after a failure too.
    await chat(key, request, show, pageController.signal);
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
        <CallFieldset fields={fields} models={models} model={model} />
        <section class="card talk" aria-label="Conversation">
          <Conversation turns={turns} isBusy={isBusy} />
          <MessageForm text={typedText} canSend={canSend} onSend={() => void ask()} />
        </section>
      </div>
      <CodeSamples baseUrl={baseUrl} request={request} />
    </>
  );
}

/**
 * What an operator can set of the call, besides its messages. These fields are in no form, so `min` and `max`
 * bound only what their arrows give. The gateway checks the numbers, and the page shows its error.
 */
function useCallFields() {
  const key = useInput();
  /** Empty until the operator chooses a model; until then the first model is used. */
  const chosenModel = useInput();
  const systemMessage = useInput();
  /** The upper bound of the response, and the temperature; empty for the defaults of the model. */
  const [maxTokens, temperature] = [useInput(), useInput()];
  const [isStream, setStream] = useState(true);
  return { key, chosenModel, systemMessage, maxTokens, temperature, isStream, setStream };
}
type CallFields = Readonly<ReturnType<typeof useCallFields>>;

/** Returns the body of the call. `messages`: without the system message. */
function requestOf(fields: CallFields, model: string, messages: readonly Message[]): ChatRequest {
  const { systemMessage, maxTokens, temperature, isStream } = fields;
  return {
    model,
    messages: [
      ...(systemMessage.value === '' ? [] : [{ role: 'system', content: systemMessage.value } as const]),
      ...messages,
    ],
    ...(maxTokens.value === '' ? {} : { max_tokens: Number(maxTokens.value) }),
    ...(temperature.value === '' ? {} : { temperature: Number(temperature.value) }),
    stream: isStream,
    ...(isStream ? { stream_options: { include_usage: true } } : {}),
  };
}

interface CallFieldsetProps {
  readonly fields: CallFields;
  readonly models: readonly ModelView[];
  /** Id of the model that is used; empty if there is none. */
  readonly model: string;
}

function CallFieldset({ fields, models, model }: CallFieldsetProps) {
  const { key, chosenModel, systemMessage, maxTokens, temperature, isStream, setStream } = fields;
  return (
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
  );
}

interface MessageFormProps {
  readonly text: Input;
  /** False while a call is in flight, and while there is no key or no model. */
  readonly canSend: boolean;
  readonly onSend: () => void;
}

function MessageForm({ text, canSend, onSend }: MessageFormProps) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        // `requestSubmit` below submits the form even while Send is disabled.
        if (canSend) onSend();
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
              // While a text is composed (Japanese, Chinese, Korean), Enter only accepts the suggestion.
              if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
              event.preventDefault();
              event.currentTarget.form?.requestSubmit();
            }}
          />
        )}
      </Field>
      <div class="actions">
        <small class="muted">Enter sends, Shift+Enter breaks the line.</small>
        <button type="submit" class="primary" disabled={!canSend}>
          Send
        </button>
      </div>
    </form>
  );
}

/**
 * Returns the messages of the next call. While the message field is empty these are the messages of the last
 * call that went well, or a greeting before the first, so that the code samples always show a whole call.
 */
function messagesOf(turns: readonly Turn[], typedText: string): Message[] {
  // A turn whose call failed is not sent again, because it may have no response, or a part of one.
  const history = turns
    .filter(({ outcome }) => outcome.error === undefined)
    .flatMap(({ userText, outcome }): Message[] => [
      { role: 'user', content: userText },
      { role: 'assistant', content: outcome.text },
    ]);
  if (typedText !== '') return [...history, { role: 'user', content: typedText }];
  // Without the last response, the conversation ends with the operator's last message.
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
      {turns.map(({ userText, outcome }, index) => (
        <article key={index} class="turn">
          <p class="said by-user">{userText}</p>
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

/** With several processes a call is found only a second after its end, so the search is repeated. */
const RECORD_PAUSE_MS = 1_000;
const RECORD_TRIES_MAX = 3;

/**
 * Returns the record of an ended call in the call log; undefined until it is found, or if there is none. The
 * search is repeated after any failure, and no error is shown: the line only lacks some numbers then.
 */
function useRecord(requestId: string | undefined): CallView | undefined {
  const [record, setRecord] = useState<CallView>();
  useEffect(() => {
    setRecord(undefined);
    if (requestId === undefined) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    /** Whether the component is gone, or has another call. */
    let isOver = false;
    const search = (triesLeft: number): void => {
      get<CallView>(`/calls/${encodeURIComponent(requestId)}`).then(
        (found) => {
          if (!isOver) setRecord(found);
        },
        () => {
          if (!isOver && triesLeft > 1) timer = setTimeout(search, RECORD_PAUSE_MS, triesLeft - 1);
        },
      );
    };
    search(RECORD_TRIES_MAX);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [requestId]);
  return record;
}

/**
 * One line of the call's status, tokens, cost and times, which unfolds to the headers of its response. Tokens
 * and cost are those that were charged, so they are read from the record and not from the response. The
 * response may have other numbers: the gateway may not accept the upstream's usage, and a fallback or the
 * response cache may have answered.
 */
function CallStats({ outcome }: { readonly outcome: CallProgress }) {
  const { status, firstTokenMs, totalMs, headers } = outcome;
  const requestId = headers?.find(([name]) => name === 'x-request-id')?.[1];
  const record = useRecord(totalMs === undefined ? undefined : requestId);
  if (status === undefined) return null;
  const { prompt_tokens: prompt = null, completion_tokens: completion = null, cost = null } = record ?? {};
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
