/**
 * Hands what listeners and workers ask for (channel/lease-channel.ts) to the lease manager, and its replies
 * back. gateway/shared-accounting.ts calls it for each of these threads. Main thread.
 *
 * Must hold: every question gets one reply, or a request would wait for ever. Test:
 * test/e2e/shared-quotas.test.ts.
 */
import type { MessagePort } from 'node:worker_threads';
import type { LeaseEnd, LeaseMessages, LeaseScope } from '../channel/lease-channel.js';
import type { AskReply } from '../core/ask-port.js';
import type { LeaseManager } from './lease-manager.js';

export function serveLeases(manager: LeaseManager, port: MessagePort): void {
  let replies: AskReply<LeaseEnd>[] = [];
  const reply = (id: number, end: LeaseEnd): void => {
    // Replies of one event-loop turn are sent as one message.
    if (replies.push({ id, ok: true, result: end }) > 1) return;
    setImmediate(() => {
      port.postMessage(replies);
      replies = [];
    });
  };
  port.on('message', (messages: LeaseMessages) => {
    const lowScopes: LeaseScope[] = [];
    for (const message of messages) {
      if ('ask' in message) {
        const { scopes, need } = message.ask;
        void manager.wait(scopes, need).then((end) => reply(message.id, end));
      } else lowScopes.push(message);
    }
    if (lowScopes.length > 0) manager.askForMore(lowScopes);
  });
}
