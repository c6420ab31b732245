/**
 * Types of the frames between a listener and an upstream worker, and the interfaces by which a worker's
 * channel and its sessions call each other. listener-channel.ts sends and receives frames on the listener's
 * thread, worker-channel.ts on the worker's; frame-port.ts carries them. A new field of a frame that goes by
 * the ring (all but Fail and Tried), or a new kind, needs a change of frame-codec.ts too.
 *
 *     listener → worker   Call    the request
 *                         Cancel  the client has left
 *                         Stop    the client was cut, or the listener ends: as Cancel, and the upstream must
 *                                 not finish (`UpstreamSession.onCancel`)
 *                         Credit  the worker had run out of credits, and has some again. Without a number:
 *                                 both sides count credits in the call table (call-table.ts)
 *     worker → listener   Tried   an attempt that failed; others may follow
 *                         Data    bytes of the response: events of a stream, or a piece of a large response
 *                         End     the last bytes, and the usage to be billed
 *                         Cut     a stream stops half-way: the usage up to there; its connection ends
 *                         Fail    the call is not billed; a stream that has begun ends with an error event
 *
 * Must hold: for each call a worker sends any number of Tried and Data and then exactly one End, Cut or Fail,
 * after a Cancel or Stop too. The listener uses the call's slot again only after that last frame; if it never
 * comes, the slot is lost (test/unit/channel/link.test.ts). frame-port.ts delivers frames in the order in
 * which they were pushed, so a Fail, which is posted, cannot overtake Data in the ring
 * (test/unit/channel/frame-port.test.ts).
 */
import type { ErrorRecord } from '../core/errors.js';
import type { AccountIndex, MonotonicMs } from '../core/units.js';
import type { Span } from '../protocol/chat-call.js';
import type { Usage } from '../core/token-counts.js';
import type { AttemptCode } from '../telemetry/call-ring-layout.js';
import type { CarriedTrace } from '../telemetry/trace-context.js';
import type { CallId } from './open-calls.js';

// Kinds of frames. 0 is the kind of a gap in the ring (core/spsc-ring.ts).
export const FRAME_CALL = 1;
export const FRAME_CANCEL = 2;
export const FRAME_CREDIT = 3;
export const FRAME_DATA = 4;
export const FRAME_END = 5;
export const FRAME_FAIL = 6;
export const FRAME_CUT = 7;
export const FRAME_TRIED = 8;
export const FRAME_STOP = 9;

export interface CallFrame {
  readonly kind: typeof FRAME_CALL;
  readonly id: CallId;
  readonly request: UpstreamRequest;
}
interface SignalFrame {
  readonly kind: typeof FRAME_CANCEL | typeof FRAME_CREDIT | typeof FRAME_STOP;
  readonly id: CallId;
}
export interface DataFrame {
  readonly kind: typeof FRAME_DATA;
  readonly id: CallId;
  readonly bytes: Uint8Array;
}
/** An End or a Cut. Both have the same fields. */
export interface EndFrame {
  readonly kind: typeof FRAME_END | typeof FRAME_CUT;
  readonly id: CallId;
  /** Empty in a Cut. */
  readonly bytes: Uint8Array;
  readonly usage: Usage;
  /** See `DownstreamHandle.end`. */
  readonly upstreamWaitMs: number;
}
interface FailFrame {
  readonly kind: typeof FRAME_FAIL;
  readonly id: CallId;
  readonly error: ErrorRecord;
}
interface TriedFrame {
  readonly kind: typeof FRAME_TRIED;
  readonly id: CallId;
  readonly attempt: TriedAttempt;
}
/** What a listener sends, and what a worker sends. */
export type ListenerFrame = CallFrame | SignalFrame;
export type WorkerFrame = DataFrame | EndFrame | FailFrame | TriedFrame;
export type Frame = ListenerFrame | WorkerFrame;

/** An attempt that has failed, or whose client left before it was over, for the call log. */
export interface TriedAttempt {
  /** The upstream's slot (docs/glossary.md). */
  readonly upstreamSlot: number;
  /** Which fallback was tried, from 1; 0 for the model that the call names. */
  readonly fallback: number;
  readonly startMs: MonotonicMs;
  readonly durationMs: number;
  /** HTTP status; 0 if the upstream sent none. */
  readonly status: number;
  /** Undefined if the attempt did not fail: the response came whole, after the client had left. */
  readonly code: AttemptCode | undefined;
  /** Why the attempt failed, in words for operators. Empty if it did not fail, or the client left before. */
  readonly error: string;
}

/** `outputTokensMax` of a call without a bound. A larger bound is lowered to this value, to fit 32 bits. */
export const OUTPUT_TOKENS_UNLIMITED = 2 ** 31 - 1;

/**
 * The fallbacks of a call, and where in its body bounds stand that change if a fallback allows less output. A
 * worker only lowers a bound that the body has, and adds none.
 */
