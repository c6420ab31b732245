/** Reports in the shapes of each provider, as recorded, and those that contradict themselves. */
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import type { Usage } from '#src/core/token-counts.js';
import { MessageUsage } from '#src/providers/anthropic/response.js';
import { usageMember } from '#src/providers/provider-usage.js';
import { NO_USAGE } from '../../support/no-usage.js';
import { reportIn, tokensOfReport } from '#src/upstream/usage-shapes.js';
import { newSeed, pick, randomOf } from '../../support/random.js';

const tokensIn = (event: object): unknown => tokensOfReport(reportIn(event as Record<string, unknown>));
const told = (
  prompt: number,
  cached: number,
  output: number,
  reasoning = 0,
  written = 0,
  written1h = 0,
): object => ({
  promptTokens: prompt,
  cachedTokens: cached,
  cacheWriteTokens: written,
  cacheWrite1hTokens: written1h,
  completionTokens: output,
  reasoningTokens: reasoning,
  source: 'reported',
});
const usage = (prompt: unknown, completion: unknown, total?: unknown, more: object = {}): object => ({
  usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: total, ...more },
});
const reasoned = (tokens: number): object => ({ completion_tokens_details: { reasoning_tokens: tokens } });
const choices = [{ index: 0, delta: {}, finish_reason: 'stop' }];

const SHAPES: [name: string, event: object, tokens: object][] = [
  [
    'OpenAI',
    usage(19, 10, 29, {
      prompt_tokens_details: { cached_tokens: 8, audio_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 4, audio_tokens: 0, rejected_prediction_tokens: 0 },
    }),
    told(19, 8, 10, 4),
  ],
  ['Azure', { choices: [], ...usage(35, 56, 91, { prompt_tokens_details: null }) }, told(35, 0, 56)],
  ['xAI Grok', usage(32, 9, 1_135, reasoned(1_094)), told(32, 0, 1_103, 1_094)],
  [
    'xAI Grok with a cache',
    usage(10_120, 1_499, 14_428, { prompt_tokens_details: { cached_tokens: 128 }, ...reasoned(2_809) }),
    told(10_120, 128, 4_308, 2_809),
  ],
  ['xAI Grok, its total put right by somebody', usage(32, 9, 41, reasoned(1_094)), told(32, 0, 1_103, 1_094)],
  ['Gemini compatible', usage(20, 198, 623), told(20, 0, 603, 405)],
  ['Gemini compatible, thoughts alone', usage(21, 0, 81, reasoned(60)), told(21, 0, 60, 60)],
  ['Gemini compatible without a completion', usage(21, undefined, 81), told(21, 0, 60, 60)],
  [
    'DeepSeek',
    usage(1_000, 50, 1_050, { prompt_cache_hit_tokens: 960, prompt_cache_miss_tokens: 40, ...reasoned(30) }),
    told(1_000, 960, 50, 30),
  ],
  ['Mistral', usage(16, 34, 50, { prompt_audio_seconds: {} }), told(16, 0, 34)],
  ['Mistral with a cache', usage(16, 34, 50, { num_cached_tokens: 4 }), told(16, 4, 34)],
  ['vLLM', { choices, ...usage(5, 7, 12, { prompt_tokens_details: null }) }, told(5, 0, 7)],
  ['Ollama', usage(26, 298, 324), told(26, 0, 298)],
  [
    'llama.cpp',
    { ...usage(75, 31, 106), timings: { cache_n: 0, prompt_n: 75, predicted_n: 31, predicted_ms: 875.4 } },
    told(75, 0, 31),
  ],
  [
    'llama.cpp, timings alone',
    { choices, timings: { cache_n: 236, prompt_n: 1, prompt_ms: 30.958, predicted_n: 35 } },
    told(237, 236, 35),
  ],
  [
    'OpenRouter',
    usage(194, 2, 196, {
      cost: 0.95,
      cost_details: { upstream_inference_cost: 19 },
      prompt_tokens_details: { cached_tokens: 0, cache_write_tokens: 100, audio_tokens: 0 },
      ...reasoned(0),
    }),
    told(194, 0, 2, 0, 100),
  ],
  [
    'LiteLLM before Claude',
    usage(1_030, 5, 1_035, {
      cache_read_input_tokens: 20,
      cache_creation_input_tokens: 1_000,
      prompt_tokens_details: {
        cached_tokens: 20,
        cache_creation_tokens: 1_000,
        cache_creation_token_details: { ephemeral_5m_input_tokens: 600, ephemeral_1h_input_tokens: 400 },
      },
    }),
    told(1_030, 20, 5, 0, 1_000, 400),
  ],
  [
    'Portkey before Claude: the cache is beside the prompt, and in the total',
    usage(10, 5, 1_035, {
      cache_read_input_tokens: 20,
      cache_creation_input_tokens: 1_000,
      prompt_tokens_details: { cached_tokens: 20 },
    }),
    told(1_030, 20, 5, 0, 1_000),
  ],
  [
    'the cache is beside the prompt, and not in the total',
    usage(10, 5, 15, {
      cache_read_input_tokens: 20,
      cache_creation_input_tokens: 1_000,
      cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 1_000 },
    }),
    told(1_030, 20, 5, 0, 1_000, 1_000),
  ],
  [
    'written here for a provider',
    {
      usage: usageMember({
        ...NO_USAGE,
        promptTokens: 100,
        cachedTokens: 30,
        cacheWriteTokens: 60,
        cacheWrite1hTokens: 20,
        completionTokens: 9,
        reasoningTokens: 4,
        imagePromptTokens: 7,
      }),
    },
    told(100, 30, 9, 4, 60, 20),
  ],
  [
    'Anthropic',
    usage(14, 6, 20, { completion_tokens_details: null, prompt_tokens_details: null }),
    told(14, 0, 6),
  ],
  [
    'Groq',
    {
      choices,
      x_groq: {
        id: 'req_1',
        usage: { queue_time: 0.1, prompt_tokens: 44, completion_tokens: 9, total_tokens: 53 },
      },
    },
    told(44, 0, 9),
  ],
  [
    'Moonshot',
    {
      choices: [
        {
          ...choices[0],
          usage: { prompt_tokens: 8, completion_tokens: 3, total_tokens: 11, cached_tokens: 2 },
        },
      ],
    },
    told(8, 2, 3),
  ],
  ['no total', usage(3, 4), told(3, 0, 4)],
  ['a total of 0', usage(3, 4, 0), told(3, 0, 4)],
  ['a total without what was cached', usage(30, 4, 14, { cached_tokens: 20 }), told(30, 20, 4)],
];

