/**
 * Translates a stream of ConverseStream into the chunks of a chat completion. bedrock.ts makes one
 * `ConverseStream` for each stream; translated-call.ts calls `push` and `end`. Upstream worker.
 *
 *     messageStart → (contentBlockStart → contentBlockDelta … → contentBlockStop) … → messageStop → metadata
 *
 * A _message_ is one of Amazon's event stream (frames.ts), with an event as its payload. A _chunk_ is one of
 * the chat completion. Text blocks have no contentBlockStart. Events of other names, from later versions, are
 * ignored. Blocks come one after another, so contentBlockIndex is not read.
 *
 * Must hold: no chunk is returned for messageStart, so that a call whose stream then fails can still go to
 * another upstream. Each chunk but the usage goes through `#write`, which writes the role first; the usage
 * comes last, after the chunk of messageStop (test/unit/providers/bedrock/stream.test.ts).
 *
 * Follows Amazon Bedrock API Reference, "ConverseStream" and "ConverseStreamOutput", 2026-11.
 */
import { isRecord } from '../../core/json.js';
import { SSE_EVENT_BYTES_MAX } from '../../core/limits.js';
import { ChunkWriter, escaped, type EscapedText } from '../chat-writer.js';
import { ProviderError, type UnsignedCall, type ProviderStream } from '../provider.js';
import { eventOf, FrameReader, type Headers } from './frames.js';
import { publicName } from './models.js';
import { calledToolOf, finishOf, redactedBlock, usageOf, type ThinkingBlock } from './response.js';
import { responseToolOf } from './tools.js';

/**
 * The fast path: nearly all payloads match, and copying their text costs a quarter of parsing them. A
 * payload with another escape, or with a character beyond ASCII, is parsed. `p` is Bedrock's padding, which
 * hides the length of the text. The expression is sticky, so `lastIndex` is set before each use.
 */
const TEXT_DELTA =
  /\{"contentBlockIndex":\d+,"delta":\{"text":"((?:[ !#-[\]-~]|\\["\\/bfnrt])*)"\}(?:,"p":"\w*")?\}/y;

/** Longer payloads are parsed, because the stack of the regular expression grows with each character. */
const TEXT_DELTA_BYTES_MAX = 4096;
const NO_BYTES = Buffer.alloc(0);

/**
 * Which tool the open block calls. `callers`: a tool of the caller; `response`: the tool of `response_format`
 * (tools.ts), whose input is the content of the response; `none`: no tool, or one that Bedrock itself runs.
 */
type OpenCall = 'callers' | 'response' | 'none';