export interface FallbackModels {
  /** Indices into the catalogue, in the order in which they are tried; at least one. */
  readonly models: readonly number[];
  /**
   * Where the values of the two bounds stand: in UTF-16 units of `body`, or bytes of `largeBody`. Both are
   * NOWHERE (protocol/chat-call.ts) if the call has no bound, or only bounds that are null.
   */
  readonly maxTokens: Span;
  readonly maxCompletionTokens: Span;
}

/** A call, as the listener sends it and the worker gets it. */
export interface UpstreamRequest {
  readonly requestId: string;
  /** The door by which the call came, as its position in DOOR_NAMES: `body` is in that door's protocol. */
  readonly door: number;
  /** The client's header `anthropic-beta`; '' if the client sent none. */
  readonly betas: string;
  readonly modelIndex: number;
  readonly stream: boolean;
  /** Whether the client gets the usage chunk of a stream. */
  readonly includeUsage: boolean;
  /** Where the model's name stands, with its quotes: in UTF-16 units of `body`, or bytes of `largeBody`. */
  readonly modelStart: number;
  readonly modelEnd: number;
  /** The text of the body, as the client sent it; '' if there is a `largeBody`. */
  readonly body: string;
  /** Whether all characters of `body` are ASCII: then frame-codec.ts writes one byte a character. */
  readonly bodyIsAscii: boolean;
  /**
   * The body as UTF-8, if it has 4 KiB or more (BODY_AS_BYTES_MIN of protocol/chat-call.ts): then `body`
   * is empty. The bytes do not go by the ring: frame-port.ts transfers their memory in a message, so only the
   * receiver may use it.
   */
  readonly largeBody?: Uint8Array | undefined;
  /** Undefined if the call belongs to no trace. */
  readonly trace?: CarriedTrace | undefined;
  /**
   * The account that pays. Queues of workers and counter threads take calls of each account in turn, so that
   * one account cannot delay the others.
   */
  readonly account: AccountIndex;
  /** The most output tokens of one choice that the call allows, or OUTPUT_TOKENS_UNLIMITED. */
  readonly outputTokensMax: number;
  /** How many responses the call asks for (`n`). */
  readonly choices: number;
  /** How many media parts the prompt has (docs/glossary.md). */
  readonly mediaParts: number;
  /** As in ChatCall (protocol/chat-call.ts): prompt tokens of texts that the model reads more than once. */
  readonly repeatedTokens: number;
  /** Undefined if the call has no fallbacks. */
  readonly fallbacks?: FallbackModels | undefined;
}

/**
 * An upstream session sends its response to the listener through this handle. Each method sends one frame
 * unless its comment says otherwise. The session calls one of `end`, `cut` and `fail` once, and then no other
 * method.
 */
export interface DownstreamHandle {
  /** Whether `end`, `cut` or `fail` was called. */
  readonly isEnded: boolean;
  /**
   * Copies the bytes and sends them. Returns false if the credits are spent: then the session must pause its
   * upstream until `onCredit`. If the client has left, sends no frame and returns true.
   */
  data(bytes: Uint8Array): boolean;
  /**
   * Records in the call table which upstream gets the call now, in place of an earlier one. `upstreamSlot`
   * and `fallback`: as in TriedAttempt. Sends no frame.
   */
  recordUpstream(upstreamSlot: number, fallback: number, nowMs: MonotonicMs): void;
  /** The attempt on the upstream that was recorded last has failed, or ended after the client had left. */
  tried(attempt: TriedAttempt): void;
  /**
   * Records in the call table how long the call has waited so far for upstreams at their limits. Sends no
   * frame.
   */
  recordQueued(queuedMs: number): void;
  /**
   * Ends a call that is billed. `upstreamWaitMs`: how long the call waited for its upstreams before the first
   * byte of its response could be sent.
   */
  end(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): void;
  /** Ends a call whose stream broke off half-way. The call is billed up to there. */
  cut(usage: Usage, upstreamWaitMs: number): void;
  /** Ends a call that is not billed. */
  fail(error: ErrorRecord): void;
}

/** What the channel calls of a running upstream session. */
export interface UpstreamSession {
  /** There are credits again after `data` returned false, so the session may go on. */
  onCredit(): void;
  /**
   * The client has left. If the upstream's setting `when_client_leaves` is `abort`, the session aborts the
   * upstream. If the setting is `finish`, the session may read the response to its end, and discards it. Then
   * it calls `end` or `cut` with the usage, or `fail` if the call is not billed.
   */
  onCancel(): void;
  /** As `onCancel`, but the upstream is aborted in any case, even one that `onCancel` has left to finish. */
  onStop(): void;
  /**
   * Another of these methods has thrown, which is a bug: the session ends the call by `fail`, if it has not
   * ended. Must not throw, or the worker's thread ends with all of its calls.
   */
  crash(error: unknown): void;
}

/**
 * Starts a session. WorkerChannel calls it for every Call frame. The session may use `downstream`, even end
 * the call, before this function returns. Must not throw, or the worker's thread ends with all of its calls:
 * a session that cannot start calls `fail`.
 */
export type StartSession = (request: UpstreamRequest, downstream: DownstreamHandle) => UpstreamSession;
