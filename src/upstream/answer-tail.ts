/**
 * Reads the members at the end of a whole answer, the usage among them, without parsing the text before them. Pure; upstream worker.
 */
import { isRecord, parsedJson } from './json-value.js';

const USAGE = Buffer.from('"usage"');
const CHOICES = Buffer.from('"choices"');
/** What follows the usage is some names. */
const TAIL_BYTES_MAX = 4 * 1024;

const BRACE = 0x7b;
const BRACKET = 0x5b;
const COLON = 0x3a;
const COMMA = 0x2c;
/** Space, and the line breaks and tabs below it. */
const SPACE = 0x20;

/**
 * The members of the answer from `usage` on; undefined where they can't be told from here, and then all must be parsed. A quarter of the
 * cost of that, and less for a long answer.
 *
 * Within a JSON string every quote has a backslash before it, so what reads `"usage"` is a member, or a whole string; and since its text and
 * what follows are one object, with no brace left over, it is a member of the outermost one. What comes before it is taken for good where it
 * begins like an object and holds a list of choices somewhere: that nothing of it is missing is known from HTTP.
 */
export function membersFromUsage(answer: Buffer): Record<string, unknown> | undefined {
  const at = answer.lastIndexOf(USAGE);
  if (at <= 0 || answer.length - at > TAIL_BYTES_MAX || answer[0] !== BRACE) return undefined;
  if (answer[before(answer, at)] !== COMMA || !hasChoices(answer, at)) return undefined;
  const members = parsedJson(`{${answer.toString('utf8', at)}`);
  return isRecord(members) ? members : undefined;
}

function hasChoices(answer: Buffer, end: number): boolean {
  const at = answer.indexOf(CHOICES);
  if (at < 0 || at > end) return false;
  const colon = after(answer, at + CHOICES.length - 1);
  return answer[colon] === COLON && answer[after(answer, colon)] === BRACKET;
}

/** Where the first byte that is no space stands. */
function before(bytes: Buffer, at: number): number {
  do at--;
  while (bytes[at]! <= SPACE);
  return at;
}

function after(bytes: Buffer, at: number): number {
  do at++;
  while (bytes[at]! <= SPACE);
  return at;
}
