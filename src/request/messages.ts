/**
 * Types of the messages between the main thread (gateway/listeners.ts) and a listener thread
 * (listener.thread.ts), and of the listener's `workerData`. The compiler checks both ends; no test is needed.
 * gateway/snapshot.ts makes the ListenerSettings.
 *
 * Must hold: no provider's key is in these messages, because only upstream workers get the keys.
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
import type { TlsFiles } from './listen-apps.js';

export interface ListenerLimits {
  /** Memory budget of the bodies of all calls, for all listeners together. */
  readonly bodiesInWorkBytesMax: number;
  /** A longer body is parsed in the counter pool. */
  readonly parseInlineBytesMax: number;
  /** The call of a large body that is not parsed within this time is rejected. */
  readonly parseWaitMs: number;
  /** A client that sends or takes nothing for this time is cut. */
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
  /** What happens if a balance covers the prompt but not the worst case. */
  readonly lowBalance: 'refuse' | 'clamp';
  /** Whether a call holds the most tokens that it may use, or only counts those that it has used. */
  readonly tokenQuota: 'reserve' | 'settle';
  /** Whether cached prompt tokens count toward quotas of tokens. */
  readonly cachedInput: 'count' | 'free';
  /** Bytes of memory for the listener's response cache. */
  readonly cacheBytesMax: number;
  /** Which calls' contents are kept. */
  readonly contents: ContentsSettings;
  /** Whether the end of a response waits until its charge is on disk. */
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
  /** What request ids begin with. Each start of the thread gets another prefix. */
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
  /** Index of the thread's stripe in `metrics`. */
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
  /** The worker of that index has ended: its calls fail. */
  | { readonly kind: 'worker_lost'; readonly index: number }
  /** Replies to `commit`: the journal's records are on disk now; `ok` is false if the store fails. */
  | { readonly kind: 'committed'; readonly ok: boolean }
  /** The settings were reloaded. The reply is `settings_taken` with the same `id`. */
  | { readonly kind: 'settings'; readonly settings: ListenerSettings; readonly id: number }
  /** Remove the cached responses of that model, or all. */
  | { readonly kind: 'cache_cleared'; readonly modelId: string | undefined }
  /**
   * Stop accepting. `drained` follows when no call is in flight, or with `keepsIdle` when all connections
   * have ended (Connections.drain).
   */
  | { readonly kind: 'drain'; readonly keepsIdle: boolean }
  /** The drain's time is over: wait only for calls that have begun in it. `drained` follows. */
  | { readonly kind: 'drain_late' }
  /** Cut all connections and end. */
  | { readonly kind: 'close' };

export type FromListener =
  /** The port is open, or could not be opened. One of the two is sent once, at the start. */
  | { readonly kind: 'listening' }
  | { readonly kind: 'listen_failed' }
  | { readonly kind: 'drained' }
  | { readonly kind: 'settings_taken'; readonly id: number }
  /** Responses wait until their charges are on disk. The reply is `committed`. */
  | { readonly kind: 'commit' }
  /** A batch of call-contents.ts: the contents of one call or several, joined. */
  | { readonly kind: 'contents'; readonly bytes: Uint8Array<ArrayBuffer> }
  /** The main thread should drain the journal before it is full. */
  | { readonly kind: 'journal_half_full' };
