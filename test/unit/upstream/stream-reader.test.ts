/** What of a stream is relayed, what is held for the end, and what is refused. */
import t from 'tap';
import { SSE_EVENT_BYTES_MAX } from '#src/core/limits.js';
import type { ResponseOutcome, ResponseSink } from '#src/upstream/response-reader.js';
import type { AttemptFailure } from '#src/upstream/error-mapping.js';
import { StreamReader } from '#src/upstream/stream-reader.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';
import { chunkOf, DONE, sse, USAGE, usageEvent } from '../../fixtures/upstream-server.js';

class Sink implements ResponseSink, ResponseOutcome {
  begins = 0;
  relayed = '';
  rest: string | undefined;
  failure: AttemptFailure | undefined;
  endings = 0;

  onBegin(): void {
    if (this.begins > 0 || this.relayed !== '') throw new Error('begun too late or twice');
    this.begins++;
  }

  crash(error: unknown): void {
    throw error;
  }

  relay(bytes: Uint8Array): void {
    if (this.begins === 0) throw new Error('relayed before it has begun');
    if (this.endings > 0) throw new Error('relayed after the end');
    this.relayed += Buffer.from(bytes).toString('utf8');
  }

  complete(rest: Uint8Array): void {
    this.rest = Buffer.from(rest).toString('utf8');
    this.endings++;
  }

  reject(failure: AttemptFailure): void {
    this.failure = failure;
    this.endings++;
  }
}

function read(
  chunks: readonly (string | Uint8Array)[],
  includeUsage = false,
  end = true,
  choices = 1,
): { sink: Sink; meter: UsageMeter; reader: StreamReader } {
  const sink = new Sink();
  const meter = new UsageMeter();
  const reader = new StreamReader({ sink, outcome: sink, meter }, includeUsage, choices);
  for (const chunk of chunks) reader.onData(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
  if (end) reader.onEnd();
  return { sink, meter, reader };
}

const CONTENT = [
  sse(chunkOf('he')),
  sse(chunkOf('llo \u00e9\u{1f600} "usage"')),
  sse(chunkOf('', 'stop')),
].join('');
const STREAM = CONTENT + sse(usageEvent(USAGE)) + DONE;

void t.test('the model that an event with a report names', (t) => {
  const report = { ...usageEvent(USAGE), model: 'modèle 模型' };
  t.equal(read([CONTENT + sse(report) + DONE]).meter.responseModel, 'modèle 模型');
  t.equal(
    read([CONTENT + sse(report).replaceAll(',', '\ndata:,') + DONE]).meter.responseModel,
    'modèle 模型',
  );
  t.end();
});

void t.test('cut at every byte, the client gets the same', (t) => {
  const bytes = Buffer.from(STREAM);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const { sink, meter } = read([bytes.subarray(0, cut), bytes.subarray(cut)]);
    if (sink.relayed !== CONTENT || sink.rest !== DONE || sink.endings !== 1) t.fail(`cut at ${cut}`);
    if (meter.reported?.completionTokens !== 3) t.fail(`usage lost at ${cut}`);
  }
  const { sink } = read([...bytes].map((byte) => Uint8Array.of(byte)));
  t.equal(sink.relayed, CONTENT);
  t.equal(sink.rest, DONE);
  t.end();
});

void t.test('events are relayed as soon as they are whole, the end waits for the end', (t) => {
  const { sink } = read([sse(chunkOf('a')) + 'data: {"cho'], false, false);
  t.equal(sink.relayed, sse(chunkOf('a')));
  t.equal(sink.endings, 0);
  t.end();
});

void t.test('CRLF, comments and named events', (t) => {
  const crlf = STREAM.replaceAll('\n', '\r\n');
  t.equal(read([crlf]).sink.relayed, CONTENT.replaceAll('\n', '\r\n'));
  const commented = `: ping\n\n${CONTENT}: ping\n\n${DONE}`;
  t.equal(read([commented]).sink.relayed, CONTENT);
  t.end();
});

