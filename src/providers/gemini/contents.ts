/**
 * The messages of a chat completion as Gemini's `systemInstruction` and `contents`. request.ts calls it for
 * each call. Upstream worker, or counter thread if the body is large.
 *
 * Follows https://ai.google.dev/api/caching#Content, docs/function-calling and docs/thought-signatures, read
 * 2026-11. What differs from a chat completion:
 *
 *     system, developer     one instruction outside of the turns, wherever the messages are
 *     consecutive messages  are one turn; function results are a turn of their own
 *     the first turn        is the user's: a placeholder goes before one of the model
 *     tool_call_id          a function result names its function; `id` is accepted from Gemini 3 on
 *     signatures            Gemini 3 wants the signature of a call back, beside the first call of a turn
 *
 * Must hold: a signature goes back unchanged with the call that it came with, or Gemini 3 answers 400
 * (test/unit/providers/gemini/contents.test.ts).
 */
import { exactJson } from '../../core/exact-json.js';
import { isNestedTooDeeply, isRecord } from '../../core/json.js';
import { PLACEHOLDER_USER_TEXT } from '../anthropic/conversation.js';
import { argumentsOf } from '../fields.js';
import { FieldError } from '../provider.js';

type Role = 'user' | 'model';

interface Content {
  readonly role: Role;
  readonly parts: Part[];
}

export interface Contents {
  readonly system: readonly Part[];
  readonly contents: readonly Content[];
}

/** Google's placeholder (docs/thought-signatures) for calls of another model, or without their signature. */
const NO_SIGNATURE = 'skip_thought_signature_validator';

/** `isGemini3`: the model is of generation 3 or later. Throws a FieldError. */
export function contentsOf(messages: readonly unknown[], isGemini3: boolean): Contents {
  const writer = new ContentsWriter(isGemini3);
  for (let index = 0; index < messages.length; index++) writer.add(messages[index], `messages[${index}]`);
  return writer.finish();
}

class ContentsWriter {
  readonly #isGemini3: boolean;
  readonly #system: Part[] = [];
  readonly #contents: Content[] = [];
  /** Names of functions by the ids of their calls. */
  readonly #names = new Map<unknown, string>();
  #lastHasResults = false;

  constructor(isGemini3: boolean) {
    this.#isGemini3 = isGemini3;
  }

  add(message: unknown, path: string): void {
    if (!isRecord(message)) throw new FieldError(path, 'must be an object');
    const content = `${path}.content`;
    switch (message.role) {
      case 'system':
      case 'developer':
        this.#system.push(...textParts(message.content, content));
        return;
      case 'user':
        this.#push('user', false, partsOf(message.content, content));
        return;
      case 'assistant':
        this.#push('model', false, this.#assistantParts(message, path));
        return;
      case 'tool':
      case 'function':
        this.#push('user', true, this.#result(message, path));
        return;
      default:
        throw new FieldError(`${path}.role`, 'must be system, developer, user, assistant or tool');
    }
  }

