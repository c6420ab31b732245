/**
 * What a scenario is: one call, made again and again, and what its response must be.
 */
import type { Answer } from '../../../test/support/http.js';
import type { Caller, ContenderName } from '../contenders/contender.js';

export interface Scenario {
  readonly name: string;
  readonly caller: Caller;
  readonly body: string;
  /** Every answer must have this status. */
  readonly status: number;
  /** Those that can answer so. */
  readonly contenders: readonly ContenderName[];
  /** Throws where a response with the right status is not the right answer. */
  check(answer: Answer): void;
}
