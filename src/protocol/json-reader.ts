/**
 * A pull parser of JSON over bytes. It is as strict as JSON.parse, but builds no values: it finds where
 * values begin and end. It bounds nesting and the number of values, so that no body costs more memory than
 * its own bytes. MemberReader (member-reader.ts) extends it for the bodies of requests. request-bytes.ts,
 * upstream/prompt-text.ts and providers/anthropic/anthropic.ts use it directly. Pure; any thread.
 *
 * Must hold: the caller has checked that the bytes are UTF-8, or checks each value that it decodes. What
 * JSON.parse rejects is rejected here too, if the caller checks that nothing follows: `skipSpace()` is then
 * -1 (test/unit/protocol/json-reader.test.ts compares both). An escape of half a surrogate pair is rejected
 * as well: some decoders reject it, some replace the character, some keep the half until an encoder fails.
 *
 * Costs 0.3 to 0.5 ms a megabyte of plain strings and at most 6 ms a megabyte of anything else. So listeners
 * leave large bodies to counter threads.
 */
import { BODY_NESTING_MAX, BODY_VALUES_MAX } from '../core/limits.js';

/** Why a body is rejected. The message is for the sender of the body. */
export class BodyError extends Error {}

// Bytes of JSON, as ASCII has them. Below SPACE are the control characters.
const TAB = 9;
const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;
export const SPACE = 32;
export const QUOTE = 34;
export const BRACKET = 91;
export const BRACE = 123;
export const COMMA = 44;
export const MINUS = 45;
const PLUS = 43;
const DOT = 46;
export const ZERO = 48;
export const NINE = 57;
const COLON = 58;
export const BACKSLASH = 92;
export const BRACKET_END = 93;
export const BRACE_END = 125;
export const LETTER_N = 110;
export const LETTER_T = 116;
export const LETTER_F = 102;
export const LETTER_U = 117;
const LETTER_E = 101;
/** An upper-case ASCII letter and its lower case differ in this bit. */
export const CASE_BIT = 32;

/** A shorter body is read byte by byte, because making the DataView would cost more than it saves. */
const VIEW_BYTES_MIN = 1024;

/** By byte: 1 if it makes an escape of two characters with a backslash; 0 for `u` and all other bytes. */
const SIMPLE_ESCAPES = new Uint8Array(256);
for (const letter of '"\\/bfnrt') SIMPLE_ESCAPES[letter.charCodeAt(0)] = 1;
/** By byte: the value of a hexadecimal digit plus 1; 0 for all other bytes. */
const HEX_DIGITS = new Uint8Array(256);
for (let digit = 0; digit < 16; digit++) {
  HEX_DIGITS[digit.toString(16).charCodeAt(0)] = digit + 1;
  HEX_DIGITS[digit.toString(16).toUpperCase().charCodeAt(0)] = digit + 1;
}

const TRUE = Buffer.from('true');
const FALSE = Buffer.from('false');
const NULL = Buffer.from('null');

/**
 * `position` is an index of `bytes`. A method that reads a value starts with `position` on the first byte of
 * the value and ends with `position` after its last byte. It throws a BodyError if the JSON is not valid; the
 * reader cannot be used after that. A method for one kind of value does not check the first byte.
 *
 *     if (reader.openObject())
 *       do { reader.skipString(); reader.skipColon(); reader.skipValue(); } while (reader.moreMembers());
 */
export class JsonReader {
  position = 0;
  /** Number of open brackets and braces. */
  depth = 0;
  /** Number of members whose name was read, with nested members; doors/member-scan.ts bounds it. */
  memberCount = 0;
  readonly bytes: Buffer;
  /** Length of `bytes`. */
  readonly end: number;
  /** Values that have begun, also nested ones. */
  #valueCount = 0;
  readonly #valuesMax: number;
  /** Over `bytes`; undefined for a short body. */
  readonly #view: DataView | undefined;

  /** `valuesMax`: Infinity for a body whose values were counted before. */
  constructor(bytes: Uint8Array, valuesMax = BODY_VALUES_MAX) {
    const { buffer, byteOffset, length } = bytes;
    this.bytes = Buffer.from(buffer as ArrayBuffer, byteOffset, length);
    this.end = length;
    this.#valuesMax = valuesMax;
    this.#view = length < VIEW_BYTES_MIN ? undefined : new DataView(buffer, byteOffset, length);
  }