void t.test('usage: handed on where it was asked for, or stands beside choices', (t) => {
  t.equal(read([STREAM], true).sink.relayed, CONTENT + sse(usageEvent(USAGE)));
  const beside = sse({ ...chunkOf('x', 'stop'), usage: USAGE }) + DONE;
  const { sink, meter } = read([beside]);
  t.equal(sink.relayed + (sink.rest ?? ''), beside);
  t.equal(meter.reported?.promptTokens, 7);
  t.end();
});

void t.test('usage after [DONE] is read, and waited for but shortly', async (t) => {
  const late = CONTENT + DONE + sse(usageEvent(USAGE));
  for (const chunks of [[late], [CONTENT + DONE, sse(usageEvent(USAGE))]]) {
    const { sink, meter } = read(chunks, true, false);
    t.equal(sink.relayed, CONTENT);
    t.equal(sink.rest, DONE);
    t.equal(meter.reported?.completionTokens, 3);
  }
  const { sink, meter } = read([CONTENT + DONE], false, false);
  t.equal(sink.endings, 0, 'usage may still come');
  await new Promise((resolve) => setTimeout(resolve, 200));
  t.equal(sink.rest, DONE);
  t.equal(meter.reported, undefined);
});

void t.test('[DONE] is added where the upstream ended well without it', (t) => {
  t.equal(read([CONTENT]).sink.rest, DONE);
  t.equal(read([CONTENT + sse(usageEvent(USAGE))]).sink.rest, DONE);
  t.equal(read([CONTENT.trimEnd()]).sink.rest, DONE, 'the last blank line missing as well');
  const usage = sse(usageEvent(USAGE));
  t.equal(read([CONTENT, usage], true).sink.rest, DONE, 'the finish came before the last piece');
  t.match(read([CONTENT + sse(chunkOf('more'))]).sink.failure?.cause, /ended before/, 'it went on');
  t.match(read([sse(chunkOf('a', ''))]).sink.failure?.cause, /ended before/, 'an empty reason is none');
  t.match(read([sse(chunkOf('a'))]).sink.failure?.cause, /ended before/);
  t.match(read([]).sink.failure?.cause, /ended before/);
  t.end();
});

/** A choice whose generation has failed, as OpenRouter writes it. */
const FAILED = {
  choices: [{ index: 0, delta: { content: '' }, finish_reason: 'error', error: { code: 502, message: 'm' } }],
};

void t.test('what is refused, and that nothing of it went down', (t) => {
  const first: [string, RegExp][] = [
    ['data: <html>\n\n', /no JSON object/],
    ['data: {"choices":[\n\n', /no JSON object/],
    ['data: [1]\n\n', /no JSON object/],
    [sse({ hello: 1 }), /no choices/],
    [DONE, /before any choice/],
    [sse({ error: { message: 'overloaded' } }), /error event/],
    [sse(FAILED), /error in a choice/],
    [`data: ${'x'.repeat(SSE_EVENT_BYTES_MAX + 1)}`, /too long/],
  ];
  for (const [text, cause] of first) {
    const { sink } = read([text], false, false);
    t.match(sink.failure?.cause, cause);
    t.equal(sink.relayed, '');
    t.equal(sink.endings, 1);
  }
  const { sink } = read([sse(chunkOf('he')) + sse({ error: 'x' })]);
  t.equal(
    sink.relayed,
    '',
    'a part that came with the bad event is held back while another upstream may answer',
  );
  t.match(sink.failure?.cause, /error event/);
  const whole = read([CONTENT + sse({ error: 'x' })]).sink;
  t.equal(whole.relayed, CONTENT, 'a whole text is not');
  t.equal(whole.rest, DONE);
  t.end();
});

void t.test('a member `error` that says nothing is no error', (t) => {
  for (const error of [null, '', false, 0, []]) {
    const events = sse({ ...chunkOf('a'), error }) + sse({ ...chunkOf('', 'stop'), error });
    const { sink } = read([events]);
    t.equal(sink.failure, undefined);
    t.equal(sink.relayed, events);
    t.equal(sink.rest, DONE);
  }
  t.end();
});

