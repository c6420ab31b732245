/**
 * A request that waits for a lease. Main thread.
 */
import type { LeaseEnd, LeaseNeed } from '../pool/lease-messages.js';
import type { LeaseSubject } from './lease-subject.js';

export interface Wait {
  readonly need: LeaseNeed;
  readonly sinceMs: number;
  /** The account, and the key where it has limits of its own. */
  readonly subjects: readonly LeaseSubject[];
  /** Then it is refused, whatever others may give back. */
  readonly deadlineMs: number;
  readonly end: (end: LeaseEnd) => void;
}
