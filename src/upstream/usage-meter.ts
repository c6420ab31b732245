/**
 * What one call cost: the upstream's own report where it is plausible, else a count of what was relayed. Upstream worker;
 * one meter for a call.
 */
import type { Usage } from '../protocol/usage.js';
import { addStreamTexts, responseTexts, type StreamTexts, Transcript } from './chat-text.js';
import type { Tokenizer } from './target.js';
import type { CountRequest } from './token-count.js';
import { tokensOfReport, type ReportedTokens, type ReportError } from './usage-shapes.js';

/** Names are some ten characters; what is longer is not kept for a trace. */
const MODEL_CHARS_MAX = 256;

export class UsageMeter {
  readonly #transcript = new Transcript();
  #relayedBytes = 0;
  #response: Buffer | undefined;
  #tokens: ReportedTokens | undefined;
  #error: ReportError | undefined;
  #responseModel: string | undefined;
  #isReportOld = false;

  /** The last report that is possible by itself, if there was one; whether it can be of this call is not asked here. */
  get tokens(): ReportedTokens | undefined {
    return this.#tokens;
  }

  /** What was wrong with the last report, where no other stands. */
  get fault(): ReportError | undefined {
    return this.#tokens === undefined ? this.#error : undefined;
  }

  /** As `tokens`. */
  get reported(): Usage | undefined {
    const tokens = this.#tokens;
    if (tokens === undefined) return undefined;
    const { promptTokens, cachedTokens, completionTokens } = tokens;
    return { promptTokens, cachedTokens, completionTokens, source: 'reported' };
  }

  /** Whether the client got any text. Looks for it, so it is asked where a report says that there was none. */
  hasText(): boolean {
    if (this.#response !== undefined) return responseTexts(this.#response.toString()).length > 0;
    const texts: StreamTexts = new Map(this.#transcript.texts);
    addStreamTexts(texts, this.#transcript.events(), 1);
    return texts.size > 0;
  }

  /** Text came after the report, which may know nothing of it: some providers report from the first event on. */
  get isReportOld(): boolean {
    return this.#isReportOld;
  }

  /** What the upstream calls the model, of a response that came with a report. */
  get responseModel(): string | undefined {
    return this.#responseModel === undefined
      ? undefined
      : Buffer.from(this.#responseModel, 'latin1').toString();
  }

  /**
   * Takes note of a report, wherever it stood, and of the `model` beside it, as Latin-1. What cannot be true does not replace what can, and false is
   * returned.
   */
  report(value: unknown, model?: unknown): boolean {
    if (typeof model === 'string' && model.length <= MODEL_CHARS_MAX) this.#responseModel = model;
    const tokens = tokensOfReport(value);
    if (typeof tokens === 'string') this.#error = tokens;
    if (tokens === undefined || typeof tokens === 'string') return false;
    this.#tokens = tokens;
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

  /** The whole response that the client gets, where it is no stream. Holds on to it. */
  answered(answer: Buffer): void {
    this.#response = answer;
  }

  /** What the counter needs to count this call. */
  countRequest(tokenizer: Tokenizer, body: string | Uint8Array): CountRequest {
    const answer = this.#response;
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
