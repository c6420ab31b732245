/** The built-in model answers as a provider does. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import type { HeaderLookup, HttpCall, HttpFault, HttpHandler } from '#src/http1/http-client.js';
import { EchoClient } from '#src/upstream/echo-client.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const TARGET = targetOf('echo:', { key: undefined });

class Recorder implements HttpHandler {
  status = 0;
  type: string | undefined;
  text = '';
  chunks = 0;
  fault: HttpFault | undefined;
  onChunk: () => void = () => undefined;
  readonly ended: Promise<void>;
  #resolve: () => void = () => undefined;

  constructor() {
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  onStart(status: number, header: HeaderLookup): void {
    this.status = status;
    this.type = header('content-type');
  }

  onData(chunk: Uint8Array): void {
    this.text += Buffer.from(chunk).toString('utf8');
    this.chunks++;
    this.onChunk();
  }

  onEnd(): void {
    this.#resolve();
  }

  onError(fault: HttpFault): void {
    this.fault = fault;
    this.#resolve();
  }
}

function ask(body: object): { recorder: Recorder; call: HttpCall } {
  const recorder = new Recorder();
  const call = new EchoClient(new SystemClock()).start(TARGET, JSON.stringify(body), 'r1', recorder);
  return { recorder, call };
}

interface Answer {
  id: string;
  object: string;
  created: number;
  model: string;
  choices: {
    index: number;
    message?: { role: string; content: string };
    delta?: { role?: string; content?: string };
    finish_reason: string | null;
  }[];
  usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
}

const messages = [
  { role: 'system', content: 'be brief' },
  { role: 'user', content: 'not this' },
  { role: 'assistant', content: null },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'one two  three\n' },
      { type: 'image_url' },
      { type: 'text', text: 'four five \u{1f600}' },
    ],
  },
  { role: 'tool', content: 'nor this' },
];
const TEXT = 'one two  three\nfour five \u{1f600}';

async function whole(body: object): Promise<Answer> {
  const { recorder } = ask(body);
  await recorder.ended;
  t.equal(recorder.status, 200);
  t.equal(recorder.type, 'application/json');
  return JSON.parse(recorder.text) as Answer;
}

async function streamed(body: object): Promise<{ events: Answer[]; recorder: Recorder }> {
  const { recorder } = ask({ ...body, stream: true });
  await recorder.ended;
  t.equal(recorder.type, 'text/event-stream');
  const blocks = recorder.text.split('\n\n');
  t.equal(blocks.pop(), '');
  t.equal(blocks.pop(), 'data: [DONE]');
  return { events: blocks.map((block) => JSON.parse(block.slice('data: '.length)) as Answer), recorder };
}

void t.test('whole answer', async (t) => {
  const answer = await whole({ model: 'echo', messages });
  t.match(answer, { id: 'chatcmpl-r1', object: 'chat.completion', model: 'echo' });
  t.ok(Number.isInteger(answer.created));
  t.strictSame(answer.choices[0]?.message, { role: 'assistant', content: TEXT });
  t.equal(answer.choices[0]?.finish_reason, 'stop');
  t.strictSame(answer.usage, { prompt_tokens: 2 + 2 + 6 + 2, completion_tokens: 6, total_tokens: 18 });
});

void t.test('streamed answer', async (t) => {
  const { events } = await streamed({ model: 'echo', messages });
  t.equal(events[0]?.choices[0]?.delta?.role, 'assistant');
  t.equal(events.map((event) => event.choices[0]?.delta?.content ?? '').join(''), TEXT);
  t.equal(events.at(-2)?.choices[0]?.finish_reason, 'stop');
  t.strictSame(events.at(-1)?.choices, []);
  t.equal(events.at(-1)?.usage?.total_tokens, 18);
  for (const event of events) t.equal(event.object, 'chat.completion.chunk');
});

void t.test('max_tokens', async (t) => {
  for (const [bound, content, reason] of [
    [0, '', 'length'],
    [2, 'one two', 'length'],
    [5, 'one two  three\nfour five', 'length'],
    [6, TEXT, 'stop'],
    [7, TEXT, 'stop'],
  ] as const) {
    const answer = await whole({ model: 'echo', messages, max_tokens: bound });
    t.equal(answer.choices[0]?.message?.content, content);
    t.equal(answer.choices[0]?.finish_reason, reason, `bound ${bound}`);
    const { events } = await streamed({
      model: 'echo',
      messages,
      max_completion_tokens: bound,
      max_tokens: 1,
    });
    t.equal(events.map((event) => event.choices[0]?.delta?.content ?? '').join(''), content);
    t.equal(events.at(-2)?.choices[0]?.finish_reason, reason);
  }
});

void t.test('no user message, no text, no request', async (t) => {
  t.equal((await whole({ model: 'echo', messages: [] })).choices[0]?.message?.content, '');
  const { events } = await streamed({ model: 'echo', messages: [{ role: 'user', content: null }] });
  t.equal(events.length, 3);
  const { recorder } = ask({ hello: 1 });
  await recorder.ended;
  t.equal(recorder.status, 400);
});

void t.test('long words and blanks come whole, in bounded chunks', async (t) => {
  const text = `${'x'.repeat(300_000)}${' '.repeat(300_000)}`;
  const { events, recorder } = await streamed({ model: 'echo', messages: [{ role: 'user', content: text }] });
  t.equal(events.map((event) => event.choices[0]?.delta?.content ?? '').join(''), text);
  t.ok(recorder.chunks > 100, 'the loop had its turns between');
});

void t.test('pause stops it, resume goes on, abort ends it', async (t) => {
  const body = { model: 'echo', stream: true, messages: [{ role: 'user', content: 'word '.repeat(10_000) }] };
  const { recorder, call } = ask(body);
  const turns = async (count: number): Promise<void> => {
    for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve));
  };
  recorder.onChunk = () => {
    if (recorder.chunks === 2) call.pause();
  };
  await turns(20);
  t.equal(recorder.chunks, 2);
  call.resume();
  call.resume();
  await recorder.ended;
  t.ok(recorder.text.endsWith('data: [DONE]\n\n'));

  const other = ask(body);
  other.recorder.onChunk = () => other.call.abort();
  await turns(20);
  t.equal(other.recorder.chunks, 1);
});
