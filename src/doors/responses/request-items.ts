/**
 * Translates the `input` of a request to POST /v1/responses into messages of a chat completion. to-chat.ts
 * calls `messagesOf`. No I/O; upstream worker, or counter thread if the body is large.
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
 *     any other                  rejected: only an upstream that speaks Responses can read it
 *
 * Must hold: messages have the order of their items, and what is moved or joined here never comes between
 * calls and their outputs (test/unit/doors/responses/to-chat.test.ts). Each message and part that is made is
 * registered with `withOrigin` (callers-path.ts), or an error names a path that the caller does not know
 * (test/unit/doors/callers-path.test.ts).
 */
import { isGiven, isRecord, type Members } from '../../core/json.js';
import { stringIn } from '../../providers/fields.js';
import { FieldError } from '../../providers/provider.js';
import { withOrigin } from '../callers-path.js';
import type { UpstreamTraits } from '../door.js';
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

const ROLES: readonly unknown[] = ['user', 'assistant', 'system', 'developer'];
const TEXT_PARTS: readonly unknown[] = ['input_text', 'output_text', 'text'];

/** Throws a FieldError. */
export function messagesOf(input: unknown, upstream: UpstreamTraits): unknown[] {
  if (typeof input === 'string') return [withOrigin('input', { role: 'user', content: input })];
  if (!Array.isArray(input)) throw new FieldError('input', 'must be a string or an array of items');
  const writer = new InputWriter(upstream);
  (input as unknown[]).forEach((item, index) => {
    if (!isRecord(item)) throw new FieldError(`input[${index}]`, 'must be an object');
    writer.add(item, `input[${index}]`);
  });
  return writer.end();
}

/** Call `add` for each item in order, then `end` once. */
class InputWriter {
  readonly #messages: unknown[] = [];
  readonly #upstream: UpstreamTraits;
  /** Images and files of the outputs in a row, for a user message after the last output. */
  #movedParts: Members[] = [];
  #movedPath = '';
  /** The last message if it is an assistant message: items of the same turn may still go into it. */
  #assistant: AssistantMessage | undefined;
  /** `extra_content` of a reasoning item, for the call that follows, if it is of the same turn. */
  #extraContent: unknown;
  /** Texts of reasoning for the next message or call of the assistant, unless another item comes first. */
  #thoughts = '';

  constructor(upstream: UpstreamTraits) {
    this.#upstream = upstream;
  }

  end(): unknown[] {
    this.#pushMovedParts();
    return this.#messages;
  }

  add(item: Members, path: string): void {
    const type = item.type ?? 'message';
    if (type !== 'function_call_output' && type !== 'custom_tool_call_output') this.#pushMovedParts();
    switch (type) {
      case 'message':
        this.#addMessage(item, path);
        return;
      case 'reasoning':
        this.#addReasoning(item, path);
        return;
      case 'function_call': {
        const name = flatName(stringIn(item, 'name', path), item.namespace);
        const calledFunction = { name, arguments: stringIn(item, 'arguments', path) };
        this.#addToolCall(
          { id: stringIn(item, 'call_id', path), type: 'function', function: calledFunction },
          path,
        );
        return;
      }
      case 'custom_tool_call': {
        const name = flatName(stringIn(item, 'name', path), item.namespace);
        const calledFunction = { name, input: stringIn(item, 'input', path) };
        this.#addToolCall(
          { id: stringIn(item, 'call_id', path), type: 'custom', custom: calledFunction },
          path,
        );
        return;
      }
      case 'function_call_output':
      case 'custom_tool_call_output': {
        const content = this.#outputOf(item.output, path);
        this.#pushMessage({ role: 'tool', tool_call_id: stringIn(item, 'call_id', path), content }, path);
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

  /**
   * The content of an output. Parts that are no texts are moved to `#movedParts`, unless the upstream reads
   * them in the message of a tool.
   */
  #outputOf(output: unknown, path: string): unknown {
    if (!Array.isArray(output)) return contentOf(output, `${path}.output`);
    if (output.length === 0) return '';
    if (this.#upstream.extras) return contentOf(output, `${path}.output`);
    const parts = translatedParts(output as unknown[], `${path}.output`);
    const moved = parts.filter(({ type }) => type !== 'text');
    if (moved.length > 0 && this.#movedParts.length === 0) this.#movedPath = path;
    this.#movedParts.push(...moved);
    const texts = parts.filter(({ type }) => type === 'text');
    return texts.length === 0 ? '' : singleTextOrParts(texts);
  }

  #pushMovedParts(): void {
    if (this.#movedParts.length === 0) return;
    this.#pushMessage({ role: 'user', content: this.#movedParts }, this.#movedPath);
    this.#movedParts = [];
  }

  /** Adds a message of another role than the assistant's. Such a message ends the assistant's turn. */
  #pushMessage(message: object, path: string): void {
    this.#assistant = undefined;
    this.#extraContent = undefined;
    this.#thoughts = '';
    this.#messages.push(withOrigin(path, message));
  }

  #addMessage(item: Members, path: string): void {
    const { role } = item;
    if (!ROLES.includes(role))
      throw new FieldError(`${path}.role`, 'must be user, assistant, system or developer');
    const content = contentOf(item.content, `${path}.content`);
    if (Array.isArray(content) && content.length === 0) {
      // Servers reject a message without parts. Clients send one for an assistant that only called tools.
      if (role === 'assistant') return;
      throw new FieldError(`${path}.content`, 'must not be empty');
    }
    if (role !== 'assistant') {
      // DeepSeek, Mistral and others reject `developer`. OpenAI's own models take `system` for it.
      this.#pushMessage(
        { role: role === 'developer' && !this.#upstream.extras ? 'system' : role, content },
        path,
      );
      return;
    }
    const current = this.#assistant;
    // Two assistant messages in a row stay two. But the text goes into a message that reasoning or a call has
    // begun (`content` is null), and into a message with calls, because the outputs must follow the calls at
    // once.
    const message =
      current !== undefined && (current.content === null || current.tool_calls !== undefined)
        ? current
        : this.#pushAssistant(path);
    if (message.content === null) message.content = content;
    else message.content = appended(asParts(message.content), asParts(content));
    this.#addThoughts(message);
  }

