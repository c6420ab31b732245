/**
 * The doors of Anthropic's Messages API, messages and count_tokens: the half for listeners (the other half,
 * for workers, is messages-dialect.ts). doors.ts has both in its table. Listener thread; large bodies in the
 * counter pool.
 *
 * Must hold: a body is checked only for what costs, routes or bounds; all else reaches the upstream as it
 * came (test/unit/doors/messages/messages-door.test.ts).
 */
import { checkCountRequest, checkMessagesRequest } from '../../protocol/validators.js';
import type { Door } from '../door.js';
import { readersOf } from '../member-scan.js';
import { MESSAGES_ERRORS, messagesHeaderLines } from './messages-errors.js';
import { MESSAGES_REQUEST } from './messages-members.js';
import { explainCount, explainMessages, hostedToolsIn, outputTokensMin } from './messages-rules.js';

const COMMON = {
  level: MESSAGES_REQUEST,
  readsNamedAlone: true,
  choices: () => 1,
  // Streams of this protocol always report their usage.
  asksForUsage: false,
} as const;

export const MESSAGES: Door = {
  name: 'messages',
  path: '/v1/messages',
  errors: MESSAGES_ERRORS,
  ...readersOf({
    ...COMMON,
    routing: hostedToolsIn,
    check: checkMessagesRequest,
    explain: explainMessages,
    outputTokens: 'max_tokens',
    outputTokensMin,
  }),
  headerLines: (facts) => messagesHeaderLines(facts),
};

/**
 * Counts the tokens of a prompt. Hosted tools are no reason to reject: nothing runs, and nothing is billed.
 */
export const COUNT_TOKENS: Door = {
  ...MESSAGES,
  name: 'count_tokens',
  path: '/v1/messages/count_tokens',
  isFree: true,
  ...readersOf({ ...COMMON, check: checkCountRequest, explain: explainCount, outputTokens: undefined }),
};
