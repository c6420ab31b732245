/**
 * The listener's side of leases: its port to the main thread. Listener thread.
 */
import type { MessagePort } from 'node:worker_threads';
import { SlotList } from '../core/slot-list.js';
import type { AccountIndex, KeyIndex, PicoUnits } from '../core/units.js';
import type { LowLeases } from '../ledger/counters.js';

/*
 * What passes between a listener and the main thread about leases, where limits are shared with other processes. Both ends
 * import this file. What comes up in one turn of the listener's event loop goes as one message, and so do the responses.
 *
 *     listener → main   FromLeaseLink   who waits for a lease, and whose leases run low
 *     main → listener   LeaseAnswers    one for each who waits, when it is decided
 */

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
  /** The coordinator has none, and nobody is known to give any back. */
  | 'refused'
  /** The coordinator cannot be asked. */
  | 'lost';

export interface FromLeaseChannel {
  readonly questions: readonly LeaseQuestion[];
  readonly lowAccounts: readonly AccountIndex[];
  readonly lowKeys: readonly KeyIndex[];
}

export type LeaseReplies = readonly { readonly id: number; readonly end: LeaseEnd }[];

/** Bounded by the open requests: each asks one question at a time, and every question is answered within some seconds. */
export class LeaseChannel implements LowLeases {
  readonly #port: MessagePort;
  /** A question's identifier is its place, since each has one response. */
  readonly #waiting = new SlotList<(end: LeaseEnd) => void>();
  #questions: LeaseQuestion[] = [];
  #lowAccounts: AccountIndex[] = [];
  #lowKeys: KeyIndex[] = [];
  #isLeaving = false;

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (replies: LeaseReplies) => {
      for (const { id, end } of replies) {
        const resolve = this.#waiting.at(id);
        if (resolve === undefined) continue;
        this.#waiting.remove(id);
        resolve(end);
      }
    });
  }

  /** Whether what the request needs can be had: then try anew. `key` where it has limits of its own. Never rejects. */
  ask(account: AccountIndex, key: KeyIndex | undefined, need: LeaseNeed): Promise<LeaseEnd> {
    return new Promise((resolve) => {
      const id = this.#waiting.add(resolve);
      this.#questions.push({ id, account, key, need });
      this.#leaveSoon();
    });
  }

  account(account: AccountIndex): void {
    this.#lowAccounts.push(account);
    this.#leaveSoon();
  }

  key(key: KeyIndex): void {
    this.#lowKeys.push(key);
    this.#leaveSoon();
  }

  /** What comes up in this turn leaves as one message. */
  #leaveSoon(): void {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    setImmediate(() => {
      this.#isLeaving = false;
      this.#port.postMessage({
        questions: this.#questions,
        lowAccounts: this.#lowAccounts,
        lowKeys: this.#lowKeys,
      } satisfies FromLeaseChannel);
      this.#questions = [];
      this.#lowAccounts = [];
      this.#lowKeys = [];
    });
  }
}
