/**
 * The listener's side of leases: its port to the main thread. Listener thread.
 */
import type { MessagePort } from 'node:worker_threads';
import { Roster } from '../core/roster.js';
import type { AccountIndex, KeyIndex } from '../core/units.js';
import type { LowLeases } from '../ledger/counters.js';
import type { FromLeaseLink, LeaseAnswers, LeaseEnd, LeaseNeed, LeaseQuestion } from './lease-messages.js';

/** Bounded by the open requests: each asks one question at a time, and every question is answered within some seconds. */
export class LeaseLink implements LowLeases {
  readonly #port: MessagePort;
  /** A question's identifier is its place, since each has one answer. */
  readonly #waiting = new Roster<(end: LeaseEnd) => void>();
  #questions: LeaseQuestion[] = [];
  #lowAccounts: AccountIndex[] = [];
  #lowKeys: KeyIndex[] = [];
  #isLeaving = false;

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (answers: LeaseAnswers) => {
      for (const { id, end } of answers) {
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
      } satisfies FromLeaseLink);
      this.#questions = [];
      this.#lowAccounts = [];
      this.#lowKeys = [];
    });
  }
}
