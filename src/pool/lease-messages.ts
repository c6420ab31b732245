/**
 * What passes between a listener and the main thread about leases, where limits are shared with other processes. Both ends
 * import this file. What comes up in one turn of the listener's event loop goes as one message, and so do the answers.
 *
 *     listener → main   FromLeaseLink   who waits for a lease, and whose leases run low
 *     main → listener   LeaseAnswers    one for each who waits, when it is decided
 */
import type { AccountIndex, KeyIndex, PicoUnits } from '../core/units.js';

/** A request of the minute, or the admission of a call: a call of the day, a place and a hold. */
export type LeaseNeed =
  { readonly kind: 'minute' } | { readonly kind: 'admission'; readonly hold: PicoUnits };

export interface LeaseQuestion {
  readonly id: number;
  readonly account: AccountIndex;
  /** Of a key with limits of its own. */
  readonly key: KeyIndex | undefined;
  readonly need: LeaseNeed;
}

export type LeaseEnd =
  /** What it needs was here a moment ago: try. */
  | 'try'
  /** The authority has none, and nobody is known to give any back. */
  | 'refused'
  /** The authority cannot be asked. */
  | 'lost';

export interface FromLeaseLink {
  readonly questions: readonly LeaseQuestion[];
  readonly lowAccounts: readonly AccountIndex[];
  readonly lowKeys: readonly KeyIndex[];
}

export type LeaseAnswers = readonly { readonly id: number; readonly end: LeaseEnd }[];
