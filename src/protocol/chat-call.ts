/**
 * A parsed request of a call (ChatCall), what a scanner finds in its body (BodyScan), and the changes to the
 * body on its way upstream. request-bytes.ts makes the ChatCall; the phases of request/ and the upstream
 * workers use it. A ChatCall is a plain record, which threads send to each other. Pure; any thread.
 *
 * Must hold: the body is spliced and never encoded again, so that all other members reach the upstream byte
 * for byte as the client sent them (test/unit/protocol/request-bytes.test.ts). Each splice moves the spans
 * after it, so that all spans stay exact (test/unit/protocol/chat-call.test.ts). Values are not searched for
 * again, because a search would cost a listener 10 to 60 ms for a body of 10 MB.
 */
import { asBuffer } from '../core/bytes.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { PROMPT_PARTS_MAX, PROMPT_TOKENS_BESIDE_DOCUMENT, PROMPT_TOKENS_OF_PART } from '../core/limits.js';
import type { RoutingMember } from '../core/routing-members.js';
import type { ChatRequest } from './chat-schema.js';

/** Positions in a body, `[start, end)`: in UTF-16 units of a ChatCall's `body`, else in bytes. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** The span of a member that is not in the body. No value begins at the start of a body. */
export const NOWHERE: Span = { start: 0, end: 0 };

/** Whether the span is NOWHERE, or the copy of it that another thread has sent. */
export function isNowhere({ end }: Span): boolean {
  return end === 0;
}

/**
 * A shorter body becomes a string, which costs less than memory outside of the heap. A longer one stays bytes
 * (`largeBody`): as a string of 16 KB, copied four times on its way, it cost a call 1.09 times the CPU.
 */
export const BODY_AS_BYTES_MIN = 4 * 1024;

/** The members in which a request bounds its output. */
export type OutputTokensField = 'max_tokens' | 'max_completion_tokens' | 'max_output_tokens';

export interface ChatCall {
  readonly model: string;
  readonly stream: boolean;
  /** Whether the client asked for the usage chunk of a stream (`stream_options.include_usage`). */
  readonly includeUsage: boolean;
  /**
   * The bound of the output of one choice, by any of OutputTokensField; the larger one if both
   * `max_completion_tokens` and `max_tokens` were given. Undefined if the client gave none, or null. 0 if the
   * door has no such member, because its calls have no output that is billed.
   */
  readonly outputTokensMax: number | undefined;
  /**
   * The member in which the client gave `outputTokensMax`; undefined if the client gave none, also once
   * `withOutputTokensMax` has bounded the call. Means nothing if `outputTokensMax` is 0.
   */
  readonly outputTokensField: OutputTokensField | undefined;
  /** The member to add if the gateway bounds a call that has no bound. */
  readonly outputTokensName: OutputTokensField;
  /** The least bound to which the gateway may lower the output: upstreams reject less. */
  readonly outputTokensMin: number;
  /** How many responses the call generates: `n`, or 1. */
  readonly choices: number;
  /** Members of the request by which an upstream may serve another call: see core/routing-members.ts. */
  readonly routingMembers: readonly RoutingMember[];
  /**
   * The client's body, changed only in that a stream asks for its usage. `withModelId` and
   * `withOutputTokensMax` change it further. Empty if the call has `largeBody`.
   */
  readonly body: string;
  /**
   * Whether all characters of the body are ASCII. Splices do not change this, because they insert ASCII
   * alone: numbers, names of members, and ids of models (IDENTIFIER_PATTERN of config/annotations.ts).
   */
  readonly bodyIsAscii: boolean;
  /**
   * A body of BODY_AS_BYTES_MIN or more, as UTF-8 in memory of its own, which is transferred to the worker
   * that gets the call. Undefined for a shorter body, which is in `body`.
   */
  readonly largeBody: Uint8Array | undefined;
  /** UTF-8 length of what the client sent. No tokenizer makes more tokens of a prompt than it has bytes. */
  readonly bodyBytes: number;
  /** How many parts of the prompt are not text (images, documents, sounds, videos), or may not be. */
  readonly mediaParts: number;
  /**
   * The most prompt tokens that the model may read besides `bodyBytes`, because it reads a text of the body
   * more than once: the query of a rerank, with each document. 0 at the other doors.
   */
  readonly repeatedTokens: number;
  /** Where the value of `model` is, with its quotes: UTF-16 units of `body`, or bytes of `largeBody`. */
  readonly modelStart: number;
  readonly modelEnd: number;
  /**
   * Spans of the values of the two members that bound the output, in the same units; NOWHERE if a member is
   * not given. `maxTokens` is that of `outputTokensName`. `maxCompletionTokens` is that of
   * `max_completion_tokens`, which only chat completions have besides it.
   */
  readonly maxTokens: Span;
  readonly maxCompletionTokens: Span;
  /** Position of the brace that closes the body, in the same units. */
  readonly bodyEnd: number;
}