  /** Skips white space. Returns the byte at `position`, or -1 at the end. */
  skipSpace(): number {
    const { bytes, end } = this;
    let at = this.position;
    while (at < end) {
      const byte = bytes[at]!;
      if (
        byte > SPACE ||
        (byte !== SPACE && byte !== LINE_FEED && byte !== CARRIAGE_RETURN && byte !== TAB)
      ) {
        this.position = at;
        return byte;
      }
      at++;
    }
    this.position = at;
    return -1;
  }

  /** Enters an object. True with `position` on its first name's quote, or false after an empty object. */
  openObject(): boolean {
    this.#enter();
    const byte = this.skipSpace();
    if (byte === QUOTE) return true;
    if (byte === BRACE_END) return this.#leave();
    throw this.unexpected();
  }

  /** Call after each member. True with `position` on the next name's quote, or false after the object. */
  moreMembers(): boolean {
    const byte = this.skipSpace();
    if (byte === COMMA) {
      this.position++;
      if (this.skipSpace() === QUOTE) return true;
    } else if (byte === BRACE_END) return this.#leave();
    throw this.unexpected();
  }

  /** Enters an array. Returns true with `position` on its first item, or false after an empty array. */
  openArray(): boolean {
    this.#enter();
    return this.skipSpace() === BRACKET_END ? this.#leave() : true;
  }

  /** Call after each item. Returns true with `position` on the next item, or false after the array. */
  moreItems(): boolean {
    const byte = this.skipSpace();
    if (byte === COMMA) {
      this.position++;
      this.skipSpace();
      return true;
    }
    if (byte === BRACKET_END) return this.#leave();
    throw this.unexpected();
  }

  /** Call after a name. Goes to the value. Returns the first byte of the value, or -1 at the end. */
  skipColon(): number {
    if (this.skipSpace() !== COLON) throw this.unexpected();
    this.position++;
    this.memberCount++;
    return this.skipSpace();
  }

  /** Skips a value of any kind, with all that is in it. */
  skipValue(): void {
    const byte = this.position < this.end ? this.bytes[this.position]! : -1;
    if (byte === BRACE) {
      if (!this.openObject()) return;
      do {
        this.skipString();
        this.skipColon();
        this.skipValue();
      } while (this.moreMembers());
    } else if (byte === BRACKET) {
      if (!this.openArray()) return;
      do this.skipValue();
      while (this.moreItems());
    } else this.skipScalar(byte);
  }

  /** Skips a value that is a string, and counts it. Returns whether the string has escapes. */
  skipText(): boolean {
    this.#countValue();
    return this.skipString();
  }

  /** Skips a value that is neither object nor array. `firstByte`: of the value, or -1 at the end. */
  skipScalar(firstByte: number): void {
    this.#countValue();
    if (firstByte === QUOTE) this.skipString();
    else if (firstByte === LETTER_T) this.#skipLiteral(TRUE);
    else if (firstByte === LETTER_F) this.#skipLiteral(FALSE);
    else if (firstByte === LETTER_N) this.#skipLiteral(NULL);
    else this.#skipNumber(firstByte);
  }

  /** Skips a name or a string without a count: `skipText` counts. Returns whether there are escapes. */
  skipString(): boolean {
    const { bytes, end } = this;
    const view = this.#view;
    let at = this.position + 1;
    let isEscaped = false;
    for (;;) {
      if (view !== undefined) {
        // Skips four bytes at a time (SWAR) while none of them is a quote, a control character or a
        // backslash. With bit 1 flipped, quotes and control characters are the bytes below 33. This loop may
        // stop too early but never too late: the loop after it looks at each byte.
        for (const last = end - 4; at <= last; at += 4) {
          const word = view.getInt32(at, true);
          const flipped = word ^ 0x02020202;
          const backslashes = word ^ 0x5c5c5c5c;
          if (
            (((flipped - 0x21212121) & ~flipped) | ((backslashes - 0x01010101) & ~backslashes)) &
            // The highest bit of each byte.
            -0x7f7f7f80
          )
            break;
        }
      }
      let byte = -1;
      while (at < end) {
        byte = bytes[at]!;
        if (byte === QUOTE || byte === BACKSLASH || byte < SPACE) break;
        at++;
      }
      if (at >= end) throw this.#endsEarly();
      if (byte === QUOTE) {
        this.position = at + 1;
        return isEscaped;
      }
      if (byte !== BACKSLASH) throw broken('a control character in a string', at);
      isEscaped = true;
      at = this.#escapeEnd(at);
    }
  }

