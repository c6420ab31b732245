/**
 * The table of dialects, the half of a door that upstream workers and counter threads load. A new door is
 * added here and in doors.ts. Files of upstream/ look a dialect up by the door's position in DOOR_NAMES.
 *
 * Must hold: every door but chat has one dialect, which is checked when this file is loaded. Chat has none,
 * because its protocol is that of the workers themselves.
 */
import { DOOR_NAMES } from '../core/door-names.js';
import { invariant } from '../core/errors.js';
import type { Dialect } from './door.js';
import { COUNT_TOKENS_DIALECT, MESSAGES_DIALECT } from './messages/messages-dialect.js';
import { RESPONSES_DIALECT } from './responses/responses-dialect.js';
import { SIMPLE_DIALECTS } from './simple/simple-dialects.js';

const DIALECTS: readonly Dialect[] = [
  MESSAGES_DIALECT,
  RESPONSES_DIALECT,
  ...SIMPLE_DIALECTS,
  COUNT_TOKENS_DIALECT,
];

/** By position in DOOR_NAMES; undefined for chat. */
const BY_INDEX: readonly (Dialect | undefined)[] = DOOR_NAMES.map((name) => {
  const found = DIALECTS.find((dialect) => dialect.name === name);
  invariant((found === undefined) === (name === 'chat'), `the door ${name} has a dialect unless it is chat`);
  return found;
});

/** By position in DOOR_NAMES, as frames have it; undefined for chat, and for a position that no door has. */
export const dialectAt = (index: number): Dialect | undefined => BY_INDEX[index];
