/**
 * JSON that is read and written again without loss of digits: numbers keep 53 bits, and ids of databases and
 * posts in arguments of tools have 64. Translations to and from providers use it. Pure; any thread.
 *
 * A parsed value has, in place of an integer that a number cannot hold, a string of the mark and its digits;
 * exactJsonText writes the digits alone. Nobody outside can know the mark, so no text is taken for one.
 *
 * Must hold: every digit of an integer stays, all else is as JSON.parse reads it, and a long text costs
 * bounded time. Test: unit/core/exact-json.
 */
import { randomUUID } from 'node:crypto';
import { parsedJson } from './json.js';

const MARK = `integer ${randomUUID()} `;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, 'g');
/** What may be such an integer, somewhere. */
const LONG = /\d{16}/;
const STRINGS_AND_NUMBERS = /"[^"\\]*(?:\\[^][^"\\]*)*"|-?\d[\d.eE+-]*/g;
const INTEGER = /^-?[1-9]\d{15,}$/;
/** A longer text is parsed as it is: some digits are lost there, and it costs what it always cost. */
const CHARS_MAX = 1024 * 1024;

/**
 * As parsedJson, but that integers beyond 2^53 are marked. To be written by exactJsonText alone. `near`: they
 * matter only in a text that has this, for which to look costs less than to look for digits.
 */
export function exactJson(text: string, near = ''): unknown {
  if (text.length > CHARS_MAX || !text.includes(near) || !LONG.test(text)) return parsedJson(text);
  return parsedJson(
    text.replace(STRINGS_AND_NUMBERS, (token) =>
      INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? `"${MARK}${token}"` : token,
    ),
  );
}

/** The JSON text of `value`, in which exactJson may have left marks. */
export function exactJsonText(value: unknown): string {
  const text = JSON.stringify(value);
  return text.includes(MARK) ? text.replace(MARKED, '$1') : text;
}
