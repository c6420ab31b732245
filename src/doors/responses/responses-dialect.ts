/**
 * The Responses door's half for upstream workers, its Dialect: how responses of upstreams that speak
 * Responses are read, and the translation for the others. dialects.ts has it in its table; responses-door.ts
 * is the other half.
 */
import type { Dialect, DoorCall, Translator } from '../door.js';
import { ResponseStream } from './response-stream.js';
import { faultIn, ResponsesJudge } from './responses-judge.js';
import { NAMES, toChat } from './to-chat.js';

const TRANSLATOR: Translator = {
  toChat,
  names: NAMES,
  fromChat(response, call: DoorCall) {
    const writer = new ResponseStream(call, false);
    writer.push(response);
    writer.end();
    return JSON.stringify(writer.response);
  },
  openStream: (call) => new ResponseStream(call, true),
};

export const RESPONSES_DIALECT: Dialect = {
  name: 'responses',
  marker: 'output',
  faultIn,
  openJudge: () => new ResponsesJudge(),
  translator: TRANSLATOR,
  promptTexts: undefined,
};
