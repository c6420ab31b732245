/** Whole answers: checked, unchanged, bounded. */
import t from 'tap';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { UPSTREAM_RESPONSE_BYTES_MAX } from '#src/core/limits.js';
import { dialectAt } from '#src/doors/dialects.js';
import type { Dialect } from '#src/doors/door.js';
import { WorkerBudget, createBudget, ResponseBudget } from '#src/upstream/worker-budget.js';
import { ResponseReader } from '#src/upstream/response-reader.js';
import type { AttemptFailure } from '#src/upstream/error-mapping.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';
import { answerOf, USAGE } from '../../fixtures/upstream-server.js';

const AMPLE = new WorkerBudget(createBudget(1, Infinity), 0, 0);

function read(
  chunks: readonly Uint8Array[],
  { budget = AMPLE, dialect }: { budget?: WorkerBudget; dialect?: Dialect } = {},
) {
  const meter = new UsageMeter();
  const room = new ResponseBudget(budget);
  const outcome: { rest?: string; failure?: AttemptFailure; endings: number } = { endings: 0 };
  const reader = new ResponseReader(
    {
      onBegin: () => t.fail('a whole answer is not relayed in parts'),
      complete: (rest) => {
        outcome.rest = Buffer.from(rest as Uint8Array).toString('utf8');
        outcome.endings++;
      },
      reject: (failure) => {
        outcome.failure = failure;
        outcome.endings++;
      },
    },
    meter,
    room,
    dialect,
  );
  for (const chunk of chunks) reader.onData(chunk);
  reader.onEnd();
  return { ...outcome, meter, room };
}

void t.test('the bytes are handed on as they came', (t) => {
  const answer = Buffer.from(` ${answerOf(USAGE, '\u00e9\u{1f600}')}\n`);
  for (let cut = 0; cut <= answer.length; cut++) {
    const { rest, endings, meter } = read([answer.subarray(0, cut), answer.subarray(cut)]);
    if (rest !== answer.toString('utf8') || endings !== 1) t.fail(`cut at ${cut}`);
    if (meter.reported?.promptTokens !== 7) t.fail(`usage lost at ${cut}`);
  }
  t.end();
});

void t.test('the model that it names', (t) => {
  const answer = answerOf(USAGE);
  t.equal(read([Buffer.from(answer)]).meter.responseModel, 'm');
  const other = answer.replace('"model":"m"', '"model":"modèle 模型"');
  t.equal(read([Buffer.from(other)]).meter.responseModel, 'modèle 模型');
  t.end();
});

void t.test('without usage there is what the counter needs', (t) => {
  const { meter, rest } = read([Buffer.from(answerOf(undefined))]);
  t.equal(meter.reported, undefined);
  t.equal(meter.countRequest({ tokenizer: 'none', body: '{}' }).completion, rest);
  t.end();
});

void t.test('a response without text is not kept to be looked through for text', (t) => {
  for (const [door, marker] of [
    ['embeddings', 'data'],
    ['moderations', 'results'],
    ['rerank', 'results'],
  ] as const)
    for (const usage of [undefined, { prompt_tokens: 7, total_tokens: 7 }]) {
      const bytes = Buffer.from(JSON.stringify({ [marker]: [{ embedding: [0.5, 0.25] }], usage }));
      let reads = 0;
      bytes.toString = (encoding?: BufferEncoding): string => {
        reads++;
        return Buffer.from(bytes).toString(encoding);
      };
      const { meter, rest } = read([bytes], { dialect: dialectAt(DOOR_INDEX[door])! });
      t.match(rest, marker);
      t.equal(meter.reported?.promptTokens, usage?.prompt_tokens);
      const before = reads;
      t.equal(meter.hasText(), false);
      t.match(
        meter.countRequest({ tokenizer: 'none', body: '{}' }),
        { completionForm: 'none', completion: '' },
        door,
      );
      t.equal(reads, before, `${door}: not read once more`);
    }
  const { meter } = read([Buffer.from('{"choices":[{"text":"word"}]}')], {
    dialect: dialectAt(DOOR_INDEX.completions)!,
  });
  t.equal(meter.hasText(), true);
  t.end();
});

void t.test('what is no chat completion is refused', (t) => {
  for (const text of [
    '',
    'null',
    '[]',
    '"x"',
    '{"choices":{}}',
    '{"error":{}}',
    '{"choices":[],"error":{"code":502}}',
    answerOf(USAGE).replace('{', '{"error":{"code":429,"message":"behind"},'),
    answerOf(USAGE).replace(/\}$/, ',"error":"behind"}'),
    answerOf(USAGE).replace('"choices":[{', '"choices":[{"error":{"code":502,"message":"behind"},'),
    answerOf(USAGE, 'x'.repeat(9_999)).replace(/\}$/, ',"error":{"code":502}}'),
    answerOf(USAGE).slice(0, -1),
    '<html>',
  ]) {
    const { failure, endings } = read([Buffer.from(text)]);
    t.match(failure?.cause, /bad answer/, text);
    t.equal(endings, 1);
  }
  for (const error of ['null', '""', 'false'])
    t.equal(
      read([Buffer.from(answerOf(USAGE).replace('{', `{"error":${error},`))]).failure,
      undefined,
      `an error that is ${error} is none`,
    );
  t.end();
});

void t.test('the bound', (t) => {
  const head = Buffer.from('{"choices":[],"x":"');
  const tail = Buffer.from('"}');
  // A new one each time: the reader frees it.
  const fillerBytes = UPSTREAM_RESPONSE_BYTES_MAX - head.length - tail.length;
  const newFiller = () => Buffer.alloc(fillerBytes, 'a');
  t.equal(read([head, newFiller(), tail]).rest?.length, UPSTREAM_RESPONSE_BYTES_MAX);
  const { failure, endings } = read([head, newFiller(), Buffer.from('a'), tail]);
  t.match(failure?.cause, /above/);
  t.equal(failure?.callerError, undefined, 'another upstream may be asked');
  t.equal(endings, 1);
  const batch = read([head, newFiller(), Buffer.from('a'), tail], {
    dialect: dialectAt(DOOR_INDEX.embeddings)!,
  });
  t.match(batch.failure?.callerError?.message, /longer than the gateway takes/, 'and is not, for a batch');
  t.equal(batch.failure?.isOurs, true);
  t.end();
});

void t.test('answers that are held together', (t) => {
  const answer = Buffer.from(answerOf(USAGE));
  const budget = new WorkerBudget(createBudget(1, 2 * answer.length), 0, 10);
  const held = [read([answer], { budget }), read([answer], { budget })];
  t.equal(budget.held, 2 * answer.length);
  const { failure, endings } = read([answer.subarray(0, 10), answer.subarray(10)], { budget });
  t.match(failure, { isOurs: true, callerError: { code: 'overloaded', retryAfterSeconds: 5 } });
  t.equal(endings, 1);
  held[0]!.room.clear();
  held[0]!.room.clear();
  t.equal(budget.held, answer.length, 'given back once');
  t.equal(read([answer], { budget }).rest, answer.toString());
  t.end();
});
