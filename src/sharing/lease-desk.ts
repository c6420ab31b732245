/**
 * Answers listeners that wait for leases. Main thread.
 */
import type { MessagePort } from 'node:worker_threads';
import type { FromLeaseLink, LeaseAnswers } from '../pool/lease-messages.js';
import type { LeaseKeeper } from './lease-keeper.js';

/** Serves a listener behind `port`, which closes when its thread ends: what is answered then goes nowhere. */
export function serveLeases(keeper: LeaseKeeper, port: MessagePort): void {
  let answers: { id: number; end: LeaseAnswers[number]['end'] }[] = [];
  const answer = (id: number, end: LeaseAnswers[number]['end']): void => {
    // What is decided in one turn goes as one message.
    if (answers.push({ id, end }) > 1) return;
    setImmediate(() => {
      port.postMessage(answers satisfies LeaseAnswers);
      answers = [];
    });
  };
  port.on('message', ({ questions, lowAccounts, lowKeys }: FromLeaseLink) => {
    for (const { id, account, key, need } of questions) {
      void keeper.wait(account, key, need).then((end) => answer(id, end));
    }
    if (lowAccounts.length > 0 || lowKeys.length > 0) keeper.low(lowAccounts, lowKeys);
  });
}
