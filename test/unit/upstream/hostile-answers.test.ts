/**
 * Responses that are nearly good, whole and streamed, against a strict judge: what it refuses is never handed
 * on as good, and what it finds good is never refused.
 */
import t from 'tap';
import { membersOfResponse } from '#src/upstream/response-json.js';
import { ResponseReader, type ResponseOutcome, type ResponseSink } from '#src/upstream/response-reader.js';
import { WorkerBudget, createBudget, ResponseBudget } from '#src/upstream/worker-budget.js';
import { StreamReader } from '#src/upstream/stream-reader.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';
import { answerOf, chunkOf, DONE, sse, USAGE, usageEvent } from '../../fixtures/upstream-server.js';
import { brokenForms, isGoodAnswer, isGoodStream, mutated, NO_UTF8 } from '../../support/answer-judge.js';
import { newSeed, randomOf } from '../../support/random.js';

const FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const MUTATIONS = FULL ? 400_000 : 20_000;

class Sink implements ResponseSink, ResponseOutcome {
  begins = 0;
  readonly relayed: Uint8Array[] = [];
  rest: Uint8Array | undefined;
  rejected = false;

  onBegin(): void {
    if (this.begins > 0 || this.relayed.length > 0) throw new Error('begun too late or twice');
    this.begins++;
  }

  crash(error: unknown): void {
    throw error;
  }

  relay(bytes: Uint8Array): void {
    if (this.begins === 0) throw new Error('relayed before it has begun');
    this.relayed.push(bytes);
  }

  complete(rest: Uint8Array): void {
    this.rest = rest;
  }

  reject(): void {
    this.rejected = true;
  }

  get delivered(): Buffer {
    return Buffer.concat([...this.relayed, this.rest ?? Buffer.alloc(0)]);
  }
}

function readWhole(answer: Uint8Array): Sink {
  const sink = new Sink();
  const reader = new ResponseReader(
    sink,
    new UsageMeter(),
    new ResponseBudget(new WorkerBudget(createBudget(1, Infinity), 0, 0)),
  );
  reader.onData(answer);
  reader.onEnd();
  return sink;
}

function readStream(stream: Uint8Array, pieceBytes = stream.length): Sink {
  const sink = new Sink();
  const reader = new StreamReader({ sink, outcome: sink, meter: new UsageMeter() }, true, 1);
  for (let at = 0; at < stream.length; at += pieceBytes) reader.onData(stream.subarray(at, at + pieceBytes));
  reader.onEnd();
  return sink;
}

/** How many were tried. */
function checkWhole(answers: Iterable<Uint8Array>, note: string): number {
  let count = 0;
  for (const answer of answers) {
    count++;
    const isGood = isGoodAnswer(answer);
    const { rest, rejected } = readWhole(answer);
    if (isGood === (rest !== undefined) && isGood !== rejected) continue;
    t.fail(
      `${isGood ? 'refused' : 'delivered'} (${note}): ${JSON.stringify(Buffer.from(answer).toString('latin1'))}`,
    );
  }
  return count;
}

/** What goes down is good up to where it ends, whatever becomes of the stream. */
function checkStream(streams: Iterable<Uint8Array>, note: string): number {
  let count = 0;
  for (const stream of streams) {
    count++;
    for (const pieceBytes of [stream.length, 97]) {
      const { delivered, rejected, rest } = readStream(stream, Math.max(1, pieceBytes));
      if (!isGoodStream(delivered) || rejected === (rest !== undefined))
        t.fail(`delivered (${note}): ${JSON.stringify(Buffer.from(stream).toString('latin1'))}`);
    }
  }
  return count;
}

const WHOLES = [
  answerOf(USAGE, 'é😀 "quoted" \\ }{"choices":['),
  answerOf(undefined, ''),
  JSON.stringify(JSON.parse(answerOf(USAGE)), null, 2),
].map((text) => Buffer.from(text));

const STREAM = Buffer.from(
  ['he', 'llo', ' é😀', ' "usage"', '\n\\', 'more', '', 'x'].map((text) => sse(chunkOf(text))).join('') +
    sse(chunkOf('', 'stop')) +
    sse(usageEvent(USAGE)) +
    DONE,
);

function* mutations(of: readonly Buffer[], count: number, seed: number): Generator<Buffer> {
  const next = randomOf(seed);
  for (let done = 0; done < count; done++) yield mutated(of[done % of.length]!, next);
}

void t.test('whole answers', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  let count = checkWhole(WHOLES, 'as they are');
  for (const answer of WHOLES) count += checkWhole(brokenForms(answer), 'broken');
  count += checkWhole(mutations(WHOLES, MUTATIONS, seed), `seed ${seed}`);
  t.ok(count > 20_000, `${count} answers`);
  t.end();
});

