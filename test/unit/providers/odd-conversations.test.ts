/**
 * Random conversations, as clients may send them: empty and blank texts, messages out of their usual order,
 * tools and formats of all kinds. What a provider is sent breaks none of its rules, as the mock has them, or
 * the caller is told which member is not supported. The seed is printed; TOLLGATE_TEST_SEED repeats a run.
 */
import t from 'tap';
import type { ProviderName } from '#src/core/provider-names.js';
import { anthropicProblem } from '#src/mock/mock-anthropic-rules.js';
import { ConverseProblem, readConverse } from '#src/mock/mock-bedrock-rules.js';
import { geminiProblem } from '#src/mock/mock-gemini-rules.js';
import { FieldError, type Provider } from '#src/providers/provider.js';
import { PROVIDERS } from '#src/providers/providers.js';
import { settingsOf } from '../../support/provider-forms.js';
import { newSeed, pick, type Random, randomOf } from '../../support/random.js';

type Body = Record<string, unknown>;

const RUNS = 3_000;
const VERSION = '2023-06-01';
const MODELS: readonly (readonly [ProviderName, string])[] = [
  ...['claude-3-haiku', 'claude-sonnet-4-5', 'claude-sonnet-4-6', 'claude-opus-4-8', 'claude-opus-5-5'].map(
    (model) => ['anthropic', model] as const,
  ),
  ...['gemini-2.5-pro', 'gemini-3-flash'].map((model) => ['gemini', model] as const),
  ...['claude-sonnet-4-6', 'claude-opus-4-8', 'gemini-2.5-pro'].map((model) => ['vertex', model] as const),
  ...[
    'anthropic.claude-sonnet-4-5',
    'anthropic.claude-opus-4-8',
    'us.amazon.nova-pro-v1:0',
    'deepseek.v3',
  ].map((model) => ['bedrock', model] as const),
];
const TEXTS = ['a', 'b c', '', ' ', '\n', 'ü'];
const fileOf = (type: string, base64: string): Body => ({
  type: 'file',
  file: { file_data: `data:${type};base64,${base64}`, filename: 'a.x' },
});
const PICTURE = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } };
const SCHEMAS = [
  {},
  { type: 'object' },
  { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] },
  { type: 'object', properties: { a: { type: ['string', 'null'] } } },
  { type: 'object', properties: {}, additionalProperties: true },
];
const NAMED = { type: 'function', function: { name: 'f' } };

