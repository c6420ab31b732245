/**
 * Which reports are believed of a call, and that no upstream can charge beyond what its call bounds: hostile
 * and random reports.
 */
import t from 'tap';
import {
  PROMPT_TOKENS_BESIDE_BODY,
  PROMPT_TOKENS_OF_PART,
  REPORTED_OUTPUT_SLACK_TOKENS,
} from '#src/core/limits.js';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { ROUTING_MEMBERS, type RoutingMember } from '#src/core/routing-members.js';
import type { UpstreamRequest } from '#src/channel/messages.js';
import { usageWithoutParts } from '#src/core/token-counts.js';
import { asPicoUnits } from '#src/core/units.js';
import { costOf, tokenPriceOf, worstCaseOf } from '#src/registry/catalog.js';
import { disbeliefOf, tokensMaxOf, withinHold } from '#src/upstream/usage-bounds.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';
import { requestOf } from '../../fixtures/upstream-server.js';
import { newSeed, pick, type Random, randomOf } from '../../support/random.js';

const MODEL_MAX = 1_000;
const MODEL = { outputTokensMax: MODEL_MAX, mediaPartTokens: 0 };
const PRICE = tokenPriceOf({
  inputPicoUnits: asPicoUnits(3n),
  cachedInputPicoUnits: asPicoUnits(1n),
  cacheWritePicoUnits: asPicoUnits(4n),
  cacheWrite1hPicoUnits: asPicoUnits(6n),
  reasoningPicoUnits: asPicoUnits(9n),
  outputPicoUnits: asPicoUnits(7n),
});

const NUMBERS = [
  0,
  1,
  7,
  100,
  999,
  5_000,
  1e6,
  1e9,
  1e15,
  -1,
  1.5,
  -0,
  Infinity,
  '7',
  null,
  Number.NaN,
  {},
  [],
  true,
];

function doubt(
  report: object,
  changes: Parameters<typeof requestOf>[0] = {},
  hasText = true,
): string | undefined {
  const meter = new UsageMeter();
  meter.report(report);
  return meter.reported === undefined
    ? meter.reportError
    : disbeliefOf(meter.reported, requestOf(changes), MODEL, () => hasText);
}

const report = (prompt: number, completion: number, reasoning = 0): object => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  completion_tokens_details: { reasoning_tokens: reasoning },
});

void t.test('output: up to what was asked for, thoughts up to what the model can give', (t) => {
  t.equal(doubt(report(7, 1_000)), undefined);
  t.equal(doubt(report(7, 1_164)), undefined, 'tokenizers differ');
  t.equal(doubt(report(7, 1_165)), 'too_much_output');
  t.equal(doubt(report(7, 3_364), { choices: 3 }), undefined, 'each choice');
  t.equal(doubt(report(7, 74), { outputTokensMax: 10 }), undefined);
  t.equal(doubt(report(7, 76), { outputTokensMax: 10 }), 'beyond_max_tokens');
  t.equal(doubt(report(7, 900, 890), { outputTokensMax: 10 }), undefined, 'it thought beside max_tokens');
  t.equal(doubt(report(7, 9, 1_094), { outputTokensMax: 10 }), undefined);
  t.equal(doubt(report(7, 9, 5_000)), 'too_much_output');
  t.equal(doubt(report(7, 0)), 'zero');
  t.equal(doubt(report(7, 0), {}, false), undefined, 'an empty answer');
  t.end();
});

void t.test('input: up to the bytes of the body, and what a provider adds', (t) => {
  const bytes = requestOf().body.length;
  t.equal(doubt(report(bytes + PROMPT_TOKENS_BESIDE_BODY, 5)), undefined);
  t.equal(doubt(report(bytes + PROMPT_TOKENS_BESIDE_BODY + 1, 5)), 'too_much_input');
  const image = '{"model":"m","messages":[{"content":[{"type":"image_url","image_url":{}}]}]}';
  t.equal(doubt(report(PROMPT_TOKENS_OF_PART, 5), { body: image }), undefined);
  t.equal(doubt(report(PROMPT_TOKENS_OF_PART, 5), { body: '', largeBody: Buffer.from(image) }), undefined);
  t.equal(doubt(report(3 * PROMPT_TOKENS_OF_PART, 5), { body: image }), 'too_much_input');
  t.equal(
    doubt(report(5_000, 5), { body: 'é'.repeat(1_000), bodyIsAscii: false }),
    undefined,
    'bytes of UTF-8',
  );
  for (const prompt of ['"hello"', '["hello"]', '[1, 2]', '"{}"']) {
    const body = `{"model":"m","prompt": ${prompt}}`;
    t.equal(doubt(report(PROMPT_TOKENS_OF_PART, 5), { body }), 'too_much_input', `the text ${prompt}`);
  }
  t.equal(doubt(report(0, 5)), 'zero');
  const moderation = { door: DOOR_INDEX.moderations };
  t.equal(doubt(report(0, 0), moderation, false), undefined, 'providers do not bill moderations');
  t.equal(doubt(report(0, 5), moderation, false), 'zero');
  t.equal(doubt(report(0, 0), { door: DOOR_INDEX.embeddings }, false), 'zero');
  t.end();
});

