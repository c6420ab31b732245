/**
 * Every field of a request in the types of the official SDKs, and what becomes of it. A field that an SDK
 * gains fails here by its name until somebody has decided about it. What the tables say is tried with the
 * translations; docs/provider-fields.md says it in words.
 */
import t, { type Test } from 'tap';
import ts from 'typescript';
import { FieldError, type Provider } from '#src/providers/provider.js';
import { PROVIDERS } from '#src/providers/providers.js';
import { callOf, FORMS, type Form } from '../../support/provider-forms.js';
import { requestCases } from '../../support/provider-requests.js';

const PACKAGES = new URL('../../../../node_modules/', import.meta.url).pathname;

/** The members of an interface in a file of types. */
function membersOf(t: Test, file: string, name: string): string[] {
  const source = ts.createSourceFile(file, ts.sys.readFile(PACKAGES + file)!, ts.ScriptTarget.Latest);
  const members: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isInterfaceDeclaration(node) && node.name.text === name)
      for (const member of node.members)
        if (member.name !== undefined && ts.isIdentifier(member.name)) members.push(member.name.text);
    ts.forEachChild(node, visit);
  };
  visit(source);
  t.ok(members.length > 5, `${file} has ${name}`);
  return members.sort();
}

const formOf = (name: string): Form => FORMS.find((form) => form.name === name)!;
function providerOf(form: Form): Provider {
  const provider = PROVIDERS[form.provider];
  if (provider === undefined) throw new Error(`${form.provider} does not translate`);
  return provider;
}

type Members = Readonly<Record<string, unknown>>;
type Outcome = 'written' | 'dropped' | 'refused';

const CALL = { role: 'user', content: 'hello' };
const TOOLS = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }];

/**
 * By field of a chat completion: a value that asks for something, what it becomes at anthropic, gemini and
 * bedrock, and the members that it needs beside it.
 */
const CHAT: Readonly<Record<string, readonly [unknown, Outcome, Outcome, Outcome, Members?]>> = {
  audio: [{ voice: 'alloy', format: 'wav' }, 'refused', 'refused', 'refused'],
  frequency_penalty: [0.5, 'refused', 'written', 'refused'],
  // Without functions it asks for nothing.
  function_call: ['none', 'dropped', 'refused', 'refused'],
  functions: [[{ name: 'f', parameters: { type: 'object' } }], 'written', 'refused', 'refused'],
  logit_bias: [{ 5: 1 }, 'refused', 'refused', 'refused'],
  logprobs: [true, 'refused', 'written', 'refused'],
  max_completion_tokens: [77, 'written', 'written', 'written'],
  max_tokens: [77, 'written', 'written', 'written'],
  messages: [[{ role: 'user', content: 'other' }], 'written', 'written', 'written'],
  metadata: [{ team: 'a' }, 'dropped', 'dropped', 'written'],
  modalities: [['text', 'audio'], 'refused', 'written', 'refused'],
  // The gateway chooses it; the member only names the gateway's.
  model: ['other', 'dropped', 'dropped', 'dropped'],
  moderation: [{ model: 'omni-moderation-latest' }, 'refused', 'refused', 'refused'],
  n: [2, 'refused', 'written', 'refused'],
  parallel_tool_calls: [false, 'written', 'refused', 'written', { tools: TOOLS }],
  prediction: [{ type: 'content', content: 'x' }, 'refused', 'refused', 'refused'],
  presence_penalty: [0.5, 'refused', 'written', 'refused'],
  prompt_cache_key: ['k', 'dropped', 'dropped', 'dropped'],
  prompt_cache_options: [{ ttl: '30m' }, 'dropped', 'dropped', 'dropped'],
  prompt_cache_retention: ['24h', 'dropped', 'dropped', 'dropped'],
  reasoning_effort: ['high', 'written', 'written', 'written'],
  response_format: [{ type: 'json_object' }, 'written', 'written', 'written'],
  safety_identifier: ['someone', 'written', 'dropped', 'dropped'],
  seed: [7, 'refused', 'written', 'refused'],
  service_tier: ['flex', 'dropped', 'dropped', 'written'],
  stop: ['END', 'written', 'written', 'written'],
  store: [true, 'dropped', 'dropped', 'dropped'],
  stream: [true, 'written', 'written', 'written'],
  // Usage comes anyway.
  stream_options: [{ include_usage: true }, 'dropped', 'dropped', 'dropped'],
  temperature: [0.5, 'written', 'written', 'written'],
  tool_choice: ['required', 'written', 'written', 'written', { tools: TOOLS }],
  tools: [TOOLS, 'written', 'written', 'written'],
  top_logprobs: [2, 'refused', 'written', 'refused', { logprobs: true }],
  top_p: [0.5, 'written', 'written', 'written'],
  user: ['someone', 'written', 'dropped', 'dropped'],
  verbosity: ['low', 'refused', 'refused', 'refused'],
  web_search_options: [{}, 'refused', 'refused', 'refused'],
};

/** What the value becomes beside `others`; those that are refused themselves are left out. */
function outcomeOf(form: Form, field: string, value: unknown, others: Members): Outcome {
  const written = (body: Members): string => {
    const { path, body: text } = providerOf(form).write(callOf(form, { messages: [CALL], ...body }));
    return `${path} ${text}`;
  };
  let former: string;
  try {
    former = written(others);
  } catch {
    return outcomeOf(form, field, value, {});
  }
  try {
    return written({ ...others, [field]: value }) === former ? 'dropped' : 'written';
  } catch (error) {
    if (error instanceof FieldError) return 'refused';
    throw error;
  }
}

