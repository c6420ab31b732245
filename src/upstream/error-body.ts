/**
 * Finds the error in the body of an upstream that rejects a request. error-mapping.ts calls it in upstream
 * workers, and gateway/probe-diagnosis.ts in the main thread. Pure. Tests:
 * test/unit/upstream/error-mapping.test.ts.
 */
import { isRecord } from '../core/json.js';

/** Returns the error in a parsed body. Mistral, SGLang and older vLLM send the error as the body itself. */
export function errorIn(body: unknown): unknown {
  if (!isRecord(body)) return undefined;
  return body.object === 'error' && body.error === undefined ? body : body.error;
}
