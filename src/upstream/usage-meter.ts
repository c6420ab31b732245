/**
 * What one call cost: the upstream's own report where it is plausible, else a count of what was relayed. Upstream worker;
 * one meter for a call.
 */
import { TRANSCRIPT_BYTES_MAX } from '../core/limits.js';
import type { Usage } from '../protocol/usage.js';
import { isRecord } from './json-value.js';
import type { Tokenizer } from './target.js';
import type { CompletionForm, CountRequest } from './token-count.js';

/** No call comes near; a report above it is garbage, and below it a price times tokens fits 64 bits. */
const REPORTED_TOKENS_MAX = 1_000_000_000;

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
  readonly #transcript: Uint8Array[] = [];
  #keptBytes = 0;
  #relayedBytes = 0;
  #reported: Usage | undefined;

  /** The last plausible report, if there was one. */
  get reported(): Usage | undefined {
    return this.#reported;
  }

  /** Takes note of a `usage` member; what is not plausible is as if it had not been there. */
  report(value: unknown): void {
    this.#reported = reportedUsage(value) ?? this.#reported;
  }

  /** Bytes that went to the client. Holds on to them, as far as the transcript goes; they must not change any more. */
  relayed(bytes: Uint8Array): void {
    this.#relayedBytes += bytes.length;
    // Whole runs only: a transcript that is cut inside of an event could not be read. It overshoots by one run at most.
    if (this.#keptBytes >= TRANSCRIPT_BYTES_MAX) return;
    this.#keptBytes += bytes.length;
    this.#transcript.push(bytes);
  }

  /** What the counter needs to count this call. */
  countRequest(tokenizer: Tokenizer, body: string | Uint8Array, form: 'stream' | 'answer'): CountRequest {
    const completionForm: CompletionForm = this.#relayedBytes === 0 ? 'none' : form;
    return {
      tokenizer,
      body,
      completionForm,
      completion: Buffer.concat(this.#transcript, this.#keptBytes).toString('utf8'),
      completionBytes: this.#keptBytes,
      relayedBytes: this.#relayedBytes,
    };
  }
}
