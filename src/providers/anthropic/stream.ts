/**
 * A stream of Anthropic's Messages API, translated into the events of a chat completion. anthropic.ts makes
 * one reader for each stream, and vertex/ for its Claude models. Upstream worker.
 *
 * Follows platform.claude.com, page "Streaming messages", 2026-11:
 *
 *     message_start          id, model, usage of the prompt
 *     content_block_start    a tool call begins; redacted thinking is whole here
 *     content_block_delta    text_delta, thinking_delta, input_json_delta; signature_delta, once at the end
 *                            of a block of thinking
 *     content_block_stop     a call that got no arguments gets an empty object
 *     message_delta          the stop reason, and the usage of the whole call
 *     message_stop           the end
 *     error                  as the body of a response with an error's status
 *     ping, unknown types    ignored: "new event types may be added, handle unknown ones gracefully"
 *
 * Must hold: nothing is returned before the first block begins. After an error before that, the call can
 * still fail over to another upstream (test/unit/providers/anthropic/stream.test.ts).
 */
import { isRecord, parsedJson } from '../../core/json.js';
import { forEachEvent, SseSplitter } from '../../protocol/sse.js';
import { ChunkWriter, type FinishReason, type ProviderUsage } from '../chat-writer.js';
import { ProviderError, type UnsignedCall, type ProviderStream } from '../provider.js';
import { failureOf } from './errors.js';
import { finishOf, idOf, MessageUsage, promptReportOf, refusalOf, textOf } from './response.js';
import { responseToolOf, callsFunctions } from './tools.js';

/**
 * `content`: a call of the response's tool, whose arguments are the content; `tool`: one of a caller's tool.
 */
type BlockKind = 'content' | 'tool' | 'other';

/**
 * The fast path: nearly every event of a stream has this form, padding included. The text is the inside of a
 * JSON string and is copied without decoding; any other form is parsed.
 */
const PIECE =
  /event: content_block_delta\ndata: \{"type": ?"content_block_delta", ?"index": ?\d+, ?"delta": ?\{"type": ?"(text|thinking|input_json)_delta", ?"(?:text|thinking|partial_json)": ?"([^"\\\0-\x1f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\0-\x1f]*)*)" *\} *\}\n\n/y;

export class MessageStream implements ProviderStream {
  readonly #call: UnsignedCall;
  /** The tool whose arguments are the content; undefined if there is none. */
  readonly #responseTool: string | undefined;
  readonly #legacy: boolean;
  readonly #splitter = new SseSplitter();
  readonly #usage = new MessageUsage();
  /** `message_delta` has brought the usage of the whole call. */
  #isUsageWhole = false;
  #writer: ChunkWriter | undefined;
  #begun = false;
  /** Kind of the open block. Blocks follow each other, so one is open at a time. */
  #kind: BlockKind = 'other';
  /** Whether the open tool call has got some arguments. */
  #hasInput = false;
  /** Position of the open tool call among the calls; -1 before the first. */
  #tool = -1;
  #finish: FinishReason | undefined;
  #over = false;

  constructor(call: UnsignedCall) {
    this.#call = call;
    this.#responseTool = responseToolOf(call);
    this.#legacy = callsFunctions(call);
  }

  get usageSoFar(): ProviderUsage | undefined {
    return this.#usage.usage;
  }

  push(chunk: Uint8Array): string {
    const events = this.#splitter.push(chunk);
    if (events === undefined) throw ProviderError.invalid('an event is too long');
    return events.length === 0 ? '' : this.#translate(events);
  }