export class ConverseStream implements ProviderStream {
  readonly #writer: ChunkWriter;
  readonly #frames = new FrameReader((headers, bytes, start, end) =>
    this.#readMessage(headers, bytes, start, end),
  );
  /**
   * The buffer that was decoded last, because most messages of one `push` share a buffer; and its Latin-1
   * text, in which each character has the position of its byte.
   */
  #decodedBytes: Buffer = NO_BYTES;
  #latin1 = '';
  readonly #responseTool: string | undefined;
  #chunks = '';
  #hasRole = false;
  /** Tool calls so far that the client sees: without calls of `#responseTool` and of Bedrock's own tools. */
  #toolCount = 0;
  #openCall: OpenCall = 'none';
  #hasToolInput = false;
  #signature = '';
  /** `additionalModelResponseFields` of messageStop: Claude's own usage, with the reasoning tokens. */
  #modelFields: unknown;
  #hasMessageStopped = false;
  /** A message after messageStop was an exception, or damaged: what still comes is ignored. */
  #isOver = false;

  constructor(call: UnsignedCall) {
    const created = Math.floor(call.nowMs / 1000);
    this.#writer = new ChunkWriter(`chatcmpl-${call.requestId}`, publicName(call.model), created);
    this.#responseTool = responseToolOf(call);
  }

  push(bytes: Uint8Array): string {
    this.#chunks = '';
    if (this.#isOver) return '';
    try {
      this.#frames.push(bytes);
    } catch (error) {
      // After messageStop no text follows, so the client has all of it, and an exception changes nothing.
      if (!this.#hasMessageStopped) throw error;
      this.#isOver = true;
    }
    // Frees the memory. The bytes of the next `push` may be in another buffer anyway.
    this.#decodedBytes = NO_BYTES;
    this.#latin1 = '';
    return this.#chunks;
  }

  end(): string {
    if (!this.#hasMessageStopped || !(this.#isOver || this.#frames.isBetweenMessages)) {
      throw ProviderError.invalid('the stream ended before the message did');
    }
    return this.#writer.done();
  }

  /** Reads a message. The payload `bytes[start..end)` is valid only until this method returns. */
  #readMessage(headers: Headers, bytes: Buffer, start: number, end: number): void {
    const eventType = headers.get(':event-type');
    if (eventType === 'contentBlockDelta' && end - start <= TEXT_DELTA_BYTES_MAX) {
      const escapedText = this.#escapedTextIn(bytes, start, end);
      if (escapedText !== undefined) {
        this.#write(this.#writer.piece('content', escapedText));
        return;
      }
    }
    // `eventOf` throws if the message is an exception of Bedrock.
    this.#readEvent(eventType, eventOf(headers, bytes.toString('utf8', start, end)));
  }

  /** The text of a payload that matches TEXT_DELTA; undefined for another. */
  #escapedTextIn(bytes: Buffer, start: number, end: number): EscapedText | undefined {
    if (this.#decodedBytes !== bytes) {
      this.#decodedBytes = bytes;
      this.#latin1 = bytes.toString('latin1');
    }
    TEXT_DELTA.lastIndex = start;
    const match = TEXT_DELTA.exec(this.#latin1);
    // The match must end with the payload. Without a match `lastIndex` is 0.
    return TEXT_DELTA.lastIndex === end ? (match?.[1] as EscapedText | undefined) : undefined;
  }

  #readEvent(type: string | undefined, event: Record<string, unknown>): void {
    switch (type) {
      case 'contentBlockDelta':
        if (isRecord(event.delta)) this.#readDelta(event.delta);
        break;
      case 'contentBlockStart':
        if (isRecord(event.start)) this.#startBlock(event.start);
        break;
      case 'contentBlockStop':
        this.#stopBlock();
        break;
      case 'messageStop':
        this.#hasMessageStopped = true;
        this.#modelFields = event.additionalModelResponseFields;
        this.#write(this.#writer.finish(finishOf(event.stopReason, { hasToolCalls: this.#toolCount > 0 })));
        break;
      case 'metadata': {
        const usage = usageOf(event.usage, this.#modelFields);
        if (usage !== undefined) this.#chunks += this.#writer.usage(usage);
        break;
      }
      // messageStart, and events of later versions.
      default:
    }
  }

  #startBlock({ toolUse, reasoningContent }: Record<string, unknown>): void {
    this.#openCall = 'none';
    this.#hasToolInput = false;
    // The reference has no such member, but Bedrock has sent redacted thinking of Claude in it.
    if (isRecord(reasoningContent)) this.#readReasoning(reasoningContent);
    // Bedrock itself runs a `server_tool_use`, so the caller does not see the call.
    if (!isRecord(toolUse) || toolUse.type === 'server_tool_use') return;
    const { id, name } = calledToolOf(toolUse);
    if (name === this.#responseTool) {
      this.#openCall = 'response';
      return;
    }
    this.#openCall = 'callers';
    this.#write(this.#writer.toolStart(this.#toolCount, id, name));
    this.#toolCount += 1;
  }

  #readDelta({ text, toolUse, reasoningContent }: Record<string, unknown>): void {
    if (typeof text === 'string') this.#write(this.#writer.text(text));
    else if (isRecord(toolUse)) {
      if (typeof toolUse.input !== 'string') throw ProviderError.invalid("a tool's input is no string");
      this.#writeInput(toolUse.input);
    } else if (isRecord(reasoningContent)) this.#readReasoning(reasoningContent);
  }

  /** Writes a part of a tool's input: as arguments, as content, or, if Bedrock runs the tool, not at all. */
  #writeInput(json: string): void {
    this.#hasToolInput ||= json !== '';
    if (this.#openCall === 'response') this.#write(this.#writer.text(json));
    else if (this.#openCall === 'callers')
      this.#write(this.#writer.toolArguments(this.#toolCount - 1, escaped(json)));
  }

  #readReasoning({ text, signature, redactedContent }: Record<string, unknown>): void {
    if (typeof text === 'string') this.#write(this.#writer.reasoning(text));
    else if (typeof redactedContent === 'string') this.#writeThinkingBlock(redactedBlock(redactedContent));
    else if (typeof signature === 'string') {
      this.#signature += signature;
      if (this.#signature.length > SSE_EVENT_BYTES_MAX)
        throw ProviderError.invalid('a signature is too long');
    }
  }

  #stopBlock(): void {
    // A call of a tool without parameters has no input, or ''. OpenAI's clients expect a JSON object.
    if (this.#openCall !== 'none' && !this.#hasToolInput) this.#writeInput('{}');
    this.#openCall = 'none';
    if (this.#signature === '') return;
    this.#writeThinkingBlock({ type: 'thinking', thinking: '', signature: this.#signature });
    this.#signature = '';
  }

  /** The text went out as `reasoning_content` already. The caller sends the signature back in the block. */
  #writeThinkingBlock(block: ThinkingBlock): void {
    this.#write(this.#writer.delta(JSON.stringify({ thinking_blocks: [block] })));
  }

  /** Writes a chunk; before the first one, the chunk with the role. */
  #write(chunk: string): void {
    if (!this.#hasRole) this.#chunks += this.#writer.role();
    this.#hasRole = true;
    this.#chunks += chunk;
  }
}
