/**
 * The `input` of a request to POST /v1/responses as messages of a chat completion. to-chat.ts calls it. No
 * I/O; upstream worker, or counter thread if the body is large. An upstream with _extras_ reads more than
 * OpenAI's protocol has (`extras` of `Translator.toChat`, door.ts).
 *
 *     message                    a message of its role; a lone text as a string. `developer` becomes
 *                                `system` without extras
 *     reasoning                  what its `encrypted_content` carries (encrypted-content.ts): blocks go into
 *                                the next assistant message, with extras only, the signature of a call into
 *                                the next call. Its texts become that message's `reasoning_content`, if the
 *                                upstream wants them (`thoughtsBack`)
 *     function_call,             `tool_calls` of the assistant message before it, if no other item came
 *       custom_tool_call           between
 *     function_call_output,      a message of the role `tool`. A chat completion allows only text there, so
 *       custom_tool_call_output    without extras images and files go to a user message after the last
 *                                  output in a row
 *     any other                  refused: only an upstream that speaks Responses can read it
 *
 * Must hold: messages have the order of their items, and what is moved or joined here never comes between
 * calls and their outputs (test/unit/doors/responses/to-chat.test.ts). Each message and part that is made is
 * registered with `withOrigin` (callers-path.ts), or an error names a path that the caller does not know
 * (test/unit/doors/callers-path.test.ts).
 */
import { isRecord, type Members } from '../../core/json.js';
import { stringIn } from '../../providers/fields.js';
import { FieldError } from '../../providers/provider.js';
import { withOrigin } from '../callers-path.js';
import { textOf, thoughtsBackOf } from '../message-parts.js';
import { carriedIn } from './encrypted-content.js';
import { flatName } from './tool-names.js';

interface AssistantMessage {
  readonly role: 'assistant';
  content: unknown;
  tool_calls?: unknown[];
  thinking_blocks?: unknown[];
  reasoning_content?: string;
}

/** Roles of messages. Outputs of tools are items of their own. */
const ROLES: readonly unknown[] = ['user', 'assistant', 'system', 'developer'];
/** Types of parts that become text. */
const TEXT_PARTS: readonly unknown[] = ['input_text', 'output_text', 'text'];

/** `extras`, `thoughtsBack`: as in `Translator.toChat` (door.ts). Throws a FieldError. */
export function messagesOf(input: unknown, extras: boolean, thoughtsBack: boolean): unknown[] {
  if (typeof input === 'string') return [withOrigin('input', { role: 'user', content: input })];
  if (!Array.isArray(input)) throw new FieldError('input', 'must be a string or an array of items');
  const writer = new InputWriter(extras, thoughtsBack);
  (input as unknown[]).forEach((item, index) => {
    if (!isRecord(item)) throw new FieldError(`input[${index}]`, 'must be an object');
    writer.add(item, `input[${index}]`);
  });
  return writer.end();
}

/** Call `add` for each item in order, then `end`. */
class InputWriter {
  readonly #messages: unknown[] = [];
  readonly #extras: boolean;
  readonly #thoughtsBack: boolean;
  /** Images and files of outputs, for a user message after the last of these. */
  #moved: Members[] = [];
  /** Path of the output that the first of them comes from. */
  #movedFrom = '';
  /** The last message, if it is an assistant message: items of the same turn may still go into it. */
  #assistant: AssistantMessage | undefined;
  /** `extra_content` of a reasoning item, for the call that follows, if it is of the same turn. */
  #extra: unknown;
  /** Texts of reasoning for the next message or call of the assistant, unless another item comes first. */
  #thoughts = '';

  constructor(extras: boolean, thoughtsBack: boolean) {
    this.#extras = extras;
    this.#thoughtsBack = thoughtsBack;
  }

  /** Returns the messages. */
  end(): unknown[] {
    this.#pushMoved();
    return this.#messages;
  }

