/**
 * Checks that a whole response is JSON, and reads its members. Truncated responses, two objects, invalid
 * UTF-8, a byte-order mark, and anything after the object are rejected. response-reader.ts calls
 * `membersOfResponse`. Pure; upstream worker.
 *
 * A response of at most PARSED_BYTES_MAX, as most are, is parsed. Parsing a longer response would cost a
 * fifth (8 KB) to two thirds (128 KB) of the call, nearly all of it for one long text. A look at each byte,
 * or a regular expression, costs half of that or more. So a longer response is checked in part:
 *
 *     ┌─ head ─┐                                                                     ┌───── tail ─────┐
 *     {"id":…,"choices":[{"message":{"content":"a long text, sampled in four places"}}],"usage":{…}}
 *
 * - exactly: all of it is UTF-8; head and tail joined are JSON, so each of them is cut within a string, and
 *   braces and brackets match; the text between them has no line break, and no end of an object followed by
 *   the start of the next;
 * - by samples, in four places of the text: 16 quotes have their backslash, 64 bytes are not control
 *   characters.
 *
 * A response that fails this check is parsed as a whole. Some responses pass that are bad deep in their text:
 * with a stray quote, a control character other than a line break, or an unknown escape. If one string ends
 * and another begins between the samples, such as that of the next choice, what is between them is not read.
 * If a member comes twice, the last value is read.
 *
 * Must hold (test/unit/upstream/hostile-answers.test.ts): a good chat completion is never rejected, and a bad
 * end or a bad beginning never passes.
 */
import { isUtf8 } from 'node:buffer';
import { isRecord, parsedJson } from '../core/json.js';
import { BACKSLASH, QUOTE, SPACE } from '../protocol/json-reader.js';

/** About 700 tokens. Parsing takes 2 to 5 µs, the partial check 3. */
const PARSED_BYTES_MAX = 4 * 1024;
/** Reaches past id, model and role into the text. */
const HEAD_BYTES = 384;
/** Reaches before usage with its details into the text. */
const TAIL_BYTES = 896;

const SAMPLES = 4;
/** How many quotes and how many bytes are checked from the start of each sample. */
const SAMPLE_QUOTES = 16;
const SAMPLE_BYTES = 64;

/** The length of `\u0000`: a cut with no backslash in so many bytes before it is not inside an escape. */
const ESCAPE_BYTES_MAX = 6;
const CUT_TRIES = 16;

const LF = 0x0a;
/** The end of an object and the start of the next: in a string the quote would have a backslash. */
const NEXT_OBJECT = Buffer.from('}{"');

/** Undefined if it is no JSON object. Texts are Latin-1, cut in a long response. 1.3 µs for 550 bytes. */
export function membersOfResponse(response: Buffer): Record<string, unknown> | undefined {
  if (!isUtf8(response)) return undefined;
  const members = response.length > PARSED_BYTES_MAX ? membersAround(response) : undefined;
  if (members !== undefined) return members;
  // Latin-1 takes half the time, and is JSON exactly if UTF-8 is: only strings go beyond ASCII.
  const value = parsedJson(response.toString('latin1'));
  return isRecord(value) ? value : undefined;
}

/** Reads head and tail alone; undefined if the whole must be parsed. */
function membersAround(response: Buffer): Record<string, unknown> | undefined {
  const textStart = cutFrom(response, HEAD_BYTES, -1);
  const textEnd = cutFrom(response, response.length - TAIL_BYTES, 1);
  if (textStart < 0 || textEnd < 0) return undefined;
  // The letter between head and tail is JSON only in a string, so both cuts must be in one string.
  const ends = `${response.toString('latin1', 0, textStart)}x${response.toString('latin1', textEnd)}`;
  const members = parsedJson(ends);
  return isRecord(members) && isLikelyText(response.subarray(textStart, textEnd)) ? members : undefined;
}

/**
 * The first position from `position` on, in that direction, that is not inside an escape, should it be inside
 * a string; -1 if there is none within CUT_TRIES steps.
 */
function cutFrom(response: Buffer, position: number, direction: 1 | -1): number {
  for (let cut = position, tries = 0; tries < CUT_TRIES; tries++, cut += direction * ESCAPE_BYTES_MAX) {
    let distance = 1;
    while (distance <= ESCAPE_BYTES_MAX && response[cut - distance] !== BACKSLASH) distance++;
    if (distance > ESCAPE_BYTES_MAX) return cut;
  }
  return -1;
}

/** Whether the samples hold nothing that a JSON string cannot contain. */
function isLikelyText(text: Buffer): boolean {
  if (text.includes(LF) || text.includes(NEXT_OBJECT)) return false;
  const step = Math.ceil(text.length / SAMPLES);
  let quote = -1;
  for (let start = 0; start < text.length; start += step) {
    const controlEnd = Math.min(text.length, start + SAMPLE_BYTES);
    for (let position = start; position < controlEnd; position++) if (text[position]! < SPACE) return false;
    for (let count = 0; count < SAMPLE_QUOTES; count++) {
      quote = text.indexOf(QUOTE, Math.max(start, quote + 1));
      // No quote is left, neither for this sample nor for later ones.
      if (quote < 0) quote = text.length;
      if (quote === text.length) break;
      if (!isEscaped(text, quote)) return false;
    }
  }
  return true;
}

/** Whether an odd number of backslashes is before `position`. The text does not start inside an escape. */
function isEscaped(text: Buffer, position: number): boolean {
  let backslashStart = position;
  while (text[backslashStart - 1] === BACKSLASH) backslashStart--;
  return (position - backslashStart) % 2 === 1;
}
