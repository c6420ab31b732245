/**
 * Collects the usage of one attempt: the upstream's own report if it is possible, else what a count of the
 * relayed text needs. attempt.ts makes a meter for each attempt, readers of responses (stream-reader.ts and
 * the like) fill it, and call-usage.ts reads it. count-session.ts, which counts a prompt without an attempt,
 * makes an empty meter for its CountRequest. Upstream worker.
 *
 * A report is impossible if a number is no count, or if its numbers exclude each other (`tokensOfReport`).
 *
 * Must hold: an impossible report does not replace a possible one. Text after the last report marks that
 * report as old (test/unit/upstream/usage-meter.test.ts). Readers call `recordText` for text that they pass
 * to `addRelayed`; call-usage.ts calls `reportSoFar` once, when no reader calls `report` any more.
 */
import type { Usage } from '../core/token-counts.js';
import { addStreamTexts, keyedResponseTexts, type StreamTexts } from './chat-text.js';
import type { CountRequest } from './token-count.js';
import { Transcript } from './transcript.js';
import { tokensOfReport, type ReportError } from './usage-shapes.js';

/** A longer name of a model is not kept for the trace. */
const MODEL_CHARS_MAX = 256;

/** The part of a CountRequest that the call brings. */
export type CountedPrompt = Pick<
  CountRequest,
  'tokenizer' | 'door' | 'body' | 'mediaTokens' | 'thoughtsBack'
>;

export class UsageMeter {
  readonly #transcript = new Transcript();
  #relayedBytes = 0;
  #wholeResponse: Buffer | undefined;
  #reported: Usage | undefined;
  #reportError: ReportError | undefined;
  #responseModel: string | undefined;
  #isReportOld = false;

  /** The last possible report. `disbeliefOf` (usage-bounds.ts) checks whether it can be true of this call. */
  get reported(): Usage | undefined {
    return this.#reported;
  }

  /** What was wrong with the last report, if none was possible. */
  get reportError(): ReportError | undefined {
    return this.#reported === undefined ? this.#reportError : undefined;
  }

  /**
   * Whether the client got any text whose key (StreamTexts) `counts`. Parses, so it is called only if a
   * report names no completion tokens, or none beside reasoning.
   */
  hasText(counts?: (key: string) => boolean): boolean {
    const isFound = (key: string): boolean => counts?.(key) ?? true;
    if (this.#wholeResponse !== undefined)
      return keyedResponseTexts(this.#wholeResponse.toString()).some(([key]) => isFound(key));
    const texts: StreamTexts = new Map(this.#transcript.texts);
    // Of any text one character is enough.
    addStreamTexts(texts, this.#transcript.events(), counts === undefined ? 1 : Infinity);
    return [...texts.keys()].some(isFound);
  }

  /** Whether text came after the report, which may lack that text: some providers report with every event. */
  get isReportOld(): boolean {
    return this.#isReportOld;
  }

  /** The upstream's name of the model, from an event or response with a report. */
  get responseModel(): string | undefined {
    return this.#responseModel === undefined
      ? undefined
      : Buffer.from(this.#responseModel, 'latin1').toString();
  }

  /**
   * Keeps a report, and the `model` of the same event. Readers decode events as Latin-1, which is faster, so
   * `responseModel` decodes the name again. Returns whether the report was kept: an impossible one is not.
   */
  report(report: unknown, model?: unknown): boolean {
    if (typeof model === 'string' && model.length <= MODEL_CHARS_MAX) this.#responseModel = model;
    const usage = this.#possibleUsageOf(report);
    if (usage === undefined) return false;
    this.#reported = usage;
    this.#isReportOld = false;
    return true;
  }

  /**
   * Keeps what the upstream had reported when the client left or the stream broke off. Call before
   * the other members are read. `usageSoFar` is not read if a report came after all of the text. A prompt of
   * 0 is no report: some upstreams send 0 until they know the tokens.
   */
  reportSoFar(attempt: { readonly usageSoFar: unknown }): void {
    if (this.#reported !== undefined && !this.#isReportOld) return;
    const usage = this.#possibleUsageOf(attempt.usageSoFar);
    if (usage === undefined || usage.promptTokens === 0) return;
    this.#reported = usage;
    this.#isReportOld = true;
  }

  /** The usage in a report; undefined if there is none, or an impossible one, whose error is kept. */
  #possibleUsageOf(report: unknown): Usage | undefined {
    const usageOrError = tokensOfReport(report);
    if (typeof usageOrError !== 'string') return usageOrError;
    this.#reportError = usageOrError;
    return undefined;
  }

  /** The report so far is old: an event had text that the client gets, and no possible report. */
  recordText(): void {
    this.#isReportOld = true;
  }

  /** The client gets these events. The meter keeps them, so the caller must not change the bytes. */
  addRelayed(events: Uint8Array): void {
    this.#relayedBytes += events.length;
    this.#transcript.add(events);
  }

  /** The client gets this non-streamed response, which is kept. */
  setWholeResponse(response: Buffer): void {
    this.#wholeResponse = response;
  }

  /** What a counter thread needs to count `prompt` and what the client got. */
  countRequest(prompt: CountedPrompt): CountRequest {
    const response = this.#wholeResponse;
    if (response !== undefined)
      return {
        ...prompt,
        completionForm: 'response',
        texts: new Map(),
        completion: response.toString(),
        completionBytes: response.length,
        relayedBytes: response.length,
      };
    return {
      ...prompt,
      completionForm: this.#relayedBytes === 0 ? 'none' : 'stream',
      texts: this.#transcript.texts,
      completion: this.#transcript.events().toString(),
      completionBytes: this.#transcript.keptBytes,
      relayedBytes: this.#relayedBytes,
    };
  }
}
