/** Anthropic's Messages API as a door. Listener thread; large bodies in the counter pool. */
import { checkCountRequest, checkMessagesRequest } from '../../protocol/validators.js';
import type { Door } from '../door.js';
import { readersOf } from '../member-scan.js';
import { MESSAGES_ERRORS, messagesHeaderLines } from './messages-errors.js';
import { MESSAGES_REQUEST } from './messages-members.js';
import { explainCount, explainMessages, hostedToolsIn, outputTokensMin } from './messages-rules.js';

const COMMON = {
  level: MESSAGES_REQUEST,
  choices: () => 1,
  // A stream reports its usage unasked.
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

/** How many tokens the prompt of such a request has. Tools that the provider would run cost nothing here. */
export const COUNT_TOKENS: Door = {
  ...MESSAGES,
  name: 'count_tokens',
  path: '/v1/messages/count_tokens',
  isFree: true,
  ...readersOf({ ...COMMON, check: checkCountRequest, explain: explainCount, outputTokens: undefined }),
};
