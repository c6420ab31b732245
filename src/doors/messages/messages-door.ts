/** Anthropic's Messages API as a door. Listener thread; large bodies in the counter pool. */
import { checkMessagesRequest } from '../../protocol/validators.js';
import type { Door } from '../door.js';
import { readersOf } from '../member-scan.js';
import { MESSAGES_ERRORS, messagesHeaderLines } from './messages-errors.js';
import { MESSAGES_REQUEST } from './messages-members.js';
import { explainMessages, hostedToolsIn, outputTokensMin } from './messages-rules.js';

const COMMON = {
  level: MESSAGES_REQUEST,
  choices: () => 1,
  // A stream reports its usage unasked.
  asksForUsage: false,
  routing: hostedToolsIn,
} as const;

export const MESSAGES: Door = {
  name: 'messages',
  path: '/v1/messages',
  errors: MESSAGES_ERRORS,
  ...readersOf({
    ...COMMON,
    check: checkMessagesRequest,
    explain: explainMessages,
    outputTokens: 'max_tokens',
    outputTokensMin,
  }),
  headerLines: (facts) => messagesHeaderLines(facts),
};