void t.test('a body is searched only for a report that its bytes do not explain', (t) => {
  let reads = 0;
  const bytes = Buffer.from(`{"input":[${Array(20_000).fill('"file"').join()}]}`);
  const largeBody = new Proxy(bytes, {
    get(target, key): unknown {
      if (key !== 'length') reads++;
      return Reflect.get(target, key, target);
    },
  });
  const most = bytes.length + PROMPT_TOKENS_BESIDE_BODY;
  const most64 = most + 64 * PROMPT_TOKENS_OF_PART;
  for (const tokens of [1, 5_000, bytes.length, most])
    t.equal(doubt(report(tokens, 5), { body: '', largeBody }), undefined, `${tokens} tokens`);
  t.equal(doubt(report(most64 + 1, 5), { body: '', largeBody }), 'too_much_input');
  t.equal(reads, 0, 'nor for one that is more than any body can name');
  for (const [parts, verdict] of [
    [64, undefined],
    [63, 'too_much_input'],
  ] as const) {
    const body = `[${Array(parts).fill('"file"').join()}]`.padEnd(bytes.length);
    t.equal(doubt(report(most64, 5), { body }), verdict, `${parts} parts`);
    t.equal(doubt(report(most64, 5), { body }), verdict, `${parts} parts, the next call`);
  }
  t.end();
});

/** Routing members by which a prompt gets no tokens that its body has not. */
const WITHOUT_TOKENS: ReadonlySet<RoutingMember> = new Set([
  // They choose who serves, how, and when.
  ...(['models', 'route', 'provider', 'fallbacks', 'context_window_fallbacks'] as const),
  ...(['content_policy_fallbacks', 'model_list', 'user_config', 'custom_llm_provider'] as const),
  ...(['mock_testing_fallbacks', 'mock_testing_context_fallbacks'] as const),
  ...(['mock_testing_content_policy_fallbacks', 'api_base', 'base_url', 'api_key'] as const),
  ...(['providerOptions', 'safety_model', 'lora_path', 'lora', 'bootstrap_host', 'bootstrap_port'] as const),
  ...(['kv_transfer_params', 'ec_transfer_params', 'priority', 'nvext', 'deferred', 'speed'] as const),
  ...(['inference_geo', 'performanceConfig', 'guardrailConfig', 'service_tier', 'extra_headers'] as const),
  // What is within it has names of its own.
  'extra_body',
  // It shortens a prompt.
  'context_management',
]);
/** How a body has a member whose label is not its name, or which means it only in this form. */
const WRITTEN: Readonly<Partial<Record<RoutingMember, object>>> = {
  prompt: { prompt: { id: 'p' } },
  thread: { thread: { type: 'continue', previous_message_id: 'msg_1' } },
  audio_id: { messages: [{ role: 'assistant', audio: { id: 'audio_1' } }] },
  hosted_tools: { tools: [{ type: 'browser_search' }] },
  file_id: { input: [{ content: [{ type: 'input_file', file_id: 'f' }] }] },
  storage_url: { messages: [{ content: [{ type: 'image_url', image_url: { url: 'gs://x/y' } }] }] },
};

void t.test(
  'each routing member explains a prompt that is longer than its body, or adds nothing to it',
  (t) => {
    for (const member of ROUTING_MEMBERS) {
      if (WITHOUT_TOKENS.has(member)) continue;
      const body = JSON.stringify({ model: 'm', ...(WRITTEN[member] ?? { [member]: {} }) });
      t.equal(doubt(report(500_000, 5), { body }), undefined, member);
    }
    const spoken = JSON.stringify({ audio: { voice: 'alloy' }, messages: [{ role: 'user', content: 'x' }] });
    t.equal(doubt(report(500_000, 5), { body: spoken }), 'too_much_input', 'a voice for the answer');
    t.end();
  },
);

