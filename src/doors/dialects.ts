/**
 * The table of dialects, the half of a door that upstream workers and counter threads load. A new door is
 * added here and in doors.ts. Files of upstream/ look a dialect up by the door's position in DOOR_NAMES.
 *
 * Must hold: the compiler checks that each dialect has the name of its place in the table. Chat has none,
 * because its protocol is that of the workers themselves.
 */
import { DOOR_NAMES, type DoorName } from '../core/door-names.js';
import type { Dialect } from './door.js';
import { COUNT_TOKENS_DIALECT, MESSAGES_DIALECT } from './messages/messages-dialect.js';
import { RESPONSES_DIALECT } from './responses/responses-dialect.js';
import { SIMPLE_DIALECTS } from './simple/simple-dialects.js';

/** The dialect of each door. A door without one does not compile. */
const DIALECTS: { readonly [Name in Exclude<DoorName, 'chat'>]: Dialect<Name> } = {
  messages: MESSAGES_DIALECT,
  responses: RESPONSES_DIALECT,
  ...SIMPLE_DIALECTS,
  count_tokens: COUNT_TOKENS_DIALECT,
};

const BY_INDEX: readonly (Dialect | undefined)[] = DOOR_NAMES.map((name) =>
  name === 'chat' ? undefined : DIALECTS[name],
);

/** By position in DOOR_NAMES, as frames have it; undefined for chat, and for a position that no door has. */
export const dialectAt = (index: number): Dialect | undefined => BY_INDEX[index];
