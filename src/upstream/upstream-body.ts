/**
 * The body of a call as an OpenAI-compatible upstream gets it: with the upstream's names of the model and of
 * members (the setting `member_names`). attempt.ts and door-call.ts call it in an upstream worker,
 * large-translation.ts for large bodies in a counter thread. Pure.
 *
 * Must hold (also test/unit/upstream/large-call.test.ts, test/e2e/member-names.test.ts): the call's hold
 * covers the bound of the output that is sent. (config/provider-settings.ts rejects settings that leave the
 * bound out.) A body without a member to rename is sent byte for byte but for the model. In any other body
 * integers keep their digits, but for long ones in a text of more than 1 MiB (exact-json.ts).
 */
import type { UpstreamRequest } from '../channel/messages.js';
import { asBuffer, disposable } from '../core/bytes.js';
import { exactJson, exactJsonText } from '../core/exact-json.js';
import type { Members } from '../core/json.js';
import { withModelName } from '../protocol/chat-call.js';

/** The upstream's name of a member, by OpenAI's name; empty if the member is left out. */
export type MemberNames = Readonly<Record<string, string>>;

/** What one upstream calls the model and the members. */
interface UpstreamNames {
  /** Undefined if the upstream knows the model by its id. */
  readonly model: string | undefined;
  readonly memberNames?: MemberNames | undefined;
}

/** `modelStart` to `modelEnd` is where the model's JSON string is: in characters, or bytes of `largeBody`. */
type Body = Pick<UpstreamRequest, 'body' | 'largeBody' | 'modelStart' | 'modelEnd'>;

/** The body with the upstream's name of the model. A copy of a large body is for one request alone. */
export function bodyFor({ model }: UpstreamNames, request: Body): string | Uint8Array {
  const { largeBody } = request;
  if (model === undefined) return largeBody ?? request.body;
  if (largeBody === undefined) return withModelName(request, model);
  return disposable(
    Buffer.concat([
      largeBody.subarray(0, request.modelStart),
      Buffer.from(JSON.stringify(model)),
      largeBody.subarray(request.modelEnd),
    ]),
  );
}

/**
 * As `bodyFor`, for a chat completion. Renames the members of a small body (some 10 µs a KB). A large body
 * comes here only if it has none: see `isLargeTranslation` in large-call.ts.
 */
export function chatBodyFor(upstream: UpstreamNames, request: Body): string | Uint8Array {
  const { memberNames } = upstream;
  const body = bodyFor(upstream, request);
  if (memberNames === undefined || typeof body !== 'string' || !mayHave(body, memberNames)) return body;
  const chat = exactJson(body) as Members;
  const renamed = inNamesOf(memberNames, chat);
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
 * the upstream's name already, that member is sent, unless it is null. Of two bounds of the output it may be
 * the larger one: the hold covers both (`outputTokensMaxOf` in protocol/request-bytes.ts).
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
