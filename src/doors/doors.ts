/**
 * The table of doors, the half of each door that listeners and counter threads load. A new door is a folder,
 * and a row of core/door-names.ts: then no table compiles that lacks the door, such as this one, dialects.ts
 * and request-schemas.ts. request/listener-server.ts, request/rejections.ts and upstream/counter-task.ts use
 * the table.
 *
 * Must hold: the compiler checks that each door has the name and the path of its place in the table.
 */
import { DOOR_NAMES, type DoorName } from '../core/door-names.js';
import { CHAT } from './chat/chat-door.js';
import type { Door } from './door.js';
import { COUNT_TOKENS, MESSAGES } from './messages/messages-door.js';
import { RESPONSES } from './responses/responses-door.js';
import { SIMPLE_DOORS } from './simple/simple-doors.js';

/** The door of each name. */
export const DOOR_OF: { readonly [Name in DoorName]: Door<Name> } = {
  chat: CHAT,
  messages: MESSAGES,
  responses: RESPONSES,
  ...SIMPLE_DOORS,
  count_tokens: COUNT_TOKENS,
};

/** In the order of DOOR_NAMES. */
export const DOORS: readonly Door[] = DOOR_NAMES.map((name) => DOOR_OF[name]);
