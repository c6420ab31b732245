/**
 * Translates a response of Anthropic's Messages API that is not streamed into a chat completion. anthropic.ts
 * calls `readMessage`, and so does vertex/vertex.ts for Claude models. stream.ts uses the functions that read
 * usage and stop reason; upstream/usage-shapes.ts uses MessageUsage. Pure; upstream worker.
 *
 * Follows platform.claude.com, pages "Messages", "Stop reasons" and "Prompt caching", 2026-11.
 * Blocks of other types, which only tools that Anthropic runs produce, and citations, which no request asks
 * for, are left out.
 *
 * Must hold: `promptTokens` includes tokens read from and written to the cache. Anthropic's `input_tokens`
 * excludes them, and the charge is computed from the sum (test/unit/providers/anthropic/response.test.ts).
 * doors/messages/from-chat.ts writes such usage from `promptTokens`: a change of MessageUsage needs a
 * change there.
 */
import { exactJson, exactJsonText } from '../../core/exact-json.js';
import { isGiven, isRecord } from '../../core/json.js';
import { completionOf, type CompletionText, type FinishReason } from '../chat-writer.js';
import { ProviderError, type UnsignedCall } from '../provider.js';
import { countIn, sumOfCounts, type ProviderUsage } from '../provider-usage.js';
import { failureOf } from './errors.js';
import { responseToolOf, callsFunctions } from './tools.js';

interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: string };
}

const FINISH_REASONS: ReadonlyMap<unknown, FinishReason> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  // Comes only with a tool that Anthropic runs, which no request has.
  ['pause_turn', 'stop'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['tool_use', 'tool_calls'],
  ['refusal', 'content_filter'],
]);

/** `hasCalls`: the response calls tools of the caller. */
export function finishOf(stop: unknown, { hasCalls }: { readonly hasCalls: boolean }): FinishReason {
  const finish = FINISH_REASONS.get(stop) ?? 'stop';
  // If no tool of the caller is called, the response tool is, whose arguments are the content.
  return finish === 'tool_calls' && !hasCalls ? 'stop' : finish;
}

/** `details`: the member `stop_details`. */
export function refusalOf(details: unknown): string | undefined {
  return isRecord(details) && typeof details.explanation === 'string' ? details.explanation : undefined;
}

/** Translates the body of a 200. Throws a ProviderError if it is no Messages response, or an error. */
export function readMessage(body: Buffer, call: UnsignedCall): CompletionText {
  const message = exactJson(body.toString(), 'tool_use');
  if (!isRecord(message)) throw ProviderError.invalid('no JSON object');
  if (message.type === 'error') throw new ProviderError(failureOf(message.error, 500));
  if (!Array.isArray(message.content)) throw ProviderError.invalid('no content');
  const { content, reasoning, thinkingBlocks, calls } = readBlocks(message.content, responseToolOf(call));
  const refusal = refusalOf(message.stop_details);
  const finish = finishOf(message.stop_reason, { hasCalls: calls.length > 0 });
  // The caller used `functions`, so it gets the older member `function_call`.
  const isFunctionCall = calls.length > 0 && callsFunctions(call);
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
          ...(thinkingBlocks.length > 0 && { thinking_blocks: thinkingBlocks }),
          ...(isFunctionCall
            ? { function_call: calls[0]!.function }
            : calls.length > 0 && { tool_calls: calls }),
        },
        finishReason: isFunctionCall && finish === 'tool_calls' ? 'function_call' : finish,
      },
    ],
    usage: new MessageUsage().add(message.usage).usage,
  });
}

interface ReadContent {
  /** Undefined without a text block and without a call of the response's tool. */
  content: string | undefined;
  reasoning: string | undefined;
  readonly thinkingBlocks: unknown[];
  readonly calls: ToolCall[];
}

