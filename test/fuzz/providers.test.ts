/**
 * What holds for every provider: a stream cut anywhere means the same, and what a whole response means; bad
 * streams and bodies end in a ProviderError, in bounded time and memory; a request is written or refused by
 * the name of one of its members.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t, { type Test } from 'tap';
import { isRecord } from '#src/core/json.js';
import { SSE_EVENT_BYTES_MAX, UPSTREAM_RESPONSE_BYTES_MAX } from '#src/core/limits.js';
import { FieldError, ProviderError, type Provider } from '#src/providers/provider.js';
import { PROVIDERS } from '#src/providers/providers.js';
import { joinedChat } from '../support/chat-joiner.js';
import { answerCases } from '../support/provider-answers.js';
import { bedrockEvent } from '../support/provider-dialects.js';
import { callOf, FORMS, requestOf, type Form } from '../support/provider-forms.js';
import { requestCases } from '../support/provider-requests.js';
import { anyValue } from '../support/protocol-values.js';
import { chunksOf, eventData } from '../support/sse.js';
import { newSeed, pick, type Random, randomOf } from '../support/random.js';

/** Streams of contents are cut at every byte, the others and longer ones at random places. */
const EVERY_BYTE_MAX = 2_500;
const RANDOM_CUTS = 10;
const MUTANTS = 400;
const REQUEST_MUTANTS = 1_500;
const FLOOD_BYTES = 3 * UPSTREAM_RESPONSE_BYTES_MAX;
const BLOCKS = 30_000;
const HEAP_GROWTH_MAX = 48 * 1024 * 1024;
/** Of provider.ts; any other of the provider's own is an error, too. */
const isStatus = (status: number): boolean => status >= 400 && status <= 599;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const ASK = { messages: [{ role: 'user', content: 'Hello' }] };
const STREAM = { ...ASK, stream: true, stream_options: { include_usage: true } };

/** The events of a stream whose bytes come cut at `cuts`, ascending. */
function eventsOf(form: Form, provider: Provider, bytes: Buffer, cuts: Iterable<number>): string {
  const stream = provider.openStream(callOf(form, STREAM));
  let events = '';
  let start = 0;
  for (const cut of [...cuts, bytes.length]) {
    // A copy of its own size: a reader that looks beyond its chunk is found out.
    const chunk = Uint8Array.from(bytes.subarray(start, cut));
    events += stream.push(chunk);
    // A connection reads into the same memory again.
    chunk.fill(0xff);
    start = cut;
  }
  return events + stream.end();
}

/** What `act` throws, if it is not a ProviderError, is its fault. */
function failureOf(t: Test, name: string, act: () => unknown): ProviderError | undefined {
  try {
    act();
  } catch (error) {
    if (!(error instanceof ProviderError)) throw new Error(`${name}: not a ProviderError`, { cause: error });
    if (!isStatus(error.failure.status)) t.fail(`${name}: status ${error.failure.status}`);
    return error;
  }
  return undefined;
}

function* cutsOf(bytes: Buffer, everyByte: boolean, next: Random): Generator<number[]> {
  if (everyByte && bytes.length <= EVERY_BYTE_MAX) for (let cut = 1; cut < bytes.length; cut++) yield [cut];
  yield Array.from(bytes.keys()).slice(1);
  for (let count = 0; count < RANDOM_CUTS; count++) {
    const share = next() * 0.1;
    yield Array.from(bytes.keys()).filter((at) => at > 0 && next() < share);
  }
}

/** A text that is empty says as little as none, and so does a member that is null. */
const plain = (message: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(message).filter(([, value]) => value !== '' && value !== null));

