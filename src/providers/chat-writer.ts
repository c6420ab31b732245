/**
 * Writes chat completions: one object, or the chunks of a stream. The response readers of each provider call
 * these functions; upstream/door-call.ts calls `usageMember`. Upstream worker.
 *
 * Must hold: the hand-written JSON is what JSON.stringify would write
 * (test/unit/providers/chat-writer.test.ts). The usage members have the names that upstream/usage-shapes.ts
 * reads, or calls are billed wrongly (test/unit/providers/anthropic/response.test.ts).
 */
import type { TokenCounts } from '../core/token-counts.js';
import { insideOfString, stringText, type Members } from '../core/json.js';
import { SSE_DONE, sseEvent } from '../protocol/sse.js';

/** `function_call` is for callers that sent `functions` in place of `tools`. */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'function_call' | 'content_filter';

/**
 * Tokens of a call as the provider reports them. They may break the rules of TokenCounts, such as -1 of
 * `countIn`: upstream/usage-shapes.ts checks them. If a provider reports the cache apart from the prompt, or
 * reasoning apart from the completion, the reader of its responses adds them.
 */
export interface ProviderUsage extends TokenCounts {
  /** Parts of `promptTokens` and `completionTokens`; 0 if the provider does not say. */
  readonly audioPromptTokens: number;
  readonly imagePromptTokens: number;
  readonly audioCompletionTokens: number;
}

/**
 * A count that a provider reports: 0 if it is left out, as Google's JSON does with zeros, and -1 if it is no
 * number, so that upstream/usage-shapes.ts refuses it, as it does other negative and fractional counts.
 */
export function countIn(value: unknown): number {
  if (value === undefined || value === null) return 0;
  return typeof value === 'number' ? value : -1;
}

/**
 * The sum of counts that a provider reports apart. If one of them is no count, it is the result, so that
 * upstream/usage-shapes.ts refuses it.
 */
export function sumOfCounts(...counts: readonly number[]): number {
  let sum = 0;
  for (const count of counts) {
    if (!Number.isInteger(count) || count < 0) return count;
    sum += count;
  }
  return sum;
}

/**
 * The member `usage` of a chat completion, which upstream/usage-shapes.ts reads for the charge.
 * upstream/door-call.ts makes it again from the usage that is billed, for the translators of the doors.
 * Parts that are 0 or undefined are left out, except the usual ones.
 */
export function usageMember(usage: TokenCounts & Partial<ProviderUsage>): Record<string, unknown> {
  // OpenRouter's name, and LiteLLM's for the part that is kept for an hour.
  const promptDetails: Record<string, number> = {
    cached_tokens: usage.cachedTokens,
    cache_write_tokens: usage.cacheWriteTokens,
  };
  if (usage.cacheWrite1hTokens !== 0) promptDetails.cache_write_1h_tokens = usage.cacheWrite1hTokens;
  if (usage.audioPromptTokens) promptDetails.audio_tokens = usage.audioPromptTokens;
  if (usage.imagePromptTokens) promptDetails.image_tokens = usage.imagePromptTokens;
  const completionDetails: Record<string, number> = { reasoning_tokens: usage.reasoningTokens };
  if (usage.audioCompletionTokens) completionDetails.audio_tokens = usage.audioCompletionTokens;
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: promptDetails,
    completion_tokens_details: completionDetails,
  };
}

/** One choice of a response that is not streamed. */
export interface Choice {
  readonly index: number;
  /** The whole message, including `role`. */
  readonly message: Record<string, unknown>;
  readonly finishReason: FinishReason;
  readonly logprobs?: unknown;
}

export interface Completion {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
  readonly choices: readonly Choice[];
  /** Undefined if the provider reported none. */
  readonly usage: ProviderUsage | undefined;
}

/** A chat completion that is not streamed. */
export interface CompletionText {
  readonly text: string;
  /** What upstream/response-reader.ts reads of the members of `text`, so that nobody parses `text`. */
  readonly members: Members;
}

/** Writes the text member by member: building an object for JSON.stringify takes twice as long. */
export function completionOf({ id, created, model, choices, usage }: Completion): CompletionText {
  let text = headOf(id, created, model);
  for (let position = 0; position < choices.length; position++) {
    const { index, message, finishReason, logprobs } = choices[position]!;
    if (position > 0) text += ',';
    text +=
      `{"index":${Number.isFinite(index) ? index : 'null'},"message":${messageText(message)},` +
      `"logprobs":${logprobs === undefined ? 'null' : JSON.stringify(logprobs)},"finish_reason":"${finishReason}"}`;
  }
  return withUsage(text, model, choices, usage);
}

/** As `completionOf`, for one choice that is a text alone, escaped as the inside of a JSON string. */
export function textCompletionOf(
  { id, created, model, usage }: Omit<Completion, 'choices'>,
  escapedText: string,
  finish: FinishReason,
): CompletionText {
  const text =
    `${headOf(id, created, model)}{"index":0,"message":{"role":"assistant","content":"${escapedText}"},` +
    `"logprobs":null,"finish_reason":"${finish}"}`;
  return withUsage(text, model, ONE_CHOICE, usage);
}

/** `members.choices` of a completion of one text: the reader only looks whether there is a choice. */
const ONE_CHOICE: readonly unknown[] = Object.freeze([Object.freeze({ index: 0 })]);

function headOf(id: string, created: number, model: string): string {
  return (
    `{"id":${stringText(id)},"object":"chat.completion","created":${created},` +
    `"model":${stringText(model)},"choices":[`
  );
}

