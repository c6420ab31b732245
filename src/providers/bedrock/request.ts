/**
 * Translates a chat completion into the body of Converse or ConverseStream. bedrock.ts calls `bodyOf`. No
 * I/O; upstream worker, or counter thread if the body is large.
 *
 * Follows Amazon Bedrock API Reference, "Converse"; for fields of models, Amazon Bedrock User Guide,
 * "Inference request parameters and response fields" and "Adaptive thinking", and Amazon Nova User Guide,
 * "Extended thinking", 2026-11.
 *
 * Must hold: a member of the caller's body that is read here is taken from `fields`, even if the member is
 * not used. `fields.finish` comes last, and rejects each member that nobody took
 * (test/unit/providers/bedrock/request.test.ts). The fast path (`plainBodyOf`) writes the body that
 * `anyBodyOf` would write: a rule that is added to one is added to both
 * (test/unit/providers/bedrock/request.plain-body.test.ts).
 */
import { exactJsonText } from '../../core/exact-json.js';
import { isRecord, stringText, type Members } from '../../core/json.js';
import { CLAUDE_SAMPLING_DEFAULT, samplingValuesOf, TEMPERATURE_MAX } from '../anthropic/request.js';
import { Fields } from '../fields.js';
import type { UnsignedCall } from '../provider.js';
import { conversationOf } from './messages.js';
import { factsOf, type ModelFacts, reasoningOf } from './models.js';
import { responseFormOf, toolsOf } from './tools.js';

/** Members of Converse that a caller may send by Converse's names. */
const CONVERSE_MEMBERS = ['guardrailConfig', 'performanceConfig', 'promptVariables'] as const;

const SERVICE_TIERS: ReadonlySet<unknown> = new Set(['default', 'flex', 'priority', 'reserved']);
/** The names and values that Converse accepts in `requestMetadata`, and how many entries. */
const METADATA_TEXT = /^[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}$/;
const METADATA_ENTRIES_MAX = 16;

/** The JSON text of the request. Throws a FieldError. */
export function bodyOf(call: UnsignedCall): string {
  const facts = factsOf(call.model);
  return plainBodyOf(call, facts) ?? anyBodyOf(call, facts);
}

/** The JSON text of any request. Throws a FieldError. Exported for the test of `plainBodyOf`. */
export function anyBodyOf(call: UnsignedCall, facts: ModelFacts): string {
  const fields = new Fields(call.body, 'Bedrock', call.settings);
  const conversation = conversationOf(fields.list('messages') ?? [], call.body, facts);
  const inference = inferenceOf(fields);
  const responseForm = responseFormOf(fields.take('response_format'), facts, call.body);
  const reasoning = reasoningOf(fields, facts, inference.maxTokens, conversation.continuesWithoutThinking);
  const tools = toolsOf(fields, facts, conversation, responseForm, reasoning.isOn);
  const sampling = samplingOf(fields, facts, reasoning.isOn);
  const modelFields = {
    ...reasoning.modelFields,
    ...tools.modelFields,
    ...sampling.modelFields,
    ...betasOf(call.settings.betas, facts),
  };
  const output = { ...responseForm?.output, ...reasoning.output };
  const body: Record<string, unknown> = { messages: conversation.turns };
  if (conversation.system.length > 0) body.system = conversation.system;
  const inferenceConfig = { ...inference, ...sampling.inference };
  if (Object.keys(inferenceConfig).length > 0) body.inferenceConfig = inferenceConfig;
  if (tools.config !== undefined) body.toolConfig = tools.config;
  if (Object.keys(output).length > 0) body.outputConfig = output;
  if (Object.keys(modelFields).length > 0) body.additionalModelRequestFields = modelFields;
  // Only Claude's own usage says how many tokens were reasoning; Converse's usage does not.
  if (reasoning.isOn && facts.claude !== undefined) {
    body.additionalModelResponseFieldPaths = ['/usage/output_tokens_details'];
  }
  for (const name of CONVERSE_MEMBERS) {
    const value = fields.record(name);
    if (value !== undefined) body[name] = value;
  }
  const tier = fields.take('service_tier');
  if (SERVICE_TIERS.has(tier)) body.serviceTier = { type: tier };
  const metadata = metadataOf(fields.take('metadata'));
  if (metadata !== undefined) body.requestMetadata = metadata;
  // Taken, because `conversationOf` has read the member from the body, not from `fields`.
  fields.take('cache_control');
  fields.finishForTexts();
  return exactJsonText(body);
}

/** Members of `inferenceConfig`, without those of Sampling. */
interface Inference {
  maxTokens?: number;
  stopSequences?: string[];
}

function inferenceOf(fields: Fields): Inference {
  const inference: Inference = {};
  const maxTokens = fields.outputTokensMax();
  if (maxTokens !== undefined) inference.maxTokens = maxTokens;
  const stop = fields.stopSequences().flatMap(({ text }) => (text === '' ? [] : text));
  if (stop.length > 0) inference.stopSequences = stop;
  return inference;
}

interface Sampling {
  /** Members of `inferenceConfig`. */
  readonly inference: Readonly<Record<string, number>>;
  /** Members of `additionalModelRequestFields`. */
  readonly modelFields: Members;
}

