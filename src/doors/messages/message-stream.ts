/**
 * Translates the chunks of a chat completion into a stream of Anthropic's Messages API. messages-dialect.ts
 * makes a MessageWriter for each stream; upstream/door-call.ts calls `push` and `end` (DoorStream in
 * door.ts). from-chat.ts is for responses that are not streamed. Upstream worker.
 *
 *     message_start, ping → (content_block_start → content_block_delta … → content_block_stop) …
 *       → message_delta → message_stop
 *
 * Must hold: one block is open at a time, and blocks are numbered without gaps: clients of Anthropic rely on
 * that. `message_start` has the usage of the first chunk, if the upstream reports any there, else zeros.
 * `message_delta` has the whole usage (test/unit/doors/messages/messages-dialect.test.ts).
 */
import { isRecord, type Members } from '../../core/json.js';
import { sseEvent } from '../../protocol/sse.js';
import { ProviderError } from '../../providers/provider.js';
import type { DoorCall, DoorStream } from '../door.js';
import { finishReasonAfter } from '../finish-reason.js';
import { thoughtsOf } from '../message-parts.js';
import {
  addPiece,
  beginsOtherToolCall,
  canSendToolCall,
  toolCallPieceOf,
  type ToolCallSoFar,
} from '../tool-call-pieces.js';
import {
  hasRefusal,
  messageIdOf,
  stopReasonOf,
  textOrRefusalOf,
  thinkingBlocksIn,
  toolIdOf,
  usageOf,
} from './from-chat.js';

export class MessageWriter implements DoorStream {
  readonly #call: DoorCall;
  /** The events that `push` or `end` will return. The private methods append to this text. */
  #events = '';
  #hasBegun = false;
  /** Index of the open block; if none is open, of the next block. */
  #blockIndex = 0;
  #openKind: 'none' | 'text' | 'thinking' | 'tool' = 'none';
  /** Whether the text of the open thinking block came in `thinking_blocks`, not in `reasoning_content`. */
  #isThinkingFromBlocks = false;
  /** Index, in the chat completion, of `#toolCall`; -1 before the first tool call. */
  #toolIndex = -1;
  #toolCall: ToolCallSoFar = { id: undefined, name: undefined, json: '' };
  /** Whether the tool call is open, while its block waits for `canSendToolCall`. */
  #isToolPending = false;
  /** The ids of the tool calls before `#toolCall`; an entry is undefined for a call without an id. */
  #earlierIds: (string | undefined)[] | undefined;
  #toolCount = 0;
  #isRefusal = false;
  #finishReason: unknown;
  #usage: unknown;

  constructor(call: DoorCall) {
    this.#call = call;
  }

  push(chunk: Members): string {
    this.#events = '';
    if (isRecord(chunk.usage)) this.#usage = chunk.usage;
    const choices = Array.isArray(chunk.choices) ? (chunk.choices as unknown[]) : [];
    for (const choice of choices) {
      if (!isRecord(choice)) continue;
      this.#beginMessage();
      if (isRecord(choice.delta)) this.#writeDelta(choice.delta);
      this.#finishReason = finishReasonAfter(choice, this.#finishReason);
    }
    return this.#events;
  }

  end(): string {
    this.#events = '';
    this.#beginMessage();
    this.#closeBlock();
    const reason = stopReasonOf(this.#finishReason, this.#toolCount > 0, this.#isRefusal);
    const delta = { stop_reason: reason, stop_sequence: null };
    this.#writeEvent('message_delta', { delta, usage: usageOf(this.#usage) });
    this.#writeEvent('message_stop', {});
    return this.#events;
  }

  #beginMessage(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
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
    this.#writeEvent('message_start', { message });
    this.#writeEvent('ping', {});
  }

  #writeDelta(delta: Members): void {
    const thoughts = thoughtsOf(delta);
    if (thoughts !== '') this.#writeThinking(thoughts, 'reasoning_content');
    for (const block of thinkingBlocksIn(delta)) this.#writeThinkingBlock(block);
    this.#isRefusal ||= hasRefusal(delta);
    const text = textOrRefusalOf(delta);
    if (text !== '') {
      if (this.#openKind !== 'text') this.#startBlock('text', { type: 'text', text: '' });
      this.#writeBlockDelta({ type: 'text_delta', text });
    }
    if (Array.isArray(delta.tool_calls))
      for (const piece of delta.tool_calls as unknown[]) if (isRecord(piece)) this.#addToolCall(piece);
  }

  #writeThinking(thinking: string, member: 'reasoning_content' | 'thinking_blocks'): void {
    if (this.#openKind !== 'thinking')
      this.#startBlock('thinking', { type: 'thinking', thinking: '', signature: '' });
    this.#isThinkingFromBlocks = member === 'thinking_blocks';
    this.#writeBlockDelta({ type: 'thinking_delta', thinking });
  }

