/**
 * What passes between the main thread and a listener thread. Both ends import this file.
 */
import type { MessagePort } from 'node:worker_threads';
import type { JournalBuffer } from '../ledger/journal-layout.js';
import type { LedgerBuffers } from '../ledger/layout.js';
import type { CallTableBuffer } from '../pool/call-table.js';
import type { SlotRange } from '../pool/listener-link.js';
import type { Catalog } from '../registry/catalog.js';
import type { KeyTableBuffers } from '../registry/key-table.js';
import type { MetricsBuffer } from '../telemetry/metrics.js';

export interface ListenerLimits {
  /** A longer body is refused with 413. */
  readonly bodyBytesMax: number;
  /** A longer body is parsed in the counter pool. */
  readonly parseInlineBytesMax: number;
  /** A client that takes nothing for so long is cut. */
  readonly clientIdleTimeoutMs: number;
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
  readonly keys: KeyTableBuffers;
  readonly calls: CallTableBuffer;
  readonly metrics: MetricsBuffer;
  readonly catalog: Catalog;
  readonly limits: ListenerLimits;
  readonly accountCallsMax: number;
  readonly lowBalance: 'refuse' | 'clamp';
  readonly durability: 'interval' | 'commit';
  /** Questions to the counter pool go out here. */
  readonly parserPort: MessagePort;
}

export type ToListener =
  /** A worker serves behind this port, in the place of an earlier one of the same index. */
  | { readonly kind: 'worker'; readonly index: number; readonly port: MessagePort }
  | { readonly kind: 'worker_lost'; readonly index: number }
  /** Answers `commit`: what the journal held is on disk now, or the store fails. */
  | { readonly kind: 'committed'; readonly ok: boolean }
  /** Stop accepting; say `drained` when the last call has ended. */
  | { readonly kind: 'drain' }
  /** Cut what is left and end. */
  | { readonly kind: 'close' };

export type FromListener =
  | { readonly kind: 'listening' }
  | { readonly kind: 'listen_failed' }
  | { readonly kind: 'drained' }
  /** Ends of answers wait for their charges; `committed` follows. */
  | { readonly kind: 'commit' }
  /** Take the records out, before there is no room for more. */
  | { readonly kind: 'journal_half_full' };
