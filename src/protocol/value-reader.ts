/**
 * Reads those values of a request that have rules, in the form in which the validator gets them: a string, a
 * number, or an empty object or array in place of one with contents. chat-scan.ts uses it. Pure; any thread.
 *
 * Must hold: a number that decoders read differently is rejected, though its value is valid
 * (test/unit/protocol/request-bytes.chat-request.test.ts).
 */
import { BodyError, BRACE, BRACKET, QUOTE } from './json-reader.js';
import { MemberReader, NAME_CHARS_MAX } from './member-reader.js';

/**
 * Bytes that are read of a string that a rejection may repeat: enough for the characters that `got` shows.
 */
const SHOWN_BYTES_MAX = 512;
/** A double holds every integer of so many digits exactly. */
const DIGITS_EXACT_MAX = 15;
/** No number with a rule needs more characters. Decoders round a longer one differently, or take long. */
const NUMBER_CHARS_MAX = 64;

/** Stand for values whose contents have no rule. */
export const ANY_OBJECT = Object.freeze({});
export const ANY_ARRAY: readonly unknown[] = Object.freeze([]);

export class ValueReader extends MemberReader {
  /** The message for the first number whose value is valid, but which some decoders read differently. */
  numberError: string | undefined;

  /** Returns a string in full, and any other value as `value` does. */
  whole(first: number, isAscii: boolean): unknown {
    const start = this.at;
    if (first !== QUOTE) return this.value();
    if (this.skipText()) return this.decoded(start, this.at);
    return this.bytes.toString(isAscii ? 'latin1' : 'utf8', start + 1, this.at - 1);
  }

  /** Returns the value; of a long string its beginning, of an object or array an empty one. */
  value(): unknown {
    const start = this.at;
    const first = start < this.end ? this.bytes[start]! : -1;
    if (first === BRACE || first === BRACKET) {
      this.skipValue();
      return first === BRACE ? ANY_OBJECT : ANY_ARRAY;
    }
    this.skipPlain(first);
    if (first === QUOTE) return this.shown(start, this.at);
    // The `t` of true, the `f` of false, the `n` of null.
    if (first === 116) return true;
    if (first === 102) return false;
    if (first === 110) return null;
    const length = this.at - start;
    if (length <= DIGITS_EXACT_MAX) {
      let value = 0;
      let at = start;
      for (; at < this.at; at++) {
        const digit = this.bytes[at]! - 48;
        // A sign, a point or an exponent: Number() reads it, below.
        if (digit < 0 || digit > 9) break;
        value = value * 10 + digit;
      }
      if (at === this.at) return value;
    }
    if (length > NUMBER_CHARS_MAX) {
      const name = `${this.prefix()}${this.lastName() || 'a number'}`;
      throw new BodyError(`${name} must be written in at most ${NUMBER_CHARS_MAX} characters`);
    }
    return Number(this.bytes.toString('latin1', start, this.at));
  }

  /** The value of an integer. Decoders agree only on plain digits: `1e2` and `1.0` are read differently. */
  integer(): unknown {
    const start = this.at;
    const value = this.value();
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 0) return value;
    let at = start;
    while (at < this.end && this.bytes[at]! >= 48 && this.bytes[at]! <= 57) at++;
    const isPlain = at === this.at;
    if (isPlain && value <= Number.MAX_SAFE_INTEGER) return value;
    const name = this.lastName();
    const rule = isPlain ? `be at most ${Number.MAX_SAFE_INTEGER}` : 'be written in digits alone';
    const text = this.bytes.toString('latin1', start, this.at);
    this.numberError ??= `${name} must ${rule}, got ${text.slice(0, NAME_CHARS_MAX)}`;
    return value;
  }

  /** Returns the text of a string that was read; of a long one its beginning. */
  shown(start: number, end: number): string {
    if (end - start <= SHOWN_BYTES_MAX) return this.decoded(start, end);
    // The cut must not be within an escape (92 is a backslash, 117 the `u` of \uXXXX) or a UTF-8 character.
    let at = start + 1;
    for (let next = at; next <= start + SHOWN_BYTES_MAX;) {
      at = next;
      const byte = this.bytes[at]!;
      if (byte === 92) next += this.bytes[at + 1] === 117 ? 6 : 2;
      else next += byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    }
    return JSON.parse(`${this.bytes.toString('utf8', start, at)}"`) as string;
  }
}
