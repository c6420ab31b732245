/** The Messages API as upstream workers see it, and the count of a request's tokens. */
import type { Dialect } from '../door.js';
import { fromChat } from './from-chat.js';
import { MessageJudge } from './message-judge.js';
import { MessageWriter } from './message-stream.js';
import { toChat } from './to-chat.js';

export const MESSAGES_DIALECT: Dialect = {
  name: 'messages',
  marker: 'content',
  openJudge: () => new MessageJudge(),
  translator: {
    toChat: (body, extras = false) => toChat(body, extras),
    fromChat,
    openStream: (call) => new MessageWriter(call),
  },
  isFree: false,
  promptTexts: undefined,
};

/** Only an upstream that speaks it can serve it: nothing is generated that a translation could read. */
export const COUNT_TOKENS_DIALECT: Dialect = {
  name: 'count_tokens',
  marker: undefined,
  openJudge: undefined,
  translator: undefined,
  isFree: true,
  promptTexts: undefined,
};
