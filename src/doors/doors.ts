/**
 * The table of doors, the half of each door that listeners and counter threads load. A new door is a folder,
 * a line here, a line in dialects.ts, and a name at the end of DOOR_NAMES. request/listener-server.ts,
 * request/rejections.ts and upstream/counter-task.ts use the table.
 *
 * Must hold: each door has the name and path of its place in the table, which is checked when this file is
 * loaded. Statuses are those of core/door-names.ts (test/unit/core/door-names.test.ts).
 */
import { DOOR_NAMES, DOOR_PATHS, type DoorName } from '../core/door-names.js';
import { invariant } from '../core/errors.js';
import { CHAT } from './chat/chat-door.js';
import type { Door } from './door.js';
import { COUNT_TOKENS, MESSAGES } from './messages/messages-door.js';
import { RESPONSES } from './responses/responses-door.js';
import { SIMPLE_DOORS } from './simple/simple-doors.js';

/** The door of each name. A name without one does not compile. */
export const DOOR_OF: Readonly<Record<DoorName, Door>> = {
  chat: CHAT,
  messages: MESSAGES,
  responses: RESPONSES,
  ...SIMPLE_DOORS,
  count_tokens: COUNT_TOKENS,
};

/** In the order of DOOR_NAMES. */
export const DOORS: readonly Door[] = DOOR_NAMES.map((name) => {
  const door = DOOR_OF[name];
  invariant(door.name === name && door.path === DOOR_PATHS[name], `the door ${name} has its name and path`);
  return door;
});