  /** The text of a name or string that was skipped. `[start, end)` includes its quotes. */
  decoded(start: number, end: number): string {
    return JSON.parse(this.bytes.toString('utf8', start, end)) as string;
  }

  /** The error to throw because of the byte at `position`. */
  unexpected(): BodyError {
    return this.position >= this.end ? this.#endsEarly() : broken('an unexpected character', this.position);
  }

  #endsEarly(): BodyError {
    return broken('an unexpected end', this.end);
  }

  #enter(): void {
    this.#countValue();
    if (++this.depth > BODY_NESTING_MAX) {
      throw new BodyError(`the request body must be nested at most ${BODY_NESTING_MAX} levels deep`);
    }
    this.position++;
  }

  /** Returns false, as the public methods do after an object or array. */
  #leave(): false {
    this.position++;
    this.depth--;
    return false;
  }

  #countValue(): void {
    if (++this.#valueCount > this.#valuesMax) {
      throw new BodyError(`the request body must have at most ${this.#valuesMax} values`);
    }
  }

  /** The position after the escape at `at`, or after both escapes of a surrogate pair. */
  #escapeEnd(at: number): number {
    const { bytes, end } = this;
    const letter = at + 1 < end ? bytes[at + 1]! : 0;
    if (SIMPLE_ESCAPES[letter] === 1) return at + 2;
    const unit = this.#codeUnitAt(at);
    if ((unit & 0xf800) !== 0xd800) return at + 6;
    // Half of a pair: 0xd800 to 0xdbff is a first half, 0xdc00 to 0xdfff a second one, which must follow it.
    const isEscapeNext = at + 7 < end && bytes[at + 6] === BACKSLASH && bytes[at + 7] === LETTER_U;
    if (unit < 0xdc00 && isEscapeNext && (this.#codeUnitAt(at + 6) & 0xfc00) === 0xdc00) return at + 12;
    throw new BodyError(
      `the request body must not have half of a surrogate pair (\\u${unit.toString(16)} at position ${at})`,
    );
  }

  /** The UTF-16 code unit of the escape `\uXXXX` at `at`. Throws for any other escape. */
  #codeUnitAt(at: number): number {
    const { bytes, end } = this;
    if (at + 6 > end) throw this.#endsEarly();
    const first = HEX_DIGITS[bytes[at + 2]!]!;
    const second = HEX_DIGITS[bytes[at + 3]!]!;
    const third = HEX_DIGITS[bytes[at + 4]!]!;
    const fourth = HEX_DIGITS[bytes[at + 5]!]!;
    if (bytes[at + 1] !== LETTER_U || first === 0 || second === 0 || third === 0 || fourth === 0) {
      throw broken('an unknown escape in a string', at);
    }
    return ((first - 1) << 12) | ((second - 1) << 8) | ((third - 1) << 4) | (fourth - 1);
  }

  #skipLiteral(literal: Uint8Array): void {
    const { bytes, position } = this;
    for (let index = 0; index < literal.length; index++) {
      if (bytes[position + index] === literal[index]) continue;
      this.position = position + index;
      throw this.unexpected();
    }
    this.position = position + literal.length;
  }

  #skipNumber(firstByte: number): void {
    let byte = firstByte;
    if (byte === MINUS) byte = this.#nextByte();
    if (byte === ZERO) byte = this.#nextByte();
    else byte = this.#skipDigits(byte);
    if (byte === DOT) byte = this.#skipDigits(this.#nextByte());
    if ((byte | CASE_BIT) === LETTER_E) {
      byte = this.#nextByte();
      if (byte === PLUS || byte === MINUS) byte = this.#nextByte();
      this.#skipDigits(byte);
    }
  }

  /** Steps over one byte. Returns the byte after it, or -1 at the end. */
  #nextByte(): number {
    const at = ++this.position;
    return at < this.end ? this.bytes[at]! : -1;
  }

  /** Skips at least one digit. Returns the byte after the digits, or -1 at the end. */
  #skipDigits(firstDigit: number): number {
    if (firstDigit < ZERO || firstDigit > NINE) throw this.unexpected();
    const { bytes, end } = this;
    let at = this.position + 1;
    let byte = -1;
    while (at < end && (byte = bytes[at]!) >= ZERO && byte <= NINE) at++;
    this.position = at;
    return at < end ? byte : -1;
  }
}

function broken(reason: string, position: number): BodyError {
  return new BodyError(`the request body must be valid JSON: ${reason} at position ${position}`);
}
