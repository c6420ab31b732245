/**
 * Spans as bytes, for their way to the exporting thread. Both ends import this file, and where no spans are exported nobody does:
 * msgpackr takes a thread 25 ms to load.
 */
import { Packr } from 'msgpackr';
import type { SpanRecord } from './span-record.js';

// Spans of a batch share the names of their members, which stand in each batch once; 64-bit integers are money.
const packr = new Packr({ useRecords: true, moreTypes: false, int64AsType: 'bigint' });

/** Bytes of their own, to be handed over. Some 1 µs a span. */
export function packSpans(spans: readonly SpanRecord[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(packr.pack(spans));
}

export function unpackSpans(bytes: Uint8Array): SpanRecord[] {
  return packr.unpack(bytes) as SpanRecord[];
}
