/**
 * A JsonReader that checks the member names of each object: a known name has its exact spelling, and no name
 * is given twice, in whatever case. doors/member-scan.ts and doors/known-values.ts use it; chat-scan.ts uses
 * ValueReader, which also reads the values that have rules. Any thread.
 *
 * Must hold: a body is rejected if some decoder takes two of its members for one, and its names, which no
 * budget counts, stay in memory at most until the next body (test/unit/protocol/known-members.test.ts). A
 * number that decoders read differently is rejected, though its value is valid
 * (request-bytes.chat-request.test.ts there). A pass over a body ends before the next begins, because the
 * stack of open objects is in arrays of the module: otherwise `openLevel` throws. Each member of an object
 * that `openLevel` has entered is read by `readName`; a member read by `skipString` would not be checked.
 */
import { invariant } from '../core/errors.js';
import { BODY_MEMBERS_MAX, BODY_NESTING_MAX, BODY_OTHER_NAMES_MAX } from '../core/limits.js';
import { USUAL_SERVICE_TIERS, type RoutingMember } from '../core/routing-members.js';
import { clipped } from '../core/wrong-input.js';
import {
  BACKSLASH,
  BodyError,
  BRACE,
  BRACKET,
  JsonReader,
  LETTER_F,
  LETTER_N,
  LETTER_T,
  LETTER_U,
  NINE,
  QUOTE,
  SPACE,
  ZERO,
} from './json-reader.js';
import {
  FOLDED,
  foldedName,
  hashWith,
  spellingOf,
  steeringOf,
  UNKNOWN,
  type Level,
  type Steering,
  storedIn,
  type StoredKind,
} from './known-members.js';

/** Characters of the sender's text that a rejection repeats. */
const NAME_CHARS_MAX = 40;

/** By depth: the known names of the open object; undefined for an array. */
const LEVELS: (Level | undefined)[] = Array.from({ length: BODY_NESTING_MAX + 1 }, () => undefined);
/** By depth: the index of the item, or of the known name, that is being read. */
const POSITIONS = new Int32Array(BODY_NESTING_MAX + 1);
/** By depth: a bit for each known name that was given. A level has at most 31 names (known-members.ts). */
const GIVEN_NAMES = new Int32Array(BODY_NESTING_MAX + 1);
/** By depth: the unknown names that were given, folded. A single name, the common case, needs no Set. */
const UNKNOWN_NAMES: (string | Set<string> | undefined)[] = LEVELS.map(() => undefined);
/** The greatest depth that may have a name there: the next body drops the names, which may be long. */
let unknownNamesDepth = 0;

/** How many passes have begun. The arrays above belong to the last one. */
let passes = 0;

/** One frozen array for all requests without such members, which are most. */
export const NO_MEMBERS: readonly RoutingMember[] = Object.freeze([]);

/** Whether a value is null or false, by its first byte. A member with such a value asks for nothing. */
export const isNullOrFalse = (firstByte: number | undefined): boolean =>
  firstByte === LETTER_N || firstByte === LETTER_F;

export class MemberReader extends JsonReader {
  /** Kinds of stored things (files, audio, caches) that the request has named so far. */
  storedMembers = NO_MEMBERS;
  /** Number of parts of the prompt so far that are not text, or of a type that is not known. */
  mediaParts = 0;
  /** What the last unknown name of the request itself does to the call; undefined if nothing. */
  #steering: Steering | undefined = undefined;
  /** Which of `passes` this is; -1 before `openBody`. */
  #pass = -1;
  /** Number of unknown names so far, in all objects. */
  #unknownNames = 0;

  /** Goes to the first byte of the body, and returns it. Throws for an empty body or a byte-order mark. */
  openBody(): number {
    const firstByte = this.skipSpace();
    if (firstByte === -1) throw new BodyError('the request body must be a JSON object, got an empty body');
    if (this.bytes[0] === 0xef && this.bytes[1] === 0xbb && this.bytes[2] === 0xbf)
      throw new BodyError('the request body must not start with a byte-order mark');
    for (; unknownNamesDepth > 0; unknownNamesDepth--) UNKNOWN_NAMES[unknownNamesDepth] = undefined;
    this.#pass = ++passes;
    return firstByte;
  }

