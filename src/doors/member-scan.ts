/**
 * The parser of bodies at all doors but chat. One pass finds the members that the gateway may change, and
 * checks that every JSON decoder reads the body alike; then the body is parsed, and validated by the door's
 * compiled schema. The doors make their readers with `readersOf`. Pure; listener thread, and the counter pool
 * for large bodies, because parsing takes some 5 ms a megabyte.
 *
 * For a door with `readsNamedAlone` the pass itself reads the values of named members (known-values.ts), and
 * the body is not parsed.
 *
 * Must hold: each member that the gateway or an upstream acts on is in the door's `level`, or a second one in
 * another case reaches the upstream unseen (test/unit/doors/messages/messages-door.test.ts and those of the
 * other doors).
 */
import { BODY_TREE_MEMBERS_MAX } from '../core/limits.js';
import { USUAL_SERVICE_TIERS, type RoutingMember } from '../core/routing-members.js';
import type { ChatRequestResult, OutputTokensField } from '../protocol/chat-call.js';
import { NOWHERE, type BodyScan, type Span } from '../protocol/body-scan.js';
import { BodyError, BRACE } from '../protocol/json-reader.js';
import type { Level } from '../protocol/known-members.js';
import { MemberReader } from '../protocol/member-reader.js';
import { readBodyBytes, readLargeBodyBytes } from '../protocol/request-bytes.js';
import { DIGITS_EXACT_MAX, knownValue, SHORT_BYTES_MAX, tooManyMembers } from './known-values.js';

const NO_MEMBERS: readonly RoutingMember[] = Object.freeze([]);

type Members = Readonly<Record<string, unknown>>;

/** The form of a door's bodies. */
export interface BodyForm {
  /** The names of the request's members; `model` is one of them. */
  readonly level: Level;
  /** The schema, compiled by the build. */
  readonly check: (value: unknown) => boolean;
  /** The sentence for the sender of a body that `check` rejects: member, rule, and the value that it has. */
  readonly explain: (value: unknown) => string;
  /** The member that bounds the output; undefined if calls have no output that is billed. */
  readonly outputTokens: OutputTokensField | undefined;
  /** Whether `check` and the functions below read only members that `level` names. */
  readonly readsNamedAlone?: true;
  /** The least bound that an upstream accepts; absent: 1. `body` is valid. */
  readonly outputTokensMin?: (body: Members) => number;
  /** How many responses a call generates, each of them bounded by `outputTokens`. */
  readonly choices: (body: Members) => number;
  /** Further members by which the provider routes a call elsewhere, or bills it higher. `body` is valid. */
  readonly routing?: (body: Members) => readonly RoutingMember[];
  /** A stream reports its usage only if `stream_options` asks for it. */
  readonly asksForUsage: boolean;
}

/** The two readers of a Door. */
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

/** `bytes` are valid UTF-8. Throws a BodyError. */
function scanMembers(bytes: Uint8Array, isAscii: boolean, form: BodyForm): BodyScan {
  const reader = new MemberReader(bytes);
  const first = reader.space();
  if (first === -1) throw new BodyError('the request body must be a JSON object, got an empty body');
  if (reader.bytes[0] === 0xef && reader.bytes[1] === 0xbb && reader.bytes[2] === 0xbf)
    throw new BodyError('the request body must not start with a byte-order mark');
  const found = new Found();
  if (first === BRACE) readMembers(reader, form, found);
  else reader.skipValue();
  const end = reader.at - 1;
  if (reader.space() !== -1) throw reader.unexpected();
  if (reader.members > BODY_TREE_MEMBERS_MAX) throw tooManyMembers();
  const isNamed = form.readsNamedAlone === true && first === BRACE;
  const body = isNamed ? found.named : (JSON.parse(reader.bytes.toString()) as unknown);
  if (!form.check(body))
    throw new BodyError(form.explain(isNamed ? JSON.parse(reader.bytes.toString()) : body));
  const more = form.routing?.(body as Members) ?? NO_MEMBERS;
  if (more.length + reader.stored.length > 0) found.routing = [...found.routing, ...reader.stored, ...more];
  // For a long or non-ASCII name of a model, `named` has a stand-in.
  const { start, end: modelEnd } = found.model;
  if (isNamed && !(isAscii && modelEnd - start <= SHORT_BYTES_MAX))
    found.named.model = reader.decoded(start, modelEnd);
  return scanOf(reader.bytes, body as Members, form, found, end);
}

