/** The Messages API as upstream workers see it. */
import type { Dialect } from '../door.js';
import { fromChat } from './from-chat.js';
import { MessageJudge } from './message-judge.js';
import { MessageWriter } from './message-stream.js';
import { NAMES, toChat } from './to-chat.js';

export const MESSAGES_DIALECT: Dialect = {
  name: 'messages',
  marker: 'content',
  openJudge: () => new MessageJudge(),
  translator: {
    toChat: (body, extras = false) => toChat(body, extras),
    names: NAMES,
    fromChat,
    openStream: (call) => new MessageWriter(call),
  },
  promptTexts: undefined,
};
