/**
 * Translates a chat completion into the body of Gemini's `generateContent`. gemini.ts and vertex/vertex.ts
 * call `requestBody` for each call: on an upstream worker, or on a counter thread if the body is large. Pure.
 *
 * Follows https://ai.google.dev/api/generate-content (v1beta) as the types of @google/genai 2.32 describe it,
 * and https://ai.google.dev/gemini-api/docs/openai for what Google's own OpenAI-compatible interface takes
 * beyond OpenAI's, in `extra_body.google`; both read 2026-11. Schemas go whole, as JSON schemas
 * (`parametersJsonSchema`, `responseJsonSchema`), which both v1beta and the v1 of Vertex accept.
 *
 * A member that Gemini lacks is left out if the upstream has `drop_unsupported` (`fields.unsupported`); one
 * that has a wrong form, or cannot be left out (a tool that is no function), throws a FieldError in any case.
 *
 * Must hold: a member of the caller's body that is read here is taken from `fields`, even if the member is
 * not used (test/unit/providers/gemini/request.test.ts).
 */
import { exactJsonText } from '../../core/exact-json.js';
import { isRecord, membersOf } from '../../core/json.js';
import { type Fields, functionOf, jsonFormatOf, takingAll, toolChoiceOf } from '../fields.js';
import { FieldError, type UnsignedCall } from '../provider.js';
import { contentsOf } from './contents.js';

/** The JSON text of the request. Throws a FieldError. */
export function requestBody(call: UnsignedCall): string {
  const { body, settings, model } = call;
  return exactJsonText(takingAll(body, 'Gemini', settings, (fields) => requestOf(fields, model)));
}

function requestOf(fields: Fields, model: string): Record<string, unknown> {
  const google = googleMembers(fields);
  // From generation 3 on, contents name calls by id, and a call needs a signature (contents.ts).
  const { system, contents } = contentsOf(fields.list('messages') ?? [], isGemini3(model));
  const { tools, toolConfig } = toolsOf(fields);
  const generationConfig = generationConfigOf(fields, model, google);
  if (Object.keys(fields.record('logit_bias') ?? {}).length > 0) fields.unsupported('logit_bias');
  const request: Record<string, unknown> = { contents };
  if (system.length > 0) request.systemInstruction = { parts: system };
  if (tools !== undefined) request.tools = tools;
  if (toolConfig !== undefined) request.toolConfig = toolConfig;
  if (google.safety !== undefined) request.safetySettings = google.safety;
  if (google.cached !== undefined) request.cachedContent = google.cached;
  if (generationConfig !== undefined) request.generationConfig = generationConfig;
  return request;
}

/** `safety_settings`, `cached_content` and `thinking_config` of `extra_body.google`. */
interface GoogleMembers {
  /** Where the caller gave them: `google` or `extra_body.google`; '' if nowhere. */
  readonly path: string;
  readonly safety: unknown;
  readonly cached: unknown;
  readonly thinking: unknown;
}

const NO_MEMBERS: GoogleMembers = { path: '', safety: undefined, cached: undefined, thinking: undefined };

/**
 * Reads `extra_body.google`. Some clients merge `extra_body` into the body; then `google` is a member of the
 * body itself. `extra_body` counts if both are given. Throws a FieldError.
 */
function googleMembers(fields: Fields): GoogleMembers {
  const extra = fields.record('extra_body');
  const merged = fields.record('google');
  if (extra === undefined && merged === undefined) return NO_MEMBERS;
  const path = extra === undefined ? 'google' : 'extra_body.google';
  for (const name in extra) if (name !== 'google') fields.unsupported(`extra_body.${name}`);
  const google = extra === undefined ? merged : (extra.google ?? {});
  if (!isRecord(google)) throw new FieldError(path, 'must be an object');
  const {
    safety_settings: safety,
    cached_content: cached,
    thinking_config: thinking,
    ...unknownMembers
  } = google;
  for (const name in unknownMembers) fields.unsupported(`${path}.${name}`);
  if (safety !== undefined && !Array.isArray(safety))
    throw new FieldError(`${path}.safety_settings`, 'must be an array');
  if (cached !== undefined && typeof cached !== 'string')
    throw new FieldError(`${path}.cached_content`, 'must be the name of a cached content');
  return { path, safety, cached, thinking };
}

