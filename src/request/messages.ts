/**
 * Types of the messages between the main thread (gateway/listeners.ts) and a listener thread
 * (listener.thread.ts), and of the listener's `workerData`, which gateway/listeners.ts makes.
 * gateway/settings-records.ts makes the ListenerSettings. The compiler checks both ends, and that
 * listener.thread.ts applies each setting.
 *
 * Must hold: no provider's key is in these messages, because only upstream workers get the keys
 * (test/unit/gateway/settings-records.test.ts).
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
import type { ContentsBudgetBuffer } from '../telemetry/contents-budget.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { SpanOutlet } from '../telemetry/span-outbox.js';
import type { Sampling } from '../telemetry/trace-sampling.js';
import type { ContentsSettings } from './call-contents.js';
import type { DrainOptions } from './connections.js';
import type { TlsFiles } from './listen-apps.js';

export interface ListenerLimits {
  /** The memory budget of request bodies, for all listeners together (body-budget.ts). */
  readonly bodiesInWorkBytesMax: number;
  /** A longer body is parsed in the counter pool. */
  readonly parseInlineBytesMax: number;
  /** The call of a large body that is not parsed within this time is rejected. */
  readonly parseWaitMs: number;
  /** A connection is cut if its client sends nothing of a body, or takes nothing of a response, so long. */
  readonly clientIdleTimeoutMs: number;
}

export interface CorsSettings {
  /** `*` allows every origin. */
  readonly origins: readonly string[];
  readonly maxAgeSeconds: number;
}

/** What a reload replaces while the listener serves. */
export interface ListenerSettings {
  readonly catalog: Catalog;
  readonly limits: ListenerLimits;
  /** What happens if a balance covers the prompt but not the worst case: rejected, or with lowered output. */
  readonly lowBalance: 'refuse' | 'clamp';
  /** `reserve`: a call in flight counts with the most tokens that it may use. `settle`: only used ones do. */
  readonly tokenQuota: 'reserve' | 'settle';
  /** Whether prompt tokens that the provider had cached count toward quotas of tokens. */
  readonly cachedInput: 'count' | 'free';
  /** Bytes of memory for the listener's response cache. */
  readonly cacheBytesMax: number;
  /** Which calls' contents are kept. */
  readonly contents: ContentsSettings;
  /** `commit`: the end of a response waits until its charge is on disk. `interval`: it does not wait. */
  readonly durability: 'interval' | 'commit';
  /** Undefined for plain HTTP. */
  readonly tls: TlsFiles | undefined;
  /** Undefined if scripts of web pages may not call. */
  readonly cors: CorsSettings | undefined;
}

export interface ListenerTracing {
  readonly sampling: Sampling;
  readonly outlet: SpanOutlet;
}

/** `workerData` of a listener thread. */
export interface ListenerInit {
  /** The listener's number in its process, from 0. */
  readonly index: number;
  readonly host: string;
  /** Shared with the other listeners. */
  readonly port: number;
  /** The call slots that this listener alone gives to calls. */
  readonly slots: SlotRange;
  /** The prefix of all request ids of the listener. Each start of the thread gets another one. */
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
  /** The thread's number in `metrics`, which counts all threads; `index` counts the listeners. */
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
  /** A worker serves this channel, in place of an earlier worker of the same index. */
  | { readonly kind: 'worker'; readonly index: number; readonly channel: FrameChannel<MessagePort> }
  /** The worker of that index has ended: the calls that it had fail. */
  | { readonly kind: 'worker_lost'; readonly index: number }
  /** The reply to `commit`. If `ok`, the journal's records are on disk; if not, the store fails. */
  | { readonly kind: 'committed'; readonly ok: boolean }
  /** Use these settings, because of a reload. The reply is `settings_taken` with the same `id`. */
  | { readonly kind: 'settings'; readonly settings: ListenerSettings; readonly id: number }
  /** Remove the cached responses of that model; undefined: of all models. */
  | { readonly kind: 'clear_cache'; readonly modelId: string | undefined }
  /** Stop accepting connections. The reply is `drained`, once (Connections.drain says when). */
  | ({ readonly kind: 'drain' } & DrainOptions)
  /** The drain's time is over: from now on wait only for the calls that began during the drain. */
  | { readonly kind: 'drain_late' }
  /** Cut all connections, then end the thread. */
  | { readonly kind: 'close' };

export type FromListener =
  /** Whether the listener accepts connections. One of the two is sent, once, at the start. */
  | { readonly kind: 'listening' }
  | { readonly kind: 'listen_failed' }
  | { readonly kind: 'drained' }
  | { readonly kind: 'settings_taken'; readonly id: number }
  /** Responses wait until their charges are on disk. Sent again only after the reply `committed`. */
  | { readonly kind: 'commit' }
  /** A batch of call-contents.ts: the contents of one call or several, joined. */
  | { readonly kind: 'contents'; readonly bytes: Uint8Array<ArrayBuffer> }
  /** The main thread drains the journal now. While the journal is full, calls are rejected (JOURNAL_FULL). */
  | { readonly kind: 'journal_half_full' };
