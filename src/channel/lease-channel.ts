/**
 * The listener's side of leases, if limits are shared with other processes: its port to the main thread. Both
 * ends import the messages. What is asked or told in one event-loop turn is one message (see AskPort), and so
 * are the replies.
 *
 *     listener → main   Question<LeaseAsk>   a request waits for a lease; the reply is a LeaseEnd
 *                       LowLease             a lease runs low; no reply
 */
import type { MessagePort } from 'node:worker_threads';
import { AskPort, type Question } from '../core/ask-port.js';
import type { AccountIndex, KeyIndex, PicoUnits } from '../core/units.js';
import type { LowLeases } from '../ledger/counters.js';

/** A request of the minute, or the admission of a call: a call of the day, a slot and a hold. */
export type LeaseNeed =
  { readonly kind: 'minute' } | { readonly kind: 'admission'; readonly hold: PicoUnits };

export interface LeaseAsk {
  readonly account: AccountIndex;
  /** Of a key with limits of its own. */
  readonly key: KeyIndex | undefined;
  readonly need: LeaseNeed;
}

export type LeaseEnd =
  /** What it needs was here a moment ago: try. */
  | 'try'
  /** The coordinator has none, and nobody is known to give any back. */
  | 'refused'
  /** The coordinator cannot be asked. */
  | 'lost';

type LowLease =
  | { readonly kind: 'account'; readonly account: AccountIndex }
  | { readonly kind: 'key'; readonly key: KeyIndex };

export type FromLeaseChannel = readonly (Question<LeaseAsk> | LowLease)[];

/**
 * Bounded by the open requests: each asks one question at a time, and every question gets its reply within
 * some seconds.
 */
export class LeaseChannel implements LowLeases {
  readonly #asks: AskPort<LeaseAsk, LeaseEnd, LowLease>;

  constructor(port: MessagePort) {
    this.#asks = new AskPort(port, { inTurns: true });
  }

  /**
   * Whether what the request needs can be had: then try anew. `key` if it has limits of its own. Never
   * rejects.
   */
  ask(account: AccountIndex, key: KeyIndex | undefined, need: LeaseNeed): Promise<LeaseEnd> {
    return this.#asks.ask({ account, key, need });
  }

  account(account: AccountIndex): void {
    this.#asks.tell({ kind: 'account', account });
  }

  key(key: KeyIndex): void {
    this.#asks.tell({ kind: 'key', key });
  }
}
