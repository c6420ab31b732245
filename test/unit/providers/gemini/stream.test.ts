/**
 * Whole responses and streams of Gemini as chat completions. Each case is a list of events; the stream is
 * read cut at every byte, the whole response is what the events say together, and both must mean the same.
 */
import t from 'tap';
import { GEMINI } from '#src/providers/gemini/gemini.js';
import { ProviderError } from '#src/providers/provider.js';
import { NOW_SECONDS } from './gemini-call.js';
import {
  CALL,
  event,
  text,
  thought,
  usage,
  STOP,
  completionUsage,
  CASES,
  type Json,
} from './gemini-cases.js';

const FINISHES: [reason: string, finish: string][] = [
  ['STOP', 'stop'],
  ['MAX_TOKENS', 'length'],
  ['CONTINUATION', 'length'],
  ['SAFETY', 'content_filter'],
  ['RECITATION', 'content_filter'],
  ['LANGUAGE', 'content_filter'],
  ['OTHER', 'content_filter'],
  ['BLOCKLIST', 'content_filter'],
  ['PROHIBITED_CONTENT', 'content_filter'],
  ['SPII', 'content_filter'],
  ['IMAGE_SAFETY', 'content_filter'],
  ['NO_IMAGE', 'content_filter'],
  ['MALFORMED_FUNCTION_CALL', 'stop'],
  ['UNEXPECTED_TOOL_CALL', 'stop'],
  ['TOO_MANY_TOOL_CALLS', 'stop'],
  ['FINISH_REASON_UNSPECIFIED', 'stop'],
  ['A_REASON_OF_NEXT_YEAR', 'stop'],
  ['constructor', 'stop'],
];

/** The events as one response, as the API gives it without a stream. */
function whole(events: readonly Json[]): Json {
  const parts: unknown[] = [];
  let candidate: Json | undefined;
  const response: Json = {};
  for (const one of events) {
    Object.assign(response, one);
    const [first] = (one.candidates as Json[] | undefined) ?? [];
    if (first === undefined) continue;
    candidate = { ...candidate, ...first };
    parts.push(...(((first.content as Json | undefined)?.parts as unknown[] | undefined) ?? []));
  }
  return { ...response, ...(candidate && { candidates: [{ ...candidate, content: { parts } }] }) };
}

const sse = (events: readonly unknown[], end = '\r\n\r\n'): Buffer =>
  Buffer.from(events.map((one) => `data: ${JSON.stringify(one)}${end}`).join(''));

function streamed(bytes: Buffer, cuts: readonly number[] = [], call = CALL): Json[] {
  const stream = GEMINI.openStream(call);
  let text = '';
  let start = 0;
  for (const end of [...cuts, bytes.length]) {
    text += stream.push(bytes.subarray(start, end));
    start = end;
  }
  text += stream.end();
  if (!text.endsWith('data: [DONE]\n\n')) throw new Error('no [DONE]');
  return text
    .split('\n\n')
    .slice(0, -2)
    .map((line) => JSON.parse(line.slice('data: '.length)) as Json);
}

function failureOf(act: () => unknown): unknown {
  try {
    return act();
  } catch (error) {
    if (error instanceof ProviderError) return error.failure;
    throw error;
  }
}

/** What a client makes of the chunks, in the shape of a whole response. */
function joined(chunks: readonly Json[]): Json {
  const choices = new Map<number, Json>();
  let last: Json = {};
  for (const chunk of chunks) {
    last = chunk;
    for (const choice of chunk.choices as Json[]) {
      const index = choice.index as number;
      const known = choices.get(index) ?? { index, message: { content: '' }, logprobs: null };
      choices.set(index, known);
      const message = known.message as Json;
      for (const [name, value] of Object.entries(choice.delta as Json)) {
        const before = message[name];
        if (Array.isArray(value)) {
          const items = value.map((item: Json) => {
            const { index: at, ...more } = item;
            return name === 'images' ? { ...more, index: at } : more;
          });
          message[name] = [...((before as unknown[] | undefined) ?? []), ...items];
        } else message[name] = typeof before === 'string' && name !== 'role' ? before + String(value) : value;
      }
      if (choice.finish_reason !== null) known.finish_reason = choice.finish_reason;
      if (choice.logprobs !== null) known.logprobs = choice.logprobs;
      if (message.tool_calls !== undefined && message.content === '') message.content = null;
    }
  }
  const { id, created, model } = last;
  return {
    id,
    object: 'chat.completion',
    created,
    model,
    choices: [...choices.values()],
    ...(last.usage !== undefined && { usage: last.usage }),
  };
}

