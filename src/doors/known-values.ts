/**
 * Reads the values of a body's known members, those of the door's `level`, in the pass that checks their
 * names. member-scan.ts calls `readKnownValue` for a door whose rules look at known members alone: JSON.parse
 * would build the whole tree, and take 1 µs more for a short body. Pure; listener thread and counter threads.
 *
 * Must hold: a validator that reads known members alone gives the same result for these values as for those
 * of JSON.parse (test/unit/doors/messages/messages-door.test.ts). So LONG_TEXT may stand for a long string,
 * and an empty object or list for one that no rule looks into.
 */
import type { Members } from '../core/json.js';
import { BODY_TREE_MEMBERS_MAX } from '../core/limits.js';
import { BodyError, BRACE, BRACKET, LETTER_F, LETTER_T, QUOTE } from '../protocol/json-reader.js';
import type { Level } from '../protocol/known-members.js';
import { ANY_ARRAY, ANY_OBJECT, type MemberReader } from '../protocol/member-reader.js';

/** The longest string that is read, in bytes with its quotes. Every word of a rule is shorter. */
export const SHORT_BYTES_MAX = 64;
/** Stands for a longer string. No rule has this text as a word, and no pattern of a rule matches the text. */
const LONG_TEXT = '\u2026';

/** Moves `reader` past the value of the member `index` of `level`, as `MemberReader.skipMember` does. */
export function readKnownValue(reader: MemberReader, level: Level, index: number): unknown {
  const start = reader.position;
  const inner = level.inner[index];
  const value = inner === undefined ? readUnnamedValue(reader) : readNestedValue(reader, inner);
  reader.recordStored(level.stored[index], start);
  return value;
}

/** Returns the value; if it is an object or an array of objects, their known names are those of `level`. */
function readNestedValue(reader: MemberReader, level: Level): unknown {
  const firstByte = reader.bytes[reader.position];
  if (firstByte === BRACE) return readObject(reader, level);
  if (firstByte !== BRACKET) return readUnnamedValue(reader);
  const items: unknown[] = [];
  if (!reader.openItems()) return items;
  do {
    reader.startItem(items.length);
    items.push(
      reader.bytes[reader.position] === BRACE ? readObject(reader, level) : readUnnamedValue(reader),
    );
  } while (reader.moreItems());
  return items;
}

/** Returns an object without the members that `level` does not name. Counts it if it is a media part. */
function readObject(reader: MemberReader, level: Level): Members {
  const members: Record<string, unknown> = {};
  // Where the value of `type` is; both 0 if the object has none.
  let typeStart = 0;
  let typeEnd = 0;
  if (!reader.openLevel(level)) return members;
  do {
    const index = reader.readName(level);
    reader.skipColon();
    const start = reader.position;
    if (reader.memberCount > BODY_TREE_MEMBERS_MAX) throw tooManyMembers();
    if (index < 0) reader.skipValue();
    else members[level.names[index]!] = readKnownValue(reader, level, index);
    if (index < 0 || index !== level.typeIndex) continue;
    typeStart = start;
    typeEnd = reader.position;
  } while (reader.moreMembers());
  reader.countPart(level, typeStart, typeEnd);
  return members;
}

/** The error for too many members, which as parsed objects would take more memory than their bytes. */
export function tooManyMembers(): BodyError {
  return new BodyError(`the request body must have at most ${BODY_TREE_MEMBERS_MAX} members in all`);
}

/**
 * Lists of the request itself are parsed. Any other list and an object are empty: no rule looks into them.
 */
function readUnnamedValue(reader: MemberReader): unknown {
  const { bytes, position: start } = reader;
  const firstByte = bytes[start];
  if (firstByte === QUOTE) return readText(reader);
  const isListOfRequest = firstByte === BRACKET && reader.depth === 1;
  reader.skipValue();
  if (firstByte === BRACE) return ANY_OBJECT;
  if (firstByte === BRACKET && !isListOfRequest) return ANY_ARRAY;
  if (firstByte === LETTER_T) return true;
  if (firstByte === LETTER_F) return false;
  // Digits and the minus are below all letters.
  const isNumber = firstByte !== undefined && firstByte < LETTER_F && firstByte !== BRACKET;
  if (isNumber) return reader.numberFrom(start);
  // A list such as `stop_sequences`, or `null`.
  return JSON.parse(bytes.toString('utf8', start, reader.position));
}

/** Without escapes each character stands for a byte. */
function readText(reader: MemberReader): string {
  const start = reader.position;
  const hasEscapes = reader.skipText();
  if (reader.position - start > SHORT_BYTES_MAX) return LONG_TEXT;
  return hasEscapes
    ? reader.decoded(start, reader.position)
    : reader.bytes.toString('latin1', start + 1, reader.position - 1);
}
