/**
 * What passes between the main thread and a listener thread. Both ends import this file.
 */
import type { MessagePort } from 'node:worker_threads';
import type { JournalBuffer } from '../ledger/journal-layout.js';
import type { LedgerBuffers } from '../ledger/layout.js';
import type { BodyBudgetBuffer } from './body-budget.js';
import type { CallTableBuffer } from '../channel/call-table.js';
import type { FrameChannel } from '../channel/frame-port.js';
import type { SlotRange } from '../channel/listener-channel.js';
import type { Catalog } from '../registry/catalog.js';
import type { KeyTableBuffers } from '../registry/key-table.js';
import type { AccessBuffer } from '../telemetry/access-ring.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { SpanOutlet } from '../telemetry/span-outbox.js';
import type { Sampling } from '../telemetry/trace-context.js';
import type { TlsFiles } from './connections.js';
import type { CorsSettings } from './response.js';

export interface ListenerLimits {
  /** Memory of the bodies of all calls in work, of all listeners together. */
  readonly bodiesInWorkBytesMax: number;
  /** A longer body is parsed in the counter pool. */
  readonly parseInlineBytesMax: number;
  /** A large body that was not parsed after so long is refused. */
  readonly parseWaitMs: number;
  /** A client that takes nothing for so long is cut. */
  readonly clientIdleTimeoutMs: number;
}

/** What a reload replaces while the listener serves. */
export interface ListenerSettings {
  readonly catalog: Catalog;
  readonly limits: ListenerLimits;
  /** What happens where a balance covers the prompt but not the worst case. */
  readonly lowBalance: 'refuse' | 'clamp';
  /** Whether the end of a response waits until its charge is on disk. */
  readonly durability: 'interval' | 'commit';
  /** Undefined where it serves without. */
  readonly tls: TlsFiles | undefined;
  /** Undefined where scripts of other pages may not call. */
  readonly cors: CorsSettings | undefined;
}

export interface ListenerTracing {
  readonly sampling: Sampling;
  readonly outlet: SpanOutlet;
}

/** `workerData` of a listener thread. */
export interface ListenerInit {
  readonly index: number;
  readonly host: string;
  /** Shared with the other listeners. */
  readonly port: number;
  readonly slots: SlotRange;
  /** Of this life of the thread: its requests are named by it and a count. */
  readonly requestPrefix: string;
  readonly ledger: LedgerBuffers;
  readonly journal: JournalBuffer;
  readonly accessLog: AccessBuffer;
  readonly keys: KeyTableBuffers;
  readonly calls: CallTableBuffer;
  readonly bodies: BodyBudgetBuffer;
  readonly metrics: MetricsBuffers;
  /** Its stripe among those of the threads. */
  readonly thread: number;
  readonly settings: ListenerSettings;
  /** A longer answer is not kept for a repeat with the same Idempotency-Key. */
  readonly storedResponseBytesMax: number;
  /** Questions about an Idempotency-Key go out here. */
  readonly claimPort: MessagePort;
  /** Where limits are shared with other processes: who waits for a lease says so here. */
  readonly leasePort: MessagePort | undefined;
  /** Questions to the counter pool go out here. */
  readonly parserPort: MessagePort;
  /** Where spans are exported. */
  readonly tracing: ListenerTracing | undefined;
}

export type ToListener =
  /** A worker serves behind this link, in the place of an earlier one of the same index. */
  | { readonly kind: 'worker'; readonly index: number; readonly channel: FrameChannel }
  | { readonly kind: 'worker_lost'; readonly index: number }
  /** Answers `commit`: what the journal held is on disk now, or the store fails. */
  | { readonly kind: 'committed'; readonly ok: boolean }
  /** Requests from now on are served by these; `settings_taken` follows. */
  | { readonly kind: 'settings'; readonly settings: ListenerSettings; readonly turn: number }
  /**
   * Stop accepting; say `drained` when every connection is at rest, with `keepsIdle` when every one has
   * ended.
   */
  | { readonly kind: 'drain'; readonly keepsIdle: boolean }
  /** The time for that is over: wait for calls alone that have begun since; `drained` follows. */
  | { readonly kind: 'drain_late' }
  /** Cut what is left and end. */
  | { readonly kind: 'close' };

export type FromListener =
  | { readonly kind: 'listening' }
  | { readonly kind: 'listen_failed' }
  | { readonly kind: 'drained' }
  /** `turn` is that of the order. */
  | { readonly kind: 'settings_taken'; readonly turn: number }
  /** Ends of responses wait for their charges; `committed` follows. */
  | { readonly kind: 'commit' }
  /** Take the records out, before there is no room for more. */
  | { readonly kind: 'journal_half_full' };
