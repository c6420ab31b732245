/** What each member of a chat completion becomes in Converse, by the family of the model. */
import t from 'tap';
import { bodyOf } from '#src/providers/bedrock/request.js';
import { FieldError } from '#src/providers/provider.js';
import { bedrockCall, CLAUDE, type GivenCall } from '../../../support/bedrock.js';

type Members = Record<string, unknown>;
const USER = { role: 'user', content: 'Hi' };
const ADAPTIVE = 'global.anthropic.claude-opus-4-7';
const OLD_CLAUDE = 'anthropic.claude-3-haiku-20240307-v1:0';
const NOVA = 'us.amazon.nova-pro-v1:0';
const NOVA_2 = 'us.amazon.nova-2-lite-v1:0';
const HIDDEN = 'arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3d4e5f6';

function written(members: Members, given: GivenCall = {}): Members {
  return JSON.parse(bodyOf(bedrockCall({ messages: [USER], ...members }, given))) as Members;
}

/** The same without the messages. */
function rest(members: Members, given?: GivenCall): Members {
  const { messages, ...others } = written(members, given);
  t.ok(messages);
  return others;
}

interface Equals {
  equal(found: unknown, wanted: unknown): unknown;
}

/** Checks that the request is refused, and which member for. */
function rejected(scope: Equals, members: Members, field: string, given: GivenCall = {}): void {
  let found = 'none';
  try {
    written(members, given);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    found = error.field;
  }
  scope.equal(found, field);
}

void t.test('sampling, bounds and stops', (t) => {
  const samplers = { temperature: 0.5, top_p: 0.9 };
  t.same(rest({ max_tokens: 5, ...samplers, stop: 'END' }, { model: OLD_CLAUDE }), {
    inferenceConfig: { maxTokens: 5, stopSequences: ['END'], temperature: 0.5, topP: 0.9 },
  });
  for (const stop of [undefined, 'END']) {
    rejected(t, { ...samplers, stop }, 'top_p');
    t.match(rest({ ...samplers, stop }, { settings: { dropUnsupported: true } }), {
      inferenceConfig: { temperature: 0.5, topP: undefined },
    });
    t.match(rest({ ...samplers, temperature: 1, stop }), { inferenceConfig: { topP: 0.9 } });
  }
  t.same(rest({ max_tokens: 5, max_completion_tokens: 7, stop: ['a', '', 'b'] }), {
    inferenceConfig: { maxTokens: 7, stopSequences: ['a', 'b'] },
  });
  t.same(rest({ stop: '', temperature: 1, top_p: 1 }), {}, "Claude's defaults");
  t.same(rest({ temperature: 1 }, { model: NOVA }), { inferenceConfig: { temperature: 1 } });
  t.same(rest({ top_k: 5 }), { additionalModelRequestFields: { top_k: 5 } });
  t.same(rest({ top_k: 5 }, { model: NOVA }), {
    additionalModelRequestFields: { inferenceConfig: { topK: 5 } },
  });
  rejected(t, { top_k: 5 }, 'top_k', { model: 'meta.llama3-1-8b-instruct-v1:0' });
  rejected(t, { temperature: 1.5 }, 'temperature');
  rejected(t, { temperature: 0.5 }, 'temperature', { model: ADAPTIVE });
  rejected(t, { temperature: 0.5, reasoning_effort: 'low', max_tokens: 3000 }, 'temperature');
  t.same(rest({ temperature: 1.5 }, { settings: { dropUnsupported: true } }), {
    inferenceConfig: { temperature: 1 },
  });
  t.end();
});

void t.test('what asks for nothing passes, what cannot be said is refused by name', (t) => {
  t.same(
    rest({
      n: 1,
      logprobs: false,
      presence_penalty: 0,
      frequency_penalty: 0,
      logit_bias: {},
      modalities: ['text'],
      tools: [],
      user: 'u',
      store: true,
      service_tier: 'auto',
      parallel_tool_calls: true,
      response_format: { type: 'text' },
    }),
    {},
  );
  for (const [name, value] of Object.entries({
    n: 2,
    seed: 1,
    logprobs: true,
    presence_penalty: 0.5,
    logit_bias: { 5: 1 },
    modalities: ['audio'],
    audio: {},
    functions: [{ name: 'f' }],
    whatever: 1,
  })) {
    rejected(t, { [name]: value }, name);
    t.same(rest({ [name]: value }, { settings: { dropUnsupported: true } }), {});
  }
  t.end();
});

