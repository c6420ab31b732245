/**
 * Translates a stream of Anthropic's Messages API into the events of a chat completion. anthropic.ts makes
 * one MessageStream for each stream, and so does vertex/vertex.ts for Claude models. translated-call.ts calls
 * `push` and `end`. Upstream worker.
 *
 * Follows platform.claude.com, page "Streaming messages", 2026-11:
 *
 *     message_start          id, model, usage of the prompt
 *     content_block_start    a tool call begins; redacted thinking is whole here
 *     content_block_delta    text_delta, thinking_delta, input_json_delta; signature_delta, once at the end
 *                            of a block of thinking
 *     content_block_stop     a call that got no arguments gets those of its content_block_start, which are an
 *                            empty object at Anthropic itself
 *     message_delta          the stop reason, and the usage of the whole call
 *     message_stop           the end
 *     error                  as the body of a response with an error's status
 *     ping, unknown types    ignored: "new event types may be added, handle unknown ones gracefully"
 *
 * Must hold: nothing is returned before the first block begins. After an error until then, the call can still
 * fail over to another upstream (test/unit/providers/anthropic/stream.test.ts).
 */
import { exactJson, exactJsonText } from '../../core/exact-json.js';
import { isRecord, membersOf, parsedJson } from '../../core/json.js';
import { forEachEvent, SseSplitter } from '../../protocol/sse.js';
import { ChunkWriter, escaped, type EscapedText, type FinishReason } from '../chat-writer.js';
import { ProviderError, type UnsignedCall, type ProviderStream } from '../provider.js';
import { type ProviderUsage } from '../provider-usage.js';
import { failureOf } from './errors.js';
import { finishOf, idOf, MessageUsage, promptReportOf, refusalOf, textOf } from './response.js';
import { responseToolOf, callsFunctions } from './tools.js';

/** `response_tool`: its arguments are the content (tools.ts). `other`: a text, a thought, or none is open. */
type BlockKind = 'response_tool' | 'callers_tool' | 'other';

/**
 * The fast path: nearly every event of a stream has this form, padding included. The text in such an event
 * is copied as it is, as the inside of a JSON string. Any other event is parsed. The expression is sticky,
 * so `lastIndex` is set before each use.
 */
const PLAIN_DELTA =
  /event: content_block_delta\ndata: \{"type": ?"content_block_delta", ?"index": ?\d+, ?"delta": ?\{"type": ?"(text|thinking|input_json)_delta", ?"(?:text|thinking|partial_json)": ?"([^"\\\0-\x1f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\0-\x1f]*)*)" *\} *\}\n\n/y;

export class MessageStream implements ProviderStream {
  readonly #call: UnsignedCall;
  readonly #responseTool: string | undefined;
  /** The caller used `functions` (tools.ts), so a call goes out as `function_call`. */
  readonly #callsFunctions: boolean;
  readonly #splitter = new SseSplitter();
  readonly #usage = new MessageUsage();
  /** `message_delta` has brought the usage, which was not returned yet, and no text has come since. */
  #isUsageDue = false;
  #writer: ChunkWriter | undefined;
  #hasRole = false;
  /** Kind of the open block. Blocks follow each other, so one is open at a time. */
  #blockKind: BlockKind = 'other';
  #hasArguments = false;
  /** The arguments that came as the open tool call began. They count if no others come. */
  #firstArguments = '{}';
  /** Position of the open tool call among the calls; -1 before the first. */
  #callIndex = -1;
  #finishReason: FinishReason | undefined;
  #hasEnded = false;

  constructor(call: UnsignedCall) {
    this.#call = call;
    this.#responseTool = responseToolOf(call);
    this.#callsFunctions = callsFunctions(call);
  }

  get usageSoFar(): ProviderUsage | undefined {
    return this.#usage.usage;
  }

  push(bytes: Uint8Array): string {
    const events = this.#splitter.push(bytes);
    if (events === undefined) throw ProviderError.invalid('an event is too long');
    return events.length === 0 ? '' : this.#translate(events);
  }

