/**
 * The canonical door: OpenAI's chat completions, whose errors are those of the specification. Listener
 * thread.
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { errorBody, statusOf } from '../../core/errors.js';
import { readChatBytes, readLargeChatBytes } from '../../protocol/request-bytes.js';
import { errorEvent } from '../../protocol/sse.js';
import type { Door, ErrorShape } from '../door.js';

/** Of the doors that OpenAI has. */
export const OPENAI_ERRORS: ErrorShape = { status: statusOf, body: errorBody, event: errorEvent };

export const CHAT: Door = {
  name: 'chat',
  path: DOOR_PATHS.chat,
  errors: OPENAI_ERRORS,
  read: readChatBytes,
  readPieces: readLargeChatBytes,
  headerLines: () => '',
};
