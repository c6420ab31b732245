/**
 * Writes a chat completion as the body of Gemini's `generateContent`. gemini.ts and vertex.ts call it for
 * each call. Upstream worker.
 *
 * Follows https://ai.google.dev/api/generate-content (v1beta) as the types of @google/genai 2.32 describe it,
 * and https://ai.google.dev/gemini-api/docs/openai for what Google's own OpenAI-compatible interface takes
 * beyond OpenAI's, in `extra_body.google`; both read 2026-11. Schemas go as JSON schemas
 * (`parametersJsonSchema`, `responseJsonSchema`), which v1beta has and Vertex' v1 too: nothing is left out of
 * them here.
 */
import { isRecord } from '../../core/json.js';
import { Fields } from '../fields.js';
import { FieldError, type ProviderCall } from '../provider.js';
import { contentsOf } from './contents.js';
import { isGemini3, thinkingConfig } from './thinking.js';

/** The JSON text of the request. Throws a FieldError. */
export function requestBody(call: ProviderCall): string {
  const fields = new Fields(call.body, 'Gemini', call.settings.dropUnsupported);
  const google = googleMembers(fields);
  const { system, contents } = contentsOf(fields.list('messages') ?? [], isGemini3(call.model));
  const { tools, toolConfig } = toolsOf(fields);
  const generationConfig = configOf(fields, call.model, google);
  fields.finish();
  return JSON.stringify({
    ...(system.length > 0 && { systemInstruction: { parts: system } }),
    contents,
    tools,
    toolConfig,
    safetySettings: google.safety,
    cachedContent: google.cached,
    generationConfig,
  });
}

/** What Google's own OpenAI-compatible interface takes in `extra_body.google`. */
interface GoogleMembers {
  readonly path: string;
  readonly safety: unknown;
  readonly cached: unknown;
  readonly thinking: unknown;
}

const NO_MEMBERS: GoogleMembers = { path: '', safety: undefined, cached: undefined, thinking: undefined };

/** A client that sends `extra_body` as members of the body itself has `google` beside the others. */
function googleMembers(fields: Fields): GoogleMembers {
  const extra = fields.record('extra_body');
  const beside = fields.record('google');
  if (extra === undefined && beside === undefined) return NO_MEMBERS;
  const path = extra === undefined ? 'google' : 'extra_body.google';
  for (const name in extra) if (name !== 'google') fields.unsupported(`extra_body.${name}`);
  const google = extra === undefined ? beside : (extra.google ?? {});
  if (!isRecord(google)) throw new FieldError(path, 'must be an object');
  const { safety_settings: safety, cached_content: cached, thinking_config: thinking, ...others } = google;
  for (const name in others) fields.unsupported(`${path}.${name}`);
  if (safety !== undefined && !Array.isArray(safety))
    throw new FieldError(`${path}.safety_settings`, 'must be an array');
  if (cached !== undefined && typeof cached !== 'string')
    throw new FieldError(`${path}.cached_content`, 'must be the name of a cached content');
  return { path, safety, cached, thinking };
}

function configOf(fields: Fields, model: string, google: GoogleMembers): object | undefined {
  const maxTokens = fields.integer('max_tokens');
  const choices = fields.integer('n');
  const logprobs = fields.boolean('logprobs');
  const topLogprobs = fields.integer('top_logprobs');
  const config = {
    temperature: fields.number('temperature'),
    topP: fields.number('top_p'),
    topK: fields.integer('top_k'),
    candidateCount: choices === 1 ? undefined : choices,
    maxOutputTokens: fields.integer('max_completion_tokens') ?? maxTokens,
    stopSequences: stopOf(fields),
    seed: fields.integer('seed'),
    presencePenalty: fields.number('presence_penalty'),
    frequencyPenalty: fields.number('frequency_penalty'),
    responseLogprobs: logprobs === true ? true : undefined,
    logprobs: logprobs === true ? topLogprobs : undefined,
    ...formatOf(fields),
    ...modalitiesOf(fields),
    thinkingConfig: thinkingConfig(fields, model, google.thinking, `${google.path}.thinking_config`),
  };
  for (const name in config) if (config[name as keyof typeof config] !== undefined) return config;
  return undefined;
}

function stopOf(fields: Fields): unknown {
  const stop = fields.take('stop');
  if (stop === undefined || Array.isArray(stop)) return stop;
  if (typeof stop !== 'string') throw new FieldError('stop', 'must be a string or an array of strings');
  return [stop];
}