void t.test('input that the body names in a few bytes', (t) => {
  const chat = (part: object): object => ({ messages: [{ role: 'user', content: [part] }] });
  const source = { type: 'url', url: 'https://example.com/a.pdf' };
  const rows: readonly (readonly [name: string, body: object])[] = [
    ['an image of Messages', chat({ type: 'image', source })],
    ['a document of Messages', chat({ type: 'document', source })],
    ['a video', chat({ type: 'video_url', video_url: { url: 'https://www.youtube.com/watch?v=1' } })],
    ['a video as an image', chat({ type: 'image_url', image_url: 'https://www.youtube.com/watch?v=1' })],
    ['sound', chat({ type: 'audio_url', audio_url: { url: 'https://example.com/a.mp3' } })],
    ['a document of Mistral', chat({ type: 'document_url', document_url: 'https://example.com/a.pdf' })],
    ['an image of Responses', { input: [{ content: [{ type: 'input_image', image_url: 'https://x/y' }] }] }],
    ...['web_search_20250305', 'web_fetch_20250910', 'file_search', 'code_interpreter', 'mcp'].map(
      (type) => [type, { tools: [{ type }] }] as const,
    ),
    ...['x_search', 'retrieval', 'builtin_function', 'openrouter:web_search'].map(
      (type) => [`the tool ${type}`, { tools: [{ type }] }] as const,
    ),
    ...['googleSearch', 'google_search_retrieval', 'urlContext'].map(
      (tool) => [`the tool ${tool}`, { tools: [{ [tool]: {} }] }] as const,
    ),
    ...['data_sources', 'vector_store_ids', 'enable_search', 'search_parameters', 'web_search_options'].map(
      (name) => [name, { [name]: [] }] as const,
    ),
    ...['session_params', 'prompt_id', 'preset', 'container', 'mcp_servers', 'cached_content'].map(
      (name) => [name, { [name]: 'x' }] as const,
    ),
    ['a stored item', { input: [{ type: 'item_reference', id: 'msg_1' }] }],
    ["a cache of Google's", { extra_body: { google: { cached_content: 'cachedContents/1' } } }],
  ];
  for (const [name, members] of rows) {
    const body = JSON.stringify({ model: 'm', ...members });
    t.equal(doubt(report(500_000, 5), { body }), undefined, name);
    const escaped = body.replaceAll('_', '\\u005f').replaceAll('e', '\\u0065').replaceAll('m', '\\u006D');
    t.equal(doubt(report(500_000, 5), { body: escaped }), undefined, `${name}, written with escapes`);
  }
  const frames = JSON.stringify(chat({ type: 'video', video: ['https://x/1.png', 'https://x/2.png'] }));
  t.equal(doubt(report(500_000, 5), { body: frames, mediaParts: 1 }), undefined, 'a part of any other type');
  t.equal(
    doubt(report(2 * PROMPT_TOKENS_OF_PART, 5), { body: frames, mediaParts: 1 }),
    'too_much_input',
    'no more than the parts',
  );
  const quoting = JSON.stringify(chat({ type: 'text', text: 'what is "document" or "image"?' }));
  t.equal(doubt(report(500_000, 5), { body: quoting }), 'too_much_input', 'a text that has such a word');
  t.end();
});

void t.test(
  'random and hostile reports: what is believed is bounded, what is not stays within the hold',
  (t) => {
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const next = randomOf(seed);
    let believed = 0;
    let doubted = 0;
    for (let count = 0; count < 50_000; count++) {
      const request = requestOf({
        outputTokensMax: pick(next, [0, 1, 100, 999, 2 ** 31 - 1]),
        choices: pick(next, [1, 1, 4]),
        body: 'x'.repeat(pick(next, [2, 100, 10_000])),
      });
      const meter = new UsageMeter();
      meter.report(hostileReport(next));
      const { reported, reportError } = meter;
      if (reported === undefined && reportError === undefined) continue;
      const asked = Math.min(request.outputTokensMax, MODEL_MAX) * request.choices;
      const reason =
        reported === undefined ? reportError : disbeliefOf(reported, request, MODEL, () => next() < 0.5);
      if (reason === undefined) {
        believed++;
        const most =
          BigInt(request.body.length + PROMPT_TOKENS_BESIDE_BODY) * 6n +
          BigInt(Math.ceil(MODEL_MAX * request.choices * 1.1) + REPORTED_OUTPUT_SLACK_TOKENS) * 9n;
        const shown = reported!.completionTokens - reported!.reasoningTokens;
        const isBounded = shown <= Math.ceil(asked * 1.1) + REPORTED_OUTPUT_SLACK_TOKENS;
        if (costOf(PRICE, reported!) > most || !isBounded)
          t.fail(`seed ${seed}: ${JSON.stringify(reported)}`);
        continue;
      }
      doubted++;
      // Whatever was delivered and counted.
      const counted = {
        promptTokens: Math.floor(next() * 1e6),
        cachedTokens: 0,
        cacheWriteTokens: 0,
        cacheWrite1hTokens: 0,
        reasoningTokens: 0,
        completionTokens: Math.floor(next() * 1e6),
        source: 'counted',
      } as const;
      const outputMax = reason === 'beyond_max_tokens' ? MODEL_MAX * request.choices : asked;
      const hold = worstCaseOf(PRICE, request.body.length, outputMax);
      const charge = costOf(PRICE, withinHold(counted, reason, request, MODEL));
      if (charge > hold) t.fail(`seed ${seed}: ${charge} of ${hold}`);
    }
    t.ok(believed > 500 && doubted > 10_000, `${believed} believed, ${doubted} not`);
    t.end();
  },
);

