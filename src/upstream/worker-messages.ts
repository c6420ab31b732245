/**
 * Types of the messages between the main thread (gateway/upstream-workers.ts) and upstream workers
 * (upstream-task.ts), and between the main thread (gateway/counter-pool.ts) and counter threads
 * (counter-task.ts).
 *
 * Must hold: all that is sent can be cloned between threads, so functions and class instances are left out.
 * Ports cannot: each port of a message, also one within another object, must be in the transfer list of its
 * sender in gateway/upstream-workers.ts, gateway/listeners.ts for an own worker. A SharedArrayBuffer stays
 * shared; the bytes of a CounterTask are moved (`buffersOf` of gateway/counter-pool.ts); all else is copied.
 * The compiler checks that both ends know all messages; each test that starts a gateway sends them.
 */
import type { MessagePort } from 'node:worker_threads';
import type { DoorName } from '../core/door-names.js';
import type { AccountIndex } from '../core/units.js';
import type { CallTableBuffer } from '../channel/call-table.js';
import type { FrameChannel } from '../channel/frame-port.js';
import type { UpstreamBuffers } from '../ledger/upstream-counters.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { SpanOutlet } from '../telemetry/span-outbox.js';
import type { ChatRequestResult } from '../protocol/chat-call.js';
import type { Usage } from '../core/token-counts.js';
import type { CredentialRecord } from '../providers/credentials/credential-spec.js';
import type { LargeBody, LargeTranslated } from './large-translation.js';
import type { CountRequest, CountRest } from './token-count.js';
import type { LeftCallTable } from './left-calls.js';
import type { BudgetRecord } from './worker-budget.js';
import type { ModelRoute } from './target.js';

/** The long-lived task of one upstream worker. */
export interface UpstreamTask {
  /** The worker's number in its process, from 0: threads first, then listeners that are workers too. */
  readonly index: number;
  /** By the model's index in the catalogue. */
  readonly routes: readonly ModelRoute[];
  /** The current state of the credentials that the gateway renews. */
  readonly credentials: readonly CredentialRecord[];
  /** The next five have shared memory, of all threads of the process. */
  readonly calls: CallTableBuffer;
  readonly metrics: MetricsBuffers;
  readonly upstreams: UpstreamBuffers;
  readonly responses: BudgetRecord;
  readonly leftCalls: LeftCallTable;
  /** The worker's stripe in the metrics of threads; undefined if a listener runs the task. */
  readonly thread: number | undefined;
  readonly controlPort: MessagePort;
  /** Questions to the counter pool go out here. */
  readonly counterPort: MessagePort;
  /** The worker asks for leases here; undefined if limits are not shared. */
  readonly leasePort: MessagePort | undefined;
  /** Undefined if spans are not exported. */
  readonly spanOutlet: SpanOutlet | undefined;
}

/** Messages to a worker over `controlPort`. */
export type ToUpstreamWorker =
  /** A listener uses this channel, in place of an earlier one of the same index. */
  | { readonly kind: 'listener'; readonly index: number; readonly channel: FrameChannel<MessagePort> }
  /** Calls use these routes from now on; models keep their indices. The reply is `routes_taken`. */
  | { readonly kind: 'routes'; readonly routes: readonly ModelRoute[]; readonly id: number }
  /** Closes the breakers of that model's upstreams, or of all if none is named. */
  | { readonly kind: 'reset'; readonly model: string | undefined }
  /** Replaces the credentials of the positions that `records` have. */
  | { readonly kind: 'credentials'; readonly records: readonly CredentialRecord[] }
  /** The worker aborts its calls and returns from the task. */
  | { readonly kind: 'close' };

/** Messages from a worker over `controlPort`. */
export type FromUpstreamWorker =
  /** The worker uses the routes of the message `routes` with that `id`. */
  | { readonly kind: 'routes_taken'; readonly id: number }
  /** A provider has rejected the credential at that position. Each worker sends it once a generation. */
  | { readonly kind: 'credential_rejected'; readonly position: number; readonly generation: number };

/** `workerData` of a counter thread. */
export interface CounterInit {
  readonly metrics: MetricsBuffers;
}

/** A question to the counter pool: `task` is the work of the job's first time slice. */
export interface CounterAsk {
  /** The account whose share of the pool the job takes. */
  readonly account: AccountIndex;
  readonly task: CounterTask;
}

/** The work of one time slice of a job on a counter thread. */
export type CounterTask =
  | { readonly kind: 'parse'; readonly door: DoorName; readonly pieces: readonly Uint8Array[] }
  | { readonly kind: 'translate'; readonly large: LargeBody }
  | { readonly kind: 'count'; readonly request: CountRequest }
  | { readonly kind: 'count_on'; readonly rest: CountRest };

/** The result of the job, or what is left of a `count` or `count_on` for its next time slice. */
export type SliceResult =
  | { readonly over: true; readonly result: ChatRequestResult | LargeTranslated | Usage }
  | { readonly over: false; readonly rest: CountRest };
