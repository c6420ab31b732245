/**
 * A stream of ConverseStream, translated into the chunks of a chat completion. bedrock.ts makes one reader
 * for each stream. Upstream worker.
 *
 *     messageStart → (contentBlockStart → contentBlockDelta … → contentBlockStop) … → messageStop → metadata
 *
 * Text blocks have no contentBlockStart. Events of other names, from later versions, are ignored. Blocks come
 * one after another, so contentBlockIndex is not read.
 *
 * Must hold: nothing is returned before an event after messageStart has come: after an error until then, the
 * call can still fail over to another upstream. So messageStart has no case, and all other chunks but the
 * usage go through `#write`, which writes the role first (test/unit/providers/bedrock/stream.test.ts).
 *
 * Follows Amazon Bedrock API Reference, "ConverseStream" and "ConverseStreamOutput", 2026-11.
 */
import { isRecord } from '../../core/json.js';
import { SSE_EVENT_BYTES_MAX } from '../../core/limits.js';
import { ChunkWriter } from '../chat-writer.js';
import { ProviderError, type UnsignedCall, type ProviderStream } from '../provider.js';
import { eventOf, FrameReader, type Headers } from './frames.js';
import { publicName } from './models.js';
import { finishOf, redactedBlock, usageOf, type ThinkingBlock } from './response.js';
import { responseToolOf } from './tools.js';

/**
 * The fast path: nearly all payloads have this form, and copying their text costs a quarter of parsing them.
 * Texts with other escapes, or beyond ASCII, are parsed. `p` is padding, which hides the length of the text.
 */
const TEXT_DELTA =
  /\{"contentBlockIndex":\d+,"delta":\{"text":"((?:[ !#-[\]-~]|\\["\\/bfnrt])*)"\}(?:,"p":"\w*")?\}/y;

const NO_BYTES = Buffer.alloc(0);

/** Longer payloads are parsed, because the stack of the regular expression grows with each character. */
const TEXT_DELTA_BYTES_MAX = 4096;

/**
 * What the open block calls. `tool`: a tool of the caller; `content`: the tool that the request adds
 * if the caller wants JSON of a schema, and whose input is the content of the response.
 */
type OpenTool = 'tool' | 'content' | 'none';