function hostileReport(next: Random): unknown {
  if (next() < 0.05) return pick<unknown>(next, [null, 5, 'x', [], {}]);
  const small = (): number => Math.floor(next() * 120);
  const any = (): unknown => (next() < 0.7 ? small() : pick<unknown>(next, NUMBERS));
  const value: Record<string, unknown> = { prompt_tokens: any(), completion_tokens: any() };
  if (next() < 0.5) value.total_tokens = any();
  if (next() < 0.3) value.prompt_tokens_details = { cached_tokens: any() };
  if (next() < 0.2) value.prompt_tokens_details = { cache_write_tokens: any(), cache_write_1h_tokens: any() };
  if (next() < 0.1) value.cache_creation_input_tokens = any();
  if (next() < 0.1) value.cache_read_input_tokens = any();
  if (next() < 0.3) value.completion_tokens_details = { reasoning_tokens: any() };
  if (next() < 0.1) value.prompt_cache_hit_tokens = any();
  return value;
}

void t.test('what parts are taken for is held, believed and charged', (t) => {
  const MEDIA = { outputTokensMax: MODEL_MAX, mediaPartTokens: 20_000 };
  const request = requestOf({ mediaParts: 2, outputTokensMax: 10 });
  const plain = { ...request, mediaParts: 0 };
  t.equal(tokensMaxOf(request, MEDIA), tokensMaxOf(plain, MEDIA) + 40_000);
  t.equal(tokensMaxOf(request, MODEL), tokensMaxOf(plain, MODEL), 'nothing by default');
  const why = (promptTokens: number, call: UpstreamRequest): string | undefined =>
    disbeliefOf(
      usageWithoutParts({ promptTokens, completionTokens: 5, source: 'reported' }),
      call,
      MEDIA,
      () => true,
    );
  t.equal(why(40_000, request), undefined, 'although the body names no part that is known');
  t.equal(why(40_000, plain), 'too_much_input');
  t.equal(why(60_000, request), undefined, 'a part may be more than it is taken for');
  t.equal(why(3 * PROMPT_TOKENS_OF_PART, request), 'too_much_input');
  const charged = withinHold(
    usageWithoutParts({ promptTokens: 90_000, completionTokens: 5, source: 'counted' }),
    'too_much_input',
    request,
    MEDIA,
  );
  t.equal(charged.promptTokens, tokensMaxOf(request, MEDIA) - 10);
  t.end();
});

void t.test('what is read more than once is held, believed and charged', (t) => {
  const request = requestOf({ repeatedTokens: 40_000, outputTokensMax: 0 });
  const plain = { ...request, repeatedTokens: 0 };
  t.equal(tokensMaxOf(request, MODEL), tokensMaxOf(plain, MODEL) + 40_000);
  const why = (promptTokens: number, call: UpstreamRequest): string | undefined =>
    disbeliefOf(
      usageWithoutParts({ promptTokens, completionTokens: 0, source: 'reported' }),
      call,
      MODEL,
      () => false,
    );
  t.equal(why(40_000, request), undefined);
  t.equal(why(40_000, plain), 'too_much_input');
  t.equal(why(45_000, request), 'too_much_input');
  const charged = withinHold(
    usageWithoutParts({ promptTokens: 90_000, completionTokens: 0, source: 'counted' }),
    'too_much_input',
    request,
    MODEL,
  );
  t.equal(charged.promptTokens, tokensMaxOf(request, MODEL));
  t.end();
});