/** What the pass over a body finds. The spans are those of values. */
class Found {
  model: Span = NOWHERE;
  /** The member that bounds the output. */
  bound: Span = NOWHERE;
  streamOptions: Span = NOWHERE;
  /** Members by which the provider routes a call elsewhere, or bills it higher. */
  routing = NO_MEMBERS;
  /** The values of named members, if the form has `readsNamedAlone`. */
  readonly named: Record<string, unknown> = {};
}

/** Reads the members of the request itself into `found`. */
function readMembers(
  reader: MemberReader,
  { level, outputTokens, readsNamedAlone }: BodyForm,
  found: Found,
): void {
  if (!reader.openLevel(level)) return;
  do {
    const index = reader.name(level);
    reader.colon();
    const { steering } = reader;
    const start = reader.at;
    if (index >= 0) {
      const name = level.names[index]!;
      if (readsNamedAlone === true) found.named[name] = knownValue(reader, level, index);
      else reader.skipMember(level, index);
      if (name === 'model') found.model = { start, end: reader.at };
      else if (name === outputTokens) found.bound = { start, end: reader.at };
      else if (name === 'stream_options') found.streamOptions = { start, end: reader.at };
      continue;
    }
    reader.skipMember(level, index);
    if (steering === undefined) continue;
    const given = reader.bytes.toString('latin1', start, reader.at);
    if (given === 'null' || given === 'false') continue;
    if (steering.kind === 'output')
      throw new BodyError(`${steering.name} must not be given${insteadOf(steering.instead, outputTokens)}`);
    const isUsual = steering.name === 'service_tier' && USUAL_SERVICE_TIERS.includes(given);
    if (!isUsual) found.routing = [...found.routing, steering.name];
  } while (reader.moreMembers());
}

/** The end of a sentence, which names the member to use instead as the door calls it. */
function insteadOf(name: string, outputTokens: string | undefined): string {
  const own = name === 'max_tokens' ? outputTokens : name;
  return own === undefined ? '' : `, use ${own}`;
}

function scanOf(
  bytes: Buffer,
  body: Members,
  form: BodyForm,
  { model, bound, streamOptions, routing }: Found,
  end: number,
): BodyScan {
  const { outputTokens, asksForUsage } = form;
  if (outputTokens !== undefined) checkPlain(bytes, outputTokens, bound);
  const options = body.stream_options as Members | null | undefined;
  const isAsked = options?.include_usage === true;
  if (asksForUsage && options && !isAsked && Object.keys(options).length > 0)
    throw new BodyError('stream_options must be {"include_usage":true} or be left out');
  return {
    bytes,
    request: {
      model: body.model as string,
      stream: body.stream === true,
      stream_options: isAsked ? { include_usage: true } : null,
      max_tokens: (outputTokens === undefined ? 0 : (body[outputTokens] ?? null)) as number | null,
      max_completion_tokens: null,
      n: form.choices(body),
    },
    routingMembers: routing,
    model,
    maxTokens: bound,
    maxCompletionTokens: NOWHERE,
    streamOptions: asksForUsage ? streamOptions : NOWHERE,
    includeUsage: NOWHERE,
    hasStreamOptions: false,
    end,
    outputTokensName: outputTokens ?? 'max_tokens',
    outputTokensMin: form.outputTokensMin?.(body) ?? 1,
    asksForUsage,
  };
}

/** Checks that the bound of the output is only digits, so that every decoder reads the same number. */
function checkPlain(bytes: Buffer, name: string, { start, end }: Span): void {
  let at = start;
  while (at < end && bytes[at]! >= 48 && bytes[at]! <= 57) at++;
  if (at === end && end - start <= DIGITS_EXACT_MAX) return;
  const text = bytes.toString('latin1', start, end);
  if (text !== 'null')
    throw new BodyError(`${name} must be written in digits alone, got ${text.slice(0, 40)}`);
}
