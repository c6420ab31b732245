/**
 * Why a chat completion has ended, of servers that do not write `finish_reason` as OpenAI does. The
 * translators of Messages and Responses read it by these functions. Pure; upstream worker.
 *
 * Must hold: a response that was cut never becomes one that is whole, or its caller goes on with half of it.
 */
import type { Members } from '../core/json.js';

/** Reasons of responses that were cut. */
const CUT: ReadonlySet<unknown> = new Set([
  // OpenAI: the bound of the output was reached. Mistral: the model's context is full.
  ...['length', 'model_length'],
  // Mistral, DeepSeek and vLLM: the server could not go on, or has stopped a text that repeated itself.
  ...['error', 'insufficient_system_resource', 'abort', 'repetition'],
]);

/** Whether a response that ends by `finishReason` was cut. */
export function isCutBy(finishReason: unknown): boolean {
  return CUT.has(finishReason);
}

/**
 * The reason that is known after `choice`, of one chunk. `earlier`: the one that was known before; undefined
 * if none. While a choice goes on, and after its end, some servers write '' in place of null.
 */
export function finishReasonAfter({ finish_reason: reason }: Members, earlier: unknown): unknown {
  return reason === '' ? earlier : (reason ?? earlier);
}
