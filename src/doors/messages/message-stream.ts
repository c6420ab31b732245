/**
 * A chat completion as a response of Anthropic's Messages API (`fromChat`), and its chunks as a stream.
 * messages-dialect.ts calls `fromChat` once a call, or makes a writer for each stream. Upstream worker.
 *
 *     message_start, ping → (content_block_start → content_block_delta … → content_block_stop) …
 *       → message_delta → message_stop
 *
 * Must hold: one block is open at a time, and blocks are numbered without gaps, because clients of Anthropic
 * rely on both; `message_start` has the usage of the first chunk, if the upstream reports it there, else
 * zeros; `message_delta` has the whole usage (test/unit/doors/messages/messages-dialect.test.ts).
 */
import { exactJson, exactJsonText } from '../../core/exact-json.js';
import { isRecord, type Members } from '../../core/json.js';
import { ProviderError } from '../../providers/provider.js';
import type { DoorCall, DoorStream } from '../door.js';
import {
  textOf,
  thoughtsOf,
  addPiece,
  canBegin,
  isOtherCall,
  pieceOf,
  type CallSoFar,
} from '../message-parts.js';

export class MessageWriter implements DoorStream {
  readonly #call: DoorCall;
  #out = '';
  #begun = false;
  /** Index of the open block, or of the next one. */
  #index = 0;
  #open: 'none' | 'text' | 'thinking' | 'tool' = 'none';
  /** All text of the open thinking block so far came in `thinking_blocks`, none in `reasoning_content`. */
  #thinksInBlocks = false;
  /** Index, in the chat completion, of the open tool call or the last one. */
  #toolIndex = -1;
  #toolCall: CallSoFar = { id: undefined, name: undefined, json: '' };
  /** The tool call is open, but its block waits until the upstream has told its name. */
  #isToolHeld = false;
  /** The ids of the tool calls before `#toolCall`, undefined for a call without one. */
  #earlierIds: (string | undefined)[] | undefined;
  #toolCount = 0;
  #finish: unknown;
  #usage: unknown;

  constructor(call: DoorCall) {
    this.#call = call;
  }

  push(chunk: Members): string {
    this.#out = '';
    if (isRecord(chunk.usage)) this.#usage = chunk.usage;
    const choices = Array.isArray(chunk.choices) ? (chunk.choices as unknown[]) : [];
    for (const choice of choices) {
      if (!isRecord(choice)) continue;
      this.#begin();
      if (isRecord(choice.delta)) this.#delta(choice.delta);
      this.#finish = choice.finish_reason ?? this.#finish;
    }
    return this.#out;
  }