for (const { name, events, message, finish, usage: used, logprobs = null } of CASES)
  void t.test(name, (t) => {
    const wanted = {
      id: 'resp-1',
      object: 'chat.completion',
      created: NOW_SECONDS,
      model: 'gemini-2.5-flash-001',
      choices: [{ index: 0, message, logprobs, finish_reason: finish }],
      ...(used !== undefined && { usage: used }),
    };
    const read = GEMINI.readResponse(Buffer.from(JSON.stringify(whole(events))), CALL).text;
    t.strictSame(JSON.parse(read), wanted, 'whole');
    const bytes = sse(events);
    const chunks = streamed(bytes);
    t.same(joined(chunks), wanted, 'streamed');
    for (let cut = 1; cut < bytes.length; cut++)
      if (JSON.stringify(streamed(bytes, [cut])) !== JSON.stringify(chunks)) t.fail(`cut at ${cut}`);
    const single = Array.from(bytes.keys()).slice(1);
    t.strictSame(streamed(bytes, single), chunks, 'byte by byte');
    t.strictSame(streamed(sse(events, '\n\n')), chunks, 'with other ends of lines');
    t.strictSame(streamed(bytes.subarray(0, -2)), chunks, 'without its last blank line');
    t.end();
  });

for (const [reason, finish] of FINISHES)
  void t.test(reason, (t) => {
    const events = [event([text('x')], {}, { finishReason: reason })];
    const read = JSON.parse(GEMINI.readResponse(Buffer.from(JSON.stringify(events[0])), CALL).text) as Json;
    t.match(read, { choices: [{ finish_reason: finish }] });
    t.match(joined(streamed(sse(events))), { choices: [{ finish_reason: finish }] });
    t.end();
  });

void t.test('several candidates', (t) => {
  const part = (index: number, value: string, more: Json = {}): Json => ({
    candidates: [{ index, content: { parts: [text(value)] }, ...more }],
  });
  const chunks = streamed(
    sse([part(0, 'a'), part(1, 'b'), part(1, 'c', STOP), part(0, 'd', { finishReason: 'MAX_TOKENS' })]),
  );
  t.match(joined(chunks), {
    id: 'chatcmpl-req_test-42',
    model: 'gemini-2.5-flash',
    choices: [
      { index: 0, message: { content: 'ad' }, finish_reason: 'length' },
      { index: 1, message: { content: 'bc' }, finish_reason: 'stop' },
    ],
  });
  t.end();
});

void t.test('text after the end of a candidate ends it again', (t) => {
  const chunks = streamed(
    sse([event([text('a')], {}, STOP), event([text('b')]), event([], usage(1, 2), STOP)]),
  );
  const ends = chunks.map((chunk) => (chunk.choices as Json[])[0]?.finish_reason ?? null);
  t.strictSame(ends, [null, null, 'stop', null, 'stop', null]);
  t.match(joined(chunks), { choices: [{ message: { content: 'ab' } }] });
  const open = streamed(sse([event([text('a')], {}, STOP), event([text('b')])]));
  t.match(open.at(-1), { choices: [{ finish_reason: 'stop' }] });
  const call = streamed(sse([event([text('a')], {}, STOP), event([{ functionCall: { name: 'now' } }])]));
  t.match(call.at(-1), { choices: [{ finish_reason: 'tool_calls' }] }, 'by what has come since');
  t.end();
});

