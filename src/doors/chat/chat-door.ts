/**
 * The door of OpenAI's chat completions, to whose form other doors are translated. doors.ts has it in its
 * table. Listener thread; large bodies in counter threads. Its parts are in protocol/, with their tests.
 *
 * Must hold: OPENAI_ERRORS is the form of errors at the simple doors too, and at the responses door but for
 * its events: a change here changes all of them. test/unit/core/door-names.test.ts tests the status.
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { errorBody, statusOf } from '../../core/errors.js';
import { readChatBytes, readLargeChatBytes } from '../../protocol/request-bytes.js';
import { errorEvent } from '../../protocol/sse.js';
import type { Door, ErrorShape } from '../door.js';

/** The form of errors at all doors of OpenAI's API. */
export const OPENAI_ERRORS: ErrorShape = { status: statusOf, body: errorBody, event: errorEvent };

export const CHAT: Door = {
  name: 'chat',
  path: DOOR_PATHS.chat,
  errors: OPENAI_ERRORS,
  read: readChatBytes,
  readPieces: readLargeChatBytes,
  headerLines: () => '',
};