/** `responseTool`: the tool whose arguments are the content, if there is one. Throws a ProviderError. */
function readBlocks(blocks: readonly unknown[], responseTool: string | undefined): ReadContent {
  const result: ReadContent = { content: undefined, reasoning: undefined, thinkingBlocks: [], calls: [] };
  for (const block of blocks) {
    if (!isRecord(block)) throw ProviderError.invalid('a block is no object');
    switch (block.type) {
      case 'text':
        result.content = (result.content ?? '') + textOf(block.text);
        break;
      case 'thinking': {
        const { thinking, signature } = block;
        result.reasoning = (result.reasoning ?? '') + textOf(thinking);
        result.thinkingBlocks.push({ type: 'thinking', thinking, signature });
        break;
      }
      case 'redacted_thinking':
        result.thinkingBlocks.push({ type: 'redacted_thinking', data: block.data });
        break;
      case 'tool_use': {
        const input = exactJsonText(block.input ?? {});
        const name = textOf(block.name);
        if (name === responseTool) result.content = (result.content ?? '') + input;
        else {
          const calledFunction = { name, arguments: input };
          result.calls.push({ id: textOf(block.id), type: 'function', function: calledFunction });
        }
        break;
      }
      default:
    }
  }
  return result;
}

/** The value itself if it is a string, else throws a ProviderError. */
export function textOf(text: unknown): string {
  if (typeof text !== 'string') throw ProviderError.invalid('a text is no string');
  return text;
}

/** Made up if Anthropic gave none. */
export function idOf(id: unknown, call: UnsignedCall): string {
  return typeof id === 'string' && id !== '' ? id : `chatcmpl-${call.requestId}`;
}

/**
 * Anthropic's usage, in one report or two: a stream reports the prompt at its start and all tokens at its
 * end. Counts are cumulative, so a later count replaces an earlier one.
 */
export class MessageUsage {
  #isReported = false;
  #uncachedTokens = 0;
  #cachedTokens = 0;
  #cacheWriteTokens = 0;
  #cacheWrite1hTokens = 0;
  #outputTokens = 0;
  #thinkingTokens = 0;

  /** Adds a report; any value but an object is ignored. Returns this object. */
  add(usage: unknown): this {
    if (!isRecord(usage)) return this;
    this.#isReported = true;
    this.#uncachedTokens = countOf(usage.input_tokens, this.#uncachedTokens);
    this.#cachedTokens = countOf(usage.cache_read_input_tokens, this.#cachedTokens);
    this.#cacheWriteTokens = countOf(usage.cache_creation_input_tokens, this.#cacheWriteTokens);
    this.#outputTokens = countOf(usage.output_tokens, this.#outputTokens);
    if (isRecord(usage.cache_creation))
      this.#cacheWrite1hTokens = countOf(
        usage.cache_creation.ephemeral_1h_input_tokens,
        this.#cacheWrite1hTokens,
      );
    if (isRecord(usage.output_tokens_details))
      this.#thinkingTokens = countOf(usage.output_tokens_details.thinking_tokens, this.#thinkingTokens);
    return this;
  }

  get usage(): ProviderUsage | undefined {
    if (!this.#isReported) return undefined;
    return {
      promptTokens: sumOfCounts(this.#uncachedTokens, this.#cachedTokens, this.#cacheWriteTokens),
      cachedTokens: this.#cachedTokens,
      cacheWriteTokens: this.#cacheWriteTokens,
      cacheWrite1hTokens: Math.min(this.#cacheWriteTokens, this.#cacheWrite1hTokens),
      completionTokens: this.#outputTokens,
      reasoningTokens: Math.min(this.#outputTokens, this.#thinkingTokens),
      audioPromptTokens: 0,
      imagePromptTokens: 0,
      audioCompletionTokens: 0,
    };
  }
}

/**
 * The report without the tokens of the output: `message_start` has one or two `output_tokens`, which say
 * nothing of the response.
 */
export function promptReportOf(usage: unknown): unknown {
  return isRecord(usage) ? { ...usage, output_tokens: null, output_tokens_details: null } : usage;
}

function countOf(count: unknown, earlier: number): number {
  return isGiven(count) ? countIn(count) : earlier;
}