void t.test('events that match the template mean the same as events that are parsed', (t) => {
  const events = [
    ...Array.from({ length: 20 }, (_, at) =>
      event([thought(`t${at} "é"\n`)], usage(7, 0, { thoughtsTokenCount: at })),
    ),
    ...Array.from({ length: 20 }, (_, at) =>
      event([text(`w${at} 🌍\\`)], usage(7, at, { thoughtsTokenCount: 19 })),
    ),
    event([{ functionCall: { id: 'a', name: 'f' } }], usage(7, 30, { thoughtsTokenCount: 19 })),
    event([text('x')]),
    event([text('y')]),
    event([text('')], {}, STOP),
  ];
  // No event is spelled as the one before.
  const parsed = events.map(
    (one, at) => `data: ${JSON.stringify(one).replace('[', `[${' '.repeat(at % 3)}`)}\n\n`,
  );
  const chunks = streamed(sse(events));
  t.strictSame(chunks, streamed(Buffer.from(parsed.join(''))));
  const toldBy = (told: readonly Json[]): unknown => {
    const stream = GEMINI.openStream(CALL);
    stream.push(sse(told));
    stream.end();
    return stream.usageSoFar;
  };
  t.match(toldBy(events), { promptTokens: 7, completionTokens: 49, reasoningTokens: 19 });
  const cut = [...events.slice(0, 30), event([text('')], {}, STOP)];
  t.match(
    streamed(sse(cut)).at(-1),
    { usage: completionUsage(7, 28, {}, { reasoning_tokens: 19 }) },
    'the last usage is of an event that matches',
  );
  const long = [event([thought('a')]), event([text('x'.repeat(5_000))]), event([thought('b')])];
  t.match(joined(streamed(sse([...long, event([], {}, STOP)]))), {
    choices: [{ message: { content: 'x'.repeat(5_000), reasoning_content: 'ab' } }],
  });
  t.match(toldBy([...events.slice(0, 22), ...events.slice(-3)]), {
    promptTokens: 7,
    completionTokens: 20,
    reasoningTokens: 19,
  });
  t.end();
});

void t.test('speech', (t) => {
  const sound = (data: string): object => ({ inlineData: { mimeType: 'audio/L16;rate=24000', data } });
  const events = [event([sound('AAEC')]), event([sound('AwQ=')], {}, STOP)];
  const read = JSON.parse(GEMINI.readResponse(Buffer.from(JSON.stringify(whole(events))), CALL).text) as Json;
  t.match(read, {
    choices: [{ message: { content: null, audio: { id: 'audio_req_test-42_0', data: 'AAECAwQ=' } } }],
  });
  const deltas = streamed(sse(events)).map((chunk) => (chunk.choices as { delta: Json }[])[0]!.delta);
  t.strictSame(deltas.slice(1, 3), [
    { audio: { id: 'audio_req_test-42_0', data: 'AAEC' } },
    { audio: { id: 'audio_req_test-42_0', data: 'AwQ=' } },
  ]);
  t.end();
});

void t.test('an error in a stream', (t) => {
  const stream = GEMINI.openStream(CALL);
  t.match(stream.push(sse([event([text('a')])])), /"content":"a"/);
  const error = { code: 503, message: 'The model is overloaded.', status: 'UNAVAILABLE' };
  t.match(
    failureOf(() => stream.push(sse([{ error }]))),
    { status: 503, message: 'The model is overloaded.' },
  );
  t.end();
});

const BROKEN: [name: string, bytes: Buffer][] = [
  ['nothing', Buffer.alloc(0)],
  ['comments', Buffer.from(': hello\n\n')],
  ['no JSON', Buffer.from('data: {"candidates":\n\n')],
  ['no object', sse([3])],
  ['no UTF-8', Buffer.from([...Buffer.from('data: "'), 0xff, ...Buffer.from('"\n\n')])],
  ['no candidates', sse([usage(1, 1)])],
  ['no end', sse([event([text('a')])])],
  ['a candidate that is no object', sse([{ candidates: [3] }])],
  ['a wrong index', sse([{ candidates: [{ index: -1 }] }])],
  ['a huge index', sse([{ candidates: [{ index: 128 }] }])],
  ['a call without a name', sse([event([{ functionCall: {} }])])],
  ['a huge event', Buffer.alloc(1024 * 1024 + 64, 'data: x')],
];

for (const [name, bytes] of BROKEN)
  void t.test(`broken stream: ${name}`, (t) => {
    t.match(
      failureOf(() => streamed(bytes)),
      { status: 502 },
    );
    t.end();
  });

const BROKEN_WHOLE: [name: string, body: string][] = [
  ['nothing', ''],
  ['no object', '[]'],
  ['no candidates', JSON.stringify(usage(1, 1))],
  ['candidates that are no list', '{"candidates":{}}'],
  ['a candidate that is no object', '{"candidates":[3]}'],
  ['a call without a name', JSON.stringify(event([{ functionCall: {} }]))],
  ['a wrong index', '{"candidates":[{"index":-1}]}'],
  ['a broken index', '{"candidates":[{"index":0.5}]}'],
  ['a huge index', '{"candidates":[{"index":128}]}'],
];

for (const [name, body] of BROKEN_WHOLE)
  void t.test(`broken response: ${name}`, (t) => {
    t.match(
      failureOf(() => GEMINI.readResponse(Buffer.from(body), CALL)),
      { status: 502 },
    );
    t.end();
  });

void t.test('members of other kinds are as if they were absent', (t) => {
  const response = {
    candidates: [{ content: { parts: 3 }, finishReason: 7, logprobsResult: { chosenCandidates: 1 } }],
    usageMetadata: { promptTokenCount: 'many', promptTokensDetails: 5 },
    responseId: 5,
    modelVersion: null,
  };
  const read = JSON.parse(GEMINI.readResponse(Buffer.from(JSON.stringify(response)), CALL).text) as Json;
  t.match(read, {
    id: 'chatcmpl-req_test-42',
    choices: [{ message: { content: '' }, finish_reason: 'stop' }],
  });
  t.match(
    failureOf(() => streamed(sse([response]))),
    { status: 502 },
  );
  t.end();
});

void t.test('what was told of the usage before the end', (t) => {
  const stream = GEMINI.openStream(CALL);
  t.equal(stream.usageSoFar, undefined);
  const so = (prompt: number, candidates: number): Json =>
    usage(prompt, candidates, { cachedContentTokenCount: 300, thoughtsTokenCount: 7 });
  const told = { promptTokens: 360, cachedTokens: 300, completionTokens: 9, reasoningTokens: 7 };
  stream.push(sse([event([text('Hi')], so(355, 1))]));
  t.match(stream.usageSoFar, { ...told, promptTokens: 355, completionTokens: 8 }, 'with the thoughts');
  stream.push(sse([event([text(' there')], so(360, 2))]));
  t.match(stream.usageSoFar, told, 'of an event that matches');
  t.match(stream.usageSoFar, told);
  stream.push(sse([event([text('.')], so(360, 3), STOP)]));
  t.match(stream.usageSoFar, { ...told, completionTokens: 10 }, 'all has come');
  const two = GEMINI.openStream({ ...CALL, body: { ...CALL.body, n: 2 } });
  two.push(sse([event([text('Hi')], so(360, 3), STOP)]));
  t.match(two.usageSoFar, { ...told, completionTokens: 10 }, 'the other candidate has not begun');
  t.end();
});

void t.test('a usage that is older than the text is not that of the call', (t) => {
  const early = event([text('Hi')], usage(5, 1));
  const later: [name: string, events: Json[], reports: boolean][] = [
    ['a text', [event([text(' there')], {}, STOP)], false],
    [
      'texts of events that match',
      [event([text(' a')]), event([text(' b')]), event([text('')], {}, STOP)],
      false,
    ],
    ['a call', [event([{ functionCall: { name: 'now' } }], {}, STOP)], false],
    ['nothing', [event([text('')], {}, STOP)], true],
    ['a text, and the usage again', [event([text(' there')]), event([], usage(5, 3), STOP)], true],
  ];
  for (const [name, events, reports] of later) {
    const stream = GEMINI.openStream(CALL);
    const chunks = stream.push(sse([early, ...events])) + stream.end();
    t.equal(chunks.includes('"usage"'), reports, name);
    if (!reports) t.match(stream.usageSoFar, { promptTokens: 5, completionTokens: 1 }, name);
  }
  t.end();
});

void t.test('once all text has come, neither the end nor an error changes the bill', (t) => {
  const stream = GEMINI.openStream(CALL);
  const last = event([text('Hi')], usage(5, 1), STOP);
  const failed = { error: { code: 503, message: 'down', status: 'UNAVAILABLE' } };
  t.match(stream.push(sse([last, failed])), /"content":"Hi".*"finish_reason":"stop".*"prompt_tokens":5/s);
  t.notMatch(stream.end(), 'prompt_tokens', 'not again');
  const later = GEMINI.openStream(CALL);
  t.notMatch(later.push(sse([event([text('Hi')], {}, STOP)])), 'prompt_tokens');
  t.match(later.push(sse([usage(5, 1)])), /"prompt_tokens":5/, 'usage alone, at once');
  t.notMatch(later.end(), 'prompt_tokens');
  const two = GEMINI.openStream({ ...CALL, body: { ...CALL.body, n: 2 } });
  t.notMatch(two.push(sse([last])), 'prompt_tokens', 'the other candidate has not begun');
  t.match(
    failureOf(() => two.push(sse([failed]))),
    { status: 503 },
  );
  t.end();
});
