/**
 * Writes chat completions: one object, or the chunks of a stream. The response readers of each provider call
 * these functions. Upstream worker.
 *
 * Must hold: the hand-written JSON is what JSON.stringify would write, whatever the texts and numbers are. A
 * text that is written without escaping is an EscapedText.
 */
import { insideOfString, stringText, type Members } from '../core/json.js';
import { SSE_DONE, sseEvent } from '../protocol/sse.js';
import { usageMember, type ProviderUsage } from './provider-usage.js';

/** `function_call` is for callers that sent `functions` in place of `tools`. */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'function_call' | 'content_filter';

declare const ESCAPED: unique symbol;
/**
 * A text as the inside of a JSON string, without quotes. `escaped` makes one; the fast paths of the streams
 * cut one out of JSON text. As a type, so that no plain text gets into a chunk, whose JSON it could break.
 */
export type EscapedText = string & { readonly [ESCAPED]: true };

export function escaped(text: string): EscapedText {
  return insideOfString(text) as EscapedText;
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
      `{"index":${numberText(index)},"message":${messageText(message)},` +
      `"logprobs":${logprobs === undefined ? 'null' : JSON.stringify(logprobs)},"finish_reason":"${finishReason}"}`;
  }
  return withUsage(text, model, choices, usage);
}

/** As `completionOf`, for one choice that is a text alone. */
export function textCompletionOf(
  { id, created, model, usage }: Omit<Completion, 'choices'>,
  escapedText: EscapedText,
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
    `{"id":${stringText(id)},"object":"chat.completion","created":${numberText(created)},` +
    `"model":${stringText(model)},"choices":[`
  );
}

function numberText(value: number): string {
  return Number.isFinite(value) ? `${value}` : 'null';
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

export type TextMember = 'content' | 'reasoning_content';

const AFTER_PIECE = '"},"logprobs":null,"finish_reason":null}]}\n\n';

/**
 * Writes the chunks of one stream; each method returns the text of one event. The writer checks no order: its
 * caller begins each choice by `role`, ends each choice by `finish`, and ends the stream by `usage`, if any
 * was reported, and `done`. `index`: of the choice.
 */
export class ChunkWriter {
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

  text(plainText: string, index = 0): string {
    return this.piece('content', escaped(plainText), index);
  }

  reasoning(plainText: string, index = 0): string {
    return this.piece('reasoning_content', escaped(plainText), index);
  }

  /** As `text` and `reasoning`, for a text that is escaped already. */
  piece(member: TextMember, escapedText: EscapedText, index = 0): string {
    if (this.#member !== member || this.#index !== index) {
      this.#member = member;
      this.#index = index;
      // `join` makes one flat string; `+` makes a rope, whose parts each chunk would copy one by one.
      this.#pieceStart = ['data: ', this.#head, `{"index":${index},"delta":{"${member}":"`].join('');
    }
    return this.#pieceStart + escapedText + AFTER_PIECE;
  }

  /** The chunk that begins a tool call. `toolIndex`: position of the call in the message. */
  toolStart(toolIndex: number, id: string, name: string, index = 0): string {
    const call = { index: toolIndex, id, type: 'function', function: { name, arguments: '' } };
    return this.delta(`{"tool_calls":[${JSON.stringify(call)}]}`, index);
  }

  toolArguments(toolIndex: number, escapedJson: EscapedText, index = 0): string {
    const call = `{"index":${toolIndex},"function":{"arguments":"${escapedJson}"}}`;
    return this.delta(`{"tool_calls":[${call}]}`, index);
  }

  finish(reason: FinishReason, index = 0): string {
    return sseEvent(
      `${this.#head}{"index":${index},"delta":{},"logprobs":null,"finish_reason":"${reason}"}]}`,
    );
  }

  usage(usage: ProviderUsage): string {
    return sseEvent(`${this.#head}],"usage":${JSON.stringify(usageMember(usage))}}`);
  }

  done(): string {
    return SSE_DONE;
  }
}
