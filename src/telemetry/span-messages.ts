/**
 * What passes between the main thread and the thread that exports spans. Both ends import this file.
 */
import type { MessagePort } from 'node:worker_threads';
import type { AccountIndex } from '../core/units.js';
import type { MetricsBuffers } from './metrics-layout.js';

/** `workerData` of the exporting thread. */
export interface SpanExportInit {
  readonly room: SharedArrayBuffer;
  readonly version: string;
  readonly metrics: MetricsBuffers;
  /** Its stripe among those of the threads. */
  readonly thread: number;
}

export type ToSpanExport =
  /** Spans of a listener or worker come over this port. */
  | { readonly kind: 'source'; readonly port: MessagePort }
  /** Answers `accounts`, one id for each index; null where there is no such account any more. */
  | { readonly kind: 'ids'; readonly ids: readonly (readonly [AccountIndex, string | null])[] }
  /** The sources have ended: send what is there, then end. */
  | { readonly kind: 'close' };

/** The ids of these accounts are wanted; `ids` follows. */
export interface FromSpanExport {
  readonly kind: 'accounts';
  readonly accounts: readonly AccountIndex[];
}