void t.test('each shape', (t) => {
  for (const [name, event, tokens] of SHAPES) t.same(tokensIn(event), tokens, name);
  t.end();
});

/** Every object of the report with one of its members changed: left out, or null. */
function* changed(value: unknown, isNull: boolean): Generator<object> {
  if (typeof value !== 'object' || value === null) return;
  for (const [name, inner] of Object.entries(value)) {
    // JSON has no members that are undefined.
    yield { ...value, [name]: isNull ? null : undefined };
    for (const one of changed(inner, isNull)) yield { ...value, [name]: one };
  }
}

/** Every name that is read of a report. */
const NAMES = [
  ...['prompt_tokens', 'completion_tokens', 'total_tokens', 'input_tokens', 'output_tokens'],
  ...['prompt_tokens_details', 'completion_tokens_details', 'input_tokens_details', 'output_tokens_details'],
  ...['prompt_cache_hit_tokens', 'cached_tokens', 'num_cached_tokens', 'reasoning_tokens'],
  ...['cache_read_input_tokens', 'cache_creation_input_tokens', 'cache_creation'],
];

void t.test('null is the same as absent: any member of any shape, and any name beside it', (t) => {
  const compact = (event: object): object => JSON.parse(JSON.stringify(event)) as object;
  const reports: [name: string, event: object][] = [
    ...SHAPES.map(([name, event]): [string, object] => [name, event]),
    ['rerank', { usage: { total_tokens: 7 } }],
    ['Cohere', { meta: { billed_units: { input_tokens: 5 }, tokens: { input_tokens: 9 } } }],
    ['Responses', { usage: { input_tokens: 5, output_tokens: 2, total_tokens: 7 } }],
    ['Messages', { usage: { input_tokens: 5, output_tokens: 2, cache_read_input_tokens: 3 } }],
  ];
  for (const [name, event] of reports) {
    const absent = [...changed(event, false)].map((one) => tokensIn(compact(one)));
    const asNull = [...changed(event, true)].map(tokensIn);
    t.same(asNull, absent, name);
    const { usage: report } = event as { usage?: object };
    if (report === undefined) continue;
    for (const one of NAMES.filter((known) => !Object.hasOwn(report, known)))
      t.same(tokensIn({ ...event, usage: { ...report, [one]: null } }), tokensIn(event), `${name}: ${one}`);
  }
  t.match(tokensOfReport({ total_tokens: 7, completion_tokens: null }), { promptTokens: 7 });
  t.equal(
    tokensOfReport({
      prompt_tokens: 3,
      completion_tokens: 1,
      cached_tokens: 5,
      cache_read_input_tokens: null,
    }),
    'contradictory',
  );
  t.end();
});

