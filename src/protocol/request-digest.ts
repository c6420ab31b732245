/**
 * The cache key of a request: SHA-256 of a canonical form of its body, and of the facts besides the body that
 * decide on the response. request/replay.ts calls it for models with a response cache. Pure; listener thread.
 *
 * Two bodies have the same canonical form if they differ only in white space between values, in the order of
 * the members of the request itself, and in members that no upstream bases its response on (IGNORED). All
 * values stay byte for byte: models read the order of members in a tool's schema, and 1.0 stays 1.0.
 *
 * Must hold: a member is in IGNORED only if no upstream bases its response on it; otherwise a caller gets the
 * response to another request (test/unit/protocol/request-digest.test.ts). request-bytes.ts has read the body
 * before, so the body is valid JSON without two members of one name: this file checks only that each string
 * ends, for its loop would not. A digest is synchronous, because all share the scratch buffers.
 *
 * Costs about 2 µs for a body of some hundred bytes, 3 ms a megabyte at most.
 */
import { hash } from 'node:crypto';
import { asBuffer } from '../core/bytes.js';
import { invariant } from '../core/errors.js';
import { BODY_AS_BYTES_MIN, type ChatCall } from './chat-call.js';
import { BACKSLASH, BRACE, BRACE_END, BRACKET, BRACKET_END, COMMA, QUOTE, SPACE } from './json-reader.js';

/**
 * Members that name the caller's user or steer the provider's own cache; and the model. `facts` has the
 * model's id instead, because aliases mean the same model. It also says whether a stream reports its usage to
 * the caller: the body asks for the usage in any case, for the gateway.
 */
const IGNORED: ReadonlySet<string> = new Set(['model', 'user', 'safety_identifier', 'prompt_cache_key']);

/** Fits a body that is a string, at three bytes a character: it is hardly longer than BODY_AS_BYTES_MIN. */
const SHORT_BYTES_MAX = 4 * BODY_AS_BYTES_MIN;
/** Scratch buffers, used by all requests of the thread in turn. A longer body gets buffers of its own. */
const SOURCE = Buffer.allocUnsafeSlow(SHORT_BYTES_MAX);
const COMPACT = Buffer.allocUnsafeSlow(SHORT_BYTES_MAX);
const HASHED = Buffer.allocUnsafeSlow(2 * SHORT_BYTES_MAX);

interface Member {
  readonly name: string;
  /** Positions in the compact body, of the member including its name. */
  readonly start: number;
  readonly end: number;
}

/**
 * Returns 64 hex digits. `facts`: what else decides on the response, as replay.ts makes it, a text without
 * line breaks: the line break after it begins the members, so no body can pass for other facts.
 */
export function requestDigestOf(
  { body, bodyIsAscii, largeBody }: Pick<ChatCall, 'body' | 'bodyIsAscii' | 'largeBody'>,
  facts: string,
): string {
  const bytes = largeBody === undefined ? sourceOf(body, bodyIsAscii) : asBuffer(largeBody);
  const compact = bytes.length <= SHORT_BYTES_MAX ? COMPACT : Buffer.allocUnsafe(bytes.length);
  const members = compactMembers(bytes, compact);
  members.sort((first, second) => (first.name < second.name ? -1 : 1));
  // Three bytes a character of `facts`, its line break, and a comma after each member.
  const lengthMax = bytes.length + members.length + 3 * facts.length + 1;
  const hashed = lengthMax <= HASHED.length ? HASHED : Buffer.allocUnsafe(lengthMax);
  let position = hashed.write(`${facts}\n`);
  for (const { start, end } of members) {
    position += compact.copy(hashed, position, start, end);
    hashed[position++] = COMMA;
  }
  return hash('sha256', hashed.subarray(0, position), 'hex');
}

function sourceOf(body: string, bodyIsAscii: boolean): Buffer {
  // A character of UTF-16 takes at most three bytes of UTF-8.
  const fitsSource = body.length * 3 <= SHORT_BYTES_MAX;
  if (!fitsSource) return Buffer.from(body, bodyIsAscii ? 'latin1' : 'utf8');
  return SOURCE.subarray(0, SOURCE.write(body, bodyIsAscii ? 'latin1' : 'utf8'));
}

/** Copies `bytes` to `compact` without white space between values. Returns the members, except IGNORED. */
function compactMembers(bytes: Buffer, compact: Buffer): Member[] {
  const members: Member[] = [];
  /** How many bytes `compact` has so far. */
  let compactBytes = 0;
  let depth = 0;
  /** Start of the current member in `compact`. */
  let start = 0;
  /** End of the current member's name; 0 before the name was read. */
  let nameEnd = 0;
  const endMember = (): void => {
    if (nameEnd === 0) return;
    const name = compact.toString('latin1', start + 1, nameEnd - 1);
    if (!IGNORED.has(name)) members.push({ name, start, end: compactBytes });
    nameEnd = 0;
  };
  for (let position = 0; position < bytes.length; position++) {
    const byte = bytes[position]!;
    if (byte === QUOTE) {
      const end = stringEnd(bytes, position);
      compactBytes += bytes.copy(compact, compactBytes, position, end);
      position = end - 1;
      if (depth === 1 && nameEnd === 0) nameEnd = compactBytes;
      continue;
    }
    // White space: outside of strings JSON has no other bytes up to it.
    if (byte <= SPACE) continue;
    if (byte === BRACE || byte === BRACKET) {
      depth += 1;
      // The request's own braces and commas are left out: members are put in the order of names.
      if (depth === 1) continue;
    } else if (byte === BRACE_END || byte === BRACKET_END) {
      depth -= 1;
      if (depth === 0) {
        endMember();
        break;
      }
    } else if (byte === COMMA && depth === 1) {
      endMember();
      start = compactBytes;
      continue;
    }
    compact[compactBytes++] = byte;
  }
  return members;
}

/** The position after the closing quote of the string that begins at `start`. */
function stringEnd(bytes: Buffer, start: number): number {
  for (let quote = bytes.indexOf(QUOTE, start + 1); ; quote = bytes.indexOf(QUOTE, quote + 1)) {
    invariant(quote > 0, 'each string of the body ends');
    let firstBackslash = quote;
    while (bytes[firstBackslash - 1] === BACKSLASH) firstBackslash -= 1;
    // A quote after an even number of backslashes ends the string.
    if ((quote - firstBackslash) % 2 === 0) return quote + 1;
  }
}
