/**
 * The validators that the build made, asserted when they are loaded: TypeBox falls back silently to interpreting schemas, which is many
 * times slower, so a thread must not start with anything but the generated module. Listener thread and counter pool.
 */
import * as generated from './generated-validators.js';

const VALID: unknown = { model: 'probe', messages: [{ role: 'user', content: 'probe' }], temperature: 2 };
const INVALID: unknown = { model: 'probe', messages: [{ role: 'user', content: 'probe' }], temperature: 2.5 };

export interface Validators {
  readonly COMPILED: boolean;
  checkChatRequest(value: unknown): boolean;
}

/** Throws an Error with a clear sentence where `validators` is not the generated module, or does not tell a valid request. */
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

/** Whether a parsed body is a valid chat-completion request. Compiled; 0.1 µs for a small request; never throws. */
export const checkChatRequest: typeof generated.checkChatRequest = generated.checkChatRequest;
