/**
 * What travels between a listener and an upstream worker. Both ends import this file.
 *
 * A batch is everything one side had to say in one turn of its event loop; how its frames travel stands in frame-port.ts. A frame is a
 * small array whose first element is its kind. A call is named by a `CallId`: its slot in the call table plus 2^20 times a generation that
 * its listener counts up, so that a late frame of an earlier call in the same slot is known by its number and dropped.
 *
 *     listener → worker   Call  callId requestId modelIndex stream includeUsage modelStart modelEnd body bodyIsAscii
 *                                largeBody trace account outputTokensMax choices
 *                         Cancel callId                 the client has gone, or the gateway is closing
 *                         Credit callId                 the worker said it waits, and credits are back
 *     worker → listener   Data  callId bytes            events of a stream, whole ones
 *                         End   callId bytes usage waitMs  the last bytes (a whole response, or a stream's rest) and the bill
 *                         Fail  callId error            no bill; a stream that has begun ends with an error event
 *                         Cut   callId usage waitMs     the bill of a stream that stays a part; its connection is cut
 *
 * For each call a worker sends any number of Data and then exactly one End, Fail or Cut, also after a Cancel: only then may the
 * listener use the slot again.
 */
import type { ErrorRecord } from '../core/errors.js';
import { asCallSlot, type AccountIndex, type CallSlot } from '../core/units.js';
import { USAGE_SOURCES, type Usage } from '../protocol/usage.js';
import type { CarriedTrace } from '../telemetry/trace-context.js';

/** `unknown` elements: frames are checked by their kind where they are read. */
export type Frame = readonly unknown[];

export const FRAME_CALL = 1;
export const FRAME_CANCEL = 2;
export const FRAME_CREDIT = 3;
export const FRAME_DATA = 4;
export const FRAME_END = 5;
export const FRAME_FAIL = 6;
export const FRAME_CUT = 7;

/** Slot + generation × 2^20: a safe integer for 2^33 generations. */
export type CallId = number;
export const CALL_SLOT_BITS = 20;
export const CALL_GENERATION = 2 ** CALL_SLOT_BITS;

/** A bitwise and is exact: it takes a safe integer by its low 32 bits. */
export function slotOfCall(id: CallId): CallSlot {
  return asCallSlot(id & (CALL_GENERATION - 1));
}

/** In the place of `outputTokensMax` where the call names none, and the most that it says: it fits 32 bits. */
export const OUTPUT_TOKENS_UNASKED = 2 ** 31 - 1;

/** A call as the worker gets it. */
export interface UpstreamRequest {
  readonly requestId: string;
  readonly modelIndex: number;
  readonly stream: boolean;
  /** Whether the usage chunk of a stream is handed on. */
  readonly includeUsage: boolean;
  /** Where the model's name stands in `body`, with its quotes. */
  readonly modelStart: number;
  readonly modelEnd: number;
  readonly body: string;
  readonly bodyIsAscii: boolean;
  /** In the place of `body`, which is then empty: see ChatCall. Belongs to the receiver. */
  readonly largeBody?: Uint8Array | undefined;
  /** Of a call that belongs to a trace. */
  readonly trace?: CarriedTrace | undefined;
  /** Whose call it is: counts of one account wait for each other. */
  readonly account: AccountIndex;
  /** Tokens of one choice that the call asked for, or OUTPUT_TOKENS_UNASKED. */
  readonly outputTokensMax: number;
  /** `n`. */
  readonly choices: number;
}

/** What an upstream call gives back, on the worker's side; the link turns each into a frame. */
export interface DownstreamHandle {
  /** False while credits are spent: pause the upstream until `onCredit`. The bytes are copied, and sent all the same. */
  data(bytes: Uint8Array): boolean;
  /** The call is given to an upstream, by its slot among the metrics; the last counts. No frame. */
  noteUpstream(upstreamSlot: number): void;
  /** Last word of a call that is billed. */
  /** `upstreamWaitMs`: how long the call waited for its upstreams before the first byte of its response could be sent. */
  end(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): void;
  /** Last word of a stream that was cut after it had begun, and is billed up to there. */
  cut(usage: Usage, upstreamWaitMs: number): void;
  /** Last word of a call that is not billed. */
  fail(error: ErrorRecord): void;
}

/** What the link tells a running upstream call. */
export interface UpstreamSession {
  /** Credits are back after `data` said false. */
  onCredit(): void;
  /** The client has gone: abort the upstream at once, then give `end` with what was relayed (estimated), or `fail`. */
  onCancel(): void;
}

/** Made by upstream/, called by the link for every Call frame. May call the handle before it returns. */
export type StartSession = (request: UpstreamRequest, downstream: DownstreamHandle) => UpstreamSession;

/** Usage as it stands in an End frame: prompt, cached and completion tokens, index of the source. */
export type UsageFrame = readonly [number, number, number, number];

export type CallFrame = readonly [
  kind: typeof FRAME_CALL,
  id: CallId,
  requestId: string,
  modelIndex: number,
  stream: boolean,
  includeUsage: boolean,
  modelStart: number,
  modelEnd: number,
  body: string,
  bodyIsAscii: boolean,
  largeBody: Uint8Array | undefined,
  trace: CarriedTrace | undefined,
  account: AccountIndex,
  outputTokensMax: number,
  choices: number,
];
export type DataFrame = readonly [kind: typeof FRAME_DATA, id: CallId, bytes: Uint8Array];
export type EndFrame = readonly [
  kind: typeof FRAME_END,
  id: CallId,
  bytes: Uint8Array,
  usage: UsageFrame,
  waitMs: number,
];
export type CutFrame = readonly [kind: typeof FRAME_CUT, id: CallId, usage: UsageFrame, waitMs: number];

export function frameOfUsage(usage: Usage): UsageFrame {
  return [
    usage.promptTokens,
    usage.cachedTokens,
    usage.completionTokens,
    USAGE_SOURCES.indexOf(usage.source),
  ];
}

export function usageOfFrame(frame: UsageFrame): Usage {
  return {
    promptTokens: frame[0],
    cachedTokens: frame[1],
    completionTokens: frame[2],
    source: USAGE_SOURCES[frame[3]]!,
  };
}
