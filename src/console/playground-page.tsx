/**
 * The playground: a model, a key, a conversation, and what each response took. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import { get, send, textOf } from './api.js';
import { chat, type ChatRequest, type Message, type Outcome } from './chat-stream.js';
import { CodeSamples } from './code-samples.js';
import { Choice, Field, ErrorText, TextField } from './controls.js';
import { Conversation } from './conversation.js';
import type { List, Model } from './views.js';

export interface Exchange {
  readonly question: string;
  readonly model: string;
  readonly outcome: Outcome;
}

export function PlaygroundPage() {
  const [models, setModels] = useState<readonly Model[]>([]);
  const [baseUrl, setBaseUrl] = useState('');
  const [problem, setError] = useState<string>();
  const [key, setKey] = useState('');
  const [model, setModel] = useState('');
  const [system, setSystem] = useState('');
  const [text, setText] = useState('');
  const [stream, setStream] = useState(true);
  const [maxTokens, setMaxTokens] = useState('');
  const [temperature, setTemperature] = useState('');
  const [turns, setTurns] = useState<readonly Exchange[]>([]);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const tell = (error: unknown): void => setError(textOf(error));
    get<List<Model>>('/models').then(({ data }) => {
      setModels(data);
      setModel((chosen) => (chosen === '' ? (data[0]?.id ?? '') : chosen));
    }, tell);
    send('GET', '/admin/playground')
      .then((response) => response.json() as Promise<{ base_url: string }>)
      .then((view) => setBaseUrl(view.base_url), tell);
  }, []);

  const request: ChatRequest = {
    model,
    messages: [
      ...(system === '' ? [] : [{ role: 'system', content: system } as const]),
      ...said(turns, text),
    ],
    ...(maxTokens === '' ? {} : { max_tokens: Number(maxTokens) }),
    ...(temperature === '' ? {} : { temperature: Number(temperature) }),
    stream,
    ...(stream ? { stream_options: { include_usage: true } } : {}),
  };
  const ask = async (): Promise<void> => {
    const question = text;
    const before = turns;
    setBusy(true);
    setText('');
    setTurns([...before, { question, model, outcome: { text: '' } }]);
    await chat(key.trim(), request, (outcome) => setTurns([...before, { question, model, outcome }]));
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
      <ErrorText text={problem} />
      <div class="playground">
        <section class="card" aria-label="Call">
          <Choice
            label="Model"
            value={model}
            options={models.map(({ id }) => [id, id] as const)}
            onChoice={setModel}
          />
          <TextField
            label="API key"
            hint="Its limits count and its account pays. It stays in this page."
            type="password"
            autocomplete="off"
            placeholder="sk-…"
            value={key}
            onText={setKey}
          />
          <TextField label="System message" value={system} onText={setSystem} />
          <div class="pair">
            <TextField
              label="Most tokens"
              type="number"
              min="1"
              placeholder="No bound"
              value={maxTokens}
              onText={setMaxTokens}
            />
            <TextField
              label="Temperature"
              type="number"
              min="0"
              max="2"
              step="0.1"
              placeholder="1"
              value={temperature}
              onText={setTemperature}
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
                  value={text}
                  onInput={(event) => setText(event.currentTarget.value)}
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
              <button type="submit" class="primary" disabled={busy || model === '' || key === ''}>
                Send
              </button>
            </div>
          </form>
        </section>
      </div>
      <CodeSamples baseUrl={baseUrl} onBaseUrl={setBaseUrl} request={request} />
    </>
  );
}

/** What is sent next; before anything is written, what was sent last, so that the code shows a whole call. */
function said(turns: readonly Exchange[], text: string): Message[] {
  const messages = turns.flatMap(messagesOf);
  if (text !== '') return [...messages, { role: 'user', content: text }];
  return messages.length > 0 ? messages.slice(0, -1) : [{ role: 'user', content: 'Hello!' }];
}

/** A turn that failed is not part of what was said. */
function messagesOf({ question, outcome }: Exchange): Message[] {
  if (outcome.problem !== undefined) return [];
  return [
    { role: 'user', content: question },
    { role: 'assistant', content: outcome.text },
  ];
}