  /** As `openObject`, for an object whose names are those of `level`. */
  openLevel(level: Level): boolean {
    invariant(this.#pass === passes, 'a pass over a body is over before the next begins');
    if (!this.openObject()) return false;
    LEVELS[this.depth] = level;
    GIVEN_NAMES[this.depth] = 0;
    UNKNOWN_NAMES[this.depth] = undefined;
    return true;
  }

  /** As `openArray`, for an array whose items may be objects with known names. */
  openItems(): boolean {
    if (!this.openArray()) return false;
    LEVELS[this.depth] = undefined;
    return true;
  }

  /** Call before each item of an array that `openItems` has entered: errors then name its index. */
  startItem(index: number): void {
    POSITIONS[this.depth] = index;
  }

  /**
   * Steps over the name at `position`, a member of the open object, whose level is `level`. Returns its index
   * in `level`, or UNKNOWN. Throws for a name that was given before, and for a known name in another case.
   */
  readName(level: Level): number {
    const { bytes, end, depth } = this;
    const start = this.position + 1;
    let at = start;
    let hash = 0;
    let byte = -1;
    while (at < end) {
      byte = bytes[at]!;
      // Stops at the quote, a backslash, a control character, or a byte beyond ASCII.
      if (byte === QUOTE || byte === BACKSLASH || byte < SPACE || byte > 127) break;
      hash = hashWith(hash, byte);
      at++;
    }
    let name: string | undefined;
    let index: number;
    if (byte === QUOTE && at < end) {
      this.position = at + 1;
      index = level.find(bytes, start, at, hash);
    } else {
      this.skipString();
      name = this.decoded(start - 1, this.position);
      if (name.includes('\0'))
        throw new BodyError(`a name in ${this.#path() || 'the request'} must not have NUL`);
      index = level.findDecoded(name);
    }
    if (index >= 0) {
      const bit = 1 << index;
      if ((GIVEN_NAMES[depth]! & bit) !== 0) throw this.#givenTwice(level.names[index]!);
      GIVEN_NAMES[depth]! |= bit;
      POSITIONS[depth] = index;
      return index;
    }
    name ??= bytes.toString('latin1', start, at);
    if (index !== UNKNOWN) {
      const spelling = spellingOf(level.names[FOLDED - index]!);
      const givenName = `${this.pathPrefix()}${clipped(name, NAME_CHARS_MAX)}`;
      throw new BodyError(`${givenName} must be written as ${spelling}`);
    }
    this.#checkUnknown(name, depth);
    return UNKNOWN;
  }

  /** Checks a name that the level at `depth` does not have. Sets `#steering` if the request itself has it. */
  #checkUnknown(name: string, depth: number): void {
    if (++this.#unknownNames > BODY_OTHER_NAMES_MAX) {
      throw new BodyError(
        `the request body must have at most ${BODY_OTHER_NAMES_MAX} members that the interface does not name`,
      );
    }
    const folded = foldedName(name);
    if (depth === 1) {
      const steering = (this.#steering = steeringOf(folded));
      if (steering !== undefined && steering.name !== name) {
        throw new BodyError(`${clipped(name, NAME_CHARS_MAX)} must be written as ${steering.name}`);
      }
    }
    const earlierNames = UNKNOWN_NAMES[depth];
    if (earlierNames === undefined) {
      UNKNOWN_NAMES[depth] = folded;
      if (depth > unknownNamesDepth) unknownNamesDepth = depth;
      return;
    }
    const names = typeof earlierNames === 'string' ? new Set([earlierNames]) : earlierNames;
    UNKNOWN_NAMES[depth] = names;
    if (names.has(folded)) throw this.#givenTwice(name);
    names.add(folded);
    if (names.size > BODY_MEMBERS_MAX) {
      throw new BodyError(
        `${this.#path() || 'the request body'} must have at most ${BODY_MEMBERS_MAX} members`,
      );
    }
  }

  /**
   * Skips the value of a member of the request itself whose name `readName` has just found to be UNKNOWN.
   * Returns the member if it steers the call to another model, provider or price, else undefined. Throws if
   * the member makes more output than the hold covers. `outputTokens`: the door's member that bounds the
   * output, for the message; undefined if the door has none.
   */
  skipUnknown(outputTokens: string | undefined): RoutingMember | undefined {
    const start = this.position;
    this.skipValue();
    const steering = this.#steering;
    if (steering === undefined) return undefined;
    const { bytes, position } = this;
    if (isNullOrFalse(bytes[start])) return undefined;
    if (steering.kind === 'output') {
      const instead = steering.instead === 'max_tokens' ? outputTokens : steering.instead;
      const advice = instead === undefined ? '' : `, use ${instead}`;
      throw new BodyError(`${steering.name} must not be given${advice}`);
    }
    const { name } = steering;
    const isUsual =
      name === 'service_tier' && USUAL_SERVICE_TIERS.includes(bytes.toString('latin1', start, position));
    return isUsual ? undefined : name;
  }

  /** Skips a member's value; checks the names in it if `level` knows them. `index`: of `readName`. */
  skipMember(level: Level, index: number): void {
    if (index < 0) {
      this.skipValue();
      return;
    }
    const start = this.position;
    const inner = level.inner[index];
    if (inner === undefined) this.skipValue();
    else this.#skipObjects(inner);
    this.recordStored(level.stored[index], start);
  }

  /** After a member's value, which begins at `start`: adds to `storedMembers` what it names of `kind`. */
  recordStored(kind: StoredKind | undefined, start: number): void {
    if (kind === undefined) return;
    const firstByte = this.bytes[start];
    // The data URL of an image names nothing stored, and would take long to decode.
    if (isNullOrFalse(firstByte) || this.bytes.toString('latin1', start, start + 6) === '"data:') return;
    const stored = storedIn(kind, firstByte === QUOTE ? this.decoded(start, this.position) : undefined);
    if (stored !== undefined && !this.storedMembers.includes(stored))
      this.storedMembers = [...this.storedMembers, stored];
  }

  /** Skips a value. The names of an object, or of objects in an array, are those of `level`. */
  #skipObjects(level: Level): void {
    const firstByte = this.bytes[this.position];
    if (firstByte !== BRACKET) {
      if (firstByte === BRACE) this.#skipObject(level);
      else this.skipValue();
      return;
    }
    if (!this.openItems()) return;
    let count = 0;
    do {
      this.startItem(count++);
      if (this.bytes[this.position] === BRACE) this.#skipObject(level);
      else this.skipValue();
    } while (this.moreItems());
  }

