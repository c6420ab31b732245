/**
 * Packs spans on listeners and upstream workers (span-outbox.ts), and unpacks them on the exporting thread
 * (span-export.thread.ts). A thread loads this file only if spans are exported, because msgpackr takes 25 ms
 * and a megabyte in each thread.
 *
 * Must hold: a span is unpacked as it was packed (test/unit/telemetry/spans.test.ts).
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