void t.test('those of the issue', (t) => {
  const usage = JSON.stringify(USAGE);
  for (const text of [
    `{"choices":[ THIS IS NOT JSON ,"usage":${usage}}`,
    `{"choices":[{"message":{"content":"a}}],"usage":${usage}}`,
    `{"choices":[],"usage":${usage}}{"choices":[],"usage":${usage}}`,
    `{"choices":[],"x":[1,2,"usage":${usage}}`,
    `{"choices":[{"message":{"content":"a\nb"}}],"usage":${usage}}`,
    `{"choices":[{"message":{"content":"a\u0000b"}}],"usage":${usage}}`,
  ])
    t.ok(readWhole(Buffer.from(text)).rejected, JSON.stringify(text));
  t.ok(
    readWhole(Buffer.from(`{"choices":1,"choices":[],"usage":${usage}}`)).rest,
    'of a doubled member the last counts',
  );
  t.end();
});

void t.test('streams', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  t.equal(readStream(STREAM).delivered.toString(), STREAM.toString());
  let count = checkStream(brokenForms(STREAM), 'broken');
  count += checkStream(mutations([STREAM], MUTATIONS / 4, seed), `seed ${seed}`);
  t.ok(count > 10_000, `${count} streams`);
  t.end();
});

void t.test('a bad event after a hundred good ones of one form', (t) => {
  const good = (count: number): string => sse(chunkOf('word')).repeat(count);
  const event = sse(chunkOf('word'));
  let count = 0;
  for (let at = 'data: '.length; at < event.length - 2; at++) {
    for (const bytes of [
      ...NO_UTF8,
      Buffer.from('"'),
      Buffer.from('\u0000'),
      Buffer.from('}'),
      Buffer.from('\\'),
    ]) {
      const bad = Buffer.concat([Buffer.from(event.slice(0, at)), bytes, Buffer.from(event.slice(at))]);
      const stream = Buffer.concat([Buffer.from(good(100)), bad, Buffer.from(good(100)), STREAM]);
      const { delivered, rejected } = readStream(stream, 3 * event.length);
      count++;
      if (!isGoodStream(delivered)) t.fail(`delivered: ${bad.toString('latin1')}`);
      if (rejected === isGoodStream(bad))
        t.fail(`${rejected ? 'refused' : 'taken'}: ${bad.toString('latin1')}`);
    }
  }
  t.ok(count > 1_000, `${count} events`);
  t.end();
});

void t.test('long answers: those that are good are taken, and read the same', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  const pieces = [
    'prose ',
    '\n',
    '"',
    '\\',
    'é',
    '😀',
    '}{"',
    '"choices":[',
    '\u0000',
    '},{',
    '\\"',
    '\u2028',
  ];
  for (let count = 0; count < 300; count++) {
    const bytes = 3_000 + Math.floor(next() * 40_000);
    const share = next();
    let text = '';
    while (text.length < bytes)
      text += next() < share ? 'prose ' : pieces[Math.floor(next() * pieces.length)]!;
    const value = {
      id: 'x',
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: count % 3 === 0 ? null : text,
            tool_calls: [{ arguments: text }],
          },
        },
      ],
      usage: USAGE,
    };
    const answer = Buffer.from(JSON.stringify(value, null, count % 5 === 0 ? 1 : undefined));
    t.same(membersOfResponse(answer)?.usage, USAGE, `seed ${seed}`);
  }
  t.end();
});

void t.test('long answers: what is refused for certain', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  const texts = ['prose and more of it. ', 'code(a, "b");\n'].map((text) => text.repeat(1_000));
  for (const text of texts) {
    const answer = Buffer.from(answerOf(USAGE, text));
    const rejected = (bytes: Buffer, what: string): void => {
      if (isGoodAnswer(bytes)) t.fail(`the judge takes ${what}`);
      else if (membersOfResponse(bytes) !== undefined) t.fail(`taken: ${what}, seed ${seed}`);
    };
    const around = (at: number, put: Uint8Array): Buffer =>
      Buffer.concat([answer.subarray(0, at), put, answer.subarray(at)]);
    for (let end = 0; end < 400; end++) rejected(answer.subarray(0, end), `cut at ${end}`);
    for (let short = 1; short < 2_000; short++) rejected(answer.subarray(0, -short), `cut by ${short}`);
    for (let count = 0; count < 500; count++) {
      const at = Math.floor(next() * answer.length);
      rejected(answer.subarray(0, at), `cut at ${at}`);
      for (const bytes of NO_UTF8) rejected(around(at, bytes), 'no UTF-8');
      rejected(around(300 + (at % (answer.length - 900)), Buffer.from('\n')), 'a line break in the text');
    }
    rejected(Buffer.concat([answer, answer]), 'two answers');
    rejected(Buffer.concat([answer, Buffer.from('\n'), answer]), 'two answers on lines of their own');
    rejected(Buffer.concat([answer, Buffer.from('{}')]), 'another object');
    rejected(Buffer.concat([answer, Buffer.from('x')]), 'a letter behind it');
    rejected(Buffer.concat([Buffer.from('\uFEFF'), answer]), 'a byte-order mark');
    rejected(
      Buffer.from(answer.toString().replaceAll('\\n', '\n').replaceAll('\\"', '"').replace(' ', '\n')),
      'no escapes',
    );
    rejected(
      Buffer.concat([answer.subarray(0, 5_000), Buffer.alloc(8_192), answer.subarray(5_000)]),
      'a page of zeros',
    );
  }
  t.pass('none was taken');
  t.end();
});
