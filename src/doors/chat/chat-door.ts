/**
 * The door of OpenAI's chat completions (POST /v1/chat/completions). doors.ts has it in its table. It has no
 * dialect, because its protocol is that of the upstream workers. Listener thread; counter threads read its
 * large bodies.
 *
 * Must hold: OPENAI_ERRORS stays the form that OpenAI's clients read. The simple doors use it too, and the
 * responses door uses its status and body. Tests: test/unit/core/errors.test.ts (status and body),
 * test/unit/core/door-names.test.ts (the status at each door), test/unit/protocol/sse.test.ts (the event),
 * test/unit/protocol/request-bytes.test.ts (the reading of bodies).
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { errorBody, statusOf } from '../../core/errors.js';
import { readChatBytes, readLargeChatBytes } from '../../protocol/request-bytes.js';
import { errorEvent } from '../../protocol/sse.js';
import type { Door, ErrorShape } from '../door.js';

/** The form of errors at the doors of OpenAI's API: status, body, and the event that ends a stream. */
export const OPENAI_ERRORS: ErrorShape = { status: statusOf, body: errorBody, event: errorEvent };

export const CHAT: Door<'chat'> = {
  name: 'chat',
  path: DOOR_PATHS.chat,
  errors: OPENAI_ERRORS,
  read: readChatBytes,
  readPieces: readLargeChatBytes,
  // The headers that all doors have are enough.
  headerLines: () => '',
};
