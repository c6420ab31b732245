/**
 * What passes between the main thread and an upstream worker, and between the main thread and the counter pool. All
 * ends import this file.
 */
import type { MessagePort } from 'node:worker_threads';
import type { AccountIndex } from '../core/units.js';
import type { CallTableBuffer } from '../channel/call-table.js';
import type { FrameChannel } from '../channel/frame-port.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { SpanOutlet } from '../telemetry/span-outbox.js';
import type { ChatRequestResult } from '../protocol/chat-call.js';
import type { Usage } from '../protocol/usage.js';
import type { CountRequest, CountRest } from './token-count.js';
import type { ModelRoute } from './target.js';

/** The long-lived task of one upstream worker. */
export interface UpstreamTask {
  readonly index: number;
  readonly routes: readonly ModelRoute[];
  readonly calls: CallTableBuffer;
  readonly metrics: MetricsBuffers;
  /** Its stripe among those of the threads. */
  readonly thread: number;
  readonly controlPort: MessagePort;
  /** Questions to the counter pool go out here. */
  readonly counterPort: MessagePort;
  /** Where spans are exported. */
  readonly spans: SpanOutlet | undefined;
}

/** Orders over `controlPort`. */
export type ToUpstreamWorker =
  /** A listener speaks over this link, in the place of an earlier one of the same index. */
  | { readonly kind: 'listener'; readonly index: number; readonly channel: FrameChannel }
  /** Calls go here from now on; indices mean what they meant. `routes_taken` follows. */
  | { readonly kind: 'routes'; readonly routes: readonly ModelRoute[]; readonly turn: number }
  /** What an operator says is well is called again at once: upstreams of that model, or of all where none is named. */
  | { readonly kind: 'reset'; readonly model: string | undefined }
  /** Abort what is left and return from the task. */
  | { readonly kind: 'close' };

/** Answers over `controlPort`; `turn` is the order's. */
export interface FromUpstreamWorker {
  readonly kind: 'routes_taken';
  readonly turn: number;
}

/** `workerData` of a counter thread. */
export interface CounterInit {
  readonly metrics: MetricsBuffers;
}

/** A question to the counter pool: `task` is the job's first turn. */
export interface CounterAsk {
  /** Whose turn it takes. */
  readonly account: AccountIndex;
  readonly task: CounterTask;
}

/** One turn of a job on a counter thread. */
export type CounterTask =
  | { readonly kind: 'parse'; readonly pieces: readonly Uint8Array[] }
  | { readonly kind: 'count'; readonly request: CountRequest }
  | { readonly kind: 'count_on'; readonly rest: CountRest };

/** What came of a turn: the job's answer, or what is left for its next turn. */
export type CounterTurn =
  | { readonly over: true; readonly answer: ChatRequestResult | Usage }
  | { readonly over: false; readonly rest: CountRest };
