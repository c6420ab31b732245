/**
 * What one call cost: the upstream's own report where it is plausible, else a count of what was relayed. Upstream worker;
 * one meter for a call.
 */
import type { Usage } from '../protocol/usage.js';
import { isRecord } from './json-value.js';
import type { Tokenizer } from './target.js';
import type { CountRequest } from './token-count.js';
import { Transcript } from './transcript.js';

/** No call comes near; a report above it is garbage, and below it a price times tokens fits 64 bits. */
const REPORTED_TOKENS_MAX = 1_000_000_000;
/** Names are some ten characters; what is longer is not kept for a trace. */
const MODEL_CHARS_MAX = 256;

/** A usage object as an upstream reports it; undefined where it is none or cannot be true. */
export function reportedUsage(value: unknown): Usage | undefined {
  if (!isRecord(value)) return undefined;
  const {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: totalTokens,
  } = value;
  if (!isTokenCount(promptTokens) || !isTokenCount(completionTokens)) return undefined;
  if (totalTokens !== undefined && totalTokens !== null && totalTokens !== promptTokens + completionTokens)
    return undefined;
  const details = value.prompt_tokens_details;
  const cachedTokens = (isRecord(details) ? details.cached_tokens : undefined) ?? 0;
  if (!isTokenCount(cachedTokens) || cachedTokens > promptTokens) return undefined;
  return { promptTokens, cachedTokens, completionTokens, source: 'reported' };
}

function isTokenCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= REPORTED_TOKENS_MAX;
}

export class UsageMeter {
  readonly #transcript = new Transcript();
  #relayedBytes = 0;
  #answer: Buffer | undefined;
  #reported: Usage | undefined;
  #answerModel: string | undefined;
  #isReportOld = false;

  /** The last plausible report, if there was one. */
  get reported(): Usage | undefined {
    return this.#reported;
  }

  /** Text came after the report, which may know nothing of it: some providers report from the first event on. */
  get isReportOld(): boolean {
    return this.#isReportOld;
  }

  /** What the upstream calls the model, of an answer that came with a report. */
  get answerModel(): string | undefined {
    return this.#answerModel;
  }

  /**
   * Takes note of a `usage` member, and of the `model` beside it; what is not plausible is as if it had not been there, and false is
   * returned.
   */
  report(value: unknown, model?: unknown): boolean {
    if (typeof model === 'string' && model.length <= MODEL_CHARS_MAX) this.#answerModel = model;
    const usage = reportedUsage(value);
    if (usage === undefined) return false;
    this.#reported = usage;
    this.#isReportOld = false;
    return true;
  }

  /** An event without a report had text. */
  textCame(): void {
    this.#isReportOld = true;
  }

  /** Events that went to the client. Holds on to them; they must not change any more. */
  relayed(events: Uint8Array): void {
    this.#relayedBytes += events.length;
    this.#transcript.add(events);
  }

  /** The whole answer that the client gets, where it is no stream. Holds on to it. */
  answered(answer: Buffer): void {
    this.#answer = answer;
  }

  /** What the counter needs to count this call. */
  countRequest(tokenizer: Tokenizer, body: string | Uint8Array): CountRequest {
    const answer = this.#answer;
    if (answer !== undefined) {
      return {
        tokenizer,
        body,
        completionForm: 'answer',
        texts: new Map(),
        completion: answer.toString(),
        completionBytes: answer.length,
        relayedBytes: answer.length,
      };
    }
    return {
      tokenizer,
      body,
      completionForm: this.#relayedBytes === 0 ? 'none' : 'stream',
      texts: this.#transcript.texts,
      completion: this.#transcript.events().toString(),
      completionBytes: this.#transcript.keptBytes,
      relayedBytes: this.#relayedBytes,
    };
  }
}
