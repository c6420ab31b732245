/**
 * What is known of one request while it goes through the phases. Filled in order, each field by the phase that is named
 * with it; one object a request. Listener thread.
 */
import type { LeaseChannel } from '../channel/lease-channel.js';
import type { ListenerChannel } from '../channel/listener-channel.js';
import type { Clock } from '../core/clock.js';
import type { AccountIndex, CallSlot, KeyIndex, MonotonicMs } from '../core/units.js';
import type { JournalWriter } from '../ledger/journal.js';
import type { KeyLimit } from '../ledger/key-limits.js';
import type { Ledger } from '../ledger/ledger.js';
import type { ChatCall } from '../protocol/chat-call.js';
import type { Catalog, ModelEntry, PlanEntry } from '../registry/catalog.js';
import type { KeyTable } from '../registry/key-table.js';
import type { AccessWriter } from '../telemetry/access-ring.js';
import type { ListenerMetrics } from '../telemetry/listener-metrics.js';
import type { ModelAccess } from './admit.js';
import type { CallTrace } from './call-trace.js';
import type { PendingCommits } from './pending-commits.js';

/** Who asks. Set by `authenticate`. */
export interface Caller {
  readonly key: KeyIndex;
  readonly account: AccountIndex;
  readonly planIndex: number;
  readonly plan: PlanEntry;
  /** The key's own, undefined where it has none. */
  readonly keyLimit: KeyLimit | undefined;
}

/** What the `X-RateLimit-*` headers say. Set by `rate limit`. */
export interface RateLimitState {
  readonly limit: number;
  readonly remaining: number;
  /** Unix seconds. */
  readonly resetSeconds: number;
}

/** A call that has its slot, its day's call and its hold. Set by `admit`; taken back once by `settle` or `release`. */
export interface Admission {
  readonly slot: CallSlot;
  readonly modelIndex: number;
  readonly model: ModelEntry;
  readonly call: ChatCall;
  readonly admittedMs: MonotonicMs;
}

export class CallContext {
  readonly requestId: string;
  /** The count part of the identifier. */
  readonly requestNumber: number;
  /** Of the response's head: what scripts in browsers may do with it. Empty where nothing is said. */
  readonly corsLines: string;
  caller: Caller | undefined = undefined;
  /** Of a chat call that belongs to a trace, once its caller is known. */
  trace: CallTrace | undefined = undefined;
  rateLimit: RateLimitState | undefined = undefined;
  /** Set by a refusal of `rate limit`: those who share the limit may have permits. */
  asksLease = false;
  /** Where limits are shared: the whole hold is known not to be had. Set by `AdmissionAsk`. */
  mayClamp = false;
  /** Set by `admit` once the model is known to be on the plan. */
  modelIndex: number | undefined = undefined;
  admission: Admission | undefined = undefined;

  constructor(requestId: string, requestNumber: number, corsLines = '') {
    this.requestId = requestId;
    this.requestNumber = requestNumber;
    this.corsLines = corsLines;
  }
}

/*
 * What the phases work with: one set a listener thread, made at its start and anew when the settings are reloaded. A phase
 * reads one set; two phases of a call may read two, whose indices mean the same.
 */

export interface ListenerContext {
  readonly clock: Clock;
  readonly ledger: Ledger;
  readonly journal: JournalWriter;
  readonly held: PendingCommits;
  readonly keys: KeyTable;
  readonly catalog: Catalog;
  readonly access: ModelAccess;
  readonly channel: ListenerChannel;
  /** Where limits are shared with other processes. */
  readonly leases: LeaseChannel | undefined;
  readonly metrics: ListenerMetrics;
  readonly accessLog: AccessWriter;
  /** What happens where a balance covers the prompt but not the worst case. */
  readonly lowBalance: 'refuse' | 'clamp';
  /** Whether the end of a response waits until its charge is on disk. */
  readonly durability: 'interval' | 'commit';
}