void t.test('no report', (t) => {
  for (const event of [
    {},
    { usage: null },
    { usage: {} },
    { x_groq: { id: 'x' } },
    { choices: [{ usage: null }] },
    { timings: {} },
  ])
    t.equal(tokensIn(event), undefined, JSON.stringify(event));
  t.end();
});

void t.test('what is not possible by itself', (t) => {
  for (const value of [5, 'x', [], true]) t.equal(tokensIn({ usage: value }), 'malformed');
  for (const value of [-1, 1.5, '1', 1e9 + 1, Infinity, Number.NaN, {}, [], true, '']) {
    t.equal(tokensIn(usage(value, 1)), 'malformed', `prompt ${JSON.stringify(value)}`);
    t.equal(tokensIn(usage(1, value)), 'malformed', `completion ${JSON.stringify(value)}`);
    t.equal(tokensIn(usage(1, 1, value)), 'malformed', `total ${JSON.stringify(value)}`);
    t.equal(
      tokensIn(usage(1, 1, 2, { cached_tokens: value })),
      'malformed',
      `cached ${JSON.stringify(value)}`,
    );
    t.equal(
      tokensIn(usage(1, 1, 2, reasoned(value as number))),
      'malformed',
      `reasoning ${JSON.stringify(value)}`,
    );
  }
  t.equal(tokensIn(usage(undefined, 1)), 'malformed');
  t.equal(tokensIn(usage(5, 1, 5)), 'contradictory');
  t.equal(tokensIn(usage(5, 1, 6, { cached_tokens: 6 })), 'contradictory');
  const written = (details: object) => tokensIn(usage(5, 1, 6, { prompt_tokens_details: details }));
  t.equal(written({ cache_write_tokens: 6 }), 'contradictory');
  t.equal(written({ cached_tokens: 3, cache_write_tokens: 3 }), 'contradictory');
  t.equal(written({ cache_write_tokens: 3, cache_write_1h_tokens: 4 }), 'contradictory');
  t.equal(written({ cache_write_tokens: 1.5 }), 'malformed');
  t.equal(written({ cache_write_tokens: 3, cache_write_1h_tokens: 'x' }), 'malformed');
  t.same(written({ cache_write_tokens: null, cache_write_1h_tokens: null }), told(5, 0, 1));
  t.end();
});

void t.test('reranks: a total alone, and what Cohere reports', (t) => {
  t.match(tokensOfReport({ total_tokens: 7 }), { promptTokens: 7, completionTokens: 0 });
  const inMeta = (meta: unknown): unknown => tokensOfReport(reportIn({ results: [], meta }));
  t.match(inMeta({ billed_units: { search_units: 1 }, tokens: { input_tokens: 9 } }), { promptTokens: 9 });
  t.match(inMeta({ billed_units: { input_tokens: 5 }, tokens: { input_tokens: 9 } }), { promptTokens: 5 });
  t.equal(inMeta({ billed_units: { search_units: 3 } }), undefined, 'search units are no tokens');
  t.equal(inMeta({ tokens: { input_tokens: -1 } }), undefined);
  t.end();
});

