/**
 * The body of Converse and ConverseStream for a chat completion. bedrock.ts calls it. Upstream worker.
 *
 * Followed: Amazon Bedrock API Reference, "Converse"; for fields of models, Amazon Bedrock User Guide,
 * "Inference request parameters and response fields" and "Adaptive thinking", and Amazon Nova User Guide,
 * "Extended thinking", 2026-11.
 */
import { isRecord } from '../../core/json.js';
import { Fields } from '../fields.js';
import { FieldError, type ProviderCall } from '../provider.js';
import { conversationOf } from './messages.js';
import { factsOf, type ModelFacts } from './models.js';
import { reasoningOf } from './reasoning.js';
import { formatOf, toolConfigOf } from './tools.js';

/** Members of Converse that a caller may give by their own names. */
const PASSED = ['guardrailConfig', 'performanceConfig', 'promptVariables'] as const;

const SERVICE_TIERS: ReadonlySet<unknown> = new Set(['default', 'flex', 'priority', 'reserved']);
/** What Converse takes as a key or value of `requestMetadata`, and how many. */
const METADATA = /^[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}$/;
const METADATA_MAX = 16;

export function bodyOf(call: ProviderCall): string {
  const fields = new Fields(call.body, 'Bedrock', call.settings.dropUnsupported);
  const facts = factsOf(call.model);
  const conversation = conversationOf(fields.list('messages') ?? [], facts);
  const inference = inferenceOf(fields);
  const format = formatOf(fields, facts);
  const reasoning = reasoningOf(fields, facts, inference.maxTokens);
  const tools = toolConfigOf(fields, facts, conversation, format, reasoning.isOn);
  const more = {
    ...reasoning.more,
    ...tools.more,
    ...topKOf(fields, facts),
    ...betasOf(call.settings.betas, facts),
  };
  const output = { ...format?.native, ...reasoning.output };
  const body: Record<string, unknown> = { messages: conversation.turns };
  if (conversation.system.length > 0) body.system = conversation.system;
  if (Object.keys(inference).length > 0) body.inferenceConfig = inference;
  if (tools.config !== undefined) body.toolConfig = tools.config;
  if (Object.keys(output).length > 0) body.outputConfig = output;
  if (Object.keys(more).length > 0) body.additionalModelRequestFields = more;
  // Claude says there how many of the tokens were reasoning; Converse's usage does not.
  if (reasoning.isOn && facts.family === 'claude') {
    body.additionalModelResponseFieldPaths = ['/usage/output_tokens_details'];
  }
  for (const name of PASSED) {
    const value = fields.record(name);
    if (value !== undefined) body[name] = value;
  }
  const tier = fields.take('service_tier');
  if (SERVICE_TIERS.has(tier)) body.serviceTier = { type: tier };
  const metadata = metadataOf(fields.take('metadata'));
  if (metadata !== undefined) body.requestMetadata = metadata;
  refuseOthers(fields);
  return JSON.stringify(body);
}

interface Inference {
  maxTokens?: number;
  temperature?: number;
  topP?: number;
  stopSequences?: string[];
}

function inferenceOf(fields: Fields): Inference {
  const inference: Inference = {};
  const bounds = [fields.integer('max_completion_tokens'), fields.integer('max_tokens')];
  const given = bounds.filter((bound) => bound !== undefined);
  // The larger, as quotas and holds count.
  if (given.length > 0) inference.maxTokens = Math.max(...given);
  const temperature = fields.number('temperature');
  if (temperature !== undefined && temperature > 1) {
    fields.unsupported('temperature', 'must be at most 1 for Bedrock');
  } else if (temperature !== undefined) inference.temperature = temperature;
  const topP = fields.number('top_p');
  if (topP !== undefined) inference.topP = topP;
  const stop = stopsOf(fields.take('stop'));
  if (stop.length > 0) inference.stopSequences = stop;
  return inference;
}

function stopsOf(stop: unknown): string[] {
  const stops: readonly unknown[] = Array.isArray(stop) ? stop : stop === undefined ? [] : [stop];
  return stops.filter((text): text is string => {
    if (typeof text !== 'string') throw new FieldError('stop', 'must be a string or an array of strings');
    return text !== '';
  });
}

function topKOf(fields: Fields, { family }: ModelFacts): Record<string, unknown> {
  const topK = fields.integer('top_k');
  if (topK === undefined) return {};
  if (family === 'claude' || family === 'hidden') return { top_k: topK };
  if (family === 'nova' || family === 'nova-2') return { inferenceConfig: { topK } };
  fields.unsupported('top_k');
  return {};
}

function betasOf(betas: readonly string[], { family }: ModelFacts): Record<string, unknown> {
  return betas.length > 0 && (family === 'claude' || family === 'hidden') ? { anthropic_beta: betas } : {};
}

/** Entries that Converse would refuse are left out: they say nothing to the model. */
function metadataOf(metadata: unknown): Record<string, unknown> | undefined {
  if (!isRecord(metadata)) return undefined;
  const entries = Object.entries(metadata)
    .filter(([name, value]) => METADATA.test(name) && typeof value === 'string' && METADATA.test(value))
    .slice(0, METADATA_MAX);
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/** Values that ask for nothing are let through, as clients send their defaults. */
function refuseOthers(fields: Fields): void {
  const choices = fields.integer('n');
  if (choices !== undefined && choices !== 1) fields.unsupported('n', 'must be 1 for Bedrock');
  for (const name of ['presence_penalty', 'frequency_penalty', 'top_logprobs']) {
    if ((fields.number(name) ?? 0) !== 0) fields.unsupported(name);
  }
  fields.finish();
}
