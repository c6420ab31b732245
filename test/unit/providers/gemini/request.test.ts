/** What each member of a chat completion becomes in a Gemini request, and which are refused. */
import t from 'tap';
import { requestBody } from '#src/providers/gemini/request.js';
import { FieldError } from '#src/providers/provider.js';
import { geminiCall } from './gemini-call.js';

const NEW = 'gemini-3-flash-preview';
const written = (body: Record<string, unknown>, model?: string, dropUnsupported = false): unknown =>
  JSON.parse(requestBody(geminiCall(body, model === undefined ? {} : { model }, { dropUnsupported })));

const schema = { type: 'object', properties: { city: { type: 'string' } }, additionalProperties: false };
const tool = (name: string, more: object = {}): object => ({ type: 'function', function: { name, ...more } });
const tools = [tool('weather', { description: 'Tells it.', parameters: schema, strict: true })];
const declared = [
  { functionDeclarations: [{ name: 'weather', description: 'Tells it.', parametersJsonSchema: schema }] },
];
const calling = (functionCallingConfig: object): object => ({
  tools: declared,
  toolConfig: { functionCallingConfig },
});
const config = (generationConfig: object): object => ({ generationConfig });

/** Beside `contents`, which are the same in all. */
const MEMBERS: [name: string, body: Record<string, unknown>, written: object, model?: string][] = [
  ['nothing', {}, {}],
  ['nulls', { temperature: null, tools: null, stop: null, response_format: null, seed: null }, {}],
  [
    'numbers',
    { temperature: 0.2, top_p: 0.9, top_k: 40, seed: 7, presence_penalty: 0.5, frequency_penalty: -0.5 },
    config({
      temperature: 0.2,
      topP: 0.9,
      topK: 40,
      seed: 7,
      presencePenalty: 0.5,
      frequencyPenalty: -0.5,
    }),
  ],
  ['max_tokens', { max_tokens: 100 }, config({ maxOutputTokens: 100 })],
  [
    'max_completion_tokens goes before max_tokens',
    { max_tokens: 100, max_completion_tokens: 50 },
    config({ maxOutputTokens: 50 }),
  ],
  ['one choice', { n: 1 }, {}],
  ['several choices', { n: 3 }, config({ candidateCount: 3 })],
  ['a stop', { stop: 'END' }, config({ stopSequences: ['END'] })],
  ['stops', { stop: ['A', 'B'] }, config({ stopSequences: ['A', 'B'] })],
  ['logprobs', { logprobs: true, top_logprobs: 3 }, config({ responseLogprobs: true, logprobs: 3 })],
  ['logprobs that are not wanted', { logprobs: false }, {}],
  [
    'harmless members',
    { user: 'u1', metadata: { a: 'b' }, store: false, service_tier: 'auto', stream_options: {} },
    {},
  ],
  ['a format of text', { response_format: { type: 'text' } }, {}],
  [
    'a format of JSON',
    { response_format: { type: 'json_object' } },
    config({ responseMimeType: 'application/json' }),
  ],
  [
    'a format with a schema',
    { response_format: { type: 'json_schema', json_schema: { name: 'x', strict: true, schema } } },
    config({ responseMimeType: 'application/json', responseJsonSchema: schema }),
  ],
  ['text alone', { modalities: ['text'] }, {}],
  ['images', { modalities: ['text', 'image'] }, config({ responseModalities: ['TEXT', 'IMAGE'] })],
  [
    'speech',
    { modalities: ['audio'], audio: { voice: 'Kore', format: 'pcm16' } },
    config({
      responseModalities: ['AUDIO'],
      speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: 'Kore' } } },
    }),
  ],
  ['tools', { tools }, { tools: declared }],
  [
    'a tool without parameters',
    { tools: [tool('now')] },
    { tools: [{ functionDeclarations: [{ name: 'now' }] }] },
  ],
  ['tool_choice auto', { tools, tool_choice: 'auto' }, calling({ mode: 'AUTO' })],
  ['tool_choice none', { tools, tool_choice: 'none' }, calling({ mode: 'NONE' })],
  ['tool_choice required', { tools, tool_choice: 'required' }, calling({ mode: 'ANY' })],
  [
    'tool_choice of a function',
    { tools, tool_choice: tool('weather') },
    calling({ mode: 'ANY', allowedFunctionNames: ['weather'] }),
  ],
  [
    'allowed tools',
    {
      tools,
      tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [tool('weather')] } },
    },
    calling({ mode: 'VALIDATED', allowedFunctionNames: ['weather'] }),
  ],
  [
    'allowed tools, one of which must be called',
    {
      tools,
      tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [tool('weather')] } },
    },
    calling({ mode: 'ANY', allowedFunctionNames: ['weather'] }),
  ],
  ['parallel calls', { tools, parallel_tool_calls: true }, { tools: declared }],
  [
    "Google's own members",
    {
      extra_body: {
        google: {
          safety_settings: [{ category: 'HARM_CATEGORY_HARASSMENT', threshold: 'BLOCK_NONE' }],
          cached_content: 'cachedContents/abc',
          thinking_config: { thinking_budget: 512, include_thoughts: true },
        },
      },
    },
    {
      safetySettings: [{ category: 'HARM_CATEGORY_HARASSMENT', threshold: 'BLOCK_NONE' }],
      cachedContent: 'cachedContents/abc',
      ...config({ thinkingConfig: { thinkingBudget: 512, includeThoughts: true } }),
    },
  ],
  [
    "Google's own members, as a client that knows extra_body sends them",
    { google: { cached_content: 'cachedContents/abc' } },
    { cachedContent: 'cachedContents/abc' },
  ],
];

