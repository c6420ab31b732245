/**
 * What a reader of an answer's body does with it: the words between attempt, readers and session. Upstream worker.
 */
import type { AttemptFailure } from './error-mapping.js';

export interface AnswerSink {
  /** Bytes that the client may have now. */
  relay(bytes: Uint8Array): void;
  /** The answer is whole and valid; `rest` are its last bytes. Said once, and nothing after it. */
  complete(rest: Uint8Array): void;
  /** The answer cannot be used (any further). Said once, and nothing after it. */
  reject(failure: AttemptFailure): void;
}

/** Takes the body of one answer. After complete() or reject() it may be given more, and then does nothing. */
export interface AnswerBodyReader {
  /** The client has all of the answer but its end: whatever becomes of the upstream from now on takes nothing from it. */
  readonly isWhole: boolean;
  onData(chunk: Uint8Array): void;
  /** The body ended well, as HTTP sees it. */
  onEnd(): void;
}
