/**
 * Parses JSON and writes it again without loss of digits. A number of JavaScript has 53 bits, and ids of
 * databases in the arguments of tools have 64. The translators below providers/ and doors/messages/ call it,
 * and upstream/ (door-call.ts, upstream-body.ts, large-translation.ts). Each translation writes what it has
 * parsed. Pure; any thread.
 *
 * In place of an integer that a number cannot hold, exactJson puts a mark: a string of MARK and the digits.
 * exactJsonText writes the digits alone. MARK is random in each thread, so no caller's text is taken for a
 * mark. A parsed value is written by exactJsonText alone, and must not go to another thread before.
 *
 * Must hold: every digit of an integer stays up to CHARS_MAX, all else is as JSON.parse reads it, and a long
 * text costs bounded time.
 */
import { randomUUID } from 'node:crypto';
import { parsedJson } from './json.js';

const MARK = `integer ${randomUUID()} `;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, 'g');
/** A text without a match has no integer beyond 2^53. upstream/door-call.ts uses the pattern too. */
export const LONG_INTEGER = /\d{16}/;
/**
 * Strings are matched so that digits in them are skipped. A string that does not end (then the text is no
 * JSON) matches up to the end of the text: otherwise the search would go on at each later quote, and take
 * time that grows with the square of the length.
 */
const STRINGS_AND_NUMBERS = /"[^"\\]*(?:\\[^][^"\\]*)*(?:"|\\?$)|-?\d[\d.eE+-]*/g;
/** Of 16 digits or more. Shorter integers are below 2^53. */
const INTEGER = /^-?[1-9]\d{15,}$/;
/** After an integer: it stands in the place of a member's name, so the text is no JSON, and stays none. */
const NAME_END = /[ \t\n\r]*:/y;
/** A longer text goes to JSON.parse as it is, and may lose digits: to mark them would take too long. */
const CHARS_MAX = 1024 * 1024;

/**
 * As parsedJson (undefined for malformed JSON), with integers beyond 2^53 marked. Nothing is marked in a text
 * without `requiredWord`, such as `tool_use`: the word is found faster than digits are.
 */
export function exactJson(text: string, requiredWord = ''): unknown {
  const mayHaveMarks = text.length <= CHARS_MAX && text.includes(requiredWord) && LONG_INTEGER.test(text);
  if (!mayHaveMarks) return parsedJson(text);
  return parsedJson(
    text.replace(STRINGS_AND_NUMBERS, (token, position: number) =>
      INTEGER.test(token) && !Number.isSafeInteger(Number(token)) && !isNameEnd(text, position + token.length)
        ? `"${MARK}${token}"`
        : token,
    ),
  );
}

function isNameEnd(text: string, position: number): boolean {
  NAME_END.lastIndex = position;
  return NAME_END.test(text);
}

/** The JSON text of `value`, with the digits in place of the marks of exactJson. `value` is not undefined. */
export function exactJsonText(value: unknown): string {
  const text = JSON.stringify(value);
  return text.includes(MARK) ? text.replace(MARKED, '$1') : text;
}