void t.test('in the middle: what came before was relayed, the bad event is not', (t) => {
  const bads = [
    sse({ error: { message: 'm' } }),
    sse(FAILED),
    sse({ object: 'error', message: 'm', type: 'BadRequestError', param: null, code: 400 }),
    'data: {"choices":[{\n\n',
    'data: oops\n\n',
  ];
  for (const bad of bads) {
    const { sink } = read([sse(chunkOf('a')), sse(chunkOf('b')) + bad + CONTENT + DONE]);
    t.equal(sink.relayed, sse(chunkOf('a')) + sse(chunkOf('b')));
    t.match(sink.failure?.cause, /bad answer/);
    t.equal(sink.endings, 1);
  }
  t.end();
});

void t.test(
  'a comment or a usage event between a good and a bad event lets another upstream respond',
  (t) => {
    const bad = sse({ error: { message: 'overloaded' } });
    for (const between of [': alive\n\n', sse(usageEvent(USAGE))]) {
      const { sink } = read([sse(chunkOf('he')) + between + bad]);
      t.equal(sink.begins, 0);
      t.equal(sink.relayed, '');
      t.match(sink.failure?.cause, /error event/);
      const good = read([sse(chunkOf('he')) + between + sse(chunkOf('llo')) + sse(chunkOf('', 'stop'))]).sink;
      t.equal(good.relayed, sse(chunkOf('he')) + sse(chunkOf('llo')) + sse(chunkOf('', 'stop')));
      t.equal(good.rest, DONE);
    }
    t.end();
  },
);

void t.test('an empty list beside an empty text is no text: the report before it stays', (t) => {
  const empty = (member: object): string =>
    sse({ choices: [{ index: 0, delta: { content: '', ...member } }] });
  const reported = sse({ ...chunkOf('', 'stop'), usage: USAGE });
  for (const member of [
    { tool_calls: [] },
    { reasoning_details: [] },
    { function_call: {} },
    { audio: {} },
  ]) {
    const { meter } = read([sse(chunkOf('word')) + reported + empty(member) + DONE]);
    t.equal(meter.isReportOld, false, JSON.stringify(member));
  }
  const { meter } = read([reported + empty({ tool_calls: [{ index: 0, function: { name: 'f' } }] }) + DONE]);
  t.equal(meter.isReportOld, true, 'a call of a tool is');
  t.end();
});

void t.test('an event without text does not open a choice again that has ended', (t) => {
  const empty = sse({ choices: [{ index: 0, delta: { content: '' }, finish_reason: null }] });
  t.equal(read([CONTENT + empty]).sink.rest, DONE, 'so the stream ends well without [DONE]');
  t.match(read([CONTENT + sse(chunkOf('more')) + empty]).sink.failure?.cause, /ended before/);
  t.end();
});

void t.test('absurd usage is not believed, and not handed on unasked', (t) => {
  const { sink, meter } = read([
    CONTENT + sse(usageEvent({ prompt_tokens: -5, completion_tokens: 1e15 })) + DONE,
  ]);
  t.equal(meter.reported, undefined);
  t.equal(sink.relayed, CONTENT);
  t.equal(sink.rest, DONE);
  t.end();
});

void t.test('after [DONE] only a usage that was missing counts', (t) => {
  for (const tail of [
    'data: oops\n\n',
    sse({ error: 'x' }),
    sse(usageEvent({ ...USAGE, prompt_tokens: 9 })),
  ]) {
    for (const chunks of [[STREAM + tail], [STREAM, tail]]) {
      const { sink, meter } = read(chunks);
      t.equal(sink.rest, DONE);
      t.equal(meter.reported?.promptTokens, 7);
    }
  }
  t.equal(read([CONTENT + DONE + 'data: oops\n\n' + sse(usageEvent(USAGE))]).meter.reported?.promptTokens, 7);
  t.end();
});

