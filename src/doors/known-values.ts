/**
 * Reads as much of a body as a door's validator needs: the members that its levels name, with a stand-in for
 * long strings. member-scan.ts calls it in place of JSON.parse, which builds the whole tree and takes 1 µs
 * more for a short body. Pure; listener thread and counter pool.
 *
 * Must hold: a validator that reads named members alone judges these values as it does those of JSON.parse
 * (test/unit/doors/messages/messages-door.test.ts).
 */
import { BODY_TREE_MEMBERS_MAX } from '../core/limits.js';
import { BodyError, BRACE, BRACKET, QUOTE } from '../protocol/json-reader.js';
import type { Level } from '../protocol/known-members.js';
import type { MemberReader } from '../protocol/member-reader.js';

/** A string of so many bytes, quotes included, is read. Every word that a rule compares with is shorter. */
export const SHORT_BYTES_MAX = 64;
/** Stands for a longer string. It is no word of a rule, and matches no pattern of one. */
const LONG_TEXT = '\u2026';
/** A JavaScript number holds every integer of so many digits exactly. */
export const DIGITS_EXACT_MAX = 15;
const DIGIT_0 = 48;

const LETTER_T = 116;
const LETTER_F = 102;

/** Stand-ins for values whose contents no rule reads. */
const ANY_OBJECT = Object.freeze({});
const ANY_ARRAY: readonly unknown[] = Object.freeze([]);

type Members = Record<string, unknown>;

/**
 * Moves `reader` past the value of a member, and checks the names within it, as `MemberReader.skipMember`
 * does. Returns the value if `level` names the member, else undefined. `index`: of the member in `level`, or
 * -1.
 */
export function knownValue(reader: MemberReader, level: Level, index: number): unknown {
  if (index < 0) {
    reader.skipValue();
    return undefined;
  }
  const start = reader.at;
  const inner = level.inner[index];
  const value = inner === undefined ? plainValue(reader) : valueOf(reader, inner);
  reader.recordStored(level.stored[index], start);
  return value;
}

/** Reads an object, or an array of objects, whose known names are those of `level`. */
function valueOf(reader: MemberReader, level: Level): unknown {
  const first = reader.bytes[reader.at];
  if (first === BRACE) return objectOf(reader, level);
  if (first !== BRACKET) return plainValue(reader);
  const items: unknown[] = [];
  if (!reader.openItems()) return items;
  do {
    reader.item(items.length);
    items.push(reader.bytes[reader.at] === BRACE ? objectOf(reader, level) : plainValue(reader));
  } while (reader.moreItems());
  return items;
}

function objectOf(reader: MemberReader, level: Level): Members {
  const members: Members = {};
  if (!reader.openLevel(level)) return members;
  do {
    const index = reader.name(level);
    reader.colon();
    if (reader.members > BODY_TREE_MEMBERS_MAX) throw tooManyMembers();
    if (index < 0) reader.skipValue();
    else members[level.names[index]!] = knownValue(reader, level, index);
  } while (reader.moreMembers());
  return members;
}

/** The error for too many members: as parsed objects they take more memory than their bytes. */
export function tooManyMembers(): BodyError {
  return new BodyError(`the request body must have at most ${BODY_TREE_MEMBERS_MAX} members in all`);
}

/**
 * Reads a value in which no names are known. Only strings, numbers and lists of the request itself are
 * parsed.
 */
function plainValue(reader: MemberReader): unknown {
  const { bytes, at: start } = reader;
  const first = bytes[start];
  if (first === QUOTE) return textOf(reader);
  const isListOfRequest = first === BRACKET && reader.depth === 1;
  reader.skipValue();
  if (first === BRACE) return ANY_OBJECT;
  if (first === BRACKET && !isListOfRequest) return ANY_ARRAY;
  if (first === LETTER_T) return true;
  if (first === LETTER_F) return false;
  const isNumber = first !== undefined && first < LETTER_F && first !== BRACKET;
  if (isNumber) return numberOf(bytes, start, reader.at);
  // A list such as `stop_sequences`, or `null`.
  return JSON.parse(bytes.toString('utf8', start, reader.at));
}

/** The text of a short string, one character for each byte; LONG_TEXT for a long string. */
function textOf(reader: MemberReader): string {
  const start = reader.at;
  const hasEscapes = reader.skipText();
  if (reader.at - start > SHORT_BYTES_MAX) return LONG_TEXT;
  return hasEscapes
    ? reader.decoded(start, reader.at)
    : reader.bytes.toString('latin1', start + 1, reader.at - 1);
}

/** Most numbers are a few digits, for which this takes a tenth of the time of Number(). */
function numberOf(bytes: Buffer, start: number, end: number): number {
  let value = 0;
  for (let at = start; at < end; at++) {
    const digit = bytes[at]! - DIGIT_0;
    if (digit < 0 || digit > 9 || end - start > DIGITS_EXACT_MAX)
      return Number(bytes.toString('latin1', start, end));
    value = value * 10 + digit;
  }
  return value;
}
