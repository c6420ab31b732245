/**
 * The body of a call as an OpenAI-compatible upstream gets it: with its own name of the model, and with its
 * own names of members (the setting `member_names`). attempt.ts and door-call.ts call it in an upstream
 * worker, large-translation.ts for large bodies in a counter thread. Pure.
 *
 * Must hold: the bound of the output, on which the call's hold is based, is still sent, or a smaller bound.
 * (config/provider-settings.ts rejects settings that leave the bound out.) A body that has none of the
 * renamed members is sent byte for byte but for the model. In a body with such a member, integers keep their
 * digits, except that long integers in a text of more than 1 MiB may lose some (exact-json.ts)
 * (test/unit/upstream/upstream-body.test.ts, test/e2e/member-names.test.ts).
 */
import type { UpstreamRequest } from '../channel/messages.js';
import { exactJson, exactJsonText } from '../core/exact-json.js';
import type { Members } from '../core/json.js';
import { withModelName } from '../protocol/chat-call.js';
import { asBuffer } from '../protocol/sse.js';

/** The upstream's name of a member, by OpenAI's name; empty if the member is left out. */
export type MemberNames = Readonly<Record<string, string>>;

/** What an upstream calls the model and the members. */
interface UpstreamNames {
  /** Undefined if the upstream knows the model by its id. */
  readonly model: string | undefined;
  readonly memberNames?: MemberNames | undefined;
}

/** `modelStart` to `modelEnd` is where the model's JSON string is: in characters, or bytes of `largeBody`. */
type Body = Pick<UpstreamRequest, 'body' | 'largeBody' | 'modelStart' | 'modelEnd'>;

/** The body with the upstream's name of the model. */
export function bodyFor({ model }: UpstreamNames, request: Body): string | Uint8Array {
  const { largeBody } = request;
  if (model === undefined) return largeBody ?? request.body;
  if (largeBody === undefined) return withModelName(request, model);
  return Buffer.concat([
    largeBody.subarray(0, request.modelStart),
    Buffer.from(JSON.stringify(model)),
    largeBody.subarray(request.modelEnd),
  ]);
}

/**
 * As `bodyFor`, for a chat completion. Renames the members of a small body (some 10 µs a KB). A large body
 * that may have such a member (`mayHave`) does not come here: a counter thread renames its members, see
 * `isLargeTranslation` in large-call.ts.
 */
export function chatBodyFor(names: UpstreamNames, request: Body): string | Uint8Array {
  const body = bodyFor(names, request);
  if (names.memberNames === undefined || typeof body !== 'string') return body;
  if (!mayHave(body, names.memberNames)) return body;
  const chat = exactJson(body) as Members;
  const renamed = inNamesOf(names.memberNames, chat);
  return renamed === chat ? body : exactJsonText(renamed);
}

/**
 * A printable ASCII character that is written by its code: a name may hide behind it. Names have only
 * letters, digits and `_.-` (config/upstream-schema.ts), for which JSON has no other escape.
 */
const ESCAPED = /\\u00[2-7]/;
/** The length of what ESCAPED matches. */
const ESCAPED_CHARS = 5;
/** How many bytes are searched at a time. The search copies them, so this bounds the copy. */
const SLICE_BYTES = 256 * 1024;

/** Whether `body` may have a member by one of OpenAI's names. Cheap, so that most bodies are not parsed. */
export function mayHave(body: string | Uint8Array, names: MemberNames): boolean {
  const text = typeof body === 'string' ? body : asBuffer(body);
  for (const name in names) if (text.includes(`"${name}"`)) return true;
  return typeof text === 'string' ? ESCAPED.test(text) : hasEscaped(text);
}

function hasEscaped(bytes: Buffer): boolean {
  // Python writes é as \u00e9, so most bodies with `\u00` have no escaped ASCII, and the search goes on.
  // Slices overlap, because an escape may lie across an edge.
  for (let start = bytes.indexOf('\\u00'); start !== -1;) {
    const end = start + SLICE_BYTES;
    if (ESCAPED.test(bytes.toString('latin1', start, end))) return true;
    start = bytes.indexOf('\\u00', end - ESCAPED_CHARS);
  }
  return false;
}

/**
 * `chat` with the upstream's names; `chat` itself if it has no member to rename. If `chat` has a member by
 * the upstream's name already, that member wins, unless it is null.
 */
export function inNamesOf(names: MemberNames | undefined, chat: Members): Members {
  if (names === undefined || !Object.keys(names).some((name) => Object.hasOwn(chat, name))) return chat;
  const renamed = Object.fromEntries(Object.entries(chat).filter(([name]) => !Object.hasOwn(names, name)));
  for (const [name, upstreamName] of Object.entries(names)) {
    if (upstreamName === '' || !Object.hasOwn(chat, name)) continue;
    // `hasOwn`, because objects inherit members too, such as `constructor`.
    const callersValue = Object.hasOwn(renamed, upstreamName) ? renamed[upstreamName] : undefined;
    renamed[upstreamName] = callersValue ?? chat[name];
  }
  return renamed;
}
