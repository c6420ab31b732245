/**
 * A source map for translated requests: from paths in the chat completion to paths in the caller's own
 * request. A provider that rejects a member of a chat completion names the path there, which a caller of
 * another door does not know. The doors' `toChat` record origins with `withOrigin`; upstream/door-call.ts
 * calls `callersPath`, on the same thread: upstream worker, or counter thread if the body is large.
 *
 *     messages[3].content[0].image_url.url  →  input[2].content[0].image_url
 *
 * Must hold: if an object on the path has an origin, the path returned begins with the origin of the
 * innermost one, which is the caller's path; what follows has the door's names, as far as the door names it.
 * A path that has neither an origin nor such a name is returned as it is.
 */
import { isRecord, type Members } from '../core/json.js';

/** For objects of chat completions: the path in the caller's request. A copy of an object has no origin. */
const ORIGINS = new WeakMap<object, string>();

/**
 * Records that `value`, an object of the chat completion, comes from `path`, and returns it. For a message, a
 * path without an index, as `input`, says that its content is that text or list of the request.
 */
export function withOrigin<Value extends object>(path: string, value: Value): Value {
  ORIGINS.set(value, path);
  return value;
}

const SEGMENT = /[^.[\]]+/g;

/**
 * Returns the caller's path for `path` in the chat completion `chat`, which `toChat` made. `names`: the
 * door's names of members, by the members' paths below the innermost object with an origin. The longest
 * matching path counts. An empty name means that object itself: what follows comes directly below it.
 */
export function callersPath(chat: unknown, path: string, names: Readonly<Record<string, string>>): string {
  let value = chat;
  let origin = '';
  /** Where in `path` the members below the innermost object with an origin begin. */
  let memberStart = 0;
  for (const { 0: segment, index } of path.matchAll(SEGMENT)) {
    if (!isRecord(value) && !Array.isArray(value)) break;
    value = (value as Members)[segment];
    const innerOrigin = typeof value === 'object' && value !== null ? ORIGINS.get(value) : undefined;
    if (innerOrigin === undefined) continue;
    origin = innerOrigin;
    memberStart = index + segment.length;
  }
  const memberPath = path.slice(memberStart).replace(/^[\].]+/, '');
  // An origin without an index (as `input`) is a text of the request that became the content of a message.
  const isText = origin !== '' && !origin.includes('[') && memberPath === 'content';
  const callersMemberPath = isText ? '' : renamed(memberPath, names);
  if (origin === '' || callersMemberPath === '') return origin + callersMemberPath;
  return callersMemberPath.startsWith('[') ? origin + callersMemberPath : `${origin}.${callersMemberPath}`;
}

/** Returns `path` with its longest start that is in `names` replaced; unchanged if no start is there. */
function renamed(path: string, names: Readonly<Record<string, string>>): string {
  for (
    let end = path.length;
    end > 0;
    end = Math.max(path.lastIndexOf('.', end - 1), path.lastIndexOf('[', end - 1))
  ) {
    const start = path.slice(0, end);
    // Paths come from providers: `constructor` must not find the member of Object.prototype.
    const name = Object.hasOwn(names, start) ? names[start] : undefined;
    if (name !== undefined) return name + path.slice(end).replace(/^\./, name === '' ? '' : '.');
  }
  return path;
}
