/**
 * The `input` and the `tools` of a request to POST /v1/responses as messages and tools of a chat completion.
 * to-chat.ts calls it, and response-stream.ts for the names of calls. No I/O; upstream worker, or for
 * requests a counter thread if the body is large.
 *
 *     message                    a message of its role; a lone text as a string. `developer` becomes
 *                                `system`, unless the upstream reads it (`extras`)
 *     reasoning                  its signed blocks go into the next assistant message, if the upstream reads
 *                                them (`extras`); its texts become that message's `reasoning_content`, if
 *                                the upstream wants them (`thoughtsBack`); else it is left out
 *     function_call,             `tool_calls` of the assistant message before it, if no other item came
 *       custom_tool_call           between
 *     function_call_output,      a message of the role `tool`. A chat completion allows only text there, so
 *       custom_tool_call_output    images and files go to a user message after the last output in a row,
 *                                  unless the upstream reads them (`extras`)
 *     any other                  refused: only an upstream that speaks Responses can read it
 *
 * A chat completion has no namespaces: a tool of a namespace is offered as `namespace__name`, shortened if
 * that is too long, and a call of it gets both names back.
 *
 * Must hold: two tools with one flat name are rejected, because nobody could know which of them a call means
 * (test/unit/doors/responses/request-items.offered-tools.test.ts); each message and part that is made is
 * registered with `withOrigin` (callers-path.ts), or an error names a path that the caller does not know
 * (test/unit/doors/callers-path.test.ts).
 */
import { hash } from 'node:crypto';
import { isNestedTooDeeply, isRecord, type Members, parsedJson } from '../../core/json.js';
import { stringIn } from '../../providers/fields.js';
import { FieldError } from '../../providers/provider.js';
import { withOrigin } from '../callers-path.js';
import { textOf, thoughtsBackOf } from '../message-parts.js';

interface AssistantMessage {
  readonly role: 'assistant';
  content: unknown;
  tool_calls?: unknown[];
  thinking_blocks?: unknown[];
  reasoning_content?: string;
}

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
  /** The last message, if it is an assistant message. */
  #assistant: AssistantMessage | undefined;
  /** `extra_content` of a reasoning item, for the call that follows. */
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
    const parts = partsIn(output as unknown[], `${path}.output`);
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
      // DeepSeek, Mistral and others reject `developer`. OpenAI's own models read `system` as it.
      this.#push({ role: role === 'developer' && !this.#extras ? 'system' : role, content }, path);
      return;
    }
    const last = this.#assistant;
    // Two assistant messages in a row stay two, unless the first has tool calls: their results must come
    // next.
    const message =
      last === undefined || (last.content !== null && last.tool_calls === undefined)
        ? this.#newAssistant(path)
        : last;
    if (message.content === null) message.content = content;
    else message.content = appended(partsOf(message.content), partsOf(content));
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

function partsOf(content: unknown): unknown[] {
  return Array.isArray(content) ? (content as unknown[]) : [{ type: 'text', text: content }];
}

/** The value of `content`: a lone text is a string, which every server accepts. */
function contentOf(content: unknown, path: string): unknown {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw new FieldError(path, 'must be a string or an array of parts');
  return loneText(partsIn(content as unknown[], path));
}

function partsIn(content: readonly unknown[], path: string): Members[] {
  return content.map((part, index) => {
    const at = `${path}[${index}]`;
    return withOrigin(at, partOf(part, at));
  });
}

function loneText(parts: readonly Members[]): unknown {
  const [first] = parts;
  return parts.length === 1 && first!.type === 'text' ? first!.text : parts;
}

