/**
 * The two contexts that every phase gets: what is known of one request (CallContext), and what the listener
 * has for all of its requests (ListenerContext; calls get IntakeContext). listener-server.ts makes a
 * CallContext for each request, listener.thread.ts one IntakeContext. Listener thread.
 *
 * Must hold: a field of CallContext is set by the phases that its comment names, and read by later phases.
 * The field is undefined, empty or false on every path that ended before (no test of its own; the compiler
 * asks for a check).
 */
import type { IdempotencyChannel } from '../channel/idempotency-channel.js';
import type { LeaseChannel } from '../channel/lease-channel.js';
import type { ListenerChannel } from '../channel/listener-channel.js';
import type { AskPort } from '../core/ask-port.js';
import type { Clock } from '../core/clock.js';
import type { DoorName } from '../core/door-names.js';
import { invariant } from '../core/errors.js';
import type { SlotArray } from '../core/slot-array.js';
import type { AccountIndex, CallSlot, KeyIndex, MonotonicMs } from '../core/units.js';
import type { CallNeeds, RefusedQuota } from '../ledger/quota-rejections.js';
import type { JournalWriter } from '../ledger/journal.js';
import type { QuotasLeft } from '../core/quotas-left.js';
import type { Ledger } from '../ledger/ledger.js';
import type { PendingCommits } from '../ledger/pending-commits.js';
import { CHAT } from '../doors/chat/chat-door.js';
import type { Door, ResponseFacts } from '../doors/door.js';
import type { ChatCall, ChatRequestResult } from '../protocol/chat-call.js';
import type { PlanEntry } from '../registry/catalog.js';
import type { GroupNames } from '../registry/group-names.js';
import type { KeyTable } from '../registry/key-table.js';
import type { CallRingWriter } from '../telemetry/call-ring-writer.js';
import type { ListenerMetrics } from '../telemetry/metrics-writers.js';
import type { BodyBudget } from './body-budget.js';
import type { ContentsGatherer } from './call-contents.js';
import type { CollectBudget } from './collected-response.js';
import type { Connections } from './connections.js';
import type { DiscardBudgets } from './discard-budget.js';
import type { EarlierResponse } from './idempotency.js';
import type { ListenerLimits, ListenerSettings } from './messages.js';
import type { CandidateModel, ModelAccess } from './model-access.js';
import type { BodyTurns } from './read-turns.js';
import type { ResponseCache } from './response-cache.js';

/** The key, account and plan of the request. Set by `authenticate`. */
export interface Caller {
  readonly key: KeyIndex;
  readonly account: AccountIndex;
  readonly planIndex: number;
  readonly plan: PlanEntry;
  /** Whether the key has limits of its own. */
  readonly isLimited: boolean;
}

/** An admitted call, with its slot and hold. Set by `admit`; ended once by `settle` or `release`. */
export interface Admission extends CandidateModel {
  readonly slot: CallSlot;
  /** The call as it goes upstream: with the model's id, and with the bound of output that `admit` has set. */
  readonly call: ChatCall;
  readonly admittedMs: MonotonicMs;
  /**
   * Whether the journal keeps space for two records of the call: its charge, and one that takes the charge
   * back. If a reload brought `durability: commit` only after the admission, there is space for one.
   */
  readonly mayReverse: boolean;
}

