/**
 * The scanner of bodies at all doors but chat. One pass over the bytes finds the members that the gateway may
 * change, and checks that every JSON decoder reads the body alike. Then the values are checked by the door's
 * compiled schema. The doors make their readers with `readersOf`. Pure; listener thread, and counter threads
 * for large bodies, because parsing takes some 5 ms a megabyte.
 *
 * The values come from JSON.parse. For a door with `readsKnownOnly` the pass itself reads the values of known
 * members (known-values.ts), and JSON.parse is called only to explain a rejection.
 *
 * Must hold: each member that the gateway or an upstream acts on is in the door's `level`; otherwise a second
 * member of that name in another case reaches the upstream unchecked
 * (test/unit/doors/messages/messages-door.test.ts and the tests of the other doors).
 */
import type { Members } from '../core/json.js';
import { BODY_TREE_MEMBERS_MAX } from '../core/limits.js';
import type { RoutingMember } from '../core/routing-members.js';
import {
  NOWHERE,
  type BodyScan,
  type Span,
  type ChatRequestResult,
  type OutputTokensField,
} from '../protocol/chat-call.js';
import { BodyError, BRACE, NINE, ZERO } from '../protocol/json-reader.js';
import type { Level } from '../protocol/known-members.js';
import { DIGITS_EXACT_MAX, MemberReader, NO_MEMBERS } from '../protocol/member-reader.js';
import { type RequestSchema, UNEXPLAINED, violationOf } from '../protocol/request-rules.js';
import { readBodyBytes, readLargeBodyBytes } from '../protocol/request-bytes.js';
import { readKnownValue, SHORT_BYTES_MAX, tooManyMembers } from './known-values.js';

/** The form of a door's bodies. */
export interface BodyForm {
  /** The names of the request's members; `model` is one of them. */
  readonly level: Level;
  /** The schema, and the check that the build has compiled from it: REQUEST_RULES of the door. */
  readonly check: (value: unknown) => boolean;
  readonly schema: RequestSchema;
  /** The member that bounds the output; undefined if calls have no output that is billed. */
  readonly outputTokens: OutputTokensField | undefined;
  /** Set if `check` and the functions below read only _known_ members, which are those that `level` names. */
  readonly readsKnownOnly?: true;
  /** The least bound of output that an upstream accepts; absent: 1. `body` is valid. */
  readonly outputTokensMin?: (body: Members) => number;
  /** How many responses a call generates, each bounded by `outputTokens`. `body` is valid. */
  readonly choices: (body: Members) => number;
  /**
   * Members by which the provider routes a call elsewhere, or bills it higher, besides those of
   * core/routing-members.ts. `body` is valid.
   */
  readonly routing?: (body: Members) => readonly RoutingMember[];
  /** How many media parts have no `type`, by which the pass counts others; absent: none. `body` is valid. */
  readonly untypedMediaParts?: (body: Members) => number;
  /** `repeatedTokens` of the ChatCall (protocol/chat-call.ts); absent: 0. `body` is valid. */
  readonly repeatedTokens?: (body: Members) => number;
  /** Whether a stream reports its usage only if `stream_options` asks for the usage. */
  readonly asksForUsage: boolean;
}

/** The two readers of a Door (door.ts): `read` for a body in one piece, `readPieces` for a large one. */
export function readersOf(form: BodyForm): {
  readonly read: (bytes: Uint8Array) => ChatRequestResult;
  readonly readPieces: (pieces: readonly Uint8Array[]) => ChatRequestResult;
} {
  const scanner = (bytes: Uint8Array, isAscii: boolean): BodyScan => scanMembers(bytes, isAscii, form);
  return {
    read: (bytes) => readBodyBytes(bytes, scanner),
    readPieces: (pieces) => readLargeBodyBytes(pieces, scanner),
  };
}

/** `bytes` are valid UTF-8, and ASCII if `isAscii`. Throws a BodyError if the body is rejected. */
function scanMembers(bytes: Uint8Array, isAscii: boolean, form: BodyForm): BodyScan {
  const reader = new MemberReader(bytes);
  const firstByte = reader.openBody();
  const found = new Found();
  if (firstByte === BRACE) readMembers(reader, form, found);
  else reader.skipValue();
  // The brace that closes the body. If the body is no object, its last byte; then the check rejects it.
  const lastBraceAt = reader.position - 1;
  if (reader.skipSpace() !== -1) throw reader.unexpected();
  if (reader.memberCount > BODY_TREE_MEMBERS_MAX) throw tooManyMembers();
  const isReadHere = form.readsKnownOnly === true && firstByte === BRACE;
  const body = isReadHere ? found.values : (JSON.parse(reader.bytes.toString()) as unknown);
  if (!form.check(body)) {
    const parsed: unknown = isReadHere ? JSON.parse(reader.bytes.toString()) : body;
    throw new BodyError(violationOf(form.schema, parsed) ?? UNEXPLAINED);
  }
  const routingOfBody = form.routing?.(body as Members) ?? NO_MEMBERS;
  if (routingOfBody.length + reader.storedMembers.length > 0)
    found.routing = [...found.routing, ...reader.storedMembers, ...routingOfBody];
  // known-values.ts gives `…` for a long text, and Latin-1 for UTF-8. No rule minds. Of all texts only the
  // model's name is used later, so it is decoded here.
  const { start, end: modelEnd } = found.model;
  if (isReadHere && !(isAscii && modelEnd - start <= SHORT_BYTES_MAX))
    found.values.model = reader.decoded(start, modelEnd);
  const mediaParts = reader.mediaParts + (form.untypedMediaParts?.(body as Members) ?? 0);
  return scanOf(reader.bytes, body as Members, form, found, mediaParts, lastBraceAt);
}