  /** Adds an empty assistant message, which becomes `#assistant`. */
  #pushAssistant(path: string): AssistantMessage {
    const message: AssistantMessage = { role: 'assistant', content: null };
    this.#messages.push(withOrigin(path, message));
    this.#assistant = message;
    return message;
  }

  /** Moves `#thoughts` into the message, whose `reasoning_content` must not be empty. */
  #addThoughts(message: AssistantMessage): void {
    if (!this.#upstream.thoughtsBack) return;
    // `thoughtsBackOf` returns a space for no thoughts; the first thoughts replace that space.
    const { reasoning_content: earlierThoughts = '' } = message;
    message.reasoning_content = thoughtsBackOf(
      earlierThoughts.trim() === '' ? this.#thoughts : earlierThoughts + this.#thoughts,
    );
    this.#thoughts = '';
  }

  #addReasoning(item: Members, path: string): void {
    const { blocks, extra } = carriedIn(item.encrypted_content) ?? {};
    // Also without extras: Google's interface in OpenAI's protocol wants `extra_content` back.
    this.#extraContent = extra;
    if (this.#upstream.thoughtsBack) this.#thoughts += reasoningTextOf(item);
    if (blocks === undefined || !this.#upstream.extras) return;
    // Signed thinking comes before the text and the calls of its message.
    const current = this.#assistant;
    const message =
      current?.content === null && current.tool_calls === undefined ? current : this.#pushAssistant(path);
    message.thinking_blocks = appended(message.thinking_blocks ?? [], blocks);
  }

  #addToolCall(toolCall: object, path: string): void {
    const message = this.#assistant ?? this.#pushAssistant(path);
    (message.tool_calls ??= []).push(
      withOrigin(
        path,
        this.#extraContent === undefined ? toolCall : { ...toolCall, extra_content: this.#extraContent },
      ),
    );
    this.#extraContent = undefined;
    this.#addThoughts(message);
  }
}

function reasoningTextOf({ content, summary }: Members): string {
  return textOf(content) || textOf(summary);
}

/** Adds to `list` itself, and returns `list`: a copy for each item would take quadratic time. */
function appended(list: unknown[], added: readonly unknown[]): unknown[] {
  for (const item of added) list.push(item);
  return list;
}

function asParts(content: unknown): unknown[] {
  return Array.isArray(content) ? (content as unknown[]) : [{ type: 'text', text: content }];
}

/** The translated content. A single text becomes a string, which every server accepts. */
function contentOf(content: unknown, path: string): unknown {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw new FieldError(path, 'must be a string or an array of parts');
  return singleTextOrParts(translatedParts(content as unknown[], path));
}

function translatedParts(content: readonly unknown[], path: string): Members[] {
  return content.map((part, index) => {
    const partPath = `${path}[${index}]`;
    return withOrigin(partPath, translatedPart(part, partPath));
  });
}

function singleTextOrParts(parts: readonly Members[]): unknown {
  const [first] = parts;
  return parts.length === 1 && first!.type === 'text' ? first!.text : parts;
}

/** The part in the form of a chat completion. Throws a FieldError for a part that it does not know. */
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