  end(): string {
    const rest = this.#splitter.end();
    const text = rest.length === 0 ? '' : this.#translate(rest);
    if (this.#over) return text;
    if (this.#finish === undefined) throw ProviderError.invalid('the stream ended before its end');
    return text + this.#end();
  }

  /** Returns the chunks for whole events. */
  #translate(events: Buffer): string {
    const text = events.toString();
    const isPlain = !text.includes('\r');
    let written = '';
    for (let at = 0; at < text.length && !this.#over;) {
      PIECE.lastIndex = at;
      const piece = isPlain && this.#begun ? PIECE.exec(text) : null;
      if (piece !== null) {
        written += this.#piece(piece[1]!, piece[2]!);
        at = PIECE.lastIndex;
        continue;
      }
      const blank = isPlain ? text.indexOf('\n\n', at) : -1;
      const end = blank < 0 ? text.length : blank + 2;
      forEachEvent(Buffer.from(text.slice(at, end)), (_start, _end, data) => {
        if (data !== undefined && data !== '' && !this.#over) written += this.#event(data);
      });
      at = end;
    }
    return written;
  }

  #event(data: string): string {
    const event = parsedJson(data);
    if (!isRecord(event)) throw ProviderError.invalid('an event is no JSON object');
    switch (event.type) {
      case 'content_block_delta':
        return isRecord(event.delta) ? this.#delta(event.delta) : '';
      case 'content_block_start':
        return isRecord(event.content_block) ? this.#block(event.content_block) : '';
      case 'content_block_stop':
        // A tool call without arguments has sent no text for them. OpenAI's clients want an object.
        return this.#kind === 'other' || this.#hasInput ? '' : this.#piece('input_json', '{}');
      case 'message_start':
        this.#start(event.message);
        return '';
      case 'message_delta':
        return this.#messageDelta(event);
      case 'message_stop':
        return this.#end();
      case 'error':
        throw new ProviderError(failureOf(event.error, 500));
      default:
        return '';
    }
  }

  #start(message: unknown): void {
    if (!isRecord(message)) throw ProviderError.invalid('no message');
    const { id, model, usage } = message;
    this.#writer = new ChunkWriter(
      idOf(id, this.#call),
      typeof model === 'string' ? model : this.#call.model,
      Math.floor(this.#call.nowMs / 1_000),
    );
    this.#usage.with(promptReportOf(usage));
  }

  #opened(): ChunkWriter {
    if (this.#writer === undefined) throw ProviderError.invalid('no message_start');
    return this.#writer;
  }

  /** The chunk with the role, if it was not sent yet. */
  #role(writer: ChunkWriter): string {
    if (this.#begun) return '';
    this.#begun = true;
    return writer.role();
  }

  #block(block: Record<string, unknown>): string {
    const writer = this.#opened();
    const role = this.#role(writer);
    this.#kind = 'other';
    this.#hasInput = false;
    switch (block.type) {
      case 'text':
        return role + (block.text === '' ? '' : writer.text(textOf(block.text)));
      case 'thinking':
        return role + (block.thinking === '' ? '' : writer.reasoning(textOf(block.thinking)));
      case 'redacted_thinking':
        return role + thinkingChunk(writer, { type: 'redacted_thinking', data: block.data });
      case 'tool_use':
        return role + this.#toolBlock(writer, textOf(block.id), textOf(block.name));
      default:
        return role;
    }
  }

  #toolBlock(writer: ChunkWriter, id: string, name: string): string {
    this.#kind = 'content';
    if (name === this.#responseTool) return '';
    this.#kind = 'tool';
    this.#tool++;
    if (!this.#legacy) return writer.toolStart(this.#tool, id, name);
    return writer.delta(JSON.stringify({ function_call: { name, arguments: '' } }));
  }

  #delta(delta: Record<string, unknown>): string {
    switch (delta.type) {
      case 'text_delta':
        return this.#piece('text', escaped(delta.text));
      case 'thinking_delta':
        return this.#piece('thinking', escaped(delta.thinking));
      case 'input_json_delta':
        return this.#piece('input_json', escaped(delta.partial_json));
      case 'signature_delta':
        // The text went out as `reasoning_content` already, so the block has none.
        return thinkingChunk(this.#opened(), { type: 'thinking', thinking: '', signature: delta.signature });
      default:
        return '';
    }
  }

  /**
   * The chunk for a piece of the open block. `type`: of a delta, without `_delta`. `text`: the inside of a
   * JSON string.
   */
  #piece(type: string, text: string): string {
    const writer = this.#opened();
    if (type === 'text') return writer.piece('content', text);
    if (type === 'thinking') return writer.piece('reasoning_content', text);
    if (text === '' || this.#kind === 'other') return '';
    this.#hasInput = true;
    if (this.#kind === 'content') return writer.piece('content', text);
    if (this.#legacy) return writer.delta(`{"function_call":{"arguments":"${text}"}}`);
    return writer.delta(`{"tool_calls":[{"index":${this.#tool},"function":{"arguments":"${text}"}}]}`);
  }

  #messageDelta({ delta, usage }: Record<string, unknown>): string {
    this.#usage.with(usage);
    this.#isUsageWhole ||= isRecord(usage);
    if (!isRecord(delta) || typeof delta.stop_reason !== 'string') return '';
    const writer = this.#opened();
    const finish = finishOf(delta.stop_reason, this.#tool >= 0);
    this.#finish = this.#legacy && finish === 'tool_calls' ? 'function_call' : finish;
    const refusal = refusalOf(delta.stop_details);
    return (
      this.#role(writer) +
      (refusal === undefined ? '' : writer.delta(JSON.stringify({ refusal }))) +
      writer.finish(this.#finish)
    );
  }

  /** The last chunks: usage, if that of the completion was reported, and [DONE]. */
  #end(): string {
    if (this.#finish === undefined) throw ProviderError.invalid('the stream ended before its end');
    this.#over = true;
    const { usage } = this.#usage;
    const writer = this.#opened();
    return (usage === undefined || !this.#isUsageWhole ? '' : writer.usage(usage)) + writer.done();
  }
}

function thinkingChunk(writer: ChunkWriter, block: Record<string, unknown>): string {
  return writer.delta(JSON.stringify({ thinking_blocks: [block] }));
}

/** The text as the inside of a JSON string. */
function escaped(text: unknown): string {
  return JSON.stringify(textOf(text)).slice(1, -1);
}