/** What the pass over a body finds. A span is that of a member's value, or NOWHERE. */
class Found {
  model: Span = NOWHERE;
  outputBound: Span = NOWHERE;
  streamOptions: Span = NOWHERE;
  routing = NO_MEMBERS;
  /** The values of known members, by name, if the form has `readsKnownOnly`. */
  readonly values: Record<string, unknown> = {};
}

function readMembers(
  reader: MemberReader,
  { level, outputTokens, readsKnownOnly }: BodyForm,
  found: Found,
): void {
  if (!reader.openLevel(level)) return;
  do {
    const index = reader.readName(level);
    reader.skipColon();
    const start = reader.position;
    if (index >= 0) {
      const name = level.names[index]!;
      if (readsKnownOnly === true) found.values[name] = readKnownValue(reader, level, index);
      else reader.skipMember(level, index);
      if (name === 'model') found.model = { start, end: reader.position };
      else if (name === outputTokens) found.outputBound = { start, end: reader.position };
      else if (name === 'stream_options') found.streamOptions = { start, end: reader.position };
      continue;
    }
    const member = reader.skipUnknown(outputTokens);
    if (member !== undefined) found.routing = [...found.routing, member];
  } while (reader.moreMembers());
}

/**
 * The scan of a valid body. Throws a BodyError for what no schema checks. A BodyScan has the form of a chat
 * completion: members that other doors lack are null, NOWHERE or false.
 */
function scanOf(
  bytes: Buffer,
  body: Members,
  form: BodyForm,
  { model, outputBound, streamOptions, routing }: Found,
  mediaParts: number,
  lastBraceAt: number,
): BodyScan {
  const { outputTokens, asksForUsage } = form;
  if (outputTokens !== undefined) checkDigitsAlone(bytes, outputTokens, outputBound);
  const options = body.stream_options as Members | null | undefined;
  const asksAlready = options?.include_usage === true;
  // The span of `include_usage` is not known here, so only the whole value can be replaced, and other members
  // in it would be lost (`usageSplice` of protocol/request-bytes.ts).
  if (asksForUsage && options && !asksAlready && Object.keys(options).length > 0)
    throw new BodyError('stream_options must be {"include_usage":true} or be left out');
  return {
    bytes,
    request: {
      model: body.model as string,
      stream: body.stream === true,
      stream_options: asksAlready ? { include_usage: true } : null,
      // 0 says that calls have no output that is billed (`outputTokensMax` of ChatCall).
      max_tokens: (outputTokens === undefined ? 0 : (body[outputTokens] ?? null)) as number | null,
      max_completion_tokens: null,
      n: form.choices(body),
    },
    routingMembers: routing,
    mediaParts,
    repeatedTokens: form.repeatedTokens?.(body) ?? 0,
    model,
    maxTokens: outputBound,
    maxCompletionTokens: NOWHERE,
    streamOptions: asksForUsage ? streamOptions : NOWHERE,
    includeUsage: NOWHERE,
    streamOptionsHasMembers: false,
    end: lastBraceAt,
    // Means nothing if the door has no such member.
    outputTokensName: outputTokens ?? 'max_tokens',
    outputTokensMin: form.outputTokensMin?.(body) ?? 1,
    asksForUsage,
  };
}

/** Every decoder must read the same bound of the output. One that is absent or null passes. */
function checkDigitsAlone(bytes: Buffer, name: string, { start, end }: Span): void {
  let position = start;
  while (position < end && bytes[position]! >= ZERO && bytes[position]! <= NINE) position++;
  if (position === end && end - start <= DIGITS_EXACT_MAX) return;
  const text = bytes.toString('latin1', start, end);
  if (text !== 'null')
    throw new BodyError(`${name} must be written in digits alone, got ${text.slice(0, SHOWN_CHARS_MAX)}`);
}

/** Characters of the sender's text that a rejection repeats. */
const SHOWN_CHARS_MAX = 40;