  #skipObject(level: Level): void {
    let typeStart = 0;
    let typeEnd = 0;
    if (!this.openLevel(level)) return;
    do {
      const index = this.readName(level);
      this.skipColon();
      const start = this.position;
      this.skipMember(level, index);
      if (index === UNKNOWN || index !== level.typeIndex) continue;
      typeStart = start;
      typeEnd = this.position;
    } while (this.moreMembers());
    this.countPart(level, typeStart, typeEnd);
  }

  /** After an object of `level`: counts a part that is not text. `[start, end)`: of its `type`, or empty. */
  countPart(level: Level, start: number, end: number): void {
    if (level.isOfParts && !level.isTextType(this.bytes, start, end)) this.mediaParts += 1;
  }

  #givenTwice(name: string): BodyError {
    return new BodyError(
      `${this.pathPrefix()}${clipped(name, NAME_CHARS_MAX)} must be given once, in whatever case`,
    );
  }

  /** Path of the open object, such as `messages[3].content[0]`; '' for the request itself. */
  #path(): string {
    let path = '';
    for (let depth = 1; depth < this.depth; depth++) {
      const level = LEVELS[depth];
      const position = POSITIONS[depth]!;
      path += level === undefined ? `[${position}]` : `${path === '' ? '' : '.'}${level.names[position]!}`;
    }
    return path;
  }

  /** The path with a dot, for a name to follow; '' for the request itself. */
  pathPrefix(): string {
    const path = this.#path();
    return path === '' ? '' : `${path}.`;
  }

  /** The known name that was read last in the open object; '' outside of objects, and in an array. */
  lastKnownName(): string {
    return this.depth === 0 ? '' : (LEVELS[this.depth]?.names[POSITIONS[this.depth]!] ?? '');
  }

  /** The number from `start` to `position`. Most have few digits: a tenth of the time of Number(). */
  numberFrom(start: number): number {
    const { bytes, position: end } = this;
    let value = 0;
    for (let at = start; at < end; at++) {
      const digit = bytes[at]! - ZERO;
      // A sign, a point, an exponent, or too many digits.
      if (digit < 0 || digit > 9 || end - start > DIGITS_EXACT_MAX)
        return Number(bytes.toString('latin1', start, end));
      value = value * 10 + digit;
    }
    return value;
  }
}

