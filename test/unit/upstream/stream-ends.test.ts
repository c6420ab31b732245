/**
 * Who pays for a stream that does not end well: each way to end, at each point of the stream, with a caller
 * who reads, one who makes the upstream wait, and one who did so long ago.
 */
import type { ServerResponse } from 'node:http';
import t, { type Test } from 'tap';
import { HELD_UP_MS_MAX, HELD_UP_MS_MIN, HELD_UP_MS_REMEMBERED } from '#src/core/limits.js';
import type { UpstreamSession } from '#src/channel/messages.js';
import {
  chunkOf,
  DONE,
  sse,
  USAGE,
  usageEvent,
  type FakeDownstream,
} from '../../fixtures/upstream-server.js';
import { ManualClock } from '../../fixtures/manual-clock.js';
import { COUNTED, REPORTED, turn, world } from '../../fixtures/upstream-world.js';

const IDLE_MS = 30_000;
const TOTAL_MS = 120_000;
const STEP_MS = 20_000;
const TEXT = sse(chunkOf('word'));
const STOP = sse(chunkOf('', 'stop'));

/** A stream that the test drives from both ends. */
interface Stream {
  readonly clock: ManualClock;
  readonly session: UpstreamSession;
  readonly downstream: FakeDownstream;
  readonly response: ServerResponse;
  readonly counts: readonly unknown[];
}

async function until(what: string, condition: () => boolean): Promise<void> {
  const endMs = performance.now() + 30_000;
  while (!condition()) {
    if (performance.now() > endMs) throw new Error(`waited for ${what}`);
    await turn();
  }
}

async function streamOf(t: Test): Promise<Stream> {
  const clock = new ManualClock();
  let response: ServerResponse | undefined;
  const { call, counts } = await world(
    t,
    [
      (_request, answer) => {
        response = answer;
        answer.on('error', () => undefined);
        answer.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      },
    ],
    undefined,
    { idleTimeoutMs: IDLE_MS, totalTimeoutMs: TOTAL_MS, firstByteTimeoutMs: IDLE_MS },
    clock,
  );
  const { session, downstream } = call({ stream: true });
  await until('the call', () => response !== undefined);
  return { clock, session, downstream, response: response!, counts };
}

async function say({ response, downstream }: Stream, events = TEXT, seen = events): Promise<void> {
  const before = downstream.text.length;
  response.write(events);
  await until('the text', () => downstream.text.length >= before + seen.length);
}

function stopReading(stream: Stream): Promise<void> {
  stream.downstream.open = false;
  return say(stream);
}

function readOn({ downstream, session }: Stream): void {
  downstream.open = true;
  session.onCredit();
}

/** The stream lives for `ms`. */
async function live(stream: Stream, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= STEP_MS) {
    stream.clock.advance(Math.min(STEP_MS, left));
    await say(stream);
  }
}

type Point = 'nothing yet' | 'some text' | 'its finish reason' | '[DONE]';
type Caller = 'reads' | 'does not read' | 'did not read long ago';
type Outcome = 'fail' | 'cut' | 'end';

const POINTS: Readonly<Record<Point, (stream: Stream) => Promise<void>>> = {
  'nothing yet': () => Promise.resolve(),
  'some text': (stream) => say(stream),
  'its finish reason': (stream) => say(stream, TEXT + STOP),
  '[DONE]': (stream) => say(stream, TEXT + STOP + DONE, TEXT + STOP),
};

/** After the caller reads again, if it had stopped. */
const ENDINGS: Readonly<Record<string, (stream: Stream) => void | Promise<void>>> = {
  'a reset': ({ response }) => void response.socket?.resetAndDestroy(),
  'a connection closed': ({ response }) => void response.socket?.destroy(),
  'an end before its end': ({ response }) => void response.end(),
  'half an event': ({ response }) => void response.end('data: {"cho'),
  'an error event': ({ response }) => void response.write(sse({ error: { message: 'x' } })),
  garbage: ({ response }) => void response.write('data: {"choices":[\n\n'),
  silence: async ({ clock, downstream }) => {
    clock.advance(IDLE_MS + 1);
    // Whether the headers had come cannot be seen from here: the timeouts of both phases are to pass.
    await until('the end', () => {
      if (downstream.text === '') clock.advance(1_000);
      return downstream.endings > 0;
    });
  },
};

const CALLERS: readonly Caller[] = ['reads', 'does not read', 'did not read long ago'];

/** The stream has come to `point`, and then ends. */
async function play(stream: Stream, point: Point, caller: Caller, ending: string): Promise<void> {
  const { clock, downstream } = stream;
  const end = ENDINGS[ending]!;
  if (caller !== 'reads') {
    await stopReading(stream);
    clock.advance(10 * TOTAL_MS);
  }
  if (caller !== 'does not read') {
    if (caller !== 'reads') {
      readOn(stream);
      await live(stream, HELD_UP_MS_REMEMBERED + STEP_MS);
    }
    await POINTS[point](stream);
    await end(stream);
    return;
  }
  // What follows waits in the sockets.
  const rest = { 'nothing yet': '', 'some text': '', 'its finish reason': STOP, '[DONE]': STOP + DONE }[
    point
  ];
  if (rest !== '') stream.response.write(rest);
  if (ending !== 'silence') await end(stream);
  for (let turns = 0; turns < 20; turns++) await turn();
  if (downstream.endings > 0) throw new Error('it does not wait for its caller');
  const before = downstream.text.length;
  readOn(stream);
  if (ending !== 'silence') return;
  if (rest !== '') await until('the rest', () => downstream.text.length > before);
  await end(stream);
}

