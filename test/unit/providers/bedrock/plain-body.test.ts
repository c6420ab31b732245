/** The quick ways of the usual request and response give what the ways for everything give. */
import t from 'tap';
import { parsedJson } from '#src/core/json.js';
import { FieldError, ProviderError } from '#src/providers/provider.js';
import { factsOf } from '#src/providers/bedrock/models.js';
import { plainBodyOf } from '#src/providers/bedrock/plain-body.js';
import { anyBodyOf, bodyOf } from '#src/providers/bedrock/request.js';
import { anyResponse, readResponse, textResponse } from '#src/providers/bedrock/response.js';
import { bedrockCall, CLAUDE } from '../../../support/bedrock.js';
import { newSeed, pick, randomOf, type Random } from '../../../support/random.js';

const RUNS = 6_000;
const TEXTS = [
  'Hi',
  ' a ',
  '',
  ' \n',
  'say "x"\\',
  '\u2028\u0000é\ud800',
  '12345678901234567890',
  'x'.repeat(300),
];
const MODELS = [
  CLAUDE,
  'anthropic.claude-3-haiku-20240307-v1:0',
  'global.anthropic.claude-opus-4-7',
  'us.amazon.nova-pro-v1:0',
  'meta.llama3-1-8b',
];
const ROLES = ['system', 'developer', 'tool', ...Array<string>(6).fill('user'), 'assistant', 'assistant'];
const OTHERS: readonly (readonly [string, readonly unknown[]])[] = [
  ['max_tokens', [1, 4096, null, 1.5, '7']],
  ['max_completion_tokens', [5, null]],
  ['temperature', [0, 0.7, 1, 1.5, null, '1', -0]],
  ['top_p', [0, 0.25, 1, null, '1']],
  ['user', ['u-1']],
  ['stream_options', [{ include_usage: true }]],
  ['stop', ['END']],
  ['n', [1, 2]],
  ['seed', [7]],
  ['reasoning_effort', ['low']],
  ['cache_control', [{ type: 'ephemeral' }]],
];

function messageOf(next: Random): unknown {
  const text = next() < 0.9 ? 'Hi' : pick(next, TEXTS);
  const content = next() < 0.9 ? text : [{ type: 'text', text: pick(next, TEXTS) }];
  const message = { ...(next() < 0.95 && { role: pick(next, ROLES) }), content };
  if (next() < 0.9) return message;
  return {
    ...message,
    ...pick(next, [{ cache_control: { type: 'ephemeral' } }, { name: 'n' }, { tool_calls: [] }]),
  };
}

function chatOf(next: Random): Record<string, unknown> {
  const chat: Record<string, unknown> = { model: 'm', stream: next() < 0.5 };
  for (const [name, values] of OTHERS) if (next() < 0.1) chat[name] = pick(next, values);
  chat.messages = Array.from({ length: Math.floor(next() * 4) }, () => messageOf(next));
  return chat;
}

/** What `make` returns, or what it throws. */
function resultOf(make: () => unknown): unknown {
  try {
    return make();
  } catch (error) {
    if (error instanceof FieldError || error instanceof ProviderError) return error.message;
    throw error;
  }
}

void t.test('requests', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  let plain = 0;
  for (let run = 0; run < RUNS; run++) {
    const settings = { dropUnsupported: next() < 0.3, betas: next() < 0.1 ? ['b-2026-01-01'] : [] };
    const call = bedrockCall(chatOf(next), { model: pick(next, MODELS), settings });
    const facts = factsOf(call.model);
    if (plainBodyOf(call, facts) !== undefined) plain += 1;
    const found = resultOf(() => bodyOf(call));
    const wanted = resultOf(() => anyBodyOf(call, facts));
    if (found !== wanted) {
      t.equal(found, wanted, `seed ${seed}: ${JSON.stringify(call.body)}`);
      break;
    }
  }
  t.ok(plain > RUNS / 20 && plain < RUNS / 2, `${plain} of ${RUNS} went the quick way`);
  t.end();
});

const ESCAPED = [
  ...TEXTS.map((text) => JSON.stringify(text).slice(1, -1)),
  '\\/',
  '\\u00e9',
  '\\x',
  '"',
  '\n',
];
const NUMBERS = ['0', '7', '123456789', '01', '-1', '1e3', '1.5', '{}', '"1"', '12345678901234567890'];
const COUNTS = [
  'inputTokens',
  'outputTokens',
  'totalTokens',
  'cacheReadInputTokens',
  'cacheWriteInputTokens',
];

function usageText(next: Random): string {
  const names = next() < 0.5 ? COUNTS : COUNTS.filter(() => next() < 0.7);
  const number = (): string => (next() < 0.95 ? pick(next, NUMBERS.slice(0, 3)) : pick(next, NUMBERS));
  return `{${names.map((name) => `"${name}":${number()}`).join(',')}}`;
}

function responseText(next: Random): string {
  const block = (): string =>
    `{"text":"${next() < 0.8 ? pick(next, TEXTS.slice(0, 4)).trim() : pick(next, ESCAPED)}"}`;
  const blocks = next() < 0.9 ? block() : `${block()},${block()}`;
  const role = '"role":"assistant"';
  const message = next() < 0.5 ? `${role},"content":[${blocks}]` : `"content":[${blocks}],${role}`;
  const metrics = '"metrics":{"latencyMs":551}';
  const stop = pick(next, ['end_turn', 'max_tokens', 'tool_use', 'content_filtered', 'other']);
  const members = [
    `"output":{"message":{${message}}}`,
    `"stopReason":"${stop}"`,
    `"usage":${usageText(next)}`,
  ];
  if (next() < 0.8) members.splice(next() < 0.5 ? 0 : 3, 0, metrics);
  if (next() < 0.05) members.splice(Math.floor(next() * members.length), 1);
  const text = `{${members.join(',')}}`;
  if (next() > 0.1) return text;
  const at = Math.floor(next() * text.length);
  return text.slice(0, at) + pick(next, ['', ' ', ',', '}', '"']) + text.slice(at + 1);
}

void t.test('responses', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  const call = bedrockCall({ messages: [] });
  let plain = 0;
  for (let run = 0; run < RUNS; run++) {
    const json = responseText(next);
    const found = resultOf(() => readResponse(Buffer.from(json), call));
    const wanted = resultOf(() => anyResponse(Buffer.from(json).toString(), call));
    if (textResponse(json, call) !== undefined) plain += 1;
    if (!isSame(found, wanted)) {
      t.same(found, wanted, `seed ${seed}: ${json}`);
      break;
    }
  }
  t.ok(plain > RUNS / 4 && plain < (RUNS * 9) / 10, `${plain} of ${RUNS} went the quick way`);
  t.end();
});

/** Whether both are the same response, however its text is escaped, or both are the same error. */
function isSame(found: unknown, wanted: unknown): boolean {
  return JSON.stringify(read(found)) === JSON.stringify(read(wanted));
}

interface Read {
  readonly text: string;
  readonly members: { readonly model: unknown; readonly choices: unknown; readonly usage?: unknown };
}

function read(result: unknown): unknown {
  if (typeof result === 'string') return result;
  const { text, members } = result as Read;
  return [parsedJson(text) ?? 'no JSON', members.model, Array.isArray(members.choices), members.usage];
}