/** Adds the end of the list of choices, the usage and the end of the object to `text`. */
function withUsage(
  text: string,
  model: string,
  choices: readonly unknown[],
  usage: ProviderUsage | undefined,
): CompletionText {
  if (usage === undefined) return { text: `${text}]}`, members: { model, choices } };
  const member = usageMember(usage);
  const usageText = usageTextOf(usage, member);
  // Infinity is null in JSON. The reader of `members` must see what the caller of the gateway sees.
  const writtenUsage: unknown = usageText.includes('null') ? JSON.parse(usageText) : member;
  return { text: `${text}],"usage":${usageText}}`, members: { model, choices, usage: writtenUsage } };
}

/** A fast path for the usual message, which has only `role` and `content`. */
function messageText(message: Record<string, unknown>): string {
  const { role, content } = message;
  const isUsual = role === 'assistant' && typeof content === 'string' && Object.keys(message).length === 2;
  return isUsual ? `{"role":"assistant","content":${stringText(content)}}` : JSON.stringify(message);
}

/** A fast path for the usual members. `member`: what `usageMember` returned for `usage`. */
function usageTextOf(usage: ProviderUsage, member: Record<string, unknown>): string {
  const { promptTokens: prompt, cachedTokens: cached, cacheWriteTokens: cacheWrite } = usage;
  const { completionTokens: completion, reasoningTokens: reasoning } = usage;
  // Each by itself: -1 stands for a number that is no count, and would cancel out a 1.
  const isUsual =
    usage.cacheWrite1hTokens === 0 &&
    usage.audioPromptTokens === 0 &&
    usage.imagePromptTokens === 0 &&
    usage.audioCompletionTokens === 0;
  if (!isUsual || !Number.isSafeInteger(prompt + cached + cacheWrite + completion + reasoning))
    return JSON.stringify(member);
  return (
    `{"prompt_tokens":${prompt},"completion_tokens":${completion},"total_tokens":${prompt + completion},` +
    `"prompt_tokens_details":{"cached_tokens":${cached},"cache_write_tokens":${cacheWrite}},` +
    `"completion_tokens_details":{"reasoning_tokens":${reasoning}}}`
  );
}

/** A member of a delta that brings text. */
export type TextMember = 'content' | 'reasoning_content';

const AFTER_PIECE = '"},"logprobs":null,"finish_reason":null}]}\n\n';

/**
 * Writes the chunks of one stream; each method returns the text of one event. The writer checks no order: its
 * caller begins each choice by `role`, ends each choice by `finish`, and ends the stream by `usage`, if any
 * was reported, and `done`. `index`: of the choice.
 */
export class ChunkWriter {
  /** The start of each chunk, up to the list of choices. */
  readonly #head: string;
  /** The chunk up to its text, cached for `#member` and `#index`, which mostly stay the same. */
  #pieceStart = '';
  #member: TextMember | undefined;
  #index = 0;

  /** `created` in seconds since 1970. */
  constructor(id: string, model: string, created: number) {
    const members = JSON.stringify({ id, object: 'chat.completion.chunk', created, model });
    this.#head = `${members.slice(0, -1)},"choices":[`;
  }

  /** `delta` and `logprobs` as JSON text. */
  delta(delta: string, index = 0, logprobs = 'null'): string {
    return sseEvent(
      `${this.#head}{"index":${index},"delta":${delta},"logprobs":${logprobs},"finish_reason":null}]}`,
    );
  }

  /** The first chunk of a choice. `usage`: the counts so far, if the request asks for them in each chunk. */
  role(index = 0, usage?: ProviderUsage): string {
    const chunk = this.delta('{"role":"assistant","content":""}', index);
    return usage === undefined
      ? chunk
      : chunk.replace(/\}(\s*)$/, `,"usage":${JSON.stringify(usageMember(usage))}}$1`);
  }

  /** A chunk with a piece of the content. */
  text(plainText: string, index = 0): string {
    return this.piece('content', insideOfString(plainText), index);
  }

  /** A chunk with a piece of the thoughts. */
  reasoning(plainText: string, index = 0): string {
    return this.piece('reasoning_content', insideOfString(plainText), index);
  }

  /** As `text` and `reasoning`, for a text that is escaped already, as the inside of a JSON string. */
  piece(member: TextMember, escapedText: string, index = 0): string {
    if (this.#member !== member || this.#index !== index) {
      this.#member = member;
      this.#index = index;
      // `join` makes one flat string; `+` makes a rope, whose parts each chunk would copy one by one.
      this.#pieceStart = ['data: ', this.#head, `{"index":${index},"delta":{"${member}":"`].join('');
    }
    return this.#pieceStart + escapedText + AFTER_PIECE;
  }

  /** The chunk that begins a tool call. `toolIndex`: position of the call in the message. */
  toolStart(toolIndex: number, id: string, name: string): string {
    const call = { index: toolIndex, id, type: 'function', function: { name, arguments: '' } };
    return this.delta(`{"tool_calls":[${JSON.stringify(call)}]}`);
  }

  toolArguments(toolIndex: number, json: string): string {
    const text = JSON.stringify(json);
    return this.delta(`{"tool_calls":[{"index":${toolIndex},"function":{"arguments":${text}}}]}`);
  }

  finish(reason: FinishReason, index = 0): string {
    return sseEvent(
      `${this.#head}{"index":${index},"delta":{},"logprobs":null,"finish_reason":"${reason}"}]}`,
    );
  }

  /** The chunk with the usage, the last one before `done`. */
  usage(usage: ProviderUsage): string {
    return sseEvent(`${this.#head}],"usage":${JSON.stringify(usageMember(usage))}}`);
  }

  done(): string {
    return SSE_DONE;
  }
}
