/**
 * Finds the error in a body of an upstream: of one that rejects a request, or that failed after its status
 * was 200. error-mapping.ts and the readers of responses call it in upstream workers, and
 * gateway/probe-diagnosis.ts in the main thread. Pure.
 *
 * Must hold: a member `error` that says nothing (null, false, an empty text) is no error, because some
 * servers write it into every response and every event (also test/unit/upstream/stream-reader.test.ts).
 */
import { isRecord } from '../core/json.js';

/** Returns the error in a parsed body. Mistral, SGLang and older vLLM send the error as the body itself. */
export function errorIn(body: unknown): unknown {
  if (!isRecord(body)) return undefined;
  return body.object === 'error' && body.error === undefined ? body : body.error;
}

/**
 * Whether a choice says that its generation has failed. OpenRouter does so if the provider behind it fails
 * once the status 200 is sent (https://openrouter.ai/docs/api/reference/errors-and-debugging, read 2026-11).
 */
export function isFailedChoice(choice: unknown): boolean {
  return isRecord(choice) && isError(choice.error);
}

/** Whether a member `error` has an error. Some servers always write the member, mostly as null. */
export function isError(error: unknown): boolean {
  return Array.isArray(error) ? error.length > 0 : Boolean(error);
}
