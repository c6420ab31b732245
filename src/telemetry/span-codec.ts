/**
 * Packs spans on listeners and upstream workers (span-outbox.ts), and unpacks them on the exporting thread
 * (span-export.thread.ts). A thread loads this file only if spans are exported, because msgpackr takes 25 ms
 * and 1 MB of memory in each thread.
 *
 * Must hold: a span is unpacked as it was packed, by the same version of this file: both threads are of one
 * process (test/unit/telemetry/span-outbox.test.ts).
 */
import { Packr } from 'msgpackr';
import type { SpanRecord } from './span-record.js';

// `useRecords`: a batch has the names of the fields only once. `int64AsType`: a 64-bit integer is money,
// which a float would round. `moreTypes` is off: a span has only the types of MessagePack (span-record.ts).
const packr = new Packr({ useRecords: true, moreTypes: false, int64AsType: 'bigint' });

/**
 * Returns bytes in an ArrayBuffer of their own, which may be transferred. They are copied, because `pack`
 * returns a view of a buffer in which it goes on writing. Takes some 1 µs a span.
 */
export function packSpans(spans: readonly SpanRecord[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(packr.pack(spans));
}

/** `bytes` must be those of one call of `packSpans`, because nothing is checked. */
export function unpackSpans(bytes: Uint8Array): SpanRecord[] {
  return packr.unpack(bytes) as SpanRecord[];
}