/** Makes one body. Results of tools come for each call, perhaps with something between. */
function bodyOf(next: Random): Body {
  const chance = (share: number): boolean => next() < share;
  const textPart = (): Body => ({ type: 'text', text: pick(next, TEXTS) });
  const parts = (): unknown =>
    pick(next, [
      pick(next, TEXTS),
      [textPart(), textPart()],
      [PICTURE],
      [textPart(), PICTURE],
      [textPart(), fileOf('application/pdf', 'AAAA'), fileOf('text/plain', pick(next, ['', 'IA==', 'YQ==']))],
      [],
    ]);
  const messages: Body[] = [];
  for (let count = 1 + Math.floor(next() * 5); count > 0; count--) {
    const role = pick(next, ['system', 'developer', 'user', 'user', 'assistant', 'assistant']);
    if (role !== 'assistant') {
      messages.push({
        role,
        content: role === 'user' ? parts() : pick(next, [pick(next, TEXTS), [textPart()]]),
      });
      continue;
    }
    // Some servers give each response the same ids, or empty ones.
    const end = pick(next, [`${count}`, '', ':0']);
    const ids = pick(next, [[], [], ['x'], ['x', 'y'], ['', '']]).map((id) => id + end);
    const blocks = [{ type: 'thinking', thinking: 'Hm', signature: 'c2ln' }];
    const call = (id: string): Body => ({
      id,
      ...NAMED,
      function: { name: 'f', arguments: pick(next, ['', '{}', '{"a":1}']) },
    });
    messages.push({
      role,
      content: pick(next, [
        null,
        pick(next, TEXTS),
        [textPart()],
        [{ type: 'refusal', refusal: pick(next, TEXTS) }],
      ]),
      ...(chance(0.2) && { refusal: pick(next, TEXTS) }),
      ...(chance(0.2) && { thinking_blocks: blocks }),
      ...(ids.length > 0 && { tool_calls: ids.map(call) }),
    });
    for (const id of ids) {
      if (chance(0.2))
        messages.push({
          role: pick(next, ['system', 'user']),
          content: pick(next, ['b', [{ type: 'text', text: 'c' }]]),
        });
      messages.push({
        role: 'tool',
        tool_call_id: id,
        content: pick(next, [pick(next, TEXTS), [textPart(), textPart()], []]),
      });
    }
  }
  const tool = (): Body => ({
    ...NAMED,
    function: { name: 'f', parameters: pick(next, SCHEMAS), strict: chance(0.5) },
  });
  const schemaFormat = {
    type: 'json_schema',
    json_schema: { name: 'n', schema: pick(next, SCHEMAS), strict: chance(0.5) },
  };
  const allowed = {
    type: 'allowed_tools',
    allowed_tools: { mode: pick(next, ['auto', 'required']), tools: [NAMED] },
  };
  return {
    model: 'm',
    messages,
    ...(chance(0.5) && {
      tools: pick(next, [[], [tool()], [tool(), { ...NAMED, function: { name: 'g' } }]]),
    }),
    ...(chance(0.3) && { tool_choice: pick(next, ['auto', 'none', 'required', NAMED, allowed]) }),
    ...(chance(0.3) && {
      response_format: pick(next, [{ type: 'json_object' }, { type: 'text' }, schemaFormat]),
    }),
    ...(chance(0.3) && { max_tokens: pick(next, [1, 1_024, 1_025, 5_000]) }),
    ...(chance(0.2) && { reasoning_effort: pick(next, ['none', 'minimal', 'low', 'high', 'xhigh', 'max']) }),
    ...(chance(0.2) && {
      thinking: pick(next, [{ type: 'enabled', budget_tokens: 1_024 }, { type: 'disabled' }]),
    }),
    ...(chance(0.2) && { temperature: pick(next, [0, 0.5, 1, 1.5]) }),
    ...(chance(0.2) && { top_p: 0.9 }),
    ...(chance(0.1) && { top_k: 5 }),
    ...(chance(0.2) && { stop: pick(next, ['x', ['', ' ', 'a']]) }),
    ...(chance(0.1) && { parallel_tool_calls: false }),
  };
}

/** The rule that the written request breaks; undefined if it breaks none. */
function problemOf(provider: ProviderName, model: string, text: string): string | undefined {
  if (provider === 'bedrock') {
    try {
      readConverse(text);
      return undefined;
    } catch (error) {
      if (error instanceof ConverseProblem) return error.message;
      throw error;
    }
  }
  const request = JSON.parse(text) as Body;
  if (model.startsWith('gemini')) return geminiProblem(request, model);
  // Vertex has the model in the path, and a version in the body, which mock-vertex.ts checks.
  delete request.anthropic_version;
  return anthropicProblem({ model, ...request }, VERSION);
}

void t.test('what is written breaks no rule of its provider', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  let written = 0;
  for (let run = 0; run < RUNS; run++) {
    const body = bodyOf(next);
    const [name, model] = pick(next, MODELS);
    const provider: Provider = PROVIDERS[name]!;
    const settings = { ...settingsOf(name), apiVersion: VERSION, dropUnsupported: next() < 0.5 };
    const call = { settings, body, model, stream: false, requestId: 'req_1', nowMs: 1_790_000_000_000 };
    try {
      const problem = problemOf(name, model, provider.write(call).body);
      if (problem !== undefined) t.fail(`${name} ${model}: ${problem}: ${JSON.stringify(body)}`);
      written++;
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
    }
  }
  t.ok(written > RUNS / 4, `${written} of ${RUNS}`);
  t.end();
});
