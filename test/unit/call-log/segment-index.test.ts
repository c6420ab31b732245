/** The index of a segment: which extents may have a request, also when an earlier version wrote the index. */
import { crc32 } from 'node:zlib';
import t from 'tap';
import { BlockBuilder } from '#src/call-log/block-builder.js';
import {
  extentsOf,
  FAILED_KEY,
  hashOf,
  mayHave,
  mayHaveCall,
  mayHaveRequest,
  pairHash,
  requestHash,
  SegmentIndex,
  TAIL_BYTES,
} from '#src/call-log/segment-index.js';
import { SegmentSummary, SUMMARY_BYTES_MAX } from '#src/call-log/segment-summary.js';
import { randomBelow, randomOf, newSeed } from '../../support/random.js';
import { randomCall } from '../../support/stored-calls.js';

const EXTENTS = 8;
const CALLS = 400;
/** Calls of a listener end in another order than they came. */
const SPREAD = 1_000;
const KINDS = { accounts: 50, models: 3, upstreams: 3 };
/** Of an extent in the bytes, behind a head of 16: where the range of request numbers is. */
const HEAD_BYTES = 16;
const EXTENT_BYTES = 40;
const RANGE_AT = 32;

const seed = newSeed();

/** Returns the index of extents of random calls, which request numbers each has, and where the last ends. */
function madeIndex(numberOf: (extent: number) => number): {
  index: SegmentIndex;
  requests: Set<number>[];
  end: number;
} {
  const random = randomOf(seed);
  const builder = new BlockBuilder();
  const index = new SegmentIndex();
  let at = 8;
  const requests = Array.from({ length: EXTENTS }, (_, extent) => {
    const numbers = new Set<number>();
    for (let call = 0; call < CALLS; call++) {
      const number = numberOf(extent);
      numbers.add(number);
      builder.add(randomCall(random, number, 1_000 + extent, KINDS));
    }
    const block = builder.take();
    index.add(at, block);
    index.seal();
    at += block.bytes;
    return numbers;
  });
  return { index, requests, end: at };
}

const prefixHash = hashOf('req_abcdefgh-_12-');

void t.test('a request number rules out extents, and never the one that has it', (t) => {
  const below = randomBelow(seed);
  const { index, requests } = madeIndex((extent) => extent * CALLS + below(SPREAD));
  const read = extentsOf(index.toBytes(1_000_000))!;
  t.equal(read.length, EXTENTS);
  for (const extents of [index.extents, read]) {
    extents.forEach((extent, at) => {
      const numbers = [...requests[at]!];
      t.ok(
        numbers.every((number) => mayHaveRequest(extent, number)),
        'each of its own',
      );
      t.ok(numbers.every((number) => mayHave(extent, [requestHash(prefixHash, number)])));
      t.notOk(mayHaveRequest(extent, Math.max(...numbers) + 1));
      t.notOk(mayHaveRequest(extent, Math.min(...numbers) - 1));
    });
    t.notOk(mayHaveRequest(extents.at(-1)!, 0), 'the first call is not in the last extent');
  }
  t.end();
});

void t.test('numbers beyond 32 bits are found', (t) => {
  const below = randomBelow(seed);
  const { index, requests } = madeIndex(() => 2 ** 32 - CALLS / 2 + below(CALLS));
  const read = extentsOf(index.toBytes(1_000_000))!;
  read.forEach((extent, at) => {
    t.ok([...requests[at]!].every((number) => mayHaveRequest(extent, number)));
  });
  t.end();
});

void t.test('an index of an earlier version, which has no range, rules out none', (t) => {
  const { index, end } = madeIndex((extent) => extent * CALLS);
  const bytes = index.toBytes(end);
  let at = HEAD_BYTES;
  for (const { filter } of index.extents) {
    bytes.fill(0, at + RANGE_AT, at + EXTENT_BYTES);
    at += EXTENT_BYTES + filter!.length * 4;
  }
  t.equal(extentsOf(bytes), undefined, 'bytes that were changed are damaged');
  for (const count of [EXTENTS - 1, EXTENTS + 1]) {
    const miscounted = index.toBytes(1_000_000);
    miscounted.writeUInt32LE(count, 4);
    t.equal(extentsOf(miscounted), undefined, `${count} of ${EXTENTS} extents`);
  }
  // Nor has it the second count.
  bytes.fill(0, 12, HEAD_BYTES);
  // The sum of its bytes is right in an index that a version wrote.
  bytes.writeUInt32LE(crc32(bytes.subarray(HEAD_BYTES, bytes.length - 8)), 8);
  const read = extentsOf(bytes)!;
  t.equal(read.length, EXTENTS);
  for (const extent of read) t.ok([0, 7, 1e12].every((number) => mayHaveRequest(extent, number)));
  for (const count of [0, 1, EXTENTS - 1, EXTENTS + 1, 2 ** 32 - 1]) {
    bytes.writeUInt32LE(count, 4);
    t.equal(extentsOf(bytes), undefined, `${count} of ${EXTENTS} extents, without the second count`);
  }
  t.end();
});