function expected(point: Point, caller: Caller, ending: string): Outcome {
  // What is lost with its connection was not received.
  const isLost = caller === 'does not read' && (ending === 'a reset' || ending === 'a connection closed');
  if ((point === 'its finish reason' || point === '[DONE]') && !isLost) return 'end';
  if (point === 'nothing yet') return 'fail';
  return caller === 'does not read' ? 'cut' : 'fail';
}

function outcomeOf({ downstream }: Stream): Outcome {
  if (downstream.error !== undefined) return 'fail';
  return downstream.wasCut ? 'cut' : 'end';
}

for (const point of Object.keys(POINTS) as Point[]) {
  for (const caller of CALLERS) {
    if (point === 'nothing yet' && caller !== 'reads') continue;
    for (const name of Object.keys(ENDINGS)) {
      void t.test(`${name} after ${point}, of a caller who ${caller}`, async (t) => {
        const stream = await streamOf(t);
        const { downstream } = stream;
        await play(stream, point, caller, name);
        await downstream.ended;
        await turn();
        t.equal(downstream.endings, 1);
        t.equal(outcomeOf(stream), expected(point, caller, name));
        if (outcomeOf(stream) === 'fail') t.equal(downstream.error?.code, 'provider_unavailable');
        else t.ok(downstream.usage, 'it has its bill');
        t.equal(downstream.text.endsWith(DONE), outcomeOf(stream) === 'end');
      });
    }
  }
}

void t.test('the timeout of a whole call counts the time of the upstream alone', async (t) => {
  const stream = await streamOf(t);
  for (let pause = 0; pause < 5; pause++) {
    await stopReading(stream);
    stream.clock.advance(2 * TOTAL_MS);
    for (let turns = 0; turns < 20; turns++) await turn();
    readOn(stream);
    await live(stream, TOTAL_MS / 10);
  }
  await say(stream, STOP);
  stream.response.end(DONE);
  await stream.downstream.ended;
  t.equal(outcomeOf(stream), 'end');
});

void t.test(
  'a generation that goes on beyond that timeout is cut and charged for what was relayed',
  async (t) => {
    const stream = await streamOf(t);
    await say(stream);
    await live(stream, TOTAL_MS - STEP_MS);
    t.equal(stream.downstream.endings, 0);
    stream.clock.advance(STEP_MS + 1);
    await stream.downstream.ended;
    t.equal(outcomeOf(stream), 'cut');
    t.strictSame(stream.downstream.usage, { ...COUNTED, source: 'estimated' });
  },
);

void t.test('a caller holds a stream up for so long and no longer', async (t) => {
  const stream = await streamOf(t);
  await stopReading(stream);
  stream.clock.advance(HELD_UP_MS_MAX / 2);
  readOn(stream);
  await stopReading(stream);
  stream.clock.advance(HELD_UP_MS_MAX / 2 - 1_000);
  for (let turns = 0; turns < 20; turns++) await turn();
  t.equal(stream.downstream.endings, 0);
  stream.clock.advance(2_000);
  await stream.downstream.ended;
  t.equal(outcomeOf(stream), 'cut');
});

void t.test(
  'a stream that is held up for the last of the time is held up, however short the last pause',
  async (t) => {
    const stream = await streamOf(t);
    const lastMs = HELD_UP_MS_MIN / 2;
    await stopReading(stream);
    stream.clock.advance(HELD_UP_MS_MAX - lastMs);
    readOn(stream);
    // The pause is so long ago that it would not be the reason for a failure.
    await live(stream, HELD_UP_MS_REMEMBERED + STEP_MS);
    await stopReading(stream);
    t.equal(stream.downstream.endings, 0);
    stream.clock.advance(lastMs);
    await stream.downstream.ended;
    t.equal(outcomeOf(stream), 'cut');
  },
);

void t.test('the pauses of two threads that pass on a fast stream are no holding up', async (t) => {
  const stream = await streamOf(t);
  for (let pause = 0; pause < 100; pause++) {
    await stopReading(stream);
    stream.clock.advance(HELD_UP_MS_MIN / 20);
    readOn(stream);
    stream.clock.advance(HELD_UP_MS_MIN / 20);
    await say(stream);
  }
  stream.response.socket?.resetAndDestroy();
  await stream.downstream.ended;
  t.equal(outcomeOf(stream), 'fail');
});

void t.test(
  'a client that leaves pays for what came after an early report, and not less than the report',
  async (t) => {
    for (const [tokens, wanted] of [
      [0, COUNTED.completionTokens],
      [3, COUNTED.completionTokens],
      [500, 500],
    ] as const) {
      const stream = await streamOf(t);
      const report = { ...USAGE, completion_tokens: tokens, total_tokens: USAGE.prompt_tokens + tokens };
      await say(stream, sse({ ...chunkOf('word'), usage: report }) + TEXT);
      stream.session.onCancel();
      await stream.downstream.ended;
      t.strictSame(stream.downstream.usage, {
        promptTokens: USAGE.prompt_tokens,
        cachedTokens: 0,
        cacheWriteTokens: 0,
        cacheWrite1hTokens: 0,
        reasoningTokens: 0,
        completionTokens: wanted,
        source: 'estimated',
      });
    }
    const old = await streamOf(t);
    await say(old, sse({ ...chunkOf('word'), usage: USAGE }) + TEXT + STOP);
    old.response.end(DONE);
    await old.downstream.ended;
    t.equal(old.downstream.usage?.completionTokens, COUNTED.completionTokens, 'also of a whole stream');
    const whole = await streamOf(t);
    const events = TEXT + STOP;
    await say(whole, events + sse(usageEvent(USAGE)), events);
    whole.session.onCancel();
    await whole.downstream.ended;
    t.strictSame(whole.downstream.usage, REPORTED, 'the last report is exact');
    t.equal(whole.counts.length, 0);
  },
);