/** The most digits of which a double holds every integer exactly. */
export const DIGITS_EXACT_MAX = 15;
/** Bytes that are read of a string that a rejection may repeat: enough for the characters that it shows. */
const SHOWN_BYTES_MAX = 512;
/** No number with a rule needs more characters. Decoders round a longer one differently, or take long. */
const NUMBER_CHARS_MAX = 64;

/** The validator gets these in place of an object and an array whose contents have no rule. */
export const ANY_OBJECT = Object.freeze({});
export const ANY_ARRAY: readonly unknown[] = Object.freeze([]);

/** Reads values that have rules, as the validator gets them: what an object or an array holds is left out. */
export class ValueReader extends MemberReader {
  /** The message for the first number that some decoders read differently, although its value is valid. */
  numberError: string | undefined;

  /** Returns a string in full, and any other value as `readValue` does. `isAscii`: the whole body is. */
  readWholeValue(firstByte: number, isAscii: boolean): unknown {
    const start = this.position;
    if (firstByte !== QUOTE) return this.readValue();
    if (this.skipText()) return this.decoded(start, this.position);
    return this.bytes.toString(isAscii ? 'latin1' : 'utf8', start + 1, this.position - 1);
  }

  /** Returns the value: of a long string its beginning, of an object or array an empty one. */
  readValue(): unknown {
    const start = this.position;
    const firstByte = start < this.end ? this.bytes[start]! : -1;
    if (firstByte === BRACE || firstByte === BRACKET) {
      this.skipValue();
      return firstByte === BRACE ? ANY_OBJECT : ANY_ARRAY;
    }
    this.skipScalar(firstByte);
    if (firstByte === QUOTE) return this.excerpt(start, this.position);
    if (firstByte === LETTER_T) return true;
    if (firstByte === LETTER_F) return false;
    if (firstByte === LETTER_N) return null;
    if (this.position - start > NUMBER_CHARS_MAX) {
      const name = `${this.pathPrefix()}${this.lastKnownName() || 'a number'}`;
      throw new BodyError(`${name} must be written in at most ${NUMBER_CHARS_MAX} characters`);
    }
    return this.numberFrom(start);
  }

  /** As `readValue`, for an integer. Decoders read `1e2` and `1.0` differently: these set `numberError`. */
  readInteger(): unknown {
    const start = this.position;
    const value = this.readValue();
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 0) return value;
    let at = start;
    while (at < this.end && this.bytes[at]! >= ZERO && this.bytes[at]! <= NINE) at++;
    const isPlain = at === this.position;
    if (isPlain && value <= Number.MAX_SAFE_INTEGER) return value;
    const name = this.lastKnownName();
    const rule = isPlain ? `be at most ${Number.MAX_SAFE_INTEGER}` : 'be written in digits alone';
    const text = this.bytes.toString('latin1', start, this.position);
    this.numberError ??= `${name} must ${rule}, got ${text.slice(0, NAME_CHARS_MAX)}`;
    return value;
  }

  /** Returns the text of a skipped string, or the beginning of a long text. Quotes are in the span. */
  excerpt(start: number, end: number): string {
    if (end - start <= SHOWN_BYTES_MAX) return this.decoded(start, end);
    // The cut must not be within an escape or a UTF-8 character.
    let at = start + 1;
    for (let next = at; next <= start + SHOWN_BYTES_MAX;) {
      at = next;
      const byte = this.bytes[at]!;
      if (byte === BACKSLASH) next += this.bytes[at + 1] === LETTER_U ? 6 : 2;
      else next += byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    }
    return JSON.parse(`${this.bytes.toString('utf8', start, at)}"`) as string;
  }
}