  end(): string {
    const lastEvent = this.#splitter.end();
    const text = lastEvent.length === 0 ? '' : this.#translate(lastEvent);
    if (this.#hasEnded) return text;
    if (this.#finishReason === undefined) throw ProviderError.invalid('the stream ended before its end');
    return text + this.#lastChunks();
  }

  #translate(events: Buffer): string {
    const text = events.toString();
    // The fast path knows LF alone, and needs the writer, which exists once the role was written.
    const hasNoCr = !text.includes('\r');
    let chunks = '';
    for (let position = 0; position < text.length && !this.#hasEnded;) {
      PLAIN_DELTA.lastIndex = position;
      const piece = hasNoCr && this.#hasRole ? PLAIN_DELTA.exec(text) : null;
      if (piece !== null) {
        chunks += this.#pieceChunk(piece[1]!, piece[2] as EscapedText);
        position = PLAIN_DELTA.lastIndex;
        continue;
      }
      const blankLine = hasNoCr ? text.indexOf('\n\n', position) : -1;
      const end = blankLine < 0 ? text.length : blankLine + 2;
      forEachEvent(Buffer.from(text.slice(position, end)), (_start, _end, data) => {
        if (data !== undefined && data !== '' && !this.#hasEnded) chunks += this.#chunksOfEvent(data);
      });
      position = end;
    }
    return chunks;
  }

  /** The chunks for one event. `data`: its data lines, not empty. Throws a ProviderError. */
  #chunksOfEvent(data: string): string {
    const event = parsedJson(data);
    if (!isRecord(event)) throw ProviderError.invalid('an event is no JSON object');
    switch (event.type) {
      case 'content_block_delta':
        return isRecord(event.delta) ? this.#chunkOfDelta(event.delta) : '';
      case 'content_block_start':
        return isRecord(event.content_block) ? this.#startBlock(event.content_block, data) : '';
      case 'content_block_stop':
        // A tool call without arguments has sent no text for them. OpenAI's clients want an object.
        return this.#blockKind === 'other' || this.#hasArguments
          ? ''
          : this.#pieceChunk('input_json', escaped(this.#firstArguments));
      case 'message_start':
        this.#startMessage(event.message);
        return '';
      case 'message_delta':
        return this.#chunksOfMessageDelta(event);
      case 'message_stop':
        return this.#lastChunks();
      case 'error':
        // After the stop reason no text follows, so the client has all of it.
        if (this.#finishReason !== undefined) return this.#lastChunks();
        throw new ProviderError(failureOf(event.error, 500));
      default:
        return '';
    }
  }

  #startMessage(message: unknown): void {
    if (!isRecord(message)) throw ProviderError.invalid('no message');
    const { id, model, usage } = message;
    this.#writer = new ChunkWriter(
      idOf(id, this.#call),
      typeof model === 'string' ? model : this.#call.model,
      Math.floor(this.#call.nowMs / 1_000),
    );
    this.#usage.add(promptReportOf(usage));
  }

  #openWriter(): ChunkWriter {
    if (this.#writer === undefined) throw ProviderError.invalid('no message_start');
    return this.#writer;
  }

  /** The chunk with the role; '' if it was returned before. */
  #roleChunk(writer: ChunkWriter): string {
    if (this.#hasRole) return '';
    this.#hasRole = true;
    return writer.role();
  }

  #startBlock(block: Record<string, unknown>, data: string): string {
    const writer = this.#openWriter();
    const role = this.#roleChunk(writer);
    this.#isUsageDue = false;
    this.#blockKind = 'other';
    this.#hasArguments = false;
    switch (block.type) {
      case 'text':
        return role + (block.text === '' ? '' : writer.text(textOf(block.text)));
      case 'thinking':
        return role + (block.thinking === '' ? '' : writer.reasoning(textOf(block.thinking)));
      case 'redacted_thinking':
        return role + thinkingChunk(writer, { type: 'redacted_thinking', data: block.data });
      case 'tool_use':
        this.#firstArguments = argumentsIn(block, data);
        return role + this.#startToolBlock(writer, textOf(block.id), textOf(block.name));
      default:
        return role;
    }
  }

  #startToolBlock(writer: ChunkWriter, id: string, name: string): string {
    this.#blockKind = 'response_tool';
    if (name === this.#responseTool) return '';
    this.#blockKind = 'callers_tool';
    this.#callIndex++;
    if (!this.#callsFunctions) return writer.toolStart(this.#callIndex, id, name);
    return writer.delta(JSON.stringify({ function_call: { name, arguments: '' } }));
  }

  #chunkOfDelta(delta: Record<string, unknown>): string {
    switch (delta.type) {
      case 'text_delta':
        return this.#pieceChunk('text', escaped(textOf(delta.text)));
      case 'thinking_delta':
        return this.#pieceChunk('thinking', escaped(textOf(delta.thinking)));
      case 'input_json_delta':
        return this.#pieceChunk('input_json', escaped(textOf(delta.partial_json)));
      case 'signature_delta':
        // The text went out as `reasoning_content` already, so the block has none.
        return thinkingChunk(this.#openWriter(), {
          type: 'thinking',
          thinking: '',
          signature: delta.signature,
        });
      default:
        return '';
    }
  }