function generationConfigOf(fields: Fields, model: string, google: GoogleMembers): object | undefined {
  const config: Record<string, unknown> = {};
  const setMember = (name: string, value: unknown): void => {
    if (value !== undefined) config[name] = value;
  };
  // The members are taken even if another member decides below: what nobody took is rejected.
  const choices = fields.integer('n');
  const hasLogprobs = fields.boolean('logprobs') === true;
  const topLogprobs = fields.integer('top_logprobs');
  setMember('temperature', fields.number('temperature'));
  setMember('topP', fields.number('top_p'));
  setMember('topK', fields.integer('top_k'));
  if (choices !== 1) setMember('candidateCount', choices);
  setMember('maxOutputTokens', fields.outputTokensMax());
  const stop = fields.stopSequences().map(({ text }) => text);
  if (stop.length > 0) setMember('stopSequences', stop);
  setMember('seed', fields.integer('seed'));
  setMember('presencePenalty', fields.number('presence_penalty'));
  setMember('frequencyPenalty', fields.number('frequency_penalty'));
  if (hasLogprobs) setMember('responseLogprobs', true);
  if (hasLogprobs) setMember('logprobs', topLogprobs);
  const format = jsonFormatOf(fields.take('response_format'));
  setMember('responseMimeType', format && 'application/json');
  setMember('responseJsonSchema', format?.schema);
  setMember('responseModalities', modalitiesOf(fields));
  setMember('speechConfig', speechOf(fields));
  setMember(
    'thinkingConfig',
    thinkingConfigOf(fields, model, google.thinking, `${google.path}.thinking_config`),
  );
  return Object.keys(config).length > 0 ? config : undefined;
}

const MODALITIES: ReadonlyMap<unknown, string> = new Map([
  ['text', 'TEXT'],
  ['image', 'IMAGE'],
  ['audio', 'AUDIO'],
]);

/** `responseModalities`; undefined if the caller asks for text alone. */
function modalitiesOf(fields: Fields): readonly string[] | undefined {
  const modalities = fields.list('modalities');
  if (modalities === undefined || modalities.every((modality) => modality === 'text')) return undefined;
  return modalities.map((modality, index) => {
    const geminiName = MODALITIES.get(modality);
    if (geminiName === undefined)
      throw new FieldError(`modalities[${index}]`, 'must be text, image or audio');
    return geminiName;
  });
}

/** `speechConfig`; undefined if the caller names no voice. */
function speechOf(fields: Fields): object | undefined {
  const audio = fields.record('audio');
  if (audio === undefined) return undefined;
  if (audio.format !== 'pcm16')
    fields.unsupported('audio.format', 'must be pcm16: Gemini has no other format of audio');
  const { voice } = audio;
  if (typeof voice !== 'string') return undefined;
  return { voiceConfig: { prebuiltVoiceConfig: { voiceName: voice } } };
}

interface Tools {
  readonly tools?: readonly object[];
  readonly toolConfig?: object;
}

function toolsOf(fields: Fields): Tools {
  const callersTools = fields.list('tools');
  const choice = fields.take('tool_choice');
  if (fields.boolean('parallel_tool_calls') === false && callersTools !== undefined)
    fields.unsupported('parallel_tool_calls', 'cannot be false: Gemini may always call several tools');
  // Without tools there is nothing to choose from, so `tool_choice` is left out whatever it says.
  if (callersTools === undefined || callersTools.length === 0) return {};
  const functionDeclarations = callersTools.map(declarationOf);
  const functionCallingConfig = callingConfigOf(choice);
  return {
    tools: [{ functionDeclarations }],
    ...(functionCallingConfig !== undefined && { toolConfig: { functionCallingConfig } }),
  };
}

function declarationOf(tool: unknown, index: number): object {
  const path = `tools[${index}]`;
  const { type, function: declared } = membersOf(tool);
  if (type !== 'function') throw new FieldError(`${path}.type`, 'must be function');
  const { name, description, parameters } = functionOf(declared, `${path}.function`);
  return {
    name,
    ...(description !== undefined && { description }),
    ...(parameters !== undefined && { parametersJsonSchema: parameters }),
  };
}

function callingConfigOf(choice: unknown): object | undefined {
  if (choice === undefined) return undefined;
  const wanted = toolChoiceOf(choice, 'tool_choice');
  if (wanted === 'auto') return { mode: 'AUTO' };
  if (wanted === 'none') return { mode: 'NONE' };
  if (wanted === 'required') return { mode: 'ANY' };
  if ('name' in wanted) return { mode: 'ANY', allowedFunctionNames: [wanted.name] };
  // Gemini allows no names beside AUTO; VALIDATED lets the model choose between text and these functions.
  return { mode: wanted.isRequired ? 'ANY' : 'VALIDATED', allowedFunctionNames: wanted.allowed };
}

const GEMINI_3 = /(?:^|\/)gemini-(?:[3-9]|[1-9]\d|(?:pro|flash|flash-lite)-latest)/;
const PRO = /-pro\b/;

