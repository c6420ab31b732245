/**
 * Translates the messages of a chat completion into Gemini's `systemInstruction` and `contents`. request.ts
 * calls `contentsOf` for each call. No I/O; upstream worker, or counter thread if the body is large.
 *
 * Follows https://ai.google.dev/api/caching#Content, https://ai.google.dev/gemini-api/docs/function-calling,
 * https://ai.google.dev/gemini-api/docs/thought-signatures and
 * https://ai.google.dev/gemini-api/docs/file-input-methods, read 2026-11. A turn is an element of
 * `contents`, a call a function call, a signature (`thoughtSignature`) what Gemini adds to a part to find its
 * own thoughts again. What differs from a chat completion:
 *
 *     system, developer     one instruction outside of the turns, wherever the messages are
 *     consecutive messages  are one turn
 *     function results      are a turn of their own, right after that of the calls
 *     the first turn        is the user's: a placeholder goes before one of the model
 *     tool_call_id          a function result names its function; `id` is accepted from Gemini 3 on
 *     signatures            Gemini 3 wants the signature of a call back, on the first call of each message
 *     name, audio           members of messages for which Gemini has no place: they are left out
 *
 * Must hold: a signature goes back unchanged with the call that it came with, or Gemini 3 responds with 400.
 * Function results come right after their calls, or each model of Gemini responds with 400.
 * The gateway itself fetches no URL, because a caller could make it read the internal network
 * (test/unit/providers/gemini/contents.test.ts).
 */
import { exactJson } from '../../core/exact-json.js';
import { isNestedTooDeeply, isRecord, membersOf } from '../../core/json.js';
import { PLACEHOLDER_USER_TEXT } from '../anthropic/conversation.js';
import { CallsById } from '../anthropic/tool-ids.js';
import { argumentsOf, stringIn } from '../fields.js';
import { FieldError } from '../provider.js';

type Role = 'user' | 'model';

type Part = Record<string, unknown>;

interface Turn {
  readonly role: Role;
  readonly parts: Part[];
}

export interface Conversation {
  readonly system: readonly Part[];
  readonly contents: readonly Turn[];
}

/** Google's placeholder (page thought-signatures) for calls of another model, or without their signature. */
const NO_SIGNATURE = 'skip_thought_signature_validator';

/** `isGemini3`: the model is of generation 3 or later. Throws a FieldError. */
export function contentsOf(messages: readonly unknown[], isGemini3: boolean): Conversation {
  const writer = new ConversationWriter(isGemini3);
  for (let index = 0; index < messages.length; index++) writer.add(messages[index], `messages[${index}]`);
  return writer.finish();
}

class ConversationWriter {
  readonly #isGemini3: boolean;
  readonly #system: Part[] = [];
  readonly #turns: Turn[] = [];
  /** The functions that were called. */
  readonly #calls = new CallsById<string>();
  /** The turns of function results, which must not share a turn with other parts. */
  readonly #resultTurns = new Set<Turn>();

  constructor(isGemini3: boolean) {
    this.#isGemini3 = isGemini3;
  }

  add(message: unknown, path: string): void {
    if (!isRecord(message)) throw new FieldError(path, 'must be an object');
    const contentPath = `${path}.content`;
    switch (message.role) {
      case 'system':
      case 'developer':
        this.#system.push(...textParts(message.content, contentPath));
        return;
      case 'user':
        this.#addParts('user', partsOf(message.content, contentPath));
        return;
      case 'assistant':
        this.#addParts('model', this.#assistantParts(message, path));
        return;
      case 'tool':
      case 'function':
        this.#addResult(this.#resultParts(message, path));
        return;
      default:
        throw new FieldError(`${path}.role`, 'must be system, developer, user, assistant or tool');
    }
  }