  /**
   * A signature ends the block. If the open block has its text from `reasoning_content`, the text in the
   * piece is the same and is ignored: some upstreams send both. If another block came in between, the text
   * is written again: a signature is valid only with its text.
   */
  #writeThinkingBlock({ type, thinking, signature, data }: Members): void {
    if (type === 'redacted_thinking') {
      // `text`, though the kind does not matter: the block has no deltas, and is closed at once.
      this.#startBlock('text', { type, data });
      this.#closeBlock();
      return;
    }
    const text = typeof thinking === 'string' ? thinking : '';
    if (this.#openKind !== 'thinking' || (this.#isThinkingFromBlocks && text !== ''))
      this.#writeThinking(text, 'thinking_blocks');
    if (typeof signature !== 'string' || signature === '') return;
    this.#closeBlock(signature);
  }

  /**
   * Adds a piece to the open tool call, or begins the next one: at a higher index, or if
   * `beginsOtherToolCall` says so. Throws a ProviderError as `#checkClosedCallPiece` does.
   */
  #addToolCall(toolCallPiece: Members): void {
    const piece = toolCallPieceOf(toolCallPiece);
    const isOther = this.#toolIndex < 0 || beginsOtherToolCall(piece, this.#toolCall);
    const index = piece.index ?? this.#toolIndex + (isOther ? 1 : 0);
    if (index > this.#toolIndex || (index === this.#toolIndex && isOther)) this.#beginToolCall(index);
    else if (index < this.#toolIndex || (this.#openKind !== 'tool' && !this.#isToolPending)) {
      this.#checkClosedCallPiece(piece);
      return;
    }
    addPiece(this.#toolCall, piece);
    if (!this.#isToolPending) this.#writeArguments(piece.json);
    else if (canSendToolCall(this.#toolCall)) this.#startToolBlock();
  }

  #beginToolCall(index: number): void {
    this.#closeBlock();
    if (this.#toolIndex >= 0) (this.#earlierIds ??= []).push(this.#toolCall.id);
    this.#toolIndex = index;
    this.#toolCall = { id: undefined, name: undefined, json: '' };
    this.#isToolPending = true;
  }

  /**
   * Throws a ProviderError for arguments of a call whose block is closed, because they cannot be written any
   * more, and for a new call at an index that is too low. Ignores an empty piece of a closed call.
   */
  #checkClosedCallPiece({ id, name, json }: Readonly<ToolCallSoFar>): void {
    const isIdOfCall = id === this.#toolCall.id || this.#earlierIds?.includes(id) === true;
    if (id !== undefined && name !== undefined && !isIdOfCall)
      throw ProviderError.invalid('the indices of tools are out of order');
    if (json !== '') throw ProviderError.invalid('a tool got arguments after the next block had begun');
  }

  #startToolBlock(): void {
    this.#isToolPending = false;
    const { id, name = '', json } = this.#toolCall;
    const block = { type: 'tool_use', id: toolIdOf(id, this.#toolCount++, this.#call), name, input: {} };
    this.#startBlock('tool', block);
    this.#writeArguments(json);
  }

  #writeArguments(json: string): void {
    if (json !== '') this.#writeBlockDelta({ type: 'input_json_delta', partial_json: json });
  }

  #startBlock(kind: 'text' | 'thinking' | 'tool', block: Members): void {
    this.#closeBlock();
    this.#openKind = kind;
    this.#writeEvent('content_block_start', { index: this.#blockIndex, content_block: block });
  }

  #writeBlockDelta(delta: Members): void {
    this.#writeEvent('content_block_delta', { index: this.#blockIndex, delta });
  }

  /**
   * A pending tool call first gets its block, without a name if none has come. `signature`: of the open
   * thinking block. If the provider has given none, but wants its thoughts back, it is empty: clients such as
   * the AI SDK drop a block without a signature, but not one with ''.
   */
  #closeBlock(signature = this.#call.thoughtsBack === true ? '' : undefined): void {
    // `#startToolBlock` calls this method again, to close the block before the tool's block.
    if (this.#isToolPending) this.#startToolBlock();
    if (this.#openKind === 'none') return;
    if (this.#openKind === 'thinking' && signature !== undefined)
      this.#writeBlockDelta({ type: 'signature_delta', signature });
    this.#openKind = 'none';
    this.#writeEvent('content_block_stop', { index: this.#blockIndex++ });
  }

  /** By JSON.stringify: arguments are pieces of JSON text here, so no digit of their numbers changes. */
  #writeEvent(type: string, members: Members): void {
    this.#events += sseEvent(JSON.stringify({ type, ...members }), type);
  }
}