void t.test('members of Converse itself, tiers and metadata', (t) => {
  const guardrailConfig = { guardrailIdentifier: 'g', guardrailVersion: '1', trace: 'enabled' };
  t.same(
    rest({
      guardrailConfig,
      performanceConfig: { latency: 'optimized' },
      service_tier: 'flex',
      metadata: { team: 'a b', bad: 'ü', number: 5, ['x'.repeat(257)]: 'y' },
    }),
    {
      guardrailConfig,
      performanceConfig: { latency: 'optimized' },
      serviceTier: { type: 'flex' },
      requestMetadata: { team: 'a b' },
    },
  );
  rejected(t, { guardrailConfig: 'g' }, 'guardrailConfig');
  t.same(rest({}, { settings: { betas: ['context-1m-2025-08-07'] } }), {
    additionalModelRequestFields: { anthropic_beta: ['context-1m-2025-08-07'] },
  });
  t.same(rest({}, { settings: { betas: ['context-1m-2025-08-07'] }, model: NOVA }), {});
  t.end();
});

void t.test('reasoning_effort and thinking', (t) => {
  const paths = { additionalModelResponseFieldPaths: ['/usage/output_tokens_details'] };
  const thinking = (type: Members): Members => ({
    additionalModelRequestFields: { thinking: type },
    ...paths,
  });
  t.same(rest({ reasoning_effort: 'medium' }), thinking({ type: 'enabled', budget_tokens: 2048 }));
  t.match(
    rest({ reasoning_effort: 'high', max_tokens: 2000 }),
    thinking({ type: 'enabled', budget_tokens: 1999 }),
  );
  t.same(rest({ reasoning_effort: 'high', max_tokens: 500 }), { inferenceConfig: { maxTokens: 500 } });
  t.same(rest({ reasoning_effort: 'none' }), {});
  const given = { type: 'enabled', budget_tokens: 5000 };
  t.same(rest({ thinking: given }), thinking(given));
  t.match(rest({ thinking: given, max_tokens: 5001 }), thinking(given));
  rejected(t, { thinking: given, max_tokens: 5000 }, 'thinking.budget_tokens');
  t.same(rest({ thinking: { type: 'disabled' } }), {
    additionalModelRequestFields: { thinking: { type: 'disabled' } },
  });
  for (const [effort, word] of [
    ['minimal', 'low'],
    ['low', 'low'],
    ['high', 'high'],
    ['xhigh', 'xhigh'],
  ] as const) {
    t.same(rest({ reasoning_effort: effort }, { model: ADAPTIVE }), {
      ...thinking({ type: 'adaptive', display: 'summarized' }),
      outputConfig: { effort: word },
    });
  }
  t.same(rest({ reasoning_effort: 'xhigh' }, { model: 'anthropic.claude-opus-4-6-v1' }), {
    ...thinking({ type: 'adaptive' }),
    outputConfig: { effort: 'high' },
  });
  t.same(rest({ reasoning_effort: 'xhigh' }, { model: NOVA_2 }), {
    additionalModelRequestFields: { reasoningConfig: { type: 'enabled', maxReasoningEffort: 'high' } },
  });
  t.same(rest({ reasoning_effort: 'none' }, { model: NOVA_2 }), {
    additionalModelRequestFields: { reasoningConfig: { type: 'disabled' } },
  });
  t.same(rest({ reasoning_effort: 'minimal' }, { model: 'openai.gpt-oss-120b-1:0' }), {
    additionalModelRequestFields: { reasoning_effort: 'low' },
  });
  t.same(rest({ reasoning_effort: 'high' }, { model: 'deepseek.v3-v1:0' }), {
    additionalModelRequestFields: { reasoning_effort: 'high' },
  });
  t.same(rest({ reasoning_effort: 'none' }, { model: 'openai.gpt-6-sol' }), {
    additionalModelRequestFields: { reasoning: { effort: 'none' } },
  });
  t.same(rest({ reasoning_effort: 'high' }, { model: HIDDEN }), { outputConfig: { effort: 'high' } });
  for (const model of ['us.deepseek.r1-v1:0', NOVA, 'meta.llama4-scout-17b-instruct-v1:0', OLD_CLAUDE]) {
    rejected(t, { reasoning_effort: 'low' }, 'reasoning_effort', { model });
  }
  rejected(t, { reasoning_effort: 'none' }, 'reasoning_effort', { model: 'openai.gpt-oss-20b-1:0' });
  rejected(t, { reasoning_effort: 'much' }, 'reasoning_effort');
  rejected(t, { reasoning_effort: 'constructor' }, 'reasoning_effort');
  rejected(t, { thinking: given }, 'thinking', { model: NOVA });
  const off = { thinking: { type: 'disabled' } };
  t.same(rest(off, { model: NOVA_2 }), {
    additionalModelRequestFields: { reasoningConfig: { type: 'disabled' } },
  });
  t.same(rest(off, { model: NOVA }), {}, 'it does not think');
  rejected(t, off, 'thinking.type', { model: 'us.deepseek.r1-v1:0' });
  for (const model of [NOVA, NOVA_2, 'us.deepseek.r1-v1:0'])
    t.same(rest({ thinking: { type: 'adaptive' } }, { model }), {}, 'as it likes');
  t.same(rest(off, { model: HIDDEN }), { additionalModelRequestFields: off });
  t.end();
});

