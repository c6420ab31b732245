/**
 * OpenAI's Responses API as upstream workers see it: how responses of upstreams that speak it are read, and
 * its translation for the others. responses-door.ts is its other half. Upstream worker.
 */
import type { Dialect, DoorCall, Translator } from '../door.js';
import { ResponseStream } from './response-stream.js';
import { faultIn, ResponsesJudge } from './responses-judge.js';
import { NAMES, toChat } from './to-chat.js';

const TRANSLATOR: Translator = {
  toChat,
  names: NAMES,
  fromChat(answer, call: DoorCall) {
    const writer = new ResponseStream(call, false);
    writer.push(answer);
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
