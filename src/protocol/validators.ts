/**
 * The validator that the build made, checked when it is loaded. TypeBox silently falls back to interpreting
 * schemas, which is many times slower, so no thread must start with anything but the generated module.
 * Listener thread and counter pool.
 */
import * as generated from './generated.js';

const VALID: unknown = { model: 'probe', messages: [{ role: 'user', content: 'probe' }], temperature: 2 };
const INVALID: unknown = { model: 'probe', messages: [{ role: 'user', content: 'probe' }], temperature: 2.5 };

export interface Validators {
  readonly COMPILED: boolean;
  checkChatRequest(value: unknown): boolean;
}

/** Throws an Error if `validators` is not the generated module, or gives wrong answers. */
export function assertCompiled(validators: Partial<Validators>): void {
  const { COMPILED, checkChatRequest } = validators;
  if (COMPILED !== true || typeof checkChatRequest !== 'function') {
    throw new Error('the request validator is not compiled: run `npm run build`');
  }
  if (!checkChatRequest(VALID) || checkChatRequest(INVALID)) {
    throw new Error('the compiled request validator gives wrong answers: run `npm run build`');
  }
}

assertCompiled(generated);

/** Whether a value is a valid chat-completion request. 0.1 µs for a small one; never throws. */
export const checkChatRequest: typeof generated.checkChatRequest = generated.checkChatRequest;