const SCHEMA = { type: 'object', properties: { a: { type: 'object', properties: {} } }, required: ['a'] };
const CLOSED =
  '{"type":"object","properties":{"a":{"type":"object","properties":{},"additionalProperties":false}},"required":["a"],"additionalProperties":false}';
const json = (schema: unknown, more: Members = {}): Members => ({
  response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, ...more } },
});
const TOOL = {
  type: 'function',
  function: { name: 'f', description: 'Does', parameters: { properties: {} } },
};
const SPEC = {
  toolSpec: { name: 'f', description: 'Does', inputSchema: { json: { type: 'object', properties: {} } } },
};

void t.test('response_format', (t) => {
  const textFormat = (more: Members = {}): Members => ({
    type: 'json_schema',
    structure: { jsonSchema: { schema: CLOSED, name: 'answer', ...more } },
  });
  t.same(rest(json(SCHEMA, { description: 'An answer' })), {
    outputConfig: { textFormat: textFormat({ description: 'An answer' }) },
  });
  t.same(rest({ ...json(SCHEMA), reasoning_effort: 'low' }, { model: ADAPTIVE }).outputConfig, {
    textFormat: textFormat(),
    effort: 'low',
  });
  const answer = (schema: Members): Members => ({
    toolSpec: { name: 'json_response', description: 'Gives the answer.', inputSchema: { json: schema } },
  });
  for (const model of [OLD_CLAUDE, NOVA, NOVA_2, 'us.meta.llama3-3-70b-instruct-v1:0']) {
    t.same(rest(json(SCHEMA), { model }), {
      toolConfig: { tools: [answer(SCHEMA)], toolChoice: { tool: { name: 'json_response' } } },
    });
  }
  const open = { type: 'object', additionalProperties: true };
  t.same(rest({ response_format: { type: 'json_object' } }), {
    toolConfig: { tools: [answer(open)], toolChoice: { tool: { name: 'json_response' } } },
  });
  t.same(rest({ response_format: { type: 'json_object' }, tools: [TOOL] }), {
    toolConfig: { tools: [SPEC, answer(open)], toolChoice: { any: {} } },
  });
  const own = { type: 'function', function: { name: 'json_response' } };
  t.match(rest({ response_format: { type: 'json_object' }, tools: [own] }), {
    toolConfig: { tools: [{}, { toolSpec: { name: 'json_response_2' } }], toolChoice: { any: {} } },
  });
  rejected(t, { response_format: { type: 'json_object' }, thinking: { type: 'enabled' } }, 'response_format');
  rejected(t, { response_format: { type: 'xml' } }, 'response_format.type');
  rejected(t, json('x'), 'response_format.json_schema.schema');
  t.end();
});