/** The members for temperature, top_p and top_k. A Claude that thinks (`willThink`) accepts few values. */
function samplingOf(fields: Fields, { family, claude }: ModelFacts, willThink: boolean): Sampling {
  const { temperature, topP, topK } = samplingValuesOf(fields, {
    allowsSampling: claude?.allowsSampling !== false,
    hasOneSampler: claude?.hasOneSampler === true,
    willThink,
    where: 'for Bedrock',
    isClaude: claude !== undefined,
  });
  const inference = {
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
  };
  if (topK === undefined) return { inference, modelFields: {} };
  if (claude !== undefined || family === 'hidden') return { inference, modelFields: { top_k: topK } };
  if (family === 'nova' || family === 'nova-2')
    return { inference, modelFields: { inferenceConfig: { topK } } };
  fields.unsupported('top_k', 'is not supported by this model');
  return { inference, modelFields: {} };
}

/** The member `anthropic_beta`; no member for a model that is not Claude. */
function betasOf(betas: readonly string[], { family, claude }: ModelFacts): Record<string, unknown> {
  return betas.length > 0 && (claude !== undefined || family === 'hidden') ? { anthropic_beta: betas } : {};
}

/** `requestMetadata`, without entries that Converse would reject. The model does not read them anyway. */
function metadataOf(metadata: unknown): Record<string, unknown> | undefined {
  if (!isRecord(metadata)) return undefined;
  const entries = Object.entries(metadata)
    .filter(
      ([name, value]) => METADATA_TEXT.test(name) && typeof value === 'string' && METADATA_TEXT.test(value),
    )
    .slice(0, METADATA_ENTRIES_MAX);
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/** Members of a chat completion that the fast path (`plainBodyOf`) reads, or that change nothing. */
const FAST_PATH_MEMBERS: ReadonlySet<string> = new Set(
  'model stream stream_options user messages max_tokens max_completion_tokens temperature top_p'.split(' '),
);

/**
 * A fast path: the JSON text for a usual chat completion, which has texts of system, user and assistant, and
 * a few numbers. Undefined for any other: `anyBodyOf` then writes the text, in five times the time, or
 * rejects the request. Exported for its test.
 */
export function plainBodyOf({ body, settings }: UnsignedCall, facts: ModelFacts): string | undefined {
  for (const name in body) if (!FAST_PATH_MEMBERS.has(name)) return undefined;
  if (settings.betas.length > 0 || !Array.isArray(body.messages)) return undefined;
  const conversation = plainConversationOf(body.messages);
  const inference = conversation === undefined ? undefined : plainInferenceOf(body, facts);
  return inference === undefined ? undefined : `{"messages":[${conversation!}${inference}}`;
}

/**
 * The JSON text of the turns, the end of their list, and `system` if there is one. Undefined if the fast path
 * cannot write the messages.
 */
function plainConversationOf(messages: readonly unknown[]): string | undefined {
  let system = '';
  let turns = '';
  let lastRole: unknown;
  for (const message of messages) {
    if (!isRecord(message)) return undefined;
    for (const name in message) if (name !== 'role' && name !== 'content') return undefined;
    const { role, content } = message;
    if (typeof content !== 'string' || content.trim() === '') return undefined;
    const block = `{"text":${stringText(content)}}`;
    if (role === 'system' || role === 'developer') {
      if (turns !== '') return undefined;
      system += system === '' ? block : `,${block}`;
    } else if (turns !== '' && role === lastRole) turns += `,${block}`;
    // Converse wants a user turn first.
    else if (role === 'user') turns += `${turns === '' ? '' : ']},'}{"role":"user","content":[${block}`;
    else if (role === 'assistant' && turns !== '') turns += `]},{"role":"assistant","content":[${block}`;
    else return undefined;
    if (turns !== '') lastRole = role;
  }
  // `anyBodyOf` would remove white space from a last assistant turn.
  if (lastRole !== 'user') return undefined;
  return system === '' ? `${turns}]}]` : `${turns}]}],"system":[${system}]`;
}

/** A comma and the member `inferenceConfig`; '' without one. Undefined if the fast path cannot write it. */
function plainInferenceOf(body: UnsignedCall['body'], { claude }: ModelFacts): string | undefined {
  const { max_tokens: oldMaxTokens, max_completion_tokens: newMaxTokens, temperature, top_p: topP } = body;
  const maxTokens = newMaxTokens ?? oldMaxTokens;
  if (!isAbsentOr(oldMaxTokens, Number.isSafeInteger) || !isAbsentOr(newMaxTokens, Number.isSafeInteger))
    return undefined;
  if (temperature === undefined && topP === undefined)
    return maxTokens === undefined ? '' : `,"inferenceConfig":{"maxTokens":${maxTokens as number}}`;
  if (claude?.allowsSampling === false || !isAbsentOr(temperature, Number.isFinite)) return undefined;
  if (!isAbsentOr(topP, Number.isFinite) || Number(temperature ?? 0) > TEMPERATURE_MAX) return undefined;
  const isWorthSending = (value: unknown): boolean =>
    value !== undefined && (claude === undefined || value !== CLAUDE_SAMPLING_DEFAULT);
  if (claude?.hasOneSampler === true && isWorthSending(temperature) && isWorthSending(topP)) return undefined;
  const inference = [
    ...(maxTokens === undefined ? [] : [`"maxTokens":${maxTokens as number}`]),
    ...(isWorthSending(temperature) ? [`"temperature":${temperature as number}`] : []),
    ...(isWorthSending(topP) ? [`"topP":${topP as number}`] : []),
  ];
  return inference.length === 0 ? '' : `,"inferenceConfig":{${inference.join(',')}}`;
}

/** False for null: only `anyBodyOf` reads null as absent. */
function isAbsentOr(value: unknown, isValid: (value: unknown) => boolean): boolean {
  return value === undefined || isValid(value);
}