  /** The chunk for a piece of the open block. `type`: of a delta, without `_delta`. */
  #pieceChunk(type: string, text: EscapedText): string {
    const writer = this.#openWriter();
    this.#isUsageDue = false;
    if (type === 'text') return writer.piece('content', text);
    if (type === 'thinking') return writer.piece('reasoning_content', text);
    if (text === '' || this.#blockKind === 'other') return '';
    this.#hasArguments = true;
    if (this.#blockKind === 'response_tool') return writer.piece('content', text);
    if (this.#callsFunctions) return writer.delta(`{"function_call":{"arguments":"${text}"}}`);
    return writer.toolArguments(this.#callIndex, text);
  }

  #chunksOfMessageDelta({ delta, usage }: Record<string, unknown>): string {
    this.#usage.add(usage);
    this.#isUsageDue ||= isRecord(usage);
    if (!isRecord(delta) || typeof delta.stop_reason !== 'string') return '';
    const writer = this.#openWriter();
    const finish = finishOf(delta.stop_reason, { hasCalls: this.#callIndex >= 0 });
    this.#finishReason = this.#callsFunctions && finish === 'tool_calls' ? 'function_call' : finish;
    const refusal = refusalOf(delta.stop_details);
    return (
      this.#roleChunk(writer) +
      (refusal === undefined ? '' : writer.delta(JSON.stringify({ refusal }))) +
      writer.finish(this.#finishReason) +
      this.#usageChunk(writer)
    );
  }

  /** At once with the stop reason, because the stream may break off before `message_stop`. */
  #usageChunk(writer: ChunkWriter): string {
    if (!this.#isUsageDue) return '';
    this.#isUsageDue = false;
    return writer.usage(this.#usage.usage!);
  }

  /** The last chunks: usage, if it came after the stop reason, and [DONE]. */
  #lastChunks(): string {
    if (this.#finishReason === undefined) throw ProviderError.invalid('the stream ended before its end');
    this.#hasEnded = true;
    const writer = this.#openWriter();
    return this.#usageChunk(writer) + writer.done();
  }
}

function thinkingChunk(writer: ChunkWriter, block: Record<string, unknown>): string {
  return writer.delta(JSON.stringify({ thinking_blocks: [block] }));
}

/**
 * The arguments of a tool call that begins, as JSON text. Anthropic itself sends an empty object; compatible
 * servers may send all arguments there. `data`: the event, of which long integers keep their digits.
 */
function argumentsIn({ input }: Record<string, unknown>, data: string): string {
  if (!isRecord(input) || Object.keys(input).length === 0) return '{}';
  const { content_block: block } = membersOf(exactJson(data));
  return exactJsonText(membersOf(block).input);
}