/**
 * An index as it was written on 2026-11-29, of two calls of the account acct_a: request 7 of the listener
 * req_a-1- with status 200, and request 2^32 + 5 with status 499 and the code client_gone.
 */
const WRITTEN = Buffer.from(
  'VEdJWAEAAAD3hW+e/v///wgAAADgAAAAAgAAgAwAAAAAAAAAAHiPQAAA0D4AAPBBBwAAAAAAAAATeMQQmkIIsyJCEimqoClgHhRcy0ZQBo2H' +
    'qJJBQgOJFRH6SoDlBkgwgSQKOaugYREAAAAAAABbMTAwNyw0Mjk0OTY4MzAxLFtbInJlcV9hLTEtIiw3LDQyOTQ5NjczMDEsWzgsMjI0' +
    'LDcsNDI5NDk2NzMwMV1dXV1UR0lTQgAAANpNdcIAAAAA6AAAAFRHSVg=',
  'base64',
);

void t.test('the bytes of an earlier version are found by the hashes of this one', (t) => {
  // `extentsOf` wants memory that begins at a multiple of 4.
  const [extent] = extentsOf(Buffer.from(new Uint8Array(WRITTEN).buffer))!;
  t.match(extent, { at: 8, bytes: 224, count: 2, hasPairs: true, firstRequest: 7, lastRequest: Infinity });
  t.match(extent, { firstMs: 1_007, lastMs: 4_294_968_301 });
  t.ok(mayHaveCall(extent!, 'req_a-1-', 7));
  t.ok(mayHaveCall(extent!, 'req_a-1-', 2 ** 32 + 5));
  t.notOk(mayHaveCall(extent!, 'req_a-1-', 8));
  t.notOk(mayHaveCall(extent!, 'req_a-2-', 7));
  for (const text of ['acct_a', 'key_a', 'client_gone', FAILED_KEY, '=200', '=2xx', '=499', '=4xx'])
    t.ok(mayHave(extent!, [hashOf(text)]), text);
  t.notOk(mayHave(extent!, [hashOf('=500')]));
  for (const failure of [FAILED_KEY, 'client_gone', '=499', '=4xx'])
    t.ok(mayHave(extent!, [pairHash(hashOf('acct_a'), hashOf(failure))]), failure);
  t.notOk(mayHave(extent!, [pairHash(hashOf('acct_a'), hashOf('=200'))]));
  t.end();
});

/** A summary of extents with 100 calls of each listener; listeners count alike. */
function summaryOf(listeners: number, extents: number): Buffer {
  const summary = new SegmentSummary();
  const names = Array.from({ length: listeners }, (_, listener) => `req_${listener}-`);
  for (let extent = 0; extent < extents; extent++) {
    // Two blocks, and the second has no calls of the first listener.
    const at = 8 + extent * 1_000;
    for (const [begin, end] of [
      [0, 600],
      [1, 1_000],
    ] as const) {
      summary.begin(names, at, at + end);
      for (let call = 0; call < 50; call++)
        for (let name = begin; name < listeners; name++)
          summary.add(name, extent * 100 + begin * 50 + call, extent);
    }
  }
  return summary.toBytes();
}

void t.test('a summary tells which extents may have a call', (t) => {
  const summary = SegmentSummary.parse(summaryOf(2, 200))!;
  t.same([summary.firstMs, summary.lastMs], [0, 199]);
  t.same(summary.extentsWith('req_0-', 749), [{ at: 7_008, bytes: 600 }]);
  t.same(summary.extentsWith('req_1-', 799), [{ at: 7_008, bytes: 1_000 }]);
  t.same(summary.extentsWith('req_0-', 799), [], 'the first listener has no such call');
  t.same(summary.extentsWith('req_1-', 20_000), []);
  t.same(summary.extentsWith('req_2-', 0), []);
  t.end();
});

void t.test('a summary that is too long, or of an earlier version, tells only what is not there', (t) => {
  const bytes = summaryOf(20, 200);
  t.ok(bytes.length < SUMMARY_BYTES_MAX);
  const summary = SegmentSummary.parse(bytes)!;
  t.equal(summary.extentsWith('req_19-', 0), undefined);
  t.same(summary.extentsWith('req_19-', 20_000), []);
  t.same(summary.extentsWith('req_20-', 0), []);
  t.equal(
    SegmentSummary.parse(summaryOf(3_000, 1))!.extentsWith('req_none-', 0),
    undefined,
    'of too many listeners',
  );
  t.end();
});

void t.test(
  'a segment without a call has no extents, and no times that a search could take for some',
  (t) => {
    const bytes = new SegmentIndex().toBytes(8);
    t.same(extentsOf(bytes), []);
    t.equal(SegmentSummary.parse(bytes.subarray(0, -TAIL_BYTES)), undefined);
    t.end();
  },
);
