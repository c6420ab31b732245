/**
 * Translates a response of Converse into a chat completion. bedrock.ts calls `readResponse`; stream.ts uses
 * the functions that read stop reasons, usage and thinking. Pure; upstream worker.
 *
 * Follows Amazon Bedrock API Reference, "Converse" (response syntax) and "TokenUsage", 2026-11.
 *
 * Must hold: the prompt tokens include those read from and written to the cache, because the charge is
 * computed from the sum (test/unit/providers/bedrock/stream.test.ts). The fast path (`textResponse`) returns
 * what `anyResponse` would return (test/unit/providers/bedrock/plain-body.test.ts).
 */
import { exactJson, exactJsonText } from '../../core/exact-json.js';
import { isRecord } from '../../core/json.js';
import {
  completionOf,
  textCompletionOf,
  type CompletionText,
  type EscapedText,
  type FinishReason,
} from '../chat-writer.js';
import { ProviderError, type UnsignedCall } from '../provider.js';
import { countIn, sumOfCounts, type ProviderUsage } from '../provider-usage.js';
import { publicName } from './models.js';
import { responseToolOf } from './tools.js';

const FINISH_REASONS: ReadonlyMap<string, FinishReason> = new Map<string, FinishReason>([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['tool_use', 'tool_calls'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['guardrail_intervened', 'content_filter'],
  ['content_filtered', 'content_filter'],
  // OpenAI has no such reason. The caller gets what the model wrote until then.
  ['malformed_model_output', 'stop'],
  ['malformed_tool_use', 'stop'],
]);

/**
 * Returns the finish reason. Between `stop` and `tool_calls` the calls decide and not `stopReason`, because
 * some models end a turn with calls by `end_turn`. An unknown reason counts as `end_turn`.
 */
export function finishOf(
  stopReason: unknown,
  { hasToolCalls }: { readonly hasToolCalls: boolean },
): FinishReason {
  const finish = FINISH_REASONS.get(String(stopReason)) ?? 'stop';
  if (finish === 'stop' || finish === 'tool_calls') return hasToolCalls ? 'tool_calls' : 'stop';
  return finish;
}

/**
 * Undefined if none was reported. `usage`: Converse's, whose `inputTokens` excludes the cache. `modelFields`:
 * `additionalModelResponseFields`, with the thinking tokens if request.ts has asked for them.
 */
export function usageOf(usage: unknown, modelFields: unknown): ProviderUsage | undefined {
  if (!isRecord(usage)) return undefined;
  const cached = countIn(usage.cacheReadInputTokens);
  const cacheWrite = countIn(usage.cacheWriteInputTokens);
  const output = countIn(usage.outputTokens);
  let cacheWrite1h = 0;
  if (Array.isArray(usage.cacheDetails)) {
    for (const detail of usage.cacheDetails as readonly unknown[]) {
      if (isRecord(detail) && detail.ttl === '1h')
        cacheWrite1h = sumOfCounts(cacheWrite1h, countIn(detail.inputTokens));
    }
  }
  const claudeUsage = isRecord(modelFields) ? modelFields.usage : undefined;
  const details = isRecord(claudeUsage) ? claudeUsage.output_tokens_details : undefined;
  // Each `Math.min` lowers a part to its whole. Otherwise upstream/usage-shapes.ts would discard a usage with
  // more 1-hour writes than writes, and would add reasoning that exceeds the output to the output.
  // Each member is written out: spreading an object of zeros would take longer than all else here.
  return {
    promptTokens: sumOfCounts(countIn(usage.inputTokens), cached, cacheWrite),
    cachedTokens: cached,
    cacheWriteTokens: cacheWrite,
    cacheWrite1hTokens: Math.min(cacheWrite1h, cacheWrite),
    completionTokens: output,
    reasoningTokens: Math.min(isRecord(details) ? countIn(details.thinking_tokens) : 0, output),
    audioPromptTokens: 0,
    imagePromptTokens: 0,
    audioCompletionTokens: 0,
  };
}

export type ThinkingBlock =
  | { readonly type: 'thinking'; readonly thinking: string; readonly signature: string }
  | { readonly type: 'redacted_thinking'; readonly data: string };

/** Thinking that Claude has encrypted, in Claude's own form, which Converse encodes in base64 once more. */
export function redactedBlock(content: string): ThinkingBlock {
  return { type: 'redacted_thinking', data: Buffer.from(content, 'base64').toString('latin1') };
}

/** Translates the body of a 200. Throws a ProviderError if that is no response of Converse. */
export function readResponse(body: Buffer, call: UnsignedCall): CompletionText {
  const json = body.toString('utf8');
  return textResponse(json, call) ?? anyResponse(json, call);
}

/** The inside of a JSON string. */
const STRING_INSIDE = String.raw`[^"\\\0-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\0-\x1f]*)*`;
const NUMBER = String.raw`(?:0|[1-9]\d{0,8})`;
const METRICS = String.raw`"metrics":\{"latencyMs":${NUMBER}\}`;
const COUNT = String.raw`"\w+":(?:${NUMBER}|\{\})`;
/**
 * A response of one text, as Bedrock writes nearly all: to match it takes a fifth of the time of a parse. It
 * matches no number of more than nine digits, so that all are exact. `{}` in the usage is the value of
 * `serverToolUsage`.
 */
const TEXT_RESPONSE = new RegExp(
  String.raw`^\{(?:${METRICS},)?"output":\{"message":\{(?:"role":"assistant",)?` +
    String.raw`"content":\[\{"text":"(${STRING_INSIDE})"\}\](?:,"role":"assistant")?\}\},` +
    String.raw`"stopReason":"(\w+)","usage":(\{${COUNT}(?:,${COUNT})*\})(?:,${METRICS})?\}$`,
);
/** A longer response is parsed, because many escapes would take much memory to match. */
const MATCHED_CHARS_MAX = 16 * 1024;

/** The fast path; undefined if TEXT_RESPONSE does not match. Exported for its test, as `anyResponse` is. */
export function textResponse(json: string, call: UnsignedCall): CompletionText | undefined {
  const match = json.length <= MATCHED_CHARS_MAX ? TEXT_RESPONSE.exec(json) : null;
  if (match === null) return undefined;
  const [, escapedText, stopReason, usage] = match;
  const head = headOf(call, usageOf(JSON.parse(usage!), undefined));
  return textCompletionOf(head, escapedText as EscapedText, finishOf(stopReason, { hasToolCalls: false }));
}

/** Reads any response of Converse. Throws a ProviderError. */
export function anyResponse(json: string, call: UnsignedCall): CompletionText {
  // Only inputs of tools need their long integers: a response without `toolUse` is parsed the quicker way.
  const response = exactJson(json, 'toolUse');
  const output = isRecord(response) ? response.output : undefined;
  const message = isRecord(output) ? output.message : undefined;
  const content = isRecord(message) ? message.content : undefined;
  if (!isRecord(response) || !Array.isArray(content)) throw ProviderError.invalid('no message');
  const translated = messageOf(content, responseToolOf(call));
  const { stopReason, usage, additionalModelResponseFields } = response;
  return completionOf({
    ...headOf(call, usageOf(usage, additionalModelResponseFields)),
    choices: [{ index: 0, message: translated.message, finishReason: finishOf(stopReason, translated) }],
  });
}

function headOf(call: UnsignedCall, usage: ProviderUsage | undefined) {
  return {
    id: `chatcmpl-${call.requestId}`,
    created: Math.floor(call.nowMs / 1000),
    model: publicName(call.model),
    usage,
  };
}

/** Id and name of a tool call. Throws a ProviderError without one: a client could not answer the call. */
export function calledToolOf({ toolUseId: id, name }: Record<string, unknown>): {
  readonly id: string;
  readonly name: string;
} {
  if (typeof id !== 'string' || typeof name !== 'string')
    throw ProviderError.invalid('a tool call has no name or id');
  return { id, name };
}

interface TranslatedMessage {
  readonly message: Record<string, unknown>;
  readonly hasToolCalls: boolean;
}

/**
 * `responseTool`: the tool whose input is the content, if there is one. Blocks for which OpenAI's protocol
 * has no member, such as images and results of Bedrock's own tools, are left out. Throws a ProviderError.
 */
function messageOf(content: readonly unknown[], responseTool: string | undefined): TranslatedMessage {
  let text: string | undefined;
  let reasoning: string | undefined;
  const thinking: ThinkingBlock[] = [];
  const toolCalls: unknown[] = [];
  for (const block of content) {
    if (!isRecord(block)) throw ProviderError.invalid('a block is no object');
    const { toolUse, reasoningContent, citationsContent } = block;
    if (typeof block.text === 'string') text = (text ?? '') + block.text;
    else if (isRecord(toolUse)) {
      const { input } = toolUse;
      // Bedrock itself ran the tool, so the caller does not see the call.
      if (toolUse.type === 'server_tool_use') continue;
      const { id, name } = calledToolOf(toolUse);
      const json = exactJsonText(input ?? {});
      if (responseTool !== undefined && name === responseTool) text = (text ?? '') + json;
      else toolCalls.push({ id, type: 'function', function: { name, arguments: json } });
    } else if (isRecord(reasoningContent)) {
      const { reasoningText, redactedContent } = reasoningContent;
      if (typeof redactedContent === 'string') thinking.push(redactedBlock(redactedContent));
      else if (isRecord(reasoningText) && typeof reasoningText.text === 'string') {
        const { text: thought, signature } = reasoningText;
        reasoning = (reasoning ?? '') + thought;
        if (typeof signature === 'string') thinking.push({ type: 'thinking', thinking: thought, signature });
      }
    } else if (isRecord(citationsContent) && Array.isArray(citationsContent.content)) {
      for (const part of citationsContent.content as readonly unknown[]) {
        if (isRecord(part) && typeof part.text === 'string') text = (text ?? '') + part.text;
      }
    }
  }
  const hasToolCalls = toolCalls.length > 0;
  const message: Record<string, unknown> = { role: 'assistant', content: text ?? (hasToolCalls ? null : '') };
  if (reasoning !== undefined) message.reasoning_content = reasoning;
  if (thinking.length > 0) message.thinking_blocks = thinking;
  if (hasToolCalls) message.tool_calls = toolCalls;
  return { message, hasToolCalls };
}
