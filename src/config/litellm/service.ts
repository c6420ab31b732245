/**
 * Which service of Tollgate an entry of LiteLLM's `model_list` is for: by its mode, or else by names of its
 * model. deployment.ts calls this file, in the process of `tollgate config import-litellm`. Pure. Words as
 * there.
 *
 * Must hold (test/unit/config/litellm/import.modes.test.ts): an entry that is left out gets a remark, and so
 * does an entry whose service is a guess. No guess is chat if the name is one of a chat model, or if the
 * provider serves nothing else.
 */
import type { Service } from '../../core/door-names.js';
import { isTranslated, type Provider, type ProviderModel } from './provider.js';
import type { ImportMap } from './remarks.js';

/** By LiteLLM's mode of a model. Modes that Tollgate does not serve are absent. */
const SERVICE_OF_MODE: ReadonlyMap<string, Service> = new Map([
  ['chat', 'chat'],
  ['responses', 'chat'],
  ['embedding', 'embeddings'],
  ['completion', 'completions'],
  ['moderation', 'moderations'],
  ['rerank', 'rerank'],
]);

/**
 * The mode of a model by its name, for files that do not name the mode. LiteLLM has modes in a table of its
 * own, which is not read here. The first pattern that matches counts: rerankers are before embeddings
 * (`bge-reranker`), and chat, whose pattern matches most names of OpenAI, is the last.
 */
const MODE_OF_NAME: readonly (readonly [name: RegExp, mode: string])[] = [
  [/rerank/i, 'rerank'],
  [/embed|(?:^|[/_-])(?:bge|e5|gte)-|all-minilm/i, 'embedding'],
  [/moderation/i, 'moderation'],
  [/whisper|transcribe/i, 'audio_transcription'],
  [/(?:^|[/-])tts(?:-|$)/i, 'audio_speech'],
  [/realtime/i, 'realtime'],
  [/dall-e|gpt-image|imagen/i, 'image_generation'],
  [/gpt-3\.?5-turbo-instruct|(?:davinci|babbage)-002/i, 'completion'],
  [/gpt|chat|instruct|claude|gemini|gemma|llama|mi[sx]tral|qwen|deepseek|grok|(?:^|[/-])o\d/i, 'chat'],
];
/** Matches names of families that chat too, which may be of a model that reads or makes something else. */
const MAY_NOT_CHAT = /(?:^|[/_-])(?:image|video|ocr|asr)(?:[-_]|$)/i;

/**
 * Returns the service of an entry. Undefined, with a remark, if Tollgate does not serve it at all or not at
 * this provider.
 */
export function serviceOf(
  params: ImportMap,
  info: ImportMap,
  providerModel: ProviderModel,
  modelName: string,
): Service | undefined {
  const mode = info.text('mode') ?? modeByName(params, info, providerModel, modelName);
  const service = SERVICE_OF_MODE.get(mode);
  if (service !== undefined && (service === 'chat' || !isTranslated(providerModel.provider?.speaks)))
    return service;
  const reason =
    service === undefined
      ? 'Tollgate does not serve it'
      : "Tollgate serves it only by upstreams with OpenAI's protocol, and by Azure";
  info.remark('mode', `${mode}: ${reason}; the entry was left out`);
  return undefined;
}

/**
 * Returns the setting `speaks`. In LiteLLM's mode `responses` the provider has no chat completions of the
 * model, which gets a remark. For providers whose protocol is another one calls are translated all the same.
 */
export function spokenBesidesChat(
  info: ImportMap,
  speaks: Provider['speaks'],
): readonly ['responses'] | undefined {
  if (info.peek('mode') !== 'responses' || isTranslated(speaks)) return undefined;
  const atAzure = speaks === 'azure' ? ', at Azure with api_version: v1' : '';
  info.remark('mode', `responses: callers reach it by POST /v1/responses alone${atAzure}`);
  return ['responses'];
}

/**
 * Returns the mode of an entry that does not name the mode: that of the first name that tells one, or `chat`.
 * The provider's name of the model is looked at first, then `base_model`, then `modelName`. `peek`, because
 * `base_model` is not carried over and gets a remark.
 */
function modeByName(
  params: ImportMap,
  info: ImportMap,
  { provider, model }: ProviderModel,
  modelName: string,
): string {
  const candidates = [model, info.peek('base_model'), params.peek('base_model'), modelName];
  const names = candidates.filter((name) => typeof name === 'string');
  const [[name, mode] = [undefined, 'chat']] = names.flatMap((name) =>
    MODE_OF_NAME.filter(([pattern]) => pattern.test(name)).map(([, mode]) => [name, mode] as const),
  );
  const isOfChat = mode === 'chat' && name !== undefined && !MAY_NOT_CHAT.test(name);
  if (isOfChat || (mode === 'chat' && isTranslated(provider?.speaks))) return mode;
  const byName = name === undefined || mode === 'chat' ? '' : ' by its name';
  params.remark(
    'model',
    `model_info.mode is not in the file: ${JSON.stringify(model).slice(0, 200)} was taken for ${mode}${byName}; if it is not, set mode and import again`,
  );
  return mode;
}