void t.test('a cache beside the prompt, of which the total has a part', (t) => {
  const names = { cache_read_input_tokens: 100, cache_creation_input_tokens: 50 };
  const total = (tokens: number): unknown => tokensIn(usage(10, 5, tokens, names));
  const wanted = told(160, 100, 5, 0, 50);
  for (const tokens of [0, 15, 15 + 100, 15 + 50, 15 + 150]) t.same(total(tokens), wanted, `total ${tokens}`);
  t.same(total(15 + 150 + 7), told(160, 100, 12, 7, 50), 'the excess was generated');
  t.equal(total(15 + 120), 'contradictory', 'the excess may be of the cache');
  t.same(tokensIn(usage(1_000, 5, 1_105, names)), told(1_150, 100, 5, 0, 50), 'also of a longer prompt');
  t.end();
});

void t.test('a 0 under one name does not hide the number under another', (t) => {
  const zeros = { cached_tokens: 0, cache_write_tokens: 0, cache_creation_tokens: 0 };
  const names = { prompt_cache_hit_tokens: 0, cache_read_input_tokens: 600, cache_creation_input_tokens: 20 };
  t.same(
    tokensIn(usage(1_000, 5, 1_005, { prompt_tokens_details: zeros, cached_tokens: 0, ...names })),
    told(1_000, 600, 5, 0, 20),
  );
  t.end();
});

void t.test('at random: no part is more than the whole, and no token counts twice', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomOf(seed);
  const count = (): number => pick(random, [0, 1, 3, 7, 40, 100]);
  const wrong: object[] = [];
  let believed = 0;
  for (let round = 0; round < 50_000; round++) {
    const [prompt, completion, reasoning] = [pick(random, [1, 10, 200]), pick(random, [0, 5, 30]), count()];
    const [read, written] = [count(), count()];
    const shown = prompt + completion;
    const total = pick(random, [
      0,
      shown,
      shown + read,
      shown + written,
      shown + read + written,
      shown + count(),
    ]);
    const names = { cache_read_input_tokens: read, cache_creation_input_tokens: written };
    const details = { cached_tokens: read, cache_write_tokens: written, cache_write_1h_tokens: count() };
    const more = pick(random, [names, { prompt_tokens_details: details }]);
    const report = usage(prompt, completion, total, { ...more, ...reasoned(reasoning) });
    const tokens = tokensIn(report) as Usage | string;
    if (typeof tokens === 'string') continue;
    believed += 1;
    const { promptTokens, cachedTokens, cacheWriteTokens, cacheWrite1hTokens } = tokens;
    const { completionTokens, reasoningTokens } = tokens;
    const arePartsOf =
      cachedTokens + cacheWriteTokens <= promptTokens &&
      cacheWrite1hTokens <= cacheWriteTokens &&
      reasoningTokens <= completionTokens;
    const besidePrompt = promptTokens - prompt;
    const besideShown = reasoning > completion ? reasoning : 0;
    const most = Math.max(total, shown + besidePrompt + besideShown);
    if (!arePartsOf || promptTokens + completionTokens > most) wrong.push({ report, tokens });
  }
  t.strictSame(wrong.slice(0, 3), []);
  t.ok(believed > 10_000, `${believed} were believed`);
  t.end();
});

void t.test('a report of Messages counts as that of the chat completion that is made of it', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomOf(seed);
  const count = (): unknown => pick(random, [null, 0, 1, 7, 40, 1_000_000_000, -3, 1.5, Number.NaN, '7']);
  const seen = new Set<string>();
  for (let round = 0; round < 20_000; round++) {
    const report = {
      input_tokens: pick(random, [0, 3, 900, 1_000_000_000, -5, 2.5]),
      cache_read_input_tokens: count(),
      cache_creation_input_tokens: count(),
      cache_creation: pick(random, [null, { ephemeral_1h_input_tokens: count() }]),
      output_tokens: count(),
      output_tokens_details: pick(random, [null, { thinking_tokens: count() }]),
    };
    const chat = usageMember(new MessageUsage().add(report).usage!);
    const wanted = tokensOfReport(chat);
    seen.add(typeof wanted === 'string' ? wanted : 'counted');
    if (isDeepStrictEqual(tokensOfReport(report), wanted)) continue;
    t.strictSame(tokensOfReport(report), wanted, JSON.stringify(report));
    break;
  }
  // Not `contradictory`: the prompt is a sum with the cache in it.
  t.strictSame([...seen].sort(), ['counted', 'malformed'], 'both were met');
  t.end();
});
