/**
 * Parses the body of a request. api.ts calls it for the routes, authentication.ts for the sign-in and
 * playground.ts for a call. Pure; main thread of a gateway, and commands that work without one.
 *
 * Must hold: a body with a member that is given twice is rejected, as the doors of calls reject it. JSON
 * decoders differ in which of the two they take, so a proxy or a log in front could show another request than
 * the one that is carried out (test/unit/admin/json-body.test.ts).
 */
import { jsonStringEnd } from '../core/json.js';
import { clipped, formatInputPath } from '../core/wrong-input.js';
import { BRACE, BRACE_END, BRACKET, BRACKET_END, COMMA, QUOTE } from '../protocol/json-reader.js';
import { invalid } from '../registry/record-id.js';

/** Characters of a path that a message repeats: enough to find the member. */
const PATH_CHARS_MAX = 100;

/** Throws `invalid_parameters` if the body is no JSON, or gives a member twice. An empty body is `{}`. */
export function parseBody(body: string): unknown {
  if (body === '') return {};
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (error) {
    throw invalid(`the body must be JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  const path = memberGivenTwice(body);
  if (path !== undefined)
    throw invalid(`${clipped(formatInputPath(path), PATH_CHARS_MAX)} must be given once`);
  return value;
}

/** An object or array that is open at the present position. */
interface Level {
  /** The names so far; undefined for an array. */
  readonly names: Set<string> | undefined;
  /** The last name, or the index of the item. */
  position: string | number;
}

/**
 * Returns the path of the first member whose name its object has already; undefined if there is none. `text`
 * is valid JSON, so a string after `{` or after a comma in an object is a name. Takes 60 ms for 7 MB with
 * 400,000 names, in which JSON.parse takes 25 ms.
 */
function memberGivenTwice(text: string): readonly (string | number)[] | undefined {
  const levels: Level[] = [];
  let level: Level | undefined;
  let isName = false;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case QUOTE: {
        const end = jsonStringEnd(text, at + 1);
        if (isName && level?.names !== undefined) {
          const written = text.slice(at + 1, end);
          const name = written.includes('\\') ? (JSON.parse(`"${written}"`) as string) : written;
          level.position = name;
          if (level.names.has(name)) return levels.map(({ position }) => position);
          level.names.add(name);
        }
        isName = false;
        at = end;
        break;
      }
      case BRACE:
        levels.push((level = { names: new Set(), position: '' }));
        isName = true;
        break;
      case BRACKET:
        levels.push((level = { names: undefined, position: 0 }));
        isName = false;
        break;
      case COMMA:
        isName = level?.names !== undefined;
        if (typeof level?.position === 'number') level.position += 1;
        break;
      case BRACE_END:
      case BRACKET_END:
        levels.pop();
        level = levels.at(-1);
        isName = false;
        break;
      default:
    }
  }
  return undefined;
}
