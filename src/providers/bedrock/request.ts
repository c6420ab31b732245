/**
 * Translates a chat completion into the body of Converse or ConverseStream. bedrock.ts calls `bodyOf`. No
 * I/O; upstream worker, or counter thread if the body is large.
 *
 * Follows Amazon Bedrock API Reference, "Converse"; for fields of models, Amazon Bedrock User Guide,
 * "Inference request parameters and response fields" and "Adaptive thinking", and Amazon Nova User Guide,
 * "Extended thinking", 2026-11.
 *
 * Must hold: a member of the caller's body that is read here is taken from `fields`, even if the member is
 * not used (test/unit/providers/bedrock/request.test.ts). The fast path (plain-body.ts) writes the body that
 * `anyBodyOf` would write: a rule that is added here is added there, or its member is left to `anyBodyOf`
 * (test/unit/providers/bedrock/plain-body.test.ts compares them for random requests).
 */
import { exactJsonText } from '../../core/exact-json.js';
import { isRecord, type Members } from '../../core/json.js';
import { samplingValuesOf } from '../anthropic/request.js';
import { type Fields, takingAll } from '../fields.js';
import type { UnsignedCall } from '../provider.js';
import { conversationOf } from './messages.js';
import { factsOf, type ModelFacts, reasoningOf } from './models.js';
import { plainBodyOf } from './plain-body.js';
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

/** As `bodyOf`, without the fast path. Exported for the test of `plainBodyOf`. */
export function anyBodyOf(call: UnsignedCall, facts: ModelFacts): string {
  const write = (fields: Fields): Members => converseOf(fields, call, facts);
  return exactJsonText(takingAll(call.body, 'Bedrock', call.settings, write));
}

function converseOf(fields: Fields, call: UnsignedCall, facts: ModelFacts): Record<string, unknown> {
  const conversation = conversationOf(fields, call.body, facts);
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
  fields.rejectChoices();
  return body;
}

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
