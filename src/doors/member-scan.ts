/**
 * The parser of bodies at all doors but chat. One pass finds the members that may be changed and checks that
 * every JSON decoder reads the body alike; then the body is parsed and validated by the door's compiled
 * schema. The doors make their readers with `readersOf`. Pure; listener thread and counter pool.
 *
 * A chat completion needs no tree for that (chat-scan.ts). Here the tree costs some 5 ms a megabyte, and the
 * counter pool reads large bodies.
 *
 * Must hold: each member that the gateway or an upstream acts on is in the door's `level`, or a second one in
 * another case reaches the upstream unseen (tests of each door).
 */
import { BODY_TREE_MEMBERS_MAX } from '../core/limits.js';
import { USUAL_SERVICE_TIERS, type RoutingMember } from '../core/routing-members.js';
import type { ChatRequestResult, OutputTokensField } from '../protocol/chat-call.js';
import { NOWHERE, type BodyScan, type Span } from '../protocol/body-scan.js';
import { BodyError, BRACE } from '../protocol/json-reader.js';
import type { Level } from '../protocol/known-members.js';
import { MemberReader } from '../protocol/member-reader.js';
import { readBodyBytes, readLargeBodyBytes } from '../protocol/request-bytes.js';

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
  /** The least bound that an upstream accepts; absent: 1. `body` is valid. */
  readonly outputTokensMin?: (body: Members) => number;
  /** How many responses a call generates, each of them bounded by `outputTokens`. */
  readonly choices: (body: Members) => number;
  /** Further members that lead a call elsewhere, or make it dearer. `body` is valid. */
  readonly routing?: (body: Members) => readonly RoutingMember[];
  /** A stream reports its usage only if `stream_options` asks for it. */
  readonly asksForUsage: boolean;
}

/** The two readers of a Door. */
export function readersOf(form: BodyForm): {
  readonly read: (bytes: Uint8Array) => ChatRequestResult;
  readonly readPieces: (pieces: readonly Uint8Array[]) => ChatRequestResult;
} {
  const scanner = (bytes: Uint8Array): BodyScan => scanMembers(bytes, form);
  return {
    read: (bytes) => readBodyBytes(bytes, scanner),
    readPieces: (pieces) => readLargeBodyBytes(pieces, scanner),
  };
}

/** `bytes` are valid UTF-8. Throws a BodyError. */
function scanMembers(bytes: Uint8Array, form: BodyForm): BodyScan {
  const reader = new MemberReader(bytes);
  const first = reader.space();
  if (first === -1) throw new BodyError('the request body must be a JSON object, got an empty body');
  if (reader.bytes[0] === 0xef && reader.bytes[1] === 0xbb && reader.bytes[2] === 0xbf)
    throw new BodyError('the request body must not start with a byte-order mark');
  const spans = new Map<string, Span>();
  const routingMembers = first === BRACE ? readTop(reader, form, spans) : [];
  if (first !== BRACE) reader.skipValue();
  const end = reader.at - 1;
  if (reader.space() !== -1) throw reader.unexpected();
  if (reader.members > BODY_TREE_MEMBERS_MAX)
    throw new BodyError(`the request body must have at most ${BODY_TREE_MEMBERS_MAX} members in all`);
  const body = JSON.parse(reader.bytes.toString()) as unknown;
  if (!form.check(body)) throw new BodyError(form.explain(body));
  const more = form.routing?.(body as Members) ?? [];
  return scanOf(reader.bytes, body as Members, form, spans, [...routingMembers, ...more], end);
}

/** Reads the request itself. Returns the members that lead a call elsewhere. */
function readTop(
  reader: MemberReader,
  { level, outputTokens }: BodyForm,
  spans: Map<string, Span>,
): readonly RoutingMember[] {
  const routing: RoutingMember[] = [];
  if (!reader.openLevel(level)) return routing;
  do {
    const index = reader.name(level);
    reader.colon();
    const { steering } = reader;
    const start = reader.at;
    reader.skipMember(level, index);
    if (index >= 0) spans.set(level.names[index]!, { start, end: reader.at });
    else if (steering !== undefined) {
      const given = reader.bytes.toString('latin1', start, reader.at);
      if (given === 'null' || given === 'false') continue;
      if (steering.kind === 'output')
        throw new BodyError(`${steering.name} must not be given${insteadOf(steering.instead, outputTokens)}`);
      const isUsual = steering.name === 'service_tier' && USUAL_SERVICE_TIERS.includes(given);
      if (!isUsual) routing.push(steering.name);
    }
  } while (reader.moreMembers());
  return routing;
}

/** The end of a sentence that names the member to use instead, by the door's name of it. */
function insteadOf(name: string, outputTokens: string | undefined): string {
  const own = name === 'max_tokens' ? outputTokens : name;
  return own === undefined ? '' : `, use ${own}`;
}

function scanOf(
  bytes: Buffer,
  body: Members,
  form: BodyForm,
  spans: ReadonlyMap<string, Span>,
  routingMembers: readonly RoutingMember[],
  end: number,
): BodyScan {
  const { outputTokens, asksForUsage } = form;
  const bound = outputTokens === undefined ? 0 : body[outputTokens];
  checkPlain(bytes, outputTokens, spans);
  const streamOptions = asksForUsage ? spans.get('stream_options') : undefined;
  const options = body.stream_options as Members | null | undefined;
  const isAsked = options?.include_usage === true;
  if (streamOptions !== undefined && options && !isAsked && Object.keys(options).length > 0)
    throw new BodyError('stream_options must be {"include_usage":true} or be left out');
  return {
    bytes,
    request: {
      model: body.model as string,
      stream: body.stream === true,
      stream_options: isAsked ? { include_usage: true } : null,
      max_tokens: (bound ?? null) as number | null,
      max_completion_tokens: null,
      n: form.choices(body),
    },
    routingMembers,
    model: spans.get('model') ?? NOWHERE,
    maxTokens: (outputTokens === undefined ? undefined : spans.get(outputTokens)) ?? NOWHERE,
    maxCompletionTokens: NOWHERE,
    streamOptions: streamOptions ?? NOWHERE,
    includeUsage: NOWHERE,
    hasStreamOptions: false,
    end,
    outputTokensName: outputTokens ?? 'max_tokens',
    outputTokensMin: form.outputTokensMin?.(body) ?? 1,
    asksForUsage,
  };
}

/** Checks that the bound of the output is the same number to every decoder: digits alone. */
function checkPlain(bytes: Buffer, name: string | undefined, spans: ReadonlyMap<string, Span>): void {
  const span = name === undefined ? undefined : spans.get(name);
  if (span === undefined) return;
  const text = bytes.toString('latin1', span.start, span.end);
  if (text !== 'null' && !/^\d{1,15}$/.test(text))
    throw new BodyError(`${name} must be written in digits alone, got ${text.slice(0, 40)}`);
}