  end(): string {
    this.#out = '';
    this.#begin();
    this.#close();
    const delta = { stop_reason: stopReasonOf(this.#finish, this.#toolCount > 0), stop_sequence: null };
    this.#event('message_delta', { delta, usage: usageOf(this.#usage) });
    this.#event('message_stop', {});
    return this.#out;
  }

  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    const message = {
      id: messageIdOf(this.#call),
      type: 'message',
      role: 'assistant',
      model: this.#call.model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: usageOf(this.#usage),
    };
    this.#event('message_start', { message });
    this.#event('ping', {});
  }

  #delta(delta: Members): void {
    const thoughts = thoughtsOf(delta);
    if (thoughts !== '') this.#writeThinking(thoughts);
    for (const block of thinkingBlocksIn(delta)) this.#thinkingBlock(block);
    const text = textOrRefusalOf(delta);
    if (text !== '') {
      if (this.#open !== 'text') this.#start('text', { type: 'text', text: '' });
      this.#blockDelta({ type: 'text_delta', text });
    }
    if (Array.isArray(delta.tool_calls))
      for (const call of delta.tool_calls as unknown[]) if (isRecord(call)) this.#addToolCall(call);
  }

  #writeThinking(thinking: string, isInBlocks = false): void {
    if (this.#open !== 'thinking') this.#start('thinking', { type: 'thinking', thinking: '', signature: '' });
    this.#thinksInBlocks = isInBlocks;
    this.#blockDelta({ type: 'thinking_delta', thinking });
  }

  /**
   * Writes a thinking block, or a piece of one. A signature ends it. If the open block has text of
   * `reasoning_content`, that has all of the text, and the block's own is ignored: some upstreams send both.
   * If another block came in between, the text is written again, because a signature is valid only with it.
   */
  #thinkingBlock({ type, thinking, signature, data }: Members): void {
    if (type === 'redacted_thinking') {
      // It has no deltas, and is closed at once, so its kind does not matter.
      this.#start('text', { type, data });
      this.#close();
      return;
    }
    const text = typeof thinking === 'string' ? thinking : '';
    if (this.#open !== 'thinking' || (this.#thinksInBlocks && text !== '')) this.#writeThinking(text, true);
    if (typeof signature !== 'string' || signature === '') return;
    this.#close(signature);
  }

  /**
   * Adds a piece to the open tool call, or begins the next one: by a higher index, or as `isOtherCall` says.
   * Pieces of a call whose block is closed cannot be written any more. An empty one has nothing to write,
   * unless it begins a call, whose index is too low.
   */
  #addToolCall(call: Members): void {
    const piece = pieceOf(call);
    const isOther = this.#toolIndex < 0 || isOtherCall(piece, this.#toolCall);
    const index = piece.index ?? this.#toolIndex + (isOther ? 1 : 0);
    if (index > this.#toolIndex || (index === this.#toolIndex && isOther)) {
      this.#close();
      if (this.#toolIndex >= 0) (this.#earlierIds ??= []).push(this.#toolCall.id);
      this.#toolIndex = index;
      this.#toolCall = { id: undefined, name: undefined, json: '' };
      this.#isToolHeld = true;
    } else if (index < this.#toolIndex || (this.#open !== 'tool' && !this.#isToolHeld)) {
      const { id, name, json } = piece;
      const isNew = id !== undefined && name !== undefined && !this.#isKnown(id);
      if (json === '' && !isNew) return;
      throw ProviderError.invalid(
        isNew
          ? 'the indices of tools are out of order'
          : 'a tool got arguments after the next block had begun',
      );
    }
    addPiece(this.#toolCall, piece);
    if (!this.#isToolHeld) this.#writeArguments(piece.json);
    else if (canBegin(this.#toolCall)) this.#startTool();
  }

  #isKnown(id: string): boolean {
    return id === this.#toolCall.id || this.#earlierIds?.includes(id) === true;
  }

  #startTool(): void {
    this.#isToolHeld = false;
    const { id, name = '', json } = this.#toolCall;
    const block = { type: 'tool_use', id: toolIdOf(id, this.#toolCount++, this.#call), name, input: {} };
    this.#start('tool', block);
    this.#writeArguments(json);
  }

  #writeArguments(json: string): void {
    if (json !== '') this.#blockDelta({ type: 'input_json_delta', partial_json: json });
  }

  #start(kind: 'text' | 'thinking' | 'tool', block: Members): void {
    this.#close();
    this.#open = kind;
    this.#event('content_block_start', { index: this.#index, content_block: block });
  }

  #blockDelta(delta: Members): void {
    this.#event('content_block_delta', { index: this.#index, delta });
  }

  /**
   * Closes the open block. A tool call whose block still waits for a name gets it first, without a name.
   * `signature`: of the open thinking block. The AI SDK and others drop one that got none, not even ''.
   */
  #close(signature = this.#call.thoughtsBack === true ? '' : undefined): void {
    // `#startTool` calls this again, to close the block before the tool's.
    if (this.#isToolHeld) this.#startTool();
    if (this.#open === 'none') return;
    if (this.#open === 'thinking' && signature !== undefined)
      this.#blockDelta({ type: 'signature_delta', signature });
    this.#open = 'none';
    this.#event('content_block_stop', { index: this.#index++ });
  }

  /** Arguments are pieces of JSON text here, so no number is parsed, and JSON.stringify loses no digit. */
  #event(type: string, more: Members): void {
    this.#out += `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
  }
}

const STOPS: ReadonlyMap<unknown, string> = new Map([
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
  ['content_filter', 'refusal'],
]);

/**
 * For `stop`, an unknown reason or none, `hasCalls` decides, because some servers end a message with tool
 * calls by `stop`. A chat completion does not say that a stop sequence of the caller's ended it, so that
 * reads as `end_turn`.
 */
function stopReasonOf(finish: unknown, hasCalls: boolean): string {
  return STOPS.get(finish) ?? (hasCalls ? 'tool_use' : 'end_turn');
}

/**
 * `usage` of a chat completion in Anthropic's form, whose `input_tokens` lacks the cached tokens: the inverse
 * of providers/anthropic/response.ts.
 */
function usageOf(usage: unknown): Record<string, unknown> {
  const report = isRecord(usage) ? usage : {};
  const prompt = isRecord(report.prompt_tokens_details) ? report.prompt_tokens_details : {};
  const completion = isRecord(report.completion_tokens_details) ? report.completion_tokens_details : {};
  const read = countOf(prompt.cached_tokens);
  const written = countOf(prompt.cache_write_tokens);
  const written1h = Math.min(written, countOf(prompt.cache_write_1h_tokens));
  return {
    input_tokens: Math.max(0, countOf(report.prompt_tokens) - read - written),
    cache_creation_input_tokens: written,
    cache_read_input_tokens: read,
    cache_creation: { ephemeral_5m_input_tokens: written - written1h, ephemeral_1h_input_tokens: written1h },
    output_tokens: countOf(report.completion_tokens),
    output_tokens_details: { thinking_tokens: countOf(completion.reasoning_tokens) },
  };
}

function countOf(value: unknown): number {
  return typeof value === 'number' && value > 0 ? value : 0;
}

function messageIdOf({ requestId }: DoorCall): string {
  return `msg_${requestId.replace(/^req_/, '')}`;
}

/** The id that the caller names in a tool result. `position`: among the calls of the message. */
function toolIdOf(id: unknown, position: number, call: DoorCall): string {
  return typeof id === 'string' && id !== '' ? id : `toolu_${call.requestId}_${position}`;
}

/** The text of a message or a delta, which may be a refusal instead. */
function textOrRefusalOf({ content, refusal }: Members): string {
  return textOf(content) || (typeof refusal === 'string' ? refusal : '');
}

/** The thinking blocks in a message or a delta, with their signatures. */
function thinkingBlocksIn({ thinking_blocks: blocks }: Members): readonly Members[] {
  return Array.isArray(blocks) ? (blocks as unknown[]).filter(isRecord) : [];
}

/**
 * Returns the response of a call that is not streamed, as JSON text. `response`: the chat completion. Throws
 * a ProviderError if that has no message.
 */
export function fromChat(response: Members, call: DoorCall): string {
  const choice: unknown = Array.isArray(response.choices) ? response.choices[0] : undefined;
  const message = isRecord(choice) ? choice.message : undefined;
  if (!isRecord(choice) || !isRecord(message)) throw ProviderError.invalid('no message');
  const content: Members[] = [...thinkingBlocksIn(message)];
  const thoughts = thoughtsOf(message);
  if (content.length === 0 && thoughts !== '')
    content.push({ type: 'thinking', thinking: thoughts, signature: '' });
  const text = textOrRefusalOf(message);
  if (text !== '') content.push({ type: 'text', text });
  const calls = Array.isArray(message.tool_calls) ? (message.tool_calls as unknown[]).filter(isRecord) : [];
  calls.forEach((toolCall, position) => {
    const called = isRecord(toolCall.function) ? toolCall.function : ({} as Members);
    const { name: named, arguments: given } = called;
    // As in a stream: clients rely on the member.
    const name = typeof named === 'string' ? named : '';
    // Undefined if the text is no JSON.
    const parsed = typeof given !== 'string' ? given : given.trim() === '' ? {} : exactJson(given);
    // `max_tokens` has cut the arguments. Anthropic sends such a call too, and its `stop_reason` says so.
    const input = isRecord(parsed) || choice.finish_reason !== 'length' ? parsed : {};
    if (!isRecord(input)) throw ProviderError.invalid('arguments of a tool are no JSON object');
    content.push({ type: 'tool_use', id: toolIdOf(toolCall.id, position, call), name, input });
  });
  // `input` was made by exactJson.
  return exactJsonText({
    id: messageIdOf(call),
    type: 'message',
    role: 'assistant',
    model: call.model,
    content,
    stop_reason: stopReasonOf(choice.finish_reason, calls.length > 0),
    stop_sequence: null,
    usage: usageOf(response.usage),
  });
}