  add(item: Members, path: string): void {
    const type = item.type ?? 'message';
    if (type !== 'function_call_output' && type !== 'custom_tool_call_output') this.#pushMoved();
    switch (type) {
      case 'message':
        this.#addMessage(item, path);
        return;
      case 'reasoning':
        this.#addReasoning(item, path);
        return;
      case 'function_call': {
        const name = flatName(stringIn(item, 'name', path), item.namespace);
        const called = { name, arguments: stringIn(item, 'arguments', path) };
        this.#addCall({ id: stringIn(item, 'call_id', path), type: 'function', function: called }, path);
        return;
      }
      case 'custom_tool_call': {
        const name = flatName(stringIn(item, 'name', path), item.namespace);
        const called = { name, input: stringIn(item, 'input', path) };
        this.#addCall({ id: stringIn(item, 'call_id', path), type: 'custom', custom: called }, path);
        return;
      }
      case 'function_call_output':
      case 'custom_tool_call_output': {
        const content = this.#outputOf(item.output, path);
        this.#push({ role: 'tool', tool_call_id: stringIn(item, 'call_id', path), content }, path);
        return;
      }
      case 'item_reference':
        throw new FieldError(
          path,
          'must be an item itself: nothing is stored here that it could refer to; send store: false, and the items',
        );
      default:
        throw new FieldError(
          `${path}.type`,
          'must be message, reasoning, function_call, custom_tool_call or an output of them: the upstream does not speak Responses',
        );
    }
  }

  /** The content of an output. Parts that are no texts move, unless the upstream reads them there. */
  #outputOf(output: unknown, path: string): unknown {
    if (!Array.isArray(output)) return contentOf(output, `${path}.output`);
    if (output.length === 0) return '';
    if (this.#extras) return contentOf(output, `${path}.output`);
    const parts = translatedParts(output as unknown[], `${path}.output`);
    const moved = parts.filter(({ type }) => type !== 'text');
    if (moved.length > 0 && this.#moved.length === 0) this.#movedFrom = path;
    this.#moved.push(...moved);
    const texts = parts.filter(({ type }) => type === 'text');
    return texts.length === 0 ? '' : loneText(texts);
  }

  #pushMoved(): void {
    if (this.#moved.length === 0) return;
    this.#push({ role: 'user', content: this.#moved }, this.#movedFrom);
    this.#moved = [];
  }

  #push(message: object, path: string): void {
    this.#assistant = undefined;
    this.#extra = undefined;
    this.#thoughts = '';
    this.#messages.push(withOrigin(path, message));
  }