function changedBytes(bytes: Buffer, next: Random): Buffer {
  const at = Math.floor(next() * bytes.length);
  const kinds: (() => Buffer)[] = [
    () => {
      const copy = Buffer.from(bytes);
      copy[at]! ^= 1 << Math.floor(next() * 8);
      return copy;
    },
    () => bytes.subarray(0, at),
    () => Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1 + Math.floor(next() * 40))]),
    () =>
      Buffer.concat([
        bytes.subarray(0, at),
        Buffer.from(pick(next, ['\n\n', '}', '"', '\0', 'data: {}\n\n', '\r'])),
        bytes.subarray(at),
      ]),
    () => Buffer.concat([bytes.subarray(at), bytes]),
  ];
  return pick(next, kinds)();
}

/** The same with one member, at any depth, replaced or left out. */
function changedValue(value: unknown, next: Random): unknown {
  const entries: [string, unknown][] = isRecord(value) || Array.isArray(value) ? Object.entries(value) : [];
  if (entries.length === 0 || next() < 0.15) return anyValue(next);
  const [name, member] = pick(next, entries);
  if (Array.isArray(value))
    return value.map((item: unknown, index) => (String(index) === name ? changedValue(item, next) : item));
  if (next() < 0.15) return Object.fromEntries(entries.filter(([other]) => other !== name));
  return { ...(value as object), [name]: changedValue(member, next) };
}

/** The stream with the JSON of one event changed. */
function changedStream(form: Form, bytes: Buffer, next: Random): Buffer {
  if (form.provider !== 'bedrock') {
    const events = bytes.toString().split(/(?<=\n\n|\r\n\r\n)/);
    const at = Math.floor(next() * events.length);
    const changed = events[at]!.replace(
      /(^|\n)data: ([^\n]*?)(?=\r?\n)/,
      (_, before: string, json: string) =>
        `${before}data: ${JSON.stringify(changedValue(JSON.parse(json), next))}`,
    );
    return Buffer.from([...events.slice(0, at), changed, ...events.slice(at + 1)].join(''));
  }
  const frames: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += frames.at(-1)!.length)
    frames.push(bytes.subarray(at, at + bytes.readUInt32BE(at)));
  const at = Math.floor(next() * frames.length);
  const frame = frames[at]!;
  const headersEnd = 12 + frame.readUInt32BE(4);
  const type =
    /:event-type\x07..(\w+?)\r?:/s.exec(frame.toString('latin1', 12, headersEnd))?.[1] ?? 'messageStop';
  const value = JSON.parse(frame.toString('utf8', headersEnd, frame.length - 4)) as unknown;
  const changed = changedValue(value, next);
  frames[at] = bedrockEvent(type, changed as object);
  return Buffer.concat(frames);
}

/** Every event is JSON or the end, and the end comes once. */
function checkEvents(t: Test, events: string, name: string): void {
  const data = eventData(events);
  for (const [index, each] of data.entries()) {
    if (each === '[DONE]') t.equal(index, data.length - 1, `${name}: the end is last`);
    else if (!isRecord(JSON.parse(each))) t.fail(`${name}: ${each}`);
  }
}

/** Whether the request has the member, or an object that lacks it. */
function isMember(body: unknown, path: string): boolean {
  let parent = body;
  for (const name of path.split(/[.[\]]+/).filter((part) => part !== '')) {
    if (typeof parent !== 'object' || parent === null || !Object.hasOwn(parent, name))
      return parent !== body && !/^\d+$/.test(name);
    parent = (parent as Record<string, unknown>)[name];
  }
  return true;
}

/** An event without end. */
function* endlessEvent(form: Form): Generator<Buffer> {
  yield form.provider === 'bedrock'
    ? Buffer.from([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 10])
    : Buffer.from('data: {"type":"');
  for (let sent = 0; sent < FLOOD_BYTES; sent += 65_536) yield Buffer.alloc(65_536, 'x');
}

/** Blocks without number, each well formed. */
function* blocksOf(form: Form): Generator<Buffer> {
  const { dialect } = form;
  const tool = (index: number) => ({ kind: 'tool', id: `call_${index}`, name: 'f', args: {} }) as const;
  const usage = Object.values(dialect.usages)[0]!;
  const whole = dialect.stream({
    name: 'blocks',
    blocks: Array.from({ length: BLOCKS }, (_, index) => tool(index)),
    stop: dialect.stops[2],
    usage,
  });
  for (let at = 0; at < whole.length; at += 65_536) yield whole.subarray(at, at + 65_536);
}