void t.test('fields of a chat completion', (t) => {
  const file = 'openai/resources/chat/completions/completions.d.ts';
  t.same(membersOf(t, file, 'ChatCompletionCreateParamsBase'), Object.keys(CHAT).sort());
  const forms = ['anthropic', 'gemini', 'bedrock'].map(formOf);
  for (const [field, [value, anthropic, gemini, bedrock, others = {}]] of Object.entries(CHAT)) {
    const outcomes = forms.map((form) => outcomeOf(form, field, value, others));
    t.same(outcomes, [anthropic, gemini, bedrock], field);
  }
  t.end();
});

interface Native {
  readonly form: string;
  /** File and name of the interface. */
  readonly type: readonly [string, string];
  /** Fields that translations write, and those of former versions of the interface. */
  readonly written: readonly string[];
  readonly former: readonly string[];
  /** Fields that no translation writes, by the reason. */
  readonly unwritten: Readonly<Record<string, readonly string[]>>;
  /** Requests that write what the cases of provider-requests.ts do not. */
  readonly more: readonly Members[];
}

/** What the SDKs call otherwise than the protocol: bedrock has the model in its path. */
const NATIVE: readonly Native[] = [
  {
    form: 'anthropic',
    type: ['@anthropic-ai/sdk/resources/messages/messages.d.ts', 'MessageCreateParamsBase'],
    written: [
      ...['max_tokens', 'messages', 'model', 'cache_control', 'metadata', 'output_config', 'stop_sequences'],
      ...['stream', 'system', 'thinking', 'tool_choice', 'tools'],
    ],
    former: ['temperature', 'top_p', 'top_k'],
    unwritten: {
      'dearer than tokens': ['container', 'inference_geo', 'service_tier', 'speed'],
      'headers, which are not passed': ['user_profile_id', 'workspace_id'],
      'of which a chat completion has no equal': ['diagnostics'],
    },
    more: [{ stream: true, cache_control: { type: 'ephemeral' } }],
  },
  {
    form: 'gemini',
    type: ['@google/genai/dist/genai.d.ts', 'GenerateContentConfig'],
    written: [
      ...['systemInstruction', 'temperature', 'topP', 'topK', 'candidateCount', 'maxOutputTokens'],
      ...['stopSequences', 'responseLogprobs', 'logprobs', 'presencePenalty', 'frequencyPenalty', 'seed'],
      ...['responseMimeType', 'responseJsonSchema', 'safetySettings', 'tools', 'toolConfig', 'cachedContent'],
      ...['responseModalities', 'thinkingConfig'],
    ],
    former: [],
    unwritten: {
      'chooses another model or price': ['routingConfig', 'modelSelectionConfig', 'serviceTier'],
      'of the SDK, not of the protocol': ['httpOptions', 'abortSignal', 'automaticFunctionCalling'],
      'schemas go as JSON schemas': ['responseSchema'],
      'stored with Google': ['store', 'labels'],
      'of which a chat completion has no equal': [
        ...['mediaResolution', 'speechConfig', 'audioTimestamp', 'audioTranscriptionConfig', 'imageConfig'],
        ...['enableEnhancedCivicAnswers', 'modelArmorConfig', 'continuationToken', 'automaticContinuation'],
        'generationOutputConfig',
      ],
    },
    more: [
      { extra_body: { google: { safety_settings: [], cached_content: 'cachedContents/1' } } },
      { modalities: ['text', 'image'] },
    ],
  },
  {
    form: 'bedrock',
    type: ['@aws-sdk/client-bedrock-runtime/dist-types/models/models_0.d.ts', 'ConverseRequest'],
    written: [
      ...['messages', 'system', 'inferenceConfig', 'toolConfig', 'guardrailConfig', 'promptVariables'],
      ...['additionalModelRequestFields', 'additionalModelResponseFieldPaths', 'requestMetadata'],
      ...['performanceConfig', 'serviceTier', 'outputConfig'],
    ],
    former: [],
    unwritten: { 'in the path': ['modelId'] },
    more: [{ guardrailConfig: {}, performanceConfig: {}, promptVariables: {} }, { service_tier: 'flex' }],
  },
];

/** Members of the bodies, those of Gemini's `generationConfig` among them, as its SDK has them. */
function writtenBy(form: Form, requests: readonly Members[]): Set<string> {
  const names = new Set<string>();
  for (const request of requests) {
    let text: string;
    try {
      text = providerOf(form).write(callOf(form, { messages: [CALL], ...request })).body;
    } catch (error) {
      if (error instanceof FieldError) continue;
      throw error;
    }
    const { generationConfig, ...members } = JSON.parse(text) as Members;
    for (const name of [...Object.keys(members), ...Object.keys(generationConfig ?? {})]) names.add(name);
  }
  // The SDK has it beside the config.
  names.delete('contents');
  return names;
}

for (const { form, type, written, former, unwritten, more } of NATIVE) {
  void t.test(`fields of ${type[1]}`, (t) => {
    t.same(membersOf(t, ...type), [...written, ...Object.values(unwritten).flat()].sort());
    const requests = [...requestCases().map(({ request }) => request), ...more];
    t.same([...writtenBy(formOf(form), requests)].sort(), [...written, ...former].sort());
    t.end();
  });
}