void t.test('a report beside one of several choices is of that choice, until the stream has ended', (t) => {
  const piece = (index: number, tokens: number): string =>
    sse({
      choices: [{ index, delta: { content: 'a' } }],
      usage: { prompt_tokens: 5, completion_tokens: tokens, total_tokens: 5 + tokens },
    });
  const finish = (index: number): string => sse({ choices: [{ index, delta: {}, finish_reason: 'stop' }] });
  const pieces = piece(0, 1) + piece(0, 2) + piece(1, 1) + piece(1, 2);
  const texts = pieces + finish(0) + finish(1);

  const left = read([texts], false, false, 2);
  left.meter.reportSoFar(left.reader);
  t.match(left.meter.reported, { promptTokens: 5, completionTokens: 2 });
  t.equal(left.meter.isReportOld, true, 'who leaves pays for what is counted, if that is more');

  const all = { prompt_tokens: 5, completion_tokens: 4, total_tokens: 9 };
  const whole = read([texts + sse(usageEvent(all)) + DONE], false, true, 2);
  t.equal(whole.meter.reported?.completionTokens, 4);
  t.equal(whole.reader.usageSoFar, undefined);
  const last = { choices: [{ index: 1, delta: {}, finish_reason: 'stop' }], model: 'm', usage: all };
  for (const end of [DONE, '']) {
    const { meter, sink } = read([pieces + finish(0) + sse(last) + end], false, true, 2);
    t.equal(meter.reported?.completionTokens, 4, 'the last one counts, if none stands alone');
    t.equal(meter.responseModel, 'm');
    t.equal(meter.isReportOld, false);
    t.equal(sink.endings, 1);
  }

  const one = read([piece(0, 1) + piece(0, 2)], false, false, 1);
  t.equal(one.meter.reported?.completionTokens, 2, 'of a single choice it is of the call');
  t.equal(one.meter.isReportOld, false);
  t.end();
});

void t.test('an event of the longest kind passes', (t) => {
  const long = sse(chunkOf('x'.repeat(SSE_EVENT_BYTES_MAX - 1_000)));
  t.equal(
    read([sse(chunkOf('a')), long + long + CONTENT + DONE]).sink.relayed,
    sse(chunkOf('a')) + long + long + CONTENT,
  );
  t.end();
});

/** An event that has these choices, those in capitals with the reason of their end. */
const eventOf = (choices: string): string =>
  sse({
    choices: choices.split('').map((letter) => ({
      index: letter.toLowerCase().charCodeAt(0) - 97,
      delta: { content: 'x' },
      finish_reason: letter >= 'a' ? null : 'stop',
    })),
  });

void t.test(
  'the end of one choice is not the end of the stream: every order of two and three choices',
  (t) => {
    let count = 0;
    const check = (choices: number, events: readonly string[]): void => {
      count++;
      const isEnded = new Map<string, boolean>();
      for (const letter of events.join('')) isEnded.set(letter.toLowerCase(), letter < 'a');
      const haveEnded = [...isEnded.values()].every(Boolean);
      const chunks = events.map(eventOf);
      const note = `${choices} choices: ${events.join(' ')}`;
      const { reader } = read(chunks, false, false, choices);
      if (reader.isWhole !== (haveEnded && isEnded.size >= choices)) t.fail(`isWhole, ${note}`);
      // In one piece what is known by its form is not looked at.
      const joined = read([chunks.join('')], false, false, choices).reader;
      if (joined.isWhole !== reader.isWhole) t.fail(`in one piece, ${note}`);
      // Some upstreams give one choice whatever was asked for: they end in order.
      const { sink } = read(chunks, false, true, choices);
      if ((sink.rest === DONE) !== haveEnded) t.fail(`at the end, ${note}`);
      if ((sink.failure === undefined) !== haveEnded) t.fail(`refused, ${note}`);
    };
    const grow = (
      choices: number,
      alphabet: readonly string[],
      events: readonly string[],
      left: number,
    ): void => {
      if (events.length > 0) check(choices, events);
      if (left > 0) for (const event of alphabet) grow(choices, alphabet, [...events, event], left - 1);
    };
    grow(1, ['a', 'A'], [], 5);
    grow(2, ['a', 'A', 'b', 'B', 'ab', 'aB', 'AB'], [], 4);
    grow(3, ['a', 'A', 'B', 'c', 'C'], [], 5);
    t.ok(count > 5_000, `${count} streams`);
    t.end();
  },
);

void t.test('an upstream that makes up choices without end keeps no more than can be asked for', (t) => {
  const chunks = Array.from({ length: 10_000 }, (_, index) =>
    sse({ choices: [{ index, delta: { content: 'x' } }] }),
  );
  t.ok(read(chunks).sink.failure, 'they have not ended');
  t.end();
});