  finish(): Contents {
    // Google rejects a call of a function that no turn of the user comes before.
    if (this.#contents[0]?.role === 'model')
      this.#contents.unshift({ role: 'user', parts: [{ text: PLACEHOLDER_USER_TEXT }] });
    // Gemini wants at least one turn, so a prompt of instructions alone becomes a user turn.
    if (this.#contents.length > 0) return { system: this.#system, contents: this.#contents };
    if (this.#system.length === 0) throw new FieldError('messages', 'must have some content');
    return { system: [], contents: [{ role: 'user', parts: this.#system }] };
  }

  #push(role: Role, hasResults: boolean, parts: readonly Part[]): void {
    if (parts.length === 0) return;
    const last = this.#contents.at(-1);
    if (last?.role === role && this.#lastHasResults === hasResults) last.parts.push(...parts);
    else this.#contents.push({ role, parts: [...parts] });
    this.#lastHasResults = hasResults;
  }

  /** Parts of an assistant message, without thoughts: Gemini wants their signatures back, not their text. */
  #assistantParts(message: Record<string, unknown>, path: string): Part[] {
    const parts = textParts(message.content, `${path}.content`);
    if (typeof message.refusal === 'string' && message.refusal !== '') parts.push({ text: message.refusal });
    const { images, tool_calls: calls, function_call: call } = message;
    const signature = signatureIn(message);
    if (signature !== undefined) {
      const last = parts.at(-1);
      if (last !== undefined) last.thoughtSignature = signature;
      else if (!Array.isArray(calls) || calls.length === 0)
        parts.push({ text: '', thoughtSignature: signature });
    }
    if (Array.isArray(images)) {
      for (const [index, image] of (images as unknown[]).entries())
        parts.push(imageOf(image, `${path}.images[${index}]`));
    }
    if (Array.isArray(calls)) {
      for (const [index, one] of (calls as unknown[]).entries())
        parts.push(this.#call(one, `${path}.tool_calls[${index}]`, index === 0));
    } else if (isRecord(call)) parts.push(this.#call({ function: call }, `${path}.function_call`, true));
    return parts;
  }

  #call(call: unknown, path: string, isFirst: boolean): Part {
    const called = isRecord(call) ? call.function : undefined;
    if (!isRecord(call) || !isRecord(called)) throw new FieldError(path, 'must be a call of a function');
    const { name } = called;
    if (typeof name !== 'string') throw new FieldError(`${path}.function.name`, 'must be a string');
    const args = argumentsOf(called.arguments, `${path}.function.arguments`);
    const { id } = call;
    if (typeof id === 'string') this.#names.set(id, name);
    const signature = signatureIn(call) ?? (this.#isGemini3 && isFirst ? NO_SIGNATURE : undefined);
    return {
      functionCall: {
        ...(this.#isGemini3 && typeof id === 'string' && { id }),
        name,
        args,
      },
      ...(signature !== undefined && { thoughtSignature: signature }),
    };
  }

  #result(message: Record<string, unknown>, path: string): Part[] {
    const { tool_call_id: id, content } = message;
    const name = this.#names.get(id) ?? message.name;
    if (typeof name !== 'string')
      throw new FieldError(`${path}.tool_call_id`, 'must be the id of a call in an earlier message');
    const parts = partsOf(content, `${path}.content`);
    const text = parts.map((part) => (typeof part.text === 'string' ? part.text : '')).join('');
    const media = parts.filter((part) => part.text === undefined);
    const value = text.startsWith('{') ? exactJson(text) : undefined;
    const functionResponse = {
      ...(this.#isGemini3 && typeof id === 'string' && { id }),
      name,
      response: isRecord(value) && !isNestedTooDeeply(text, value) ? value : { result: text },
      // Before Gemini 3 a result can only be text, so images and files are parts of their own.
      ...(this.#isGemini3 && media.length > 0 && { parts: media }),
    };
    return this.#isGemini3 ? [{ functionResponse }] : [{ functionResponse }, ...media];
  }
}

/** An image that the model made, in the form in which response.ts returned it. */
function imageOf(image: unknown, path: string): Part {
  if (!isRecord(image)) throw new FieldError(path, 'must be an object');
  const signature = signatureIn(image);
  const part = mediaPart({ type: 'image_url', image_url: image.image_url }, path);
  return signature === undefined ? part : { ...part, thoughtSignature: signature };
}

/**
 * The signature under Google's own name, `extra_content.google`. Signatures of other providers are ignored.
 */
function signatureIn({ extra_content: extra }: Record<string, unknown>): string | undefined {
  const google = isRecord(extra) ? extra.google : undefined;
  const signature = isRecord(google) ? google.thought_signature : undefined;
  return typeof signature === 'string' && signature !== '' ? signature : undefined;
}

/** The parts of a content, without empty texts, which Gemini refuses. */
function partsOf(content: unknown, path: string): Part[] {
  if (typeof content === 'string') return content === '' ? [] : [{ text: content }];
  if (content === null || content === undefined) return [];
  if (!Array.isArray(content)) throw new FieldError(path, 'must be a string or an array');
  const parts: Part[] = [];
  for (const [index, item] of (content as unknown[]).entries()) {
    const at = `${path}[${index}]`;
    if (!isRecord(item)) throw new FieldError(at, 'must be an object');
    if (item.type !== 'text' && item.type !== 'refusal') {
      parts.push(mediaPart(item, at));
      continue;
    }
    const text = item[item.type];
    if (typeof text !== 'string') throw new FieldError(`${at}.${item.type}`, 'must be a string');
    if (text !== '') parts.push({ text });
  }
  return parts;
}

function textParts(content: unknown, path: string): Part[] {
  const parts = partsOf(content, path);
  if (parts.some((part) => part.text === undefined)) throw new FieldError(path, 'must be text alone');
  return parts;
}

type Part = Record<string, unknown>;

/** Extensions of files that are the second half of their MIME types. */
const EXTENSIONS = {
  image: ['png', 'jpeg', 'webp', 'heic', 'heif', 'gif', 'bmp'],
  audio: ['mp3', 'wav', 'aiff', 'aac', 'ogg', 'flac', 'm4a'],
  video: ['mp4', 'mpeg', 'mpg', 'mov', 'avi', 'webm', 'wmv'],
  application: ['pdf', 'json'],
  text: ['md', 'html', 'css', 'csv', 'xml', 'rtf'],
};
/** By the extension of a file, the MIME type, which Google wants for a file that it fetches. */
const MIME_TYPES: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    Object.entries(EXTENSIONS).flatMap(([kind, names]) => names.map((name) => [name, `${kind}/${name}`])),
  ),
  jpg: 'image/jpeg',
  flv: 'video/x-flv',
  '3gp': 'video/3gpp',
  txt: 'text/plain',
};

/** URLs for which Google wants no MIME type. */
const TYPED_ADDRESS =
  /^(?:https:\/\/generativelanguage\.googleapis\.com\/|https:\/\/(?:www\.youtube\.com\/|youtu\.be\/))/;
const EXTENSION = /\.([A-Za-z0-9]{1,5})(?:[?#]|$)/;
const MIME_TYPE = /^[\w.+-]+\/[\w.+-]+$/;
const AUDIO_FORMAT = /^[\w.+-]+$/;

/**
 * The part for an item of `content` that is not text. `path`: of the item, for a FieldError. Bytes go as
 * `inlineData`; an address that Google itself can read goes as `fileData`: gs://, its Files API, YouTube,
 * public https (https://ai.google.dev/gemini-api/docs/file-input-methods, read 2026-11).
 *
 * Must hold: the gateway fetches no address, because a caller could make it read the internal network
 * (test/unit/providers/gemini/contents.test.ts).
 */
function mediaPart(item: Record<string, unknown>, path: string): Part {
  switch (item.type) {
    case 'image_url':
    case 'video_url':
    case 'audio_url':
      return urlPart(item[item.type], `${path}.${item.type}`);
    case 'input_audio':
      return audio(item.input_audio, `${path}.input_audio`);
    case 'file':
      return file(item.file, `${path}.file`);
    default:
      throw new FieldError(`${path}.type`, 'is of a kind that Gemini does not take');
  }
}

function urlPart(value: unknown, path: string): Part {
  const url = isRecord(value) ? value.url : value;
  if (typeof url !== 'string') throw new FieldError(`${path}.url`, 'must be a string');
  return partOfUrl(url, isRecord(value) ? value.format : undefined, path);
}

function partOfUrl(url: string, format: unknown, path: string): Part {
  if (url.startsWith('data:')) return { inlineData: inlineData(url, path) };
  if (TYPED_ADDRESS.test(url)) {
    const mimeType = typeOf(url, format);
    return { fileData: { ...(mimeType !== undefined && { mimeType }), fileUri: url } };
  }
  if (!url.startsWith('gs://') && !url.startsWith('https://'))
    throw new FieldError(
      path,
      'must be a data URL, or an address with gs:// or https:// that Google can read',
    );
  const mimeType = typeOf(url, format);
  if (mimeType === undefined)
    throw new FieldError(
      path,
      'needs a MIME type: its address has no known extension, so give it as `format`',
    );
  return { fileData: { mimeType, fileUri: url } };
}

function typeOf(url: string, format: unknown): string | undefined {
  if (typeof format === 'string' && MIME_TYPE.test(format)) return format;
  const extension = EXTENSION.exec(url)?.[1]?.toLowerCase();
  return extension === undefined ? undefined : MIME_TYPES[extension];
}

/** Type and data of `data:image/png;base64,…`, without parameters of the type. */
function inlineData(url: string, path: string): { mimeType: string; data: string } {
  const comma = url.indexOf(',');
  const [mimeType = '', ...parameters] = url.slice('data:'.length, comma).split(';');
  if (comma < 0 || parameters.at(-1) !== 'base64' || !MIME_TYPE.test(mimeType))
    throw new FieldError(path, 'must be a data URL with a MIME type and base64');
  return { mimeType, data: url.slice(comma + 1) };
}

function audio(value: unknown, path: string): Part {
  const { data, format } = isRecord(value) ? value : {};
  if (typeof data !== 'string') throw new FieldError(`${path}.data`, 'must be a string');
  if (typeof format !== 'string' || !AUDIO_FORMAT.test(format))
    throw new FieldError(`${path}.format`, 'must be a format of audio, as wav or mp3');
  return { inlineData: { mimeType: `audio/${format}`, data } };
}

function file(value: unknown, path: string): Part {
  const { file_data: data, file_id: id, filename, format } = isRecord(value) ? value : {};
  if (typeof id === 'string') return partOfUrl(id, format, `${path}.file_id`);
  if (typeof data !== 'string') throw new FieldError(path, 'must have file_data or file_id');
  if (data.startsWith('data:')) return { inlineData: inlineData(data, `${path}.file_data`) };
  const mimeType = typeOf(typeof filename === 'string' ? filename : '', format) ?? 'application/pdf';
  return { inlineData: { mimeType, data } };
}
