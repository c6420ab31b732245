/**
 * Types of the frames between a listener and an upstream worker. listener-channel.ts sends and receives them
 * on the listener's thread, worker-channel.ts on the worker's; frame-port.ts carries them. A new field of a
 * frame that goes by the ring (all but Fail and Tried), or a new kind, needs a change of frame-codec.ts too.
 *
 *     listener → worker   Call    the request
 *                         Cancel  the client has gone
 *                         Stop    the client was cut, or the gateway is closing: nothing is awaited
 *                         Credit  the worker had run out of credits, and has some again
 *     worker → listener   Tried   an attempt that failed; more may follow
 *                         Data    bytes of the response: events of a stream, or a piece of a large response
 *                         End     the last bytes, and the usage to be billed
 *                         Cut     a stream stops half-way: the usage up to there; its connection ends
 *                         Fail    the call is not billed; a stream that has begun ends with an error event
 *
 * Must hold: for each call a worker sends any number of Tried and Data and then exactly one End, Cut or Fail,
 * after a Cancel or Stop too. The listener uses the call's slot again only after that last frame; if it never
 * comes, the slot is lost (test/unit/channel/link.test.ts).
 */
import type { ErrorRecord } from '../core/errors.js';
import type { AccountIndex, MonotonicMs } from '../core/units.js';
import type { Span } from '../protocol/chat-call.js';
import type { Usage } from '../core/token-counts.js';
import type { AttemptCode } from '../telemetry/ended-call.js';
import type { CarriedTrace } from '../telemetry/trace-context.js';
import type { CallId } from './open-calls.js';

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
export interface EndFrame {
  readonly kind: typeof FRAME_END | typeof FRAME_CUT;
  readonly id: CallId;
  /** None in a Cut. */
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
export type Frame = CallFrame | SignalFrame | DataFrame | EndFrame | FailFrame | TriedFrame;

/** An attempt that has failed, or whose client left before it was over, for the call log. */
export interface TriedAttempt {
  /** The upstream's index in the metrics. */
  readonly upstream: number;
  /** Which fallback was tried, from 1; 0 for the model that the call names. */
  readonly fallback: number;
  readonly startMs: MonotonicMs;
  readonly durationMs: number;
  /** HTTP status; 0 if the upstream sent none. */
  readonly status: number;
  /** Undefined if the response came whole, after the client had left. */
  readonly code: AttemptCode | undefined;
  /** Why, in words for operators. */
  readonly error: string;
}

/**
 * Value of `outputTokensMax` if the call sets no limit. Larger limits are lowered to it, so that they fit 32
 * bits.
 */
export const OUTPUT_TOKENS_UNLIMITED = 2 ** 31 - 1;

/** The fallbacks of a call, and the spans of its body that change if a fallback allows less output. */
export interface FallbackModels {
  /** Indices into the catalogue, in the order in which they are asked; at least one. */
  readonly models: readonly number[];
  /** Spans of the members, as in ChatCall. */
  readonly maxTokens: Span;
  readonly maxCompletionTokens: Span;
}

/** A call, as the listener sends it and the worker gets it. */
export interface UpstreamRequest {
  readonly requestId: string;
  /** The door by which the call came, as its position in DOOR_NAMES: `body` is in that door's protocol. */
  readonly door: number;
  /** The client's header `anthropic-beta`; mostly empty. */
  readonly betas: string;
  readonly modelIndex: number;
  readonly stream: boolean;
  /** Whether the client gets the usage chunk of a stream. */
  readonly includeUsage: boolean;
  /** Where the model's name stands in `body`, with its quotes. */
  readonly modelStart: number;
  readonly modelEnd: number;
  readonly body: string;
  readonly bodyIsAscii: boolean;
  /**
   * The body, if it is longer than some KB (as in ChatCall): then `body` is empty. Its memory is transferred,
   * so only the receiver may use it.
   */
  readonly largeBody?: Uint8Array | undefined;
  /** Set if the call belongs to a trace. */
  readonly trace?: CarriedTrace | undefined;
  /**
   * Whose call it is. Queues of workers and counter threads take calls of each account in turn, so that one
   * account cannot delay the others.
   */
  readonly account: AccountIndex;
  /** Tokens of one choice that the call asked for, or OUTPUT_TOKENS_UNLIMITED. */
  readonly outputTokensMax: number;
  /** How many responses the call asks for (`n`). */
  readonly choices: number;
  /** As in ChatCall. */
  readonly mediaParts: number;
  /** Undefined if the call has none. */
  readonly fallbacks?: FallbackModels | undefined;
}

/**
 * An upstream session sends its response to the listener through this handle. Each method sends one frame
 * unless it says otherwise.
 */
export interface DownstreamHandle {
  /**
   * Copies the bytes and sends them. Returns false if the credits are spent: then the session must pause its
   * upstream until `onCredit`.
   */
  data(bytes: Uint8Array): boolean;
  /**
   * Records which upstream gets the call now: `upstreamSlot` is its index in the metrics, `fallback` which of
   * the call's fallbacks it serves, from 1; 0 for the model that the call names. Each record replaces the one
   * before. Sends no frame.
   */
  recordUpstream(upstreamSlot: number, fallback: number, nowMs: MonotonicMs): void;
  /** The attempt on the upstream that was recorded last has failed, or has ended without its client. */
  tried(attempt: TriedAttempt): void;
  /** How long the call has waited so far because its upstreams were at their limits. Sends no frame. */
  recordQueued(queuedMs: number): void;
  /**
   * Ends a call that is billed. `upstreamWaitMs`: how long the call waited for its upstreams before the first
   * byte of its response could be sent.
   */
  end(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): void;
  /** Ends a stream that was cut after it had begun, and is billed up to there. */
  cut(usage: Usage, upstreamWaitMs: number): void;
  /** Ends a call that is not billed. */
  fail(error: ErrorRecord): void;
}

/** What the channel calls of a running upstream session. */
export interface UpstreamSession {
  /** Credits are back after `data` returned false. */
  onCredit(): void;
  /**
   * The client has gone: abort the upstream at once, then call `end` with what was relayed (estimated), or
   * `fail`. If the upstream is set to finish, its response is read to the end before, and discarded, unless
   * `atOnce`, which may also come later.
   */
  onCancel(atOnce?: boolean): void;
  /** `onCredit` or `onCancel` has thrown, which is a bug: the call ends, if it has not. */
  crash(error: unknown): void;
}

/**
 * Starts a session. WorkerChannel calls it for every Call frame. The session may use `downstream`, even end
 * the call, before this function returns.
 */
export type StartSession = (request: UpstreamRequest, downstream: DownstreamHandle) => UpstreamSession;