  #addMessage(item: Members, path: string): void {
    const { role } = item;
    if (!ROLES.includes(role))
      throw new FieldError(`${path}.role`, 'must be user, assistant, system or developer');
    const content = contentOf(item.content, `${path}.content`);
    if (Array.isArray(content) && content.length === 0) {
      // Servers refuse a message without parts. Clients send such a turn of a model that only called tools.
      if (role === 'assistant') return;
      throw new FieldError(`${path}.content`, 'must not be empty');
    }
    if (role !== 'assistant') {
      // DeepSeek, Mistral and others reject `developer`. OpenAI's own models take `system` for it.
      this.#push({ role: role === 'developer' && !this.#extras ? 'system' : role, content }, path);
      return;
    }
    const last = this.#assistant;
    // Two assistant messages in a row stay two. But the text goes into a message that reasoning or a call has
    // begun (`content` is null), and into one with calls, whose outputs must be the next messages.
    const message =
      last !== undefined && (last.content === null || last.tool_calls !== undefined)
        ? last
        : this.#newAssistant(path);
    if (message.content === null) message.content = content;
    else message.content = appended(asParts(message.content), asParts(content));
    this.#addThoughts(message);
  }

  #newAssistant(path: string): AssistantMessage {
    const message: AssistantMessage = { role: 'assistant', content: null };
    this.#messages.push(withOrigin(path, message));
    this.#assistant = message;
    return message;
  }

  #addThoughts(message: AssistantMessage): void {
    if (!this.#thoughtsBack) return;
    // `thoughtsBackOf` makes a space of nothing, in place of which the first thoughts come.
    const { reasoning_content: before = '' } = message;
    message.reasoning_content = thoughtsBackOf(
      before.trim() === '' ? this.#thoughts : before + this.#thoughts,
    );
    this.#thoughts = '';
  }

  #addReasoning(item: Members, path: string): void {
    const { blocks, extra } = carriedIn(item.encrypted_content) ?? {};
    // Google's interface in OpenAI's protocol wants `extra_content` back too.
    this.#extra = extra;
    if (this.#thoughtsBack) this.#thoughts += reasoningTextOf(item);
    if (blocks === undefined || !this.#extras) return;
    // Signed thinking comes before the text and the calls of its message.
    const last = this.#assistant;
    const message = last?.content === null && last.tool_calls === undefined ? last : this.#newAssistant(path);
    message.thinking_blocks = appended(message.thinking_blocks ?? [], blocks);
  }

  #addCall(call: object, path: string): void {
    const message = this.#assistant ?? this.#newAssistant(path);
    (message.tool_calls ??= []).push(
      withOrigin(path, this.#extra === undefined ? call : { ...call, extra_content: this.#extra }),
    );
    this.#extra = undefined;
    this.#addThoughts(message);
  }
}

/** What the model thought, or the summary if the item has nothing else. */
function reasoningTextOf({ content, summary }: Members): string {
  return textOf(content) || textOf(summary);
}

/** Adds to `all` itself: a copy for each item would take the square of their number. */
function appended(all: unknown[], more: readonly unknown[]): unknown[] {
  for (const item of more) all.push(item);
  return all;
}

function asParts(content: unknown): unknown[] {
  return Array.isArray(content) ? (content as unknown[]) : [{ type: 'text', text: content }];
}

/** `content` translated: a lone text is a string, which every server accepts. */
function contentOf(content: unknown, path: string): unknown {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw new FieldError(path, 'must be a string or an array of parts');
  return loneText(translatedParts(content as unknown[], path));
}

function translatedParts(content: readonly unknown[], path: string): Members[] {
  return content.map((part, index) => {
    const at = `${path}[${index}]`;
    return withOrigin(at, translatedPart(part, at));
  });
}

function loneText(parts: readonly Members[]): unknown {
  const [first] = parts;
  return parts.length === 1 && first!.type === 'text' ? first!.text : parts;
}

function translatedPart(part: unknown, path: string): Members {
  if (!isRecord(part)) throw new FieldError(path, 'must be an object');
  const { type } = part;
  if (TEXT_PARTS.includes(type)) return { type: 'text', text: stringIn(part, 'text', path) };
  if (type === 'refusal') return { type: 'refusal', refusal: stringIn(part, 'refusal', path) };
  if (type === 'input_image') {
    if (typeof part.image_url !== 'string')
      throw new FieldError(`${path}.image_url`, 'must be a URL: files by their ids are not known here');
    const { detail } = part;
    return { type: 'image_url', image_url: { url: part.image_url, ...(isGiven(detail) && { detail }) } };
  }
  if (type === 'input_file') {
    if (isGiven(part.file_url))
      throw new FieldError(
        `${path}.file_url`,
        'must be sent as file_data: a chat completion has no URLs of files',
      );
    const names = ['file_data', 'file_id', 'filename'].filter((name) => isGiven(part[name]));
    return { type: 'file', file: Object.fromEntries(names.map((name) => [name, part[name]])) };
  }
  if (type === 'input_audio') return { type, input_audio: part.input_audio };
  throw new FieldError(
    `${path}.type`,
    'must be input_text, input_image, input_file, input_audio, output_text or refusal',
  );
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}