/** One request. The phases fill the fields in order. A call has a ChatExchange, which adds fields. */
export class CallContext {
  readonly requestId: string;
  /** The number at the end of `requestId`. */
  readonly requestNumber: number;
  /** CORS lines for the response's head; may be empty. */
  readonly corsLines: string;
  /** The door of the request's path; that of chat completions if no door has the path. It writes errors. */
  readonly door: Door;
  /** Whether the request is a HEAD: its response has no body. Set by listener-server.ts; calls are POSTs. */
  isHead = false;
  caller: Caller | undefined = undefined;
  /** Whose key `authenticate` knows and rejects: disabled, expired, no plan. For the call log alone. */
  rejectedCaller: Pick<Caller, 'key' | 'account'> | undefined = undefined;
  /** For the `X-RateLimit-*` headers. Set by the rate-limit phase, and by `admit` if it rejects. */
  rateLimit: ResponseFacts['rateLimit'] = undefined;
  /**
   * Whether the permits were taken before the body is read. False if the body comes while a coordinator is
   * still asked: until its reply no error about the body may be sent. Set by the rate-limit phase.
   */
  hasPermit = false;
  /**
   * What is left of each limit of requests a minute, laid out as QuotasLeft.others. Set by the rate-limit
   * phase if several scopes have such a limit and the call log stores calls.
   */
  minutesLeft: number[] | undefined = undefined;
  /** Set by `admit` if the call log stores calls. */
  quotasLeft: QuotasLeft | undefined = undefined;
  /** Undefined if no scope has `tokens_per_minute`. Set when the call is admitted, rejected or replayed. */
  tokenLimit: ResponseFacts['tokenLimit'] = undefined;
  /**
   * Whether the last rejection was by a limit of which the coordinator may have more. Set by the rate-limit
   * phase and by `admit`, again with each decision.
   */
  asksLease = false;
  /** What the call needs of a quota of spending that rejected it. Set with `asksLease`. */
  lackingNeeds: CallNeeds | undefined = undefined;
  /**
   * The quotas of which the coordinator had too little for the call, so that `admit` may lower the output,
   * and rejects by no other quota. Undefined if it has refused nothing. Set by AdmissionAsk.
   */
  refused: readonly RefusedQuota[] | undefined = undefined;
  /** Set by `chooseModel` (admit.ts), for `lookUp` or `admit`, once the model is known to be on the plan. */
  modelIndex: number | undefined = undefined;
  /** The model of `modelIndex`, then its fallbacks for this call. Set by `chooseModel`; empty before. */
  models: readonly CandidateModel[] = [];
  admission: Admission | undefined = undefined;
  /** Set by `lookUp` (replay.ts) if the response cache has the response. The hold is then a hit's price. */
  hit: EarlierResponse | undefined = undefined;
  /** The header lines about the response cache, set by `lookUp`; empty if the cache was not asked. */
  cacheLine = '';
  /** Whether the output was lowered to what the account can pay. Set by `admit`. */
  isOutputLowered = false;

  constructor(requestId: string, requestNumber: number, corsLines = '', door: Door = CHAT) {
    this.requestId = requestId;
    this.requestNumber = requestNumber;
    this.corsLines = corsLines;
    this.door = door;
  }

  /** The caller, for all that comes after `authenticate`. */
  get knownCaller(): Caller {
    invariant(this.caller !== undefined, 'authenticate sets the caller or rejects');
    return this.caller;
  }

  /** The admission, for all that comes after `admit`. */
  get admitted(): Admission {
    invariant(this.admission !== undefined, 'admit sets the admission or rejects');
    return this.admission;
  }
}

/**
 * What the phases work with: one object for each listener thread. A reload replaces the object's settings in
 * place (`applySettings` of listener.thread.ts), so a request that has begun is admitted by the new settings:
 * read a setting when it is used, and keep none. Indices of models and plans mean the same in the old and the
 * new settings.
 */
export interface ListenerContext extends Pick<
  ListenerSettings,
  'catalog' | 'lowBalance' | 'tokenQuota' | 'cachedInput' | 'durability'
> {
  readonly clock: Clock;
  readonly ledger: Ledger;
  readonly journal: JournalWriter;
  readonly pendingCommits: PendingCommits;
  readonly keys: KeyTable;
  readonly groupNames: GroupNames;
  readonly channel: ListenerChannel;
  /** Undefined unless limits are shared with other processes. */
  readonly leases: LeaseChannel | undefined;
  readonly metrics: ListenerMetrics;
  readonly callRing: CallRingWriter;
  /** Made of `catalog`. */
  readonly access: ModelAccess;
}

/** A question to the counter pool: parse a large body. Must fit CounterAsk of upstream/worker-messages.ts. */
interface ParseAsk {
  readonly account: AccountIndex;
  readonly task: { readonly kind: 'parse'; readonly door: DoorName; readonly pieces: Uint8Array[] };
}

/** What a sweep looks at. listener-server.ts calls `onSweep` about once a second of each in `sweeps`. */
export interface Swept {
  onSweep(nowMs: MonotonicMs): void;
}

/** The whole context, for what makes a call's exchange, reads its body and delivers its response. */
export interface IntakeContext extends ListenerContext, DiscardBudgets {
  readonly limits: ListenerLimits;
  readonly bodies: BodyBudget;
  readonly contents: ContentsGatherer;
  /** Bodies that are read, and responses that are written in pieces. Calls in flight bound the list. */
  readonly sweeps: SlotArray<Swept>;
  readonly locks: IdempotencyChannel;
  readonly collected: CollectBudget;
  readonly cache: ResponseCache;
  readonly parser: AskPort<ParseAsk, ChatRequestResult>;
  readonly bodyTurns: BodyTurns;
  readonly connections: Connections;
}