for (const [name, body, more, model] of MEMBERS)
  void t.test(name, (t) => {
    t.strictSame(written(body, model), { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }], ...more });
    t.end();
  });

const EFFORTS: [effort: string, model: string, thinking: object][] = [
  ['none', 'gemini-2.5-flash', { thinkingBudget: 0, includeThoughts: false }],
  ['minimal', 'gemini-2.5-flash', { thinkingBudget: 1_024, includeThoughts: true }],
  ['low', 'gemini-2.5-pro', { thinkingBudget: 1_024, includeThoughts: true }],
  ['medium', 'gemini-2.5-flash-lite', { thinkingBudget: 8_192, includeThoughts: true }],
  ['high', 'gemini-2.5-pro', { thinkingBudget: 24_576, includeThoughts: true }],
  ['xhigh', 'gemini-2.5-pro', { thinkingBudget: 32_768, includeThoughts: true }],
  ['xhigh', 'gemini-2.5-flash', { thinkingBudget: 24_576, includeThoughts: true }],
  ['none', NEW, { thinkingLevel: 'MINIMAL', includeThoughts: false }],
  ['minimal', NEW, { thinkingLevel: 'MINIMAL', includeThoughts: true }],
  ['minimal', 'gemini-3.1-pro-preview', { thinkingLevel: 'LOW', includeThoughts: true }],
  ['medium', 'gemini-flash-latest', { thinkingLevel: 'MEDIUM', includeThoughts: true }],
  ['high', 'gemini-10-pro', { thinkingLevel: 'HIGH', includeThoughts: true }],
  ['max', NEW, { thinkingLevel: 'HIGH', includeThoughts: true }],
  ['max', 'gemini-2.5-flash', { thinkingBudget: 24_576, includeThoughts: true }],
  ['max', 'gemini-2.5-pro', { thinkingBudget: 32_768, includeThoughts: true }],
  ['xhigh', NEW, { thinkingLevel: 'HIGH', includeThoughts: true }],
];

for (const [effort, model, thinkingConfig] of EFFORTS)
  void t.test(`reasoning_effort ${effort} of ${model}`, (t) => {
    const { generationConfig } = written({ reasoning_effort: effort }, model) as Record<string, unknown>;
    t.strictSame(generationConfig, { thinkingConfig });
    t.end();
  });

void t.test('thinking, by its name elsewhere', (t) => {
  const of = (thinking: object): unknown =>
    (written({ thinking }) as Record<string, unknown>).generationConfig;
  t.strictSame(of({ type: 'enabled', budget_tokens: 2_000 }), {
    thinkingConfig: { thinkingBudget: 2_000, includeThoughts: true },
  });
  t.strictSame(of({ type: 'enabled', budget_tokens: 0 }), {
    thinkingConfig: { thinkingBudget: 0, includeThoughts: false },
  });
  t.strictSame(of({ type: 'enabled', budget_tokens: null }), { thinkingConfig: { includeThoughts: true } });
  t.strictSame(of({ type: 'adaptive' }), { thinkingConfig: { includeThoughts: true } });
  t.strictSame(of({ type: 'disabled' }), { thinkingConfig: { thinkingBudget: 0, includeThoughts: false } });
  t.end();
});

