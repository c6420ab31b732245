/**
 * The table of doors, the half of each door that listeners and counter threads load. A new door is a folder,
 * a line here, a line in dialects.ts, and a name at the end of DOOR_NAMES. request/listener-server.ts,
 * request/rejections.ts and upstream/counter-task.ts use the table.
 *
 * Must hold: paths and statuses are those of core/door-names.ts (test/unit/core/door-names.test.ts).
 */
import type { DoorName } from '../core/door-names.js';
import { invariant } from '../core/errors.js';
import { CHAT } from './chat/chat-door.js';
import type { Door } from './door.js';
import { COUNT_TOKENS, MESSAGES } from './messages/messages-door.js';
import { RESPONSES } from './responses/responses-door.js';
import { SIMPLE_DOORS } from './simple/simple-doors.js';

/** In the order of DOOR_NAMES. */
export const DOORS: readonly Door[] = [CHAT, MESSAGES, RESPONSES, ...SIMPLE_DOORS, COUNT_TOKENS];

/** Throws if the table lacks the door, which is a bug. */
export function doorOf(name: DoorName): Door {
  const door = DOORS.find((candidate) => candidate.name === name);
  invariant(door !== undefined, `the door ${name} is in the table`);
  return door;
}