for (const form of FORMS) {
  const provider = PROVIDERS[form.provider];
  if (provider === undefined) continue;
  const cases = answerCases(form.dialect);
  /** The others read by the same code. */
  const isFirst = FORMS.find(({ dialect }) => dialect === form.dialect) === form;
  const seed = newSeed();

  void t.test(`${form.name}: streams cut anywhere`, (t) => {
    t.comment(`seed ${seed}`);
    const next = randomOf(seed);
    for (const answer of cases) {
      const bytes = form.dialect.stream(answer);
      const whole = eventsOf(form, provider, bytes, []);
      checkEvents(t, whole, answer.name);
      for (const cuts of cutsOf(bytes, isFirst && !/^(stop|usage) /.test(answer.name), next)) {
        if (eventsOf(form, provider, bytes, cuts) === whole) continue;
        t.equal(
          eventsOf(form, provider, bytes, cuts),
          whole,
          `${answer.name} cut at ${cuts.slice(0, 9).join()}`,
        );
        break;
      }
    }
    t.end();
  });

  void t.test(`${form.name}: a stream joined is the whole response`, (t) => {
    for (const answer of cases) {
      const call = callOf(form, ASK);
      const body = Buffer.from(JSON.stringify(form.dialect.whole(answer)));
      let whole: { choices: { message: Record<string, unknown>; finish_reason: unknown }[]; usage: unknown };
      const failure = failureOf(t, answer.name, () => {
        whole = JSON.parse(provider.readResponse(body, call).text) as typeof whole;
      });
      let joined: ReturnType<typeof joinedChat>;
      const other = failureOf(t, answer.name, () => {
        joined = joinedChat(chunksOf(eventsOf(form, provider, form.dialect.stream(answer), [])));
      });
      t.equal(other?.failure.status, failure?.failure.status, `${answer.name}: both or none`);
      if (failure !== undefined || other !== undefined) continue;
      const [choice] = whole!.choices;
      t.same(plain(joined!.message), plain(choice!.message), `${answer.name}: message`);
      t.equal(joined!.finish, choice!.finish_reason, `${answer.name}: finish`);
      t.same(joined!.usage, whole!.usage, `${answer.name}: usage`);
    }
    t.end();
  });

  void t.test(`${form.name}: bad streams and bodies`, (t) => {
    t.comment(`seed ${seed}`);
    const next = randomOf(seed + 1);
    for (let count = 0; count < MUTANTS; count++) {
      const answer = pick(next, cases);
      const name = `mutant ${count} of ${answer.name}`;
      const bytes = form.dialect.stream(answer);
      const bad = next() < 0.5 ? changedBytes(bytes, next) : changedStream(form, bytes, next);
      const cuts = next() < 0.5 ? [] : [Math.floor(next() * bad.length)];
      failureOf(t, name, () => checkEvents(t, eventsOf(form, provider, bad, cuts), name));
      const whole = form.dialect.whole(answer);
      const text = JSON.stringify(changedValue(whole, next));
      const body = next() < 0.7 ? Buffer.from(text) : changedBytes(Buffer.from(text), next);
      failureOf(t, name, () => {
        const completion = provider.readResponse(body, callOf(form, ASK));
        const chat: unknown = JSON.parse(completion.text);
        if (!isRecord(chat) || !Array.isArray(chat.choices)) {
          t.fail(`${name}: ${JSON.stringify(chat)}`);
          return;
        }
        const { choices, usage, model } = completion.members;
        if (JSON.stringify(chat) !== completion.text)
          t.fail(`${name}: written otherwise: ${completion.text}`);
        if (JSON.stringify([usage, model]) !== JSON.stringify([chat.usage, chat.model]))
          t.fail(`${name}: members ${JSON.stringify([usage, model])} of ${completion.text}`);
        if (!Array.isArray(choices)) t.fail(`${name}: no choices`);
      });
      const headers = new Map([['retry-after', pick(next, ['1', '-1', 'soon', '1e9', ''])]]);
      const status = pick(next, [199, 300, 400, 401, 403, 404, 408, 413, 418, 424, 429, 500, 503, 529, 599]);
      const { status: told, retryAfterSeconds = 1 } = provider.readError(
        status,
        (field) => headers.get(field),
        next() < 0.5 ? text : body.toString('latin1'),
      );
      if (!isStatus(told)) t.fail(`${name}: status ${told} of ${status}`);
      if (!(retryAfterSeconds >= 0)) t.fail(`${name}: retry after ${retryAfterSeconds}`);
    }
    t.end();
  });

  void t.test(`${form.name}: a stream without end`, (t) => {
    for (const [name, given] of [
      ['one event', endlessEvent],
      ['blocks', blocksOf],
    ] as const) {
      const chunks = [...given(form)];
      collectGarbage();
      const before = process.memoryUsage().heapUsed + process.memoryUsage().arrayBuffers;
      const stream = provider.openStream(callOf(form, STREAM));
      let bytes = 0;
      const failure = failureOf(t, name, () => {
        for (const chunk of chunks) {
          bytes += chunk.length;
          stream.push(chunk);
        }
      });
      if (name === 'one event') t.ok(failure, `given up after ${bytes} bytes`);
      // Where a longer one is taken, it is counted.
      const most = stream.bufferBytes === undefined ? SSE_EVENT_BYTES_MAX : UPSTREAM_RESPONSE_BYTES_MAX;
      if (name === 'one event') t.ok(bytes <= 2 * most + 65_536, `${bytes} bytes`);
      collectGarbage();
      const grown = process.memoryUsage().heapUsed + process.memoryUsage().arrayBuffers - before;
      t.comment(`${name}: ${Math.round(grown / 1024)} KiB, ${failure?.message ?? 'taken'}`);
      t.ok(grown < HEAP_GROWTH_MAX, `${name}: ${grown} bytes are kept`);
      // The stream is alive until here.
      failureOf(t, name, () => stream.end());
    }
    t.end();
  });

  void t.test(`${form.name}: any request is written, or refused by name`, (t) => {
    t.comment(`seed ${seed}`);
    const next = randomOf(seed + 2);
    const requests = requestCases();
    let written = 0;
    for (let count = 0; count < REQUEST_MUTANTS; count++) {
      let body = pick(next, requests).request as Record<string, unknown>;
      for (let changes = Math.floor(next() * 3); changes > 0; changes--) {
        const [name] = pick(next, Object.entries(body));
        body = { ...body, [name]: changedValue(body[name], next) };
      }
      // What the gateway checks itself, before a provider sees it.
      if (!Array.isArray(body.messages) || !body.messages.every(isRecord) || body.messages.length === 0)
        continue;
      const call = callOf(form, body, { dropUnsupported: next() < 0.3 });
      try {
        const request = requestOf(provider, call);
        written++;
        if (!isRecord(JSON.parse(request.body))) t.fail(`no object: ${request.body}`);
        t.match(request.path, /^\/[!-~]*$/, request.path);
        if (request.headers.length % 2 !== 0 || request.headers.some((text) => /[\r\n\0]/.test(text)))
          t.fail(JSON.stringify(request.headers));
      } catch (error) {
        if (!(error instanceof FieldError)) throw new Error(JSON.stringify(body), { cause: error });
        // What is wanted beside what is given has its own name.
        if (!isMember(body, error.field) && !error.message.includes('must be given'))
          t.fail(`${error.message}: no such member in ${JSON.stringify(body)}`);
      }
    }
    t.comment(`${written} of ${REQUEST_MUTANTS} written`);
    t.ok(written > REQUEST_MUTANTS / 10);
    t.end();
  });
}