/** How many tokens each media part counts as for a model (`media_part_tokens`). */
interface MediaRate {
  readonly mediaPartTokens: number;
}

/** upstream/usage-bounds.ts believes no report of more such tokens, so no call needs a larger hold. */
const MEDIA_TOKENS_MAX = PROMPT_PARTS_MAX * PROMPT_TOKENS_OF_PART;

/** Tokens that the media parts of a call count as. */
export function mediaTokensOf({ mediaParts }: Pick<ChatCall, 'mediaParts'>, model: MediaRate): number {
  return Math.min(mediaParts * model.mediaPartTokens, MEDIA_TOKENS_MAX);
}

/** `repeatedTokens` of a text of `bytes` that the model reads with each of `count` others. */
export function repeatedTokensOf(bytes: number, count: number): number {
  return Math.min((count - 1) * (bytes + PROMPT_TOKENS_BESIDE_DOCUMENT), MEDIA_TOKENS_MAX);
}

/**
 * The most tokens that the hold of a call covers for its prompt: one for each byte, because no token of text
 * is shorter, those that are read again, and the tokens of the media parts. A part whose data is in the body
 * counts twice, because its length is not known here.
 */
export function promptTokensMaxOf(call: ChatCall, model: MediaRate): number {
  return call.bodyBytes + call.repeatedTokens + mediaTokensOf(call, model);
}

/** The outcome of reading a body. */
export type ChatRequestResult =
  | { readonly ok: true; readonly call: ChatCall }
  | { readonly ok: false; readonly error: ErrorRecord };

/** A change of a body: `text` replaces `[start, end)` of its text, or of its bytes. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A body, and the position of the model's name with its quotes. */
type ModelBody = Pick<ChatCall, 'body' | 'modelStart' | 'modelEnd'>;

/** The body with the upstream's name of the model; V8 copies it once it is written. Not for `largeBody`. */
export function withModelName(call: ModelBody, name: string): string {
  return call.body.slice(0, call.modelStart) + JSON.stringify(name) + call.body.slice(call.modelEnd);
}

/** A body, and all positions in it that a splice moves. */
type SplicedBody = Pick<
  ChatCall,
  'body' | 'largeBody' | 'modelStart' | 'modelEnd' | 'maxTokens' | 'maxCompletionTokens' | 'bodyEnd'
>;

/** The call with the model's `id`, which is ASCII, in place of the name in its body. Copies the body. */
export function withModelId<Body extends SplicedBody>(call: Body, id: string): Body & { model: string } {
  const splice = { start: call.modelStart, end: call.modelEnd, text: JSON.stringify(id) };
  return { ...spliced(call, [splice]), model: id };
}

/**
 * The call with at most `boundTokens` output tokens; throws if that is no whole number from 0. Lowers each
 * member with more; adds `outputTokensName` if there is none. Copies the body if that changes.
 */
export function withOutputTokensMax<
  Body extends SplicedBody & Partial<Pick<ChatCall, 'outputTokensMax' | 'outputTokensName'>>,
>(call: Body, boundTokens: number): Body & { outputTokensMax: number } {
  invariant(Number.isSafeInteger(boundTokens) && boundTokens >= 0, 'a bound of tokens is a whole number');
  const text = String(boundTokens);
  const spans = [call.maxTokens, call.maxCompletionTokens].filter((span) => !isNowhere(span));
  // NaN if the member is null.
  const givenTokens = spans.map((span) => Number(textAt(call, span)));
  const outputTokensMax = Math.min(call.outputTokensMax ?? boundTokens, boundTokens);
  if (givenTokens.some((tokens) => !Number.isNaN(tokens))) {
    const tooHigh = spans.filter((_, index) => givenTokens[index]! > boundTokens);
    // `spliced` wants its splices in the order of the body.
    const splices = tooHigh
      .sort((first, second) => first.start - second.start)
      .map((span) => ({ ...span, text }));
    return { ...(splices.length === 0 ? call : spliced(call, splices)), outputTokensMax };
  }
  // Members are given, but all are null: the first gets the value.
  const [nullSpan] = spans;
  if (nullSpan !== undefined) return { ...spliced(call, [{ ...nullSpan, text }]), outputTokensMax };
  const { bodyEnd, outputTokensName = 'max_tokens' } = call;
  const longer = spliced(call, [{ start: bodyEnd, end: bodyEnd, text: `,"${outputTokensName}":${text}` }]);
  const maxTokens = { start: longer.bodyEnd - text.length, end: longer.bodyEnd };
  return { ...longer, maxTokens, outputTokensMax };
}

