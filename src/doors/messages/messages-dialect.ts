/**
 * The Messages door's half for upstream workers: its Dialect, and that of the door that counts tokens.
 * dialects.ts has both in its table.
 */
import type { Dialect, Translator } from '../door.js';
import { fromChat } from './from-chat.js';
import { MessageJudge } from './message-judge.js';
import { MessageWriter } from './message-stream.js';
import { NAMES, toChat } from './to-chat.js';

const TRANSLATOR: Translator = {
  toChat: (body, extras = false) => toChat(body, extras),
  names: NAMES,
  fromChat,
  openStream: (call) => new MessageWriter(call),
};

export const MESSAGES_DIALECT: Dialect = {
  name: 'messages',
  marker: 'content',
  openJudge: () => new MessageJudge(),
  translator: TRANSLATOR,
  promptTexts: undefined,
};

/** Counts of tokens. Its translator serves the gateway's own count, if no upstream can count. */
export const COUNT_TOKENS_DIALECT: Dialect = {
  ...MESSAGES_DIALECT,
  name: 'count_tokens',
  marker: 'input_tokens',
  isCount: true,
};