  finish(): Conversation {
    // Google rejects a function call if no turn of the user comes before it.
    if (this.#turns[0]?.role === 'model')
      this.#turns.unshift({ role: 'user', parts: [{ text: PLACEHOLDER_USER_TEXT }] });
    // Gemini wants at least one turn, so a prompt of instructions alone becomes a user turn.
    if (this.#turns.length > 0) return { system: this.#system, contents: this.#turns };
    if (this.#system.length === 0) throw new FieldError('messages', 'must have some content');
    return { system: [], contents: [{ role: 'user', parts: this.#system }] };
  }

  #addParts(role: Role, parts: readonly Part[]): void {
    if (parts.length === 0) return;
    const lastTurn = this.#turns.at(-1);
    if (lastTurn?.role === role && !this.#resultTurns.has(lastTurn)) lastTurn.parts.push(...parts);
    else this.#turns.push({ role, parts: [...parts] });
  }

  /**
   * Adds a function result. What the user has said between the calls and the result comes after the result:
   * Gemini rejects a result that does not follow the calls at once.
   */
  #addResult(parts: readonly Part[]): void {
    const lastTurn = this.#turns.at(-1);
    const turnBefore = this.#turns.at(-2);
    const isOfUser = lastTurn?.role === 'user' && !this.#resultTurns.has(lastTurn);
    const goesBeforeLast = isOfUser && this.#mayPrecedeResult(turnBefore);
    const precedingTurn = goesBeforeLast ? turnBefore : lastTurn;
    if (precedingTurn !== undefined && this.#resultTurns.has(precedingTurn)) {
      precedingTurn.parts.push(...parts);
      return;
    }
    const resultTurn: Turn = { role: 'user', parts: [...parts] };
    this.#resultTurns.add(resultTurn);
    this.#turns.splice(goesBeforeLast ? -1 : this.#turns.length, 0, resultTurn);
  }

  /** Whether a function result may come right after the turn: it has calls, or other results. */
  #mayPrecedeResult(turn: Turn | undefined): boolean {
    if (turn === undefined) return false;
    return this.#resultTurns.has(turn) || turn.parts.some(({ functionCall }) => functionCall !== undefined);
  }

  /** Parts of an assistant message, without thoughts: Gemini wants their signatures back, not their text. */
  #assistantParts(message: Record<string, unknown>, path: string): Part[] {
    const parts = textParts(message.content, `${path}.content`);
    if (typeof message.refusal === 'string' && message.refusal !== '') parts.push({ text: message.refusal });
    const { images, tool_calls: calls, function_call: call } = message;
    const hasCalls = Array.isArray(calls) ? calls.length > 0 : isRecord(call);
    // The message's own signature belongs to its text (response.ts); calls and images have signatures of
    // their own. If there is no text, the signature came with an empty text, and goes back with one. Beside
    // calls it may be left out, because Gemini 3 requires only the signatures of calls.
    const signature = signatureIn(message);
    if (signature !== undefined) {
      const lastPart = parts.at(-1);
      if (lastPart !== undefined) lastPart.thoughtSignature = signature;
      else if (!hasCalls) parts.push({ text: '', thoughtSignature: signature });
    }
    if (Array.isArray(images)) {
      for (const [index, image] of (images as unknown[]).entries())
        parts.push(imageOf(image, `${path}.images[${index}]`));
    }
    if (Array.isArray(calls)) {
      for (const [index, toolCall] of (calls as unknown[]).entries())
        parts.push(this.#callPart(toolCall, `${path}.tool_calls[${index}]`, { isFirst: index === 0 }));
    } else if (isRecord(call)) {
      parts.push(this.#callPart({ function: call }, `${path}.function_call`, { isFirst: true }));
    }
    return parts;
  }

  /** The part of a function call. `isFirst`: of the message, whose first call must have a signature. */
  #callPart(call: unknown, path: string, { isFirst }: { readonly isFirst: boolean }): Part {
    const calledFunction = isRecord(call) ? call.function : undefined;
    if (!isRecord(call) || !isRecord(calledFunction))
      throw new FieldError(path, 'must be a call of a function');
    const name = stringIn(calledFunction, 'name', `${path}.function`);
    const args = argumentsOf(calledFunction.arguments, `${path}.function.arguments`);
    const { id } = call;
    if (typeof id === 'string') this.#calls.add(id, name);
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

  /** The parts of a function result. An earlier call, or the message's `name`, names the function. */
  #resultParts(message: Record<string, unknown>, path: string): Part[] {
    const { tool_call_id: id, content } = message;
    const name = this.#calls.valueForResult(id) ?? message.name;
    if (typeof name !== 'string') {
      if (message.role === 'function') throw new FieldError(`${path}.name`, 'must be a string');
      throw new FieldError(`${path}.tool_call_id`, 'must be the id of a call in an earlier message');
    }
    const parts = partsOf(content, `${path}.content`);
    const text = parts.map((part) => (typeof part.text === 'string' ? part.text : '')).join('');
    const media = parts.filter((part) => part.text === undefined);
    // Gemini wants an object. Another text, or one too deep for JSON.stringify, goes into `result`.
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

/** `image`: one that the model made, as response.ts returned it. */
function imageOf(image: unknown, path: string): Part {
  if (!isRecord(image)) throw new FieldError(path, 'must be an object');
  const signature = signatureIn(image);
  const part = mediaPart({ type: 'image_url', image_url: image.image_url }, path);
  return signature === undefined ? part : { ...part, thoughtSignature: signature };
}

/**
 * The signature that a message, call or image has under Google's own name, `extra_content.google`; undefined
 * without one. Signatures of other providers are ignored.
 */
function signatureIn({ extra_content: extra }: Record<string, unknown>): string | undefined {
  const google = isRecord(extra) ? extra.google : undefined;
  const signature = isRecord(google) ? google.thought_signature : undefined;
  return typeof signature === 'string' && signature !== '' ? signature : undefined;
}

/** The parts of a content, without empty texts: Gemini rejects these unless they have a signature. */
function partsOf(content: unknown, path: string): Part[] {
  if (typeof content === 'string') return content === '' ? [] : [{ text: content }];
  if (content === null || content === undefined) return [];
  if (!Array.isArray(content)) throw new FieldError(path, 'must be a string or an array');
  const parts: Part[] = [];
  for (const [index, item] of (content as unknown[]).entries()) {
    const itemPath = `${path}[${index}]`;
    if (!isRecord(item)) throw new FieldError(itemPath, 'must be an object');
    if (item.type !== 'text' && item.type !== 'refusal') {
      parts.push(mediaPart(item, itemPath));
      continue;
    }
    const text = stringIn(item, item.type, itemPath);
    if (text !== '') parts.push({ text });
  }
  return parts;
}

function textParts(content: unknown, path: string): Part[] {
  const parts = partsOf(content, path);
  if (parts.some((part) => part.text === undefined)) throw new FieldError(path, 'must be text alone');
  return parts;
}

/** File extensions that are the subtype of their MIME type, by the main type before the slash. */
const EXTENSIONS = {
  image: ['png', 'jpeg', 'webp', 'heic', 'heif', 'gif', 'bmp'],
  audio: ['mp3', 'wav', 'aiff', 'aac', 'ogg', 'flac', 'm4a'],
  video: ['mp4', 'mpeg', 'mpg', 'mov', 'avi', 'webm', 'wmv'],
  application: ['pdf', 'json'],
  text: ['md', 'html', 'css', 'csv', 'xml', 'rtf'],
};
/** MIME types by the extension of a file. Google wants a MIME type for each file that it fetches. */
const MIME_TYPES: ReadonlyMap<string, string> = new Map([
  ...Object.entries(EXTENSIONS).flatMap(([mainType, names]) =>
    names.map((name) => [name, `${mainType}/${name}`] as const),
  ),
  ['jpg', 'image/jpeg'],
  ['flv', 'video/x-flv'],
  ['3gp', 'video/3gpp'],
  ['txt', 'text/plain'],
]);

/** URLs for which Google wants no MIME type. A URL of another host name of YouTube needs a `format`. */
const URL_WITHOUT_MIME_TYPE =
  /^(?:https:\/\/generativelanguage\.googleapis\.com\/|https:\/\/(?:www\.youtube\.com\/|youtu\.be\/))/;
/** The extension of a file's name or URL. A bare host such as `https://x.mov` matches, but names no file. */
const EXTENSION_PATTERN = /\.([A-Za-z0-9]{1,5})(?:[?#]|$)/;
const MIME_TYPE = /^[\w.+-]+\/[\w.+-]+$/;
const AUDIO_FORMAT = /^[\w.+-]+$/;

/**
 * The part for an item of `content` that is not text. Bytes go as `inlineData`; a URL that Google itself can
 * read goes as `fileData`: gs://, the Files API, YouTube, public https.
 */
function mediaPart(item: Record<string, unknown>, path: string): Part {
  switch (item.type) {
    case 'image_url':
    case 'video_url':
    case 'audio_url':
      return urlPart(item[item.type], `${path}.${item.type}`);
    case 'input_audio':
      return audioPart(item.input_audio, `${path}.input_audio`);
    case 'file':
      return filePart(item.file, `${path}.file`);
    default:
      throw new FieldError(`${path}.type`, 'is of a kind that Gemini does not take');
  }
}

function urlPart(value: unknown, path: string): Part {
  const url = isRecord(value) ? value.url : value;
  if (typeof url !== 'string') throw new FieldError(`${path}.url`, 'must be a string');
  return partOfUrl(url, isRecord(value) ? value.format : undefined, path);
}

/** `format`: the MIME type that the caller gave; a value that is none is ignored. */
function partOfUrl(url: string, format: unknown, path: string): Part {
  if (url.startsWith('data:')) return { inlineData: inlineData(url, path) };
  if (URL_WITHOUT_MIME_TYPE.test(url)) {
    const mimeType = mimeTypeOf(url, format);
    return { fileData: { ...(mimeType !== undefined && { mimeType }), fileUri: url } };
  }
  if (!url.startsWith('gs://') && !url.startsWith('https://'))
    throw new FieldError(
      path,
      'must be a data URL, or an address with gs:// or https:// that Google can read',
    );
  const mimeType = mimeTypeOf(url, format);
  if (mimeType === undefined)
    throw new FieldError(
      path,
      'needs a MIME type: its address has no known extension, so give it as `format`',
    );
  return { fileData: { mimeType, fileUri: url } };
}

/** By `format`, else by the extension of a URL or file name; undefined if neither tells one. */
function mimeTypeOf(url: string, format: unknown): string | undefined {
  if (typeof format === 'string' && MIME_TYPE.test(format)) return format;
  const extension = EXTENSION_PATTERN.exec(url)?.[1]?.toLowerCase();
  return extension === undefined ? undefined : MIME_TYPES.get(extension);
}

function inlineData(url: string, path: string): { mimeType: string; data: string } {
  const comma = url.indexOf(',');
  const [mimeType = '', ...parameters] = url.slice('data:'.length, comma).split(';');
  if (comma < 0 || parameters.at(-1) !== 'base64' || !MIME_TYPE.test(mimeType))
    throw new FieldError(path, 'must be a data URL with a MIME type and base64');
  return { mimeType, data: url.slice(comma + 1) };
}

function audioPart(value: unknown, path: string): Part {
  const { data, format } = membersOf(value);
  if (typeof data !== 'string') throw new FieldError(`${path}.data`, 'must be a string');
  if (typeof format !== 'string' || !AUDIO_FORMAT.test(format))
    throw new FieldError(`${path}.format`, 'must be a format of audio, as wav or mp3');
  return { inlineData: { mimeType: `audio/${format}`, data } };
}

function filePart(value: unknown, path: string): Part {
  const { file_data: data, file_id: id, filename, format } = membersOf(value);
  if (typeof id === 'string') return partOfUrl(id, format, `${path}.file_id`);
  if (typeof data !== 'string') throw new FieldError(path, 'must have file_data or file_id');
  if (data.startsWith('data:')) return { inlineData: inlineData(data, `${path}.file_data`) };
  // A file without a known type is most likely a PDF.
  const mimeType = mimeTypeOf(typeof filename === 'string' ? filename : '', format) ?? 'application/pdf';
  return { inlineData: { mimeType, data } };
}
