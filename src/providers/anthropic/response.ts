/**
 * A response of Anthropic's Messages API that is not streamed, as a chat completion; and what stream.ts reads
 * in the same way: usage and stop reason. anthropic.ts calls it, and vertex/ for its Claude models. Pure;
 * upstream worker.
 *
 * Follows platform.claude.com, pages "Messages", "Stop reasons" and "Prompt caching", 2026-11.
 * Blocks of other types, which only tools that Anthropic runs produce, and citations, which no request asks
 * for, are left out.
 *
 * Must hold: `promptTokens` includes tokens read from and written to the cache. Anthropic's `input_tokens`
 * does not, and the price is taken from the sum (test/unit/providers/anthropic/response.test.ts).
 */
import { exactJson, exactJsonText } from '../../core/exact-json.js';
import { isRecord } from '../../core/json.js';
import { completionOf, type CompletionText, type FinishReason, type ProviderUsage } from '../chat-writer.js';
import { ProviderError, type UnsignedCall } from '../provider.js';
import { failureOf } from './errors.js';
import { responseToolOf, callsFunctions } from './tools.js';

interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: string };
}

const FINISH_OF: ReadonlyMap<unknown, FinishReason> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  // A turn of a tool that Anthropic runs; no request has one.
  ['pause_turn', 'stop'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['tool_use', 'tool_calls'],
  ['refusal', 'content_filter'],
]);

/** `stop`: the member `stop_reason`. `hasCalls`: whether the response calls tools of the caller. */
export function finishOf(stop: unknown, hasCalls: boolean): FinishReason {
  const finish = FINISH_OF.get(stop) ?? 'stop';
  // Without such calls only the response's tool was called, whose arguments are the content.
  return finish === 'tool_calls' && !hasCalls ? 'stop' : finish;
}

/** The explanation of a refusal, in `stop_details`; undefined if there is none. */
export function refusalOf(details: unknown): string | undefined {
  return isRecord(details) && typeof details.explanation === 'string' ? details.explanation : undefined;
}

/**
 * Translates the body of a 200. Throws a ProviderError if that is no Messages response, or reports an error.
 */
export function readMessage(body: Buffer, call: UnsignedCall): CompletionText {
  const message = exactJson(body.toString(), 'tool_use');
  if (!isRecord(message)) throw ProviderError.invalid('no JSON object');
  if (message.type === 'error') throw new ProviderError(failureOf(message.error, 500));
  if (!Array.isArray(message.content)) throw ProviderError.invalid('no content');
  const responseTool = responseToolOf(call);
  let content: string | undefined;
  let reasoning: string | undefined;
  const thinking: unknown[] = [];
  const calls: ToolCall[] = [];
  for (const block of message.content as unknown[]) {
    if (!isRecord(block)) throw ProviderError.invalid('a block is no object');
    switch (block.type) {
      case 'text':
        content = (content ?? '') + textOf(block.text);
        break;
      case 'thinking':
        reasoning = (reasoning ?? '') + textOf(block.thinking);
        thinking.push({ type: 'thinking', thinking: block.thinking, signature: block.signature });
        break;
      case 'redacted_thinking':
        thinking.push({ type: 'redacted_thinking', data: block.data });
        break;
      case 'tool_use': {
        const input = exactJsonText(block.input ?? {});
        const name = textOf(block.name);
        if (name === responseTool) content = (content ?? '') + input;
        else {
          const called = { name, arguments: input };
          calls.push({ id: textOf(block.id), type: 'function', function: called });
        }
        break;
      }
      default:
    }
  }
  const refusal = refusalOf(message.stop_details);
  const finish = finishOf(message.stop_reason, calls.length > 0);
  const legacy = calls.length > 0 && callsFunctions(call);
  return completionOf({
    id: idOf(message.id, call),
    created: Math.floor(call.nowMs / 1_000),
    model: typeof message.model === 'string' ? message.model : call.model,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: content ?? (calls.length > 0 ? null : ''),
          refusal: refusal ?? null,
          ...(reasoning !== undefined && { reasoning_content: reasoning }),
          ...(thinking.length > 0 && { thinking_blocks: thinking }),
          ...(legacy ? { function_call: calls[0]!.function } : calls.length > 0 && { tool_calls: calls }),
        },
        finish: legacy && finish === 'tool_calls' ? 'function_call' : finish,
      },
    ],
    usage: new MessageUsage().with(message.usage).usage,
  });
}

/** Throws a ProviderError for anything but a string. */
export function textOf(text: unknown): string {
  if (typeof text !== 'string') throw ProviderError.invalid('a text is no string');
  return text;
}

export function idOf(id: unknown, call: UnsignedCall): string {
  return typeof id === 'string' && id !== '' ? id : `chatcmpl-${call.requestId}`;
}

/**
 * Anthropic's usage, in one piece or two: a stream reports the prompt at its start and everything at its end.
 * Counts are cumulative, so a later one replaces an earlier one.
 */
export class MessageUsage {
  #reported = false;
  #fresh = 0;
  #read = 0;
  #written = 0;
  #written1h = 0;
  #output = 0;
  #thinking = 0;

  /** Adds a report; anything but an object is ignored. Returns itself. */
  with(usage: unknown): this {
    if (!isRecord(usage)) return this;
    this.#reported = true;
    this.#fresh = countOf(usage.input_tokens, this.#fresh);
    this.#read = countOf(usage.cache_read_input_tokens, this.#read);
    this.#written = countOf(usage.cache_creation_input_tokens, this.#written);
    this.#output = countOf(usage.output_tokens, this.#output);
    if (isRecord(usage.cache_creation))
      this.#written1h = countOf(usage.cache_creation.ephemeral_1h_input_tokens, this.#written1h);
    if (isRecord(usage.output_tokens_details))
      this.#thinking = countOf(usage.output_tokens_details.thinking_tokens, this.#thinking);
    return this;
  }

  /** Undefined if no usage was reported. */
  get usage(): ProviderUsage | undefined {
    if (!this.#reported) return undefined;
    return {
      promptTokens: this.#fresh + this.#read + this.#written,
      cachedTokens: this.#read,
      cacheWriteTokens: this.#written,
      cacheWrite1hTokens: Math.min(this.#written, this.#written1h),
      completionTokens: this.#output,
      reasoningTokens: Math.min(this.#output, this.#thinking),
      audioPromptTokens: 0,
      imagePromptTokens: 0,
      audioCompletionTokens: 0,
    };
  }
}

/**
 * A report without its output: `message_start` has an `output_tokens` of one or two, which says nothing of
 * the response.
 */
export function promptReportOf(usage: unknown): unknown {
  return isRecord(usage) ? { ...usage, output_tokens: null, output_tokens_details: null } : usage;
}

function countOf(count: unknown, before: number): number {
  return typeof count === 'number' ? count : before;
}
