/**
 * Parses JSON and writes it again without loss of digits. A number of JavaScript has 53 bits, and ids of
 * databases in the arguments of tools have 64. Translations to and from providers use it. Pure; any thread.
 *
 * exactJson puts a string of MARK and the digits in place of an integer that a number cannot hold;
 * exactJsonText writes the digits alone. MARK is random, so no caller's text is taken for one.
 *
 * Must hold: every digit of an integer stays, all else is as JSON.parse reads it, and a long text costs
 * bounded time (test/unit/core/exact-json.test.ts).
 */
import { randomUUID } from 'node:crypto';
import { parsedJson } from './json.js';

const MARK = `integer ${randomUUID()} `;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, 'g');
/** A text without this has no such integer. upstream/door-call.ts looks for it too. */
export const LONG_INTEGER = /\d{16}/;
/**
 * A string without its end takes all the rest of the text, which is no JSON then. Otherwise each quote in it
 * would be tried anew, up to the end.
 */
const STRINGS_AND_NUMBERS = /"[^"\\]*(?:\\[^][^"\\]*)*(?:"|\\?$)|-?\d[\d.eE+-]*/g;
const INTEGER = /^-?[1-9]\d{15,}$/;
/** A longer text goes to JSON.parse as it is, and may lose digits: to mark it would take too long. */
const CHARS_MAX = 1024 * 1024;

/**
 * As parsedJson, with integers beyond 2^53 marked. Write the value by exactJsonText alone. Nothing is marked
 * in a text without `near`, which is found faster than digits are.
 */
export function exactJson(text: string, near = ''): unknown {
  if (text.length > CHARS_MAX || !text.includes(near) || !LONG_INTEGER.test(text)) return parsedJson(text);
  return parsedJson(
    text.replace(STRINGS_AND_NUMBERS, (token) =>
      INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? `"${MARK}${token}"` : token,
    ),
  );
}

/** The JSON text of `value`, with the digits in place of the marks of exactJson. */
export function exactJsonText(value: unknown): string {
  const text = JSON.stringify(value);
  return text.includes(MARK) ? text.replace(MARKED, '$1') : text;
}