void t.test('tools and the choice among them', (t) => {
  const config = (toolChoice?: Members, tools: Members[] = [SPEC]): Members => ({
    toolConfig: { tools, ...(toolChoice && { toolChoice }) },
  });
  const tools = [TOOL];
  t.same(rest({ tools }), config());
  t.same(rest({ tools, tool_choice: 'auto' }), config({ auto: {} }));
  t.same(rest({ tools, tool_choice: 'required' }), config({ any: {} }));
  const named = { type: 'function', function: { name: 'f' } };
  t.same(rest({ tools, tool_choice: named }), config({ tool: { name: 'f' } }));
  t.same(rest({ tools, tool_choice: 'none' }), {});
  const other = { type: 'function', function: { name: 'g' } };
  const allowed = (mode: string): Members => ({
    tools: [other, TOOL],
    tool_choice: { type: 'allowed_tools', allowed_tools: { mode, tools: [named] } },
  });
  t.same(rest(allowed('required')), config({ any: {} }));
  t.same(rest(allowed('auto')), config({ auto: {} }));
  t.same(rest({ tools: [other] }), {
    toolConfig: {
      tools: [{ toolSpec: { name: 'g', inputSchema: { json: { type: 'object', properties: {} } } } }],
    },
  });
  const strict = { type: 'function', function: { ...TOOL.function, strict: true } };
  const closed = { type: 'object', properties: {}, additionalProperties: false };
  const spec = { ...SPEC.toolSpec, strict: true, inputSchema: { json: closed } };
  t.same(rest({ tools: [strict] }), config(undefined, [{ toolSpec: spec }]));
  const many = Array<typeof strict>(21).fill(strict);
  t.same(rest({ tools: many }), config(undefined, Array<typeof SPEC>(21).fill(SPEC)), 'more than it takes');
  t.same(rest({ tools: [strict] }, { model: NOVA }), config());
  const optional = (count: number): Members => ({
    type: 'object',
    properties: Object.fromEntries(Array.from({ length: count }, (_, index) => [`m${index}`, {}])),
    additionalProperties: false,
  });
  const loose = { type: 'function', function: { name: 'f', strict: true, parameters: optional(12) } };
  for (const [count, isStrict, isNative] of [
    [12, true, true],
    [13, false, true],
    [25, true, false],
  ] as const) {
    const format = { type: 'json_schema', json_schema: { name: 'r', schema: optional(count) } };
    const written = rest({ tools: [loose], response_format: format });
    t.equal('outputConfig' in written, isNative, `a response of ${count} optional members`);
    const { tools: specs } = written.toolConfig as { tools: { toolSpec: Members }[] };
    t.equal(specs[0]!.toolSpec.strict === true, isStrict);
  }
  t.same(rest({ tools, parallel_tool_calls: false }), {
    ...config(),
    additionalModelRequestFields: { tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
  });
  t.same(rest({ tools, tool_choice: 'required', parallel_tool_calls: false }), {
    ...config({ any: {} }),
    additionalModelRequestFields: { tool_choice: { disable_parallel_tool_use: true } },
  });
  const single = { tools, parallel_tool_calls: false };
  rejected(t, single, 'parallel_tool_calls', { model: NOVA });
  rejected(t, single, 'parallel_tool_calls', { model: 'anthropic.claude-opus-4-20250514-v1:0' });
  t.ok(rest(single, { model: 'anthropic.claude-opus-4-10-v1:0' }), 'a minor version of two digits');
  rejected(t, { tools, tool_choice: 'required', reasoning_effort: 'low' }, 'tool_choice');
  rejected(t, { tools, tool_choice: 'some' }, 'tool_choice');
  rejected(t, { tools: [{ type: 'web_search' }] }, 'tools[0]');
  rejected(t, { tools: [{ type: 'function', function: {} }] }, 'tools[0].function.name');
  const marked = { ...TOOL, cache_control: { type: 'ephemeral' } };
  t.same(rest({ tools: [marked] }), config(undefined, [SPEC, { cachePoint: { type: 'default' } }]));
  t.same(rest({ tools: [marked] }, { model: NOVA }), config(), 'Nova marks no tools');
  t.end();
});

void t.test('every model id of the table is of its family', (t) => {
  t.match(rest({ thinking: { type: 'enabled' } }, { model: CLAUDE }), { additionalModelRequestFields: {} });
  for (const model of [
    'apac.anthropic.claude-3-7-sonnet-20250219-v1:0',
    'arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-20250514-v1:0',
  ]) {
    t.match(rest({ reasoning_effort: 'low' }, { model }), {
      additionalModelRequestFields: { thinking: { type: 'enabled', budget_tokens: 1024 } },
    });
  }
  t.end();
});
