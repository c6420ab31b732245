/**
 * The chunks of a chat completion, translated into a stream of the Messages API. messages-dialect.ts makes
 * one writer for each stream. Upstream worker.
 *
 *     message_start, ping → (content_block_start → content_block_delta … → content_block_stop) …
 *       → message_delta → message_stop
 *
 * Must hold: one block is open at a time, and blocks are numbered without gaps, because clients of Anthropic
 * rely on both; `message_start` has the usage of the first chunk, if the upstream reports it there, else
 * zeros; `message_delta` has the whole usage (test/unit/doors/messages/messages-dialect.test.ts).
 */
import { isRecord } from '../../core/json.js';
import { ProviderError } from '../../providers/provider.js';
import type { DoorCall, DoorStream } from '../door.js';
import {
  messageIdOf,
  stopReasonOf,
  textIn,
  thinkingBlocksIn,
  thoughtsIn,
  toolIdOf,
  usageOf,
} from './from-chat.js';

type Members = Readonly<Record<string, unknown>>;

export class MessageWriter implements DoorStream {
  readonly #call: DoorCall;
  #out = '';
  #begun = false;
  /** Index of the open block, or of the next one. */
  #index = 0;
  #open: 'none' | 'text' | 'thinking' | 'tool' = 'none';
  /** Index, in the chat completion, of the open tool call or the last one. */
  #tool = -1;
  #tools = 0;
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
    const delta = { stop_reason: stopReasonOf(this.#finish, this.#tools > 0), stop_sequence: null };
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
    const thoughts = thoughtsIn(delta);
    if (thoughts !== '') this.#writeThinking(thoughts);
    for (const block of thinkingBlocksIn(delta)) this.#thinkingBlock(block);
    const text = textIn(delta.content) || (typeof delta.refusal === 'string' ? delta.refusal : '');
    if (text !== '') {
      if (this.#open !== 'text') this.#start('text', { type: 'text', text: '' });
      this.#piece({ type: 'text_delta', text });
    }
    if (Array.isArray(delta.tool_calls))
      for (const call of delta.tool_calls as unknown[]) if (isRecord(call)) this.#toolCall(call);
  }

  #writeThinking(thinking: string): void {
    if (this.#open !== 'thinking') this.#start('thinking', { type: 'thinking', thinking: '', signature: '' });
    this.#piece({ type: 'thinking_delta', thinking });
  }

  /**
   * Writes a thinking block, whose text has mostly come before, as `reasoning_content`. A signature ends it.
   */
  #thinkingBlock({ type, thinking, signature, data }: Members): void {
    if (type === 'redacted_thinking') {
      this.#start('text', { type, data });
      this.#close();
      return;
    }
    if (this.#open !== 'thinking') this.#writeThinking(typeof thinking === 'string' ? thinking : '');
    if (typeof signature !== 'string' || signature === '') return;
    this.#piece({ type: 'signature_delta', signature });
    this.#close();
  }

  #toolCall(call: Members): void {
    const { name, arguments: json } = isRecord(call.function) ? call.function : ({} as Members);
    // Some servers send a whole call in one piece, without an index.
    const index = typeof call.index === 'number' ? call.index : this.#tool + (call.id === undefined ? 0 : 1);
    if (index > this.#tool) {
      this.#tool = index;
      const id = toolIdOf(call.id, this.#tools++, this.#call);
      this.#start('tool', { type: 'tool_use', id, name: name ?? '', input: {} });
    } else if (index < this.#tool || this.#open !== 'tool')
      throw ProviderError.invalid('a tool got arguments after the next block had begun');
    if (typeof json === 'string' && json !== '')
      this.#piece({ type: 'input_json_delta', partial_json: json });
  }

  #start(kind: 'text' | 'thinking' | 'tool', block: Members): void {
    this.#close();
    this.#open = kind;
    this.#event('content_block_start', { index: this.#index, content_block: block });
  }

  #piece(delta: Members): void {
    this.#event('content_block_delta', { index: this.#index, delta });
  }

  #close(): void {
    if (this.#open === 'none') return;
    this.#open = 'none';
    this.#event('content_block_stop', { index: this.#index++ });
  }

  #event(type: string, more: Members): void {
    this.#out += `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
  }
}