const REJECTED: [name: string, body: Record<string, unknown>, field: string, model?: string][] = [
  ['logit_bias', { logit_bias: { 50256: -100 } }, 'logit_bias'],
  ['a member that nobody knows', { wishes: 3 }, 'wishes'],
  ['search', { web_search_options: {} }, 'web_search_options'],
  ['one call at a time', { tools, parallel_tool_calls: false }, 'parallel_tool_calls'],
  ['a tool of another kind', { tools: [{ type: 'custom', custom: { name: 'x' } }] }, 'tools[0].type'],
  ['a tool without a name', { tools: [{ type: 'function', function: {} }] }, 'tools[0].function.name'],
  [
    'parameters that are no schema',
    { tools: [tool('x', { parameters: 'no' })] },
    'tools[0].function.parameters',
  ],
  ['a choice that nobody knows', { tools, tool_choice: 'some' }, 'tool_choice'],
  ['a choice without a name', { tools, tool_choice: { type: 'function' } }, 'tool_choice'],
  ['a temperature that is a text', { temperature: '0' }, 'temperature'],
  [
    'a schema that is missing',
    { response_format: { type: 'json_schema' } },
    'response_format.json_schema.schema',
  ],
  ['a format that nobody knows', { response_format: { type: 'grammar' } }, 'response_format.type'],
  ['a stop that is a number', { stop: 3 }, 'stop'],
  ['a modality that nobody knows', { modalities: ['smell'] }, 'modalities[0]'],
  ['sound as mp3', { modalities: ['audio'], audio: { format: 'mp3' } }, 'audio.format'],
  ['an effort that nobody knows', { reasoning_effort: 'huge' }, 'reasoning_effort'],
  ['a word of every object for an effort', { reasoning_effort: 'constructor' }, 'reasoning_effort'],
  ['a word of every object for a modality', { modalities: ['constructor'] }, 'modalities[0]'],
  [
    'a word of every object on thinking',
    { google: { thinking_config: { constructor: 1 } } },
    'google.thinking_config.constructor',
  ],
  ['no thoughts of a model that thinks', { reasoning_effort: 'none' }, 'reasoning_effort', 'gemini-3.1-pro'],
  ['no thoughts of an older one', { reasoning_effort: 'none' }, 'reasoning_effort', 'gemini-2.5-pro'],
  ['thinking of no kind', { thinking: { type: 'deep' } }, 'thinking.type'],
  ['a budget of no number', { thinking: { type: 'enabled', budget_tokens: 'x' } }, 'thinking.budget_tokens'],
  [
    'two words on thinking',
    { reasoning_effort: 'low', extra_body: { google: { thinking_config: {} } } },
    'extra_body.google.thinking_config',
  ],
  ['an unknown member of Google', { extra_body: { google: { x: 1 } } }, 'extra_body.google.x'],
  ['an unknown body', { extra_body: { top_a: 1 } }, 'extra_body.top_a'],
  ['settings that are no list', { google: { safety_settings: {} } }, 'google.safety_settings'],
  ['a cache without a name', { google: { cached_content: 1 } }, 'google.cached_content'],
  [
    'an unknown word on thinking',
    { google: { thinking_config: { depth: 1 } } },
    'google.thinking_config.depth',
  ],
];

for (const [name, body, field, model] of REJECTED)
  void t.test(`refused: ${name}`, (t) => {
    try {
      written(body, model);
      t.fail('was written');
    } catch (error) {
      t.ok(error instanceof FieldError);
      t.equal((error as FieldError).field, field);
    }
    t.end();
  });

void t.test('what is not supported is left out if the upstream is set so', (t) => {
  const drops = (body: Record<string, unknown>, model?: string): unknown => {
    const { contents, ...more } = written(body, model, true) as Record<string, unknown>;
    t.ok(contents);
    return more;
  };
  t.strictSame(drops({ logit_bias: { 1: 2 }, wishes: 3, extra_body: { top_a: 1 } }), {});
  t.strictSame(drops({ tools, parallel_tool_calls: false }), { tools: declared });
  t.strictSame(drops({ reasoning_effort: 'none' }, 'gemini-2.5-pro'), {
    generationConfig: { thinkingConfig: { thinkingBudget: 128, includeThoughts: false } },
  });
  t.strictSame(drops({ reasoning_effort: 'none' }, 'gemini-3.1-pro'), {
    generationConfig: { thinkingConfig: { thinkingLevel: 'LOW', includeThoughts: false } },
  });
  t.end();
});

void t.test('a bias of no token asks for nothing', (t) => {
  t.strictSame(written({ logit_bias: {} }), written({}));
  t.end();
});
