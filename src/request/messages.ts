/**
 * The messages between the main thread (gateway/listeners.ts) and a listener thread (listener.thread.ts), and
 * the listener's `workerData`. Types.
 */
import type { MessagePort } from 'node:worker_threads';
import type { JournalBuffer } from '../ledger/journal-layout.js';
import type { LedgerBuffers } from '../ledger/layout.js';
import type { BodyBudgetBuffer } from './body-budget.js';
import type { CallTableBuffer } from '../channel/call-table.js';
import type { FrameChannel } from '../channel/frame-port.js';
import type { SlotRange } from '../channel/listener-channel.js';
import type { Catalog } from '../registry/catalog.js';
import type { GroupNamesBuffer } from '../registry/group-names.js';
import type { KeyTableBuffers } from '../registry/key-table.js';
import type { CallRingBuffer } from '../telemetry/call-ring-layout.js';
import type { ContentsBudgetBuffer } from '../telemetry/contents-layout.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { SpanOutlet } from '../telemetry/span-outbox.js';
import type { Sampling } from '../telemetry/trace-context.js';
import type { ContentsSettings } from './call-contents.js';
import type { TlsFiles } from './connections.js';
import type { CorsSettings } from './response.js';

export interface ListenerLimits {
  /** Memory of the bodies of all calls, of all listeners together. */
  readonly bodiesInWorkBytesMax: number;
  /** A longer body is parsed in the counter pool. */
  readonly parseInlineBytesMax: number;
  /** A large body that is not parsed after so long is rejected. */
  readonly parseWaitMs: number;
  /** A client that takes nothing for so long is cut. */
  readonly clientIdleTimeoutMs: number;
}

/** What a reload replaces while the listener serves. */
export interface ListenerSettings {
  readonly catalog: Catalog;
  readonly limits: ListenerLimits;
  /** What happens if a balance covers the prompt but not the worst case. */
  readonly lowBalance: 'refuse' | 'clamp';
  /** Whether a call holds the most tokens that it may use, or counts those that it has used. */
  readonly tokenQuota: 'reserve' | 'settle';
  /** Whether cached prompt tokens count toward quotas of tokens. */
  readonly cachedInput: 'count' | 'free';
  /** Memory of the listener's part of the response cache. */
  readonly cacheBytesMax: number;
  /** Which calls leave the contents of request and response. */
  readonly contents: ContentsSettings;
  /** Whether the end of a response waits until its charge is on disk. */
  readonly durability: 'interval' | 'commit';
  /** Undefined for plain HTTP. */
  readonly tls: TlsFiles | undefined;
  /** Undefined if scripts of other origins may not call. */
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
  /** Request identifiers are this and a count. Another for each start of the thread. */
  readonly requestPrefix: string;
  readonly ledger: LedgerBuffers;
  readonly journal: JournalBuffer;
  readonly callRing: CallRingBuffer;
  readonly contentsBudget: ContentsBudgetBuffer;
  readonly keys: KeyTableBuffers;
  readonly groupNames: GroupNamesBuffer;
  readonly calls: CallTableBuffer;
  readonly bodies: BodyBudgetBuffer;
  readonly metrics: MetricsBuffers;
  /** Index of its stripe in `metrics`. */
  readonly thread: number;
  readonly settings: ListenerSettings;
  /** A longer response is not stored for replays. */
  readonly storedResponseBytesMax: number;
  /** For idempotency locks. */
  readonly lockPort: MessagePort;
  /** For cached responses. */
  readonly cachePort: MessagePort;
  /** For leases; undefined unless limits are shared with other processes. */
  readonly leasePort: MessagePort | undefined;
  /** For the counter pool, which parses large bodies. */
  readonly parserPort: MessagePort;
  /** Undefined unless spans are exported. */
  readonly tracing: ListenerTracing | undefined;
}

export type ToListener =
  /** A worker serves this channel, in place of an earlier one of the same index. */
  | { readonly kind: 'worker'; readonly index: number; readonly channel: FrameChannel }
  | { readonly kind: 'worker_lost'; readonly index: number }
  /** Reply to `commit`: what was in the journal is on disk now; `ok` is false if the store fails. */
  | { readonly kind: 'committed'; readonly ok: boolean }
  /** The settings were reloaded; `settings_taken` replies. */
  | { readonly kind: 'settings'; readonly settings: ListenerSettings; readonly turn: number }
  /** Forget the cached responses of that model, or all. */
  | { readonly kind: 'cache_cleared'; readonly modelId: string | undefined }
  /** Stop accepting; `drained` follows when all connections are at rest, or have ended (`keepsIdle`). */
  | { readonly kind: 'drain'; readonly keepsIdle: boolean }
  /** The time for that is over: wait only for calls that have begun since; `drained` follows. */
  | { readonly kind: 'drain_late' }
  /** Cut all connections and end. */
  | { readonly kind: 'close' };

export type FromListener =
  | { readonly kind: 'listening' }
  | { readonly kind: 'listen_failed' }
  | { readonly kind: 'drained' }
  | { readonly kind: 'settings_taken'; readonly turn: number }
  /** Responses wait for their charges; `committed` replies. */
  | { readonly kind: 'commit' }
  /** Contents of calls, one behind the other. */
  | { readonly kind: 'contents'; readonly bytes: Uint8Array<ArrayBuffer> }
  /** Take the records out, before the journal is full. */
  | { readonly kind: 'journal_half_full' };
