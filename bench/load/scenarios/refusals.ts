/**
 * Refusals: what a gateway has to stand when keys are guessed, clients are broken or limits are run into.
 * Compared with a bare handler, because a proxy that checks nothing refuses nothing.
 */
import { TEST_MODEL } from '../../../test/support/gateway.js';
import type { Caller } from '../contenders/contender.js';
import { bodyOf } from './prompt.js';
import type { Scenario } from './scenario.js';

export const REJECTION_STATUSES = [401, 400, 429] as const;
type RefusalStatus = (typeof REJECTION_STATUSES)[number];

const GOOD_BODY = bodyOf({ promptBytes: 200, answerBytes: 240, chunks: 20, stream: false });
/** Of the same length, but without messages. */
const BAD_BODY = JSON.stringify({ model: TEST_MODEL, user: 'u'.repeat(GOOD_BODY.length - 36) });

const CALLS: Readonly<Record<RefusalStatus, { readonly caller: Caller; readonly body: string }>> = {
  401: { caller: 'unknown', body: GOOD_BODY },
  400: { caller: 'paying', body: BAD_BODY },
  429: { caller: 'limited', body: GOOD_BODY },
};

export const REJECTIONS: readonly Scenario[] = REJECTION_STATUSES.map((status) => ({
  name: `refused-${status}`,
  ...CALLS[status],
  status,
  contenders: ['bare', 'tollgate', 'tollgate-2', 'tollgate-4', 'tollgate-2p'],
  check: (answer) => {
    const { error } = answer.json() as { readonly error?: { readonly code?: unknown } };
    if (typeof error?.code !== 'string') throw new Error(`no error with a code: ${answer.body}`);
  },
}));