export class ConverseStream implements ProviderStream {
  readonly #writer: ChunkWriter;
  readonly #frames = new FrameReader((headers, bytes, start, end) =>
    this.#message(headers, bytes, start, end),
  );
  /** The chunk that is being read, and the same as Latin-1, decoded once for its several messages. */
  #bytes: Buffer = NO_BYTES;
  #latin1 = '';
  /** The tool whose input is the content; undefined if there is none. */
  readonly #responseTool: string | undefined;
  /** Events of the chunk that is being read. */
  #out = '';
  #hasRole = false;
  /** Tool calls so far, without that of `#responseTool`, which the client does not see. */
  #tools = 0;
  #openTool: OpenTool = 'none';
  /** Whether the open tool has got some of its input. */
  #hasInput = false;
  /** Signature of the open thinking block, so far. */
  #signature = '';
  /** `additionalModelResponseFields`: Claude's own usage, with the reasoning tokens. */
  #modelFields: unknown;
  #isStopped = false;

  constructor(call: UnsignedCall) {
    const created = Math.floor(call.nowMs / 1000);
    this.#writer = new ChunkWriter(`chatcmpl-${call.requestId}`, publicName(call.model), created);
    this.#responseTool = responseToolOf(call);
  }

  push(chunk: Uint8Array): string {
    this.#out = '';
    this.#frames.push(chunk);
    this.#bytes = NO_BYTES;
    this.#latin1 = '';
    return this.#out;
  }

  end(): string {
    if (!this.#isStopped || !this.#frames.isBetweenMessages) {
      throw ProviderError.invalid('the stream ended before the message did');
    }
    return this.#writer.done();
  }

  #message(headers: Headers, bytes: Buffer, start: number, end: number): void {
    const eventType = headers.get(':event-type');
    if (eventType === 'contentBlockDelta' && end - start <= TEXT_DELTA_BYTES_MAX) {
      const text = this.#textIn(bytes, start, end);
      if (text !== undefined) {
        this.#write(this.#writer.piece('content', text));
        return;
      }
    }
    // `eventOf` throws the error that a frame of an exception stands for.
    this.#event(eventType, eventOf(headers, bytes.toString('utf8', start, end)));
  }

  /** The text of a payload of the usual form, as the inside of a JSON string. */
  #textIn(bytes: Buffer, start: number, end: number): string | undefined {
    if (this.#bytes !== bytes) {
      this.#bytes = bytes;
      this.#latin1 = bytes.toString('latin1');
    }
    TEXT_DELTA.lastIndex = start;
    const found = TEXT_DELTA.exec(this.#latin1);
    return TEXT_DELTA.lastIndex === end ? found?.[1] : undefined;
  }

  #event(type: string | undefined, event: Record<string, unknown>): void {
    switch (type) {
      case 'contentBlockDelta':
        if (isRecord(event.delta)) this.#delta(event.delta);
        break;
      case 'contentBlockStart':
        if (isRecord(event.start)) this.#start(event.start);
        break;
      case 'contentBlockStop':
        this.#stop();
        break;
      case 'messageStop':
        this.#isStopped = true;
        this.#modelFields = event.additionalModelResponseFields;
        this.#write(this.#writer.finish(finishOf(event.stopReason, this.#tools > 0)));
        break;
      case 'metadata': {
        const usage = usageOf(event.usage, this.#modelFields);
        if (usage !== undefined) this.#out += this.#writer.usage(usage);
        break;
      }
      default:
    }
  }

  #start({ toolUse, reasoningContent }: Record<string, unknown>): void {
    this.#openTool = 'none';
    this.#hasInput = false;
    // The reference has no such member, but Bedrock has sent redacted thinking of Claude in it.
    if (isRecord(reasoningContent)) this.#reasoning(reasoningContent);
    // Bedrock itself runs a `server_tool_use`, so the caller does not see the call.
    if (!isRecord(toolUse) || toolUse.type === 'server_tool_use') return;
    const { toolUseId, name } = toolUse;
    if (typeof toolUseId !== 'string' || typeof name !== 'string') {
      throw ProviderError.invalid('a tool call has no name or id');
    }
    if (name === this.#responseTool) {
      this.#openTool = 'content';
      return;
    }
    this.#openTool = 'tool';
    this.#write(this.#writer.toolStart(this.#tools, toolUseId, name));
    this.#tools += 1;
  }

  #delta({ text, toolUse, reasoningContent }: Record<string, unknown>): void {
    if (typeof text === 'string') this.#write(this.#writer.text(text));
    else if (isRecord(toolUse)) {
      if (typeof toolUse.input !== 'string') throw ProviderError.invalid("a tool's input is no string");
      this.#input(toolUse.input);
    } else if (isRecord(reasoningContent)) this.#reasoning(reasoningContent);
  }

  #input(json: string): void {
    this.#hasInput ||= json !== '';
    if (this.#openTool === 'content') this.#write(this.#writer.text(json));
    else if (this.#openTool === 'tool') this.#write(this.#writer.toolArguments(this.#tools - 1, json));
  }

  #reasoning({ text, signature, redactedContent }: Record<string, unknown>): void {
    if (typeof text === 'string') this.#write(this.#writer.reasoning(text));
    else if (typeof redactedContent === 'string') this.#thinking(redactedBlock(redactedContent));
    else if (typeof signature === 'string') {
      this.#signature += signature;
      if (this.#signature.length > SSE_EVENT_BYTES_MAX)
        throw ProviderError.invalid('a signature is too long');
    }
  }

  #stop(): void {
    // A call of a tool without parameters has no input, or an empty one. OpenAI's clients want an object.
    if (this.#openTool !== 'none' && !this.#hasInput) this.#input('{}');
    this.#openTool = 'none';
    if (this.#signature === '') return;
    this.#thinking({ type: 'thinking', thinking: '', signature: this.#signature });
    this.#signature = '';
  }

  /**
   * The chunk of a thinking block, whose text went out as `reasoning_content` already. `thinking_blocks` is
   * no member of OpenAI's but LiteLLM's: the caller sends the signature back in it.
   */
  #thinking(block: ThinkingBlock): void {
    this.#write(this.#writer.delta(JSON.stringify({ thinking_blocks: [block] })));
  }

  #write(chunk: string): void {
    if (!this.#hasRole) this.#out += this.#writer.role();
    this.#hasRole = true;
    this.#out += chunk;
  }
}