function formatOf(fields: Fields): object | undefined {
  const format = fields.record('response_format');
  if (format === undefined || format.type === 'text') return undefined;
  if (format.type === 'json_object') return { responseMimeType: 'application/json' };
  const schema = isRecord(format.json_schema) ? format.json_schema.schema : undefined;
  if (format.type === 'json_schema' && isRecord(schema))
    return { responseMimeType: 'application/json', responseJsonSchema: schema };
  throw new FieldError('response_format', 'must be text, json_object, or json_schema with its schema');
}

const MODALITIES: Readonly<Record<string, string>> = { text: 'TEXT', image: 'IMAGE', audio: 'AUDIO' };

function modalitiesOf(fields: Fields): object | undefined {
  const modalities = fields.list('modalities');
  const audio = fields.record('audio');
  if (audio !== undefined && audio.format !== 'pcm16')
    fields.unsupported('audio.format', 'must be pcm16: Gemini has no other format of audio');
  const isTextAlone = modalities?.every((modality) => modality === 'text') ?? true;
  const voice = audio?.voice;
  return {
    ...(!isTextAlone && {
      responseModalities: modalities?.map((modality, index) => {
        const theirs = typeof modality === 'string' ? MODALITIES[modality] : undefined;
        if (theirs === undefined)
          throw new FieldError(`modalities[${index}]`, 'must be text, image or audio');
        return theirs;
      }),
    }),
    ...(typeof voice === 'string' && {
      speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: voice } } },
    }),
  };
}

interface Tools {
  readonly tools?: readonly object[];
  readonly toolConfig?: object;
}

function toolsOf(fields: Fields): Tools {
  const given = fields.list('tools');
  const choice = fields.take('tool_choice');
  if (fields.boolean('parallel_tool_calls') === false && given !== undefined)
    fields.unsupported('parallel_tool_calls', 'cannot be false: Gemini may always call several tools');
  if (given === undefined || given.length === 0) return {};
  const functionDeclarations = given.map(declarationOf);
  const functionCallingConfig = callingConfigOf(choice);
  return {
    tools: [{ functionDeclarations }],
    ...(functionCallingConfig !== undefined && { toolConfig: { functionCallingConfig } }),
  };
}

function declarationOf(tool: unknown, index: number): object {
  const path = `tools[${index}]`;
  const { type, function: declared } = isRecord(tool) ? tool : {};
  if (type !== 'function') throw new FieldError(`${path}.type`, 'must be function');
  if (!isRecord(declared)) throw new FieldError(`${path}.function`, 'must be an object');
  const { name, description, parameters } = declared;
  if (typeof name !== 'string') throw new FieldError(`${path}.function.name`, 'must be a string');
  if (parameters !== undefined && parameters !== null && !isRecord(parameters))
    throw new FieldError(`${path}.function.parameters`, 'must be a JSON schema');
  return {
    name,
    ...(typeof description === 'string' && { description }),
    ...(isRecord(parameters) && { parametersJsonSchema: parameters }),
  };
}

function callingConfigOf(choice: unknown): object | undefined {
  if (choice === undefined) return undefined;
  if (choice === 'auto') return { mode: 'AUTO' };
  if (choice === 'none') return { mode: 'NONE' };
  if (choice === 'required') return { mode: 'ANY' };
  if (isRecord(choice) && choice.type === 'function')
    return { mode: 'ANY', allowedFunctionNames: [nameIn(choice, 'tool_choice')] };
  const allowed = isRecord(choice) && choice.type === 'allowed_tools' ? choice.allowed_tools : undefined;
  if (isRecord(allowed) && Array.isArray(allowed.tools)) {
    const names = (allowed.tools as unknown[]).map((tool, index) =>
      nameIn(tool, `tool_choice.allowed_tools.tools[${index}]`),
    );
    // Beside AUTO no names are allowed; VALIDATED leaves the choice between text and these functions.
    return { mode: allowed.mode === 'required' ? 'ANY' : 'VALIDATED', allowedFunctionNames: names };
  }
  throw new FieldError('tool_choice', 'must be none, auto, required, a function or allowed_tools');
}

function nameIn(tool: unknown, path: string): string {
  const named = isRecord(tool) ? tool.function : undefined;
  const name = isRecord(named) ? named.name : undefined;
  if (typeof name !== 'string') throw new FieldError(`${path}.function.name`, 'must be a string');
  return name;
}
