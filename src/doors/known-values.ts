/**
 * Reads a body as far as a door's validator looks: the members that its levels name, and of long strings only
 * that they are there. member-scan.ts uses it in place of JSON.parse, which makes a tree of all that is in
 * the body and takes 1 µs more for a short one. Pure; listener thread and counter pool.
 *
 * Must hold: a validator that reads named members alone judges these values as it does those of JSON.parse
 * (test/unit/doors/messages/messages-door.test.ts).
 */
import { BODY_TREE_MEMBERS_MAX } from '../core/limits.js';
import { BodyError, BRACE, BRACKET, QUOTE } from '../protocol/json-reader.js';
import type { Level } from '../protocol/known-members.js';
import type { MemberReader } from '../protocol/member-reader.js';

/** With its quotes: longer than each word that a rule compares with, a role or the type of a tool. */
export const SHORT_BYTES_MAX = 64;
/** Is no such word, and matches no pattern of one. */
const LONG_TEXT = '\u2026';
/** A double holds every integer of so many digits exactly. */
export const DIGITS_EXACT_MAX = 15;
const DIGIT_0 = 48;

const LETTER_T = 116;
const LETTER_F = 102;

/** Stand-ins for values whose contents no rule reads. */
const ANY_OBJECT = Object.freeze({});
const ANY_ARRAY: readonly unknown[] = Object.freeze([]);

type Members = Record<string, unknown>;

/**
 * Reads the value of a member past, and checks the names within it (as `MemberReader.skipMember` does).
 * Returns the value if `level` names the member, else undefined.
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

/** Of an object, or an array of objects, whose names are those of `level`. */
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

/** Members become objects, which take more memory than their bytes. */
export function tooManyMembers(): BodyError {
  return new BodyError(`the request body must have at most ${BODY_TREE_MEMBERS_MAX} members in all`);
}

/** Of a value in which no names are known. */
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

/** The text of a short string, byte by byte; of a long one LONG_TEXT. */
function textOf(reader: MemberReader): string {
  const start = reader.at;
  const hasEscapes = reader.skipText();
  if (reader.at - start > SHORT_BYTES_MAX) return LONG_TEXT;
  return hasEscapes
    ? reader.decoded(start, reader.at)
    : reader.bytes.toString('latin1', start + 1, reader.at - 1);
}

/** Mostly a few digits; of them this takes a tenth of the time of Number(). */
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