/** Whether the model's name says generation 3 or later. Names of tuned models say nothing: false. */
function isGemini3(model: string): boolean {
  return GEMINI_3.test(model);
}

// What Gemini gets for each `reasoning_effort`, by the table of
// https://ai.google.dev/gemini-api/docs/openai#thinking, read 2026-11. Gemini 3 has levels, and its Pro has
// no `minimal`. Earlier models have budgets in tokens, and their Pro always thinks. LiteLLM has other
// budgets: test/judges/differences.ts lists the difference.
const LEVELS: ReadonlyMap<string, string> = new Map([
  ['minimal', 'MINIMAL'],
  ['low', 'LOW'],
  ['medium', 'MEDIUM'],
  ['high', 'HIGH'],
  ['xhigh', 'HIGH'],
  ['max', 'HIGH'],
]);
const BUDGETS: ReadonlyMap<string, number> = new Map(
  Object.entries({ minimal: 1_024, low: 1_024, medium: 8_192, high: 24_576, xhigh: 24_576, max: 24_576 }),
);
const PRO_BUDGET_MIN = 128;
const PRO_BUDGET_MAX = 32_768;

/** Gemini's names of the members of `extra_body.google.thinking_config`. */
const CONFIG_MEMBERS: ReadonlyMap<string, string> = new Map([
  ['thinking_budget', 'thinkingBudget'],
  ['thinking_level', 'thinkingLevel'],
  ['include_thoughts', 'includeThoughts'],
]);

/**
 * The `thinkingConfig`; undefined if the request does not say how much to think. `googleConfig`: Google's own
 * `thinking_config`, undefined without one; `googlePath` is its path, for a FieldError. Throws a FieldError.
 */
function thinkingConfigOf(
  fields: Fields,
  model: string,
  googleConfig: unknown,
  googlePath: string,
): object | undefined {
  const effort = fields.string('reasoning_effort');
  const thinking = fields.record('thinking');
  if (googleConfig !== undefined && googleConfig !== null) {
    if (effort !== undefined || thinking !== undefined)
      throw new FieldError(googlePath, 'cannot stand beside reasoning_effort or thinking');
    return renamedConfig(googleConfig, googlePath);
  }
  if (effort !== undefined) return configOfEffort(fields, effort, model, 'reasoning_effort');
  if (thinking === undefined) return undefined;
  if (thinking.type === 'disabled') return configOfEffort(fields, 'none', model, 'thinking.type');
  if (thinking.type !== 'enabled' && thinking.type !== 'adaptive')
    throw new FieldError('thinking.type', 'must be enabled, adaptive or disabled');
  // Null means that the caller gave no budget.
  const budget = thinking.budget_tokens ?? undefined;
  if (budget !== undefined && !Number.isSafeInteger(budget))
    throw new FieldError('thinking.budget_tokens', 'must be an integer');
  return { ...(budget !== undefined && { thinkingBudget: budget }), includeThoughts: budget !== 0 };
}

/** The `thinkingConfig` for an effort. `path`: the caller's member that asks for the effort. */
function configOfEffort(fields: Fields, effort: string, model: string, path: string): object {
  const isPro = PRO.test(model);
  const isGeneration3 = isGemini3(model);
  if (effort === 'none') {
    // What the caller wrote, for the message of an error.
    const callersValue = path === 'thinking.type' ? 'disabled' : effort;
    if (isPro) fields.unsupported(path, `cannot be ${callersValue}: this model always thinks`);
    if (isGeneration3) return { thinkingLevel: isPro ? 'LOW' : 'MINIMAL', includeThoughts: false };
    return { thinkingBudget: isPro ? PRO_BUDGET_MIN : 0, includeThoughts: false };
  }
  const level = effort === 'minimal' && isPro ? 'LOW' : LEVELS.get(effort);
  if (level === undefined)
    throw new FieldError(path, 'must be none, minimal, low, medium, high, xhigh or max');
  if (isGeneration3) return { thinkingLevel: level, includeThoughts: true };
  const isAboveHigh = effort === 'xhigh' || effort === 'max';
  const budget = isAboveHigh && isPro ? PRO_BUDGET_MAX : BUDGETS.get(effort);
  return { thinkingBudget: budget, includeThoughts: true };
}

/** Gemini checks the values. */
function renamedConfig(googleConfig: unknown, path: string): object {
  if (!isRecord(googleConfig)) throw new FieldError(path, 'must be an object');
  const config: Record<string, unknown> = {};
  for (const name in googleConfig) {
    const geminiName = CONFIG_MEMBERS.get(name);
    if (geminiName === undefined) throw new FieldError(`${path}.${name}`, 'is not known');
    config[geminiName] = googleConfig[name];
  }
  return config;
}
