/**
 * The table of dialects, the half of a door that upstream workers load: all doors but chat, which needs none.
 * A new door is added here and in doors.ts. upstream/ looks a dialect up by index or name.
 */
import { DOOR_INDEX, DOOR_NAMES, type DoorName } from '../core/door-names.js';
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
const BY_INDEX: readonly (Dialect | undefined)[] = DOOR_NAMES.map((name) =>
  DIALECTS.find((one) => one.name === name),
);

export const dialectAt = (index: number): Dialect | undefined => BY_INDEX[index];

/** The dialect of a door, by its name; undefined for chat. */
export const dialectOf = (name: DoorName): Dialect | undefined => BY_INDEX[DOOR_INDEX[name]];
