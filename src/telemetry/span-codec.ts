/**
 * Spans as bytes, from listeners and upstream workers to the exporting thread. Threads that leave no spans do
 * not load this file: msgpackr takes 25 ms, and a megabyte of each of them.
 *
 * Tests: unit/telemetry/spans; unit/gateway/loaded-packages (who loads it).
 */
import { Packr } from 'msgpackr';
import type { SpanRecord } from './span-record.js';

// `useRecords`: a batch has the names of the fields once. 64-bit integers are money.
const packr = new Packr({ useRecords: true, moreTypes: false, int64AsType: 'bigint' });

/** Returns bytes in a buffer of their own, which may be transferred. Takes some 1 µs a span. */
export function packSpans(spans: readonly SpanRecord[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(packr.pack(spans));
}

export function unpackSpans(bytes: Uint8Array): SpanRecord[] {
  return packr.unpack(bytes) as SpanRecord[];
}