/** The text of a span, which must be ASCII. */
function textAt({ body, largeBody }: SplicedBody, { start, end }: Span): string {
  if (largeBody === undefined) return body.slice(start, end);
  return asBuffer(largeBody).toString('latin1', start, end);
}

/** Applies `splices`, which must be in the order of the body, each at a value or before the last brace. */
function spliced<Body extends SplicedBody>(call: Body, splices: readonly Splice[]): Body {
  const { body, largeBody } = call;
  const growths = splices.map(({ start, end, text }) =>
    largeBody === undefined ? text.length - (end - start) : Buffer.byteLength(text) - (end - start),
  );
  const moved = (span: Span): Span => {
    if (isNowhere(span)) return NOWHERE;
    const { start, end } = span;
    /** By how much the splices before the span move it. */
    let shift = 0;
    /** By how much a splice makes the span itself longer. */
    let valueGrowth = 0;
    for (const [index, splice] of splices.entries()) {
      if (splice.start < start) shift += growths[index]!;
      else if (splice.start === start) valueGrowth = growths[index]!;
    }
    return { start: start + shift, end: end + shift + valueGrowth };
  };
  const model = moved({ start: call.modelStart, end: call.modelEnd });
  const newBody = largeBody === undefined ? splicedText(body, splices) : '';
  const newLargeBody = largeBody && splicedBytes(largeBody, splices);
  const growth = (newLargeBody ?? newBody).length - (largeBody ?? body).length;
  return {
    ...call,
    body: newBody,
    largeBody: newLargeBody,
    modelStart: model.start,
    modelEnd: model.end,
    maxTokens: moved(call.maxTokens),
    maxCompletionTokens: moved(call.maxCompletionTokens),
    bodyEnd: call.bodyEnd + growth,
  };
}

/** The text with `splices` applied, which must be in the order of the text. */
export function splicedText(text: string, splices: readonly Splice[]): string {
  let result = '';
  let keptStart = 0;
  for (const splice of splices) {
    result += text.slice(keptStart, splice.start) + splice.text;
    keptStart = splice.end;
  }
  return result + text.slice(keptStart);
}

/** As `splicedText`, for bytes. The copy has its own memory, so it can be transferred. */
export function splicedBytes(bytes: Uint8Array, splices: readonly Splice[]): Buffer {
  let length = bytes.length;
  for (const { start, end, text } of splices) length += Buffer.byteLength(text) - (end - start);
  const copy = Buffer.allocUnsafeSlow(length);
  let keptStart = 0;
  let copied = 0;
  for (const splice of splices) {
    copy.set(bytes.subarray(keptStart, splice.start), copied);
    copied += splice.start - keptStart;
    copied += copy.write(splice.text, copied);
    keptStart = splice.end;
  }
  copy.set(bytes.subarray(keptStart), copied);
  return copy;
}

/** What a scanner (chat-scan.ts, doors/member-scan.ts) finds in one pass, whichever door the body came by. */
export interface BodyScan {
  readonly bytes: Buffer;
  readonly request: Pick<
    ChatRequest,
    'model' | 'stream' | 'stream_options' | 'max_tokens' | 'max_completion_tokens' | 'n'
  >;
  readonly routingMembers: readonly RoutingMember[];
  /** As `mediaParts` of ChatCall. */
  readonly mediaParts: number;
  /** As `repeatedTokens` of ChatCall. */
  readonly repeatedTokens: number;
  /** Spans of the members' values, or NOWHERE. `maxTokens` is that of the member `outputTokensName`. */
  readonly model: Span;
  readonly maxTokens: Span;
  readonly maxCompletionTokens: Span;
  readonly streamOptions: Span;
  readonly includeUsage: Span;
  /** Whether `stream_options` has members: then a member added to it needs a comma before it. */
  readonly streamOptionsHasMembers: boolean;
  /** Position of the brace that closes the body. */
  readonly end: number;
  /** The member that bounds the output. */
  readonly outputTokensName: OutputTokensField;
  /** The least bound to which the gateway may lower that member. */
  readonly outputTokensMin: number;
  /** A stream reports its usage only if `stream_options` asks for it. */
  readonly asksForUsage: boolean;
}