function partOf(part: unknown, path: string): Members {
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

/**
 * Marks `encrypted_content` of this gateway, in which a client carries signed reasoning from one turn to the
 * next: thinking blocks of Anthropic and Bedrock, signatures of Gemini's calls, as JSON in base64.
 * response-stream.ts writes it. It is not encrypted: the caller's own model wrote it, and the provider
 * checks its signatures. Content without the prefix is another service's, which no upstream here could read.
 *
 * Must hold: clients store the content, so the form after this prefix never changes; another form gets
 * another prefix (test/unit/doors/responses/request-items.carried-signatures.test.ts).
 */
const PREFIX = 'tollgate-1:';

interface Carried {
  /** `thinking_blocks` of a message, with their texts. */
  readonly blocks?: readonly unknown[];
  /** `extra_content` of the call that follows. */
  readonly extra?: unknown;
}

export function encryptedContent(carried: Carried): string {
  return PREFIX + Buffer.from(JSON.stringify(carried)).toString('base64');
}

/** Decodes the content; undefined if this gateway did not write it. */
export function carriedIn(content: unknown): Carried | undefined {
  if (typeof content !== 'string' || !content.startsWith(PREFIX)) return undefined;
  const text = Buffer.from(content.slice(PREFIX.length), 'base64').toString();
  const value = parsedJson(text);
  if (!isRecord(value) || isNestedTooDeeply(text, value)) return undefined;
  return {
    ...(Array.isArray(value.blocks) && { blocks: value.blocks as unknown[] }),
    ...(isRecord(value.extra) && { extra: value.extra }),
  };
}

interface OfferedTool {
  readonly tool: Members;
  /** Path of the tool in the request. */
  readonly path: string;
}

interface Named {
  readonly name: string;
  readonly namespace: string;
}

/**
 * The start of the type of hosted tools that coding agents offer by default. An upstream of chat completions
 * cannot run them, so they are left out if there are other tools and the model need not call one; else
 * to-chat.ts rejects them.
 */
const SEARCH = 'web_search';

/**
 * `mayChoose`: the model need not call a tool. Throws a FieldError for an item that is no object, and for
 * two tools with one flat name.
 */
export function offeredTools(tools: readonly unknown[], mayChoose: boolean): OfferedTool[] {
  const offered = tools.flatMap((tool, index): OfferedTool[] => {
    const path = `tools[${index}]`;
    if (!isRecord(tool)) throw new FieldError(path, 'must be an object');
    const { type, name, tools: inner } = tool;
    if (type !== 'namespace' || typeof name !== 'string' || !Array.isArray(inner)) return [{ tool, path }];
    return (inner as unknown[]).map((one, position) => {
      const at = `${path}.tools[${position}]`;
      if (!isRecord(one)) throw new FieldError(at, 'must be an object');
      return { tool: { ...one, name: flatName(one.name, name) }, path: at };
    });
  });
  const names = new Set<unknown>();
  for (const { tool, path } of namespacesIn(tools).size === 0 ? [] : offered) {
    if (typeof tool.name !== 'string') continue;
    if (names.has(tool.name))
      throw new FieldError(`${path}.name`, `another tool has the name ${tool.name} too`);
    names.add(tool.name);
  }
  const others = offered.filter(
    ({ tool: { type } }) => !(typeof type === 'string' && type.startsWith(SEARCH)),
  );
  return mayChoose && others.length > 0 ? others : offered;
}

/** The bound of a tool's name at OpenAI, Bedrock and others. Clients allow 128 in Responses. */
const NAME_CHARS_MAX = 64;
/** 64 bits: two long names of one request do not get the same. */
const NAME_DIGEST_CHARS = 16;

/**
 * The name under which a chat completion has the tool. One that is too long ends with a digest of the whole
 * name. It depends on nothing else, so that calls of earlier turns have it too.
 */
function flatName(name: unknown, namespace: unknown): unknown {
  const isNamed = typeof name === 'string' && typeof namespace === 'string' && namespace !== '';
  if (!isNamed) return name;
  const flat = `${namespace}__${name}`;
  if (flat.length <= NAME_CHARS_MAX) return flat;
  const start = flat.slice(0, NAME_CHARS_MAX - NAME_DIGEST_CHARS - 1);
  return `${start}_${hash('sha256', flat).slice(0, NAME_DIGEST_CHARS)}`;
}

/** The names of tools in namespaces, by their flat names. */
export function namespacesIn(tools: unknown): ReadonlyMap<unknown, Named> {
  const names = new Map<unknown, Named>();
  for (const tool of Array.isArray(tools) ? (tools as unknown[]) : []) {
    if (!isRecord(tool) || tool.type !== 'namespace' || typeof tool.name !== 'string') continue;
    const namespace = tool.name;
    for (const one of Array.isArray(tool.tools) ? (tool.tools as unknown[]) : [])
      if (isRecord(one) && typeof one.name === 'string')
        names.set(flatName(one.name, namespace), { name: one.name, namespace });
  }
  return names;
}
