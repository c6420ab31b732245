/** Messages of event streams: cut anywhere, damaged anywhere, of AWS's encoder. */
import { randomBytes } from 'node:crypto';
import t from 'tap';
import { SSE_EVENT_BYTES_MAX } from '#src/core/limits.js';
import { FrameReader } from '#src/providers/bedrock/frames.js';
import { event, exception, message } from '../../../support/bedrock.js';

/** What a reader makes of chunks: `type payload`. */
function read(chunks: readonly Uint8Array[]): string[] {
  const seen: string[] = [];
  const reader = new FrameReader((headers, bytes, start, end) =>
    seen.push(
      `${headers.get(':event-type') ?? headers.get(':exception-type') ?? ''} ${bytes.toString('utf8', start, end)}`,
    ),
  );
  for (const chunk of chunks) reader.push(chunk);
  if (!reader.isBetweenMessages) seen.push('cut');
  return seen;
}

const STREAM = Buffer.concat([
  event('messageStart', { role: 'assistant' }),
  event('contentBlockDelta', { delta: { text: 'Grüße' }, contentBlockIndex: 0 }),
  event('contentBlockDelta', { delta: { text: '' }, contentBlockIndex: 0 }),
  message({}, null),
  exception('throttlingException', 'slower'),
]);
const SEEN = [
  'messageStart {"role":"assistant"}',
  'contentBlockDelta {"delta":{"text":"Grüße"},"contentBlockIndex":0}',
  'contentBlockDelta {"delta":{"text":""},"contentBlockIndex":0}',
  ' null',
  'throttlingException {"message":"slower"}',
];

void t.test('cut at every byte, and byte by byte', (t) => {
  t.same(read([STREAM]), SEEN);
  for (let cut = 0; cut <= STREAM.length; cut++) {
    t.same(read([STREAM.subarray(0, cut), STREAM.subarray(cut)]), SEEN, `at ${cut}`);
  }
  for (const size of [1, 2, 3, 7, 11, 12, 13, 100]) {
    const pieces = Array.from({ length: Math.ceil(STREAM.length / size) }, (_, index) =>
      STREAM.subarray(index * size, (index + 1) * size),
    );
    t.same(read(pieces), SEEN, `in pieces of ${size}`);
  }
  t.same(read([STREAM.subarray(0, -1)]), [...SEEN.slice(0, -1), 'cut']);
  t.end();
});

void t.test('a bit that is wrong anywhere is noticed', (t) => {
  const good = event('contentBlockDelta', { delta: { text: 'x' } });
  for (let at = 0; at < good.length; at++) {
    const bad = Buffer.from(good);
    bad[at]! ^= 0x10;
    t.throws(() => read([bad]), /invalid response/, `byte ${at}`);
  }
  t.end();
});

void t.test('the sum of a message of any length', (t) => {
  const bytes = randomBytes(600);
  for (let length = 0; length <= bytes.length; length++) {
    const payload = bytes.toString('latin1', 0, length);
    const reader = new FrameReader((_headers, seen, start, end) =>
      t.equal(seen.toString('latin1', start, end), payload),
    );
    reader.push(framed(Buffer.alloc(0), payload));
  }
  t.end();
});

void t.test('a length is believed with its sum only, and has a bound', (t) => {
  t.throws(() => read([Buffer.from('<html><body>It works!</body></html>')]), /no event stream/);
  const long = event('contentBlockDelta', { delta: { text: 'x'.repeat(SSE_EVENT_BYTES_MAX) } });
  // Its prelude is enough, and one byte more shows it.
  t.throws(() => read([long.subarray(0, 12), long.subarray(12, 13)]), /too long/);
  const most = event('x', 'x'.repeat(SSE_EVENT_BYTES_MAX - event('x', '').length));
  t.equal(most.length, SSE_EVENT_BYTES_MAX);
  t.equal(read([most.subarray(0, 50_000), most.subarray(50_000)]).length, 1);
  t.end();
});

void t.test('wrong headers are wrong also when they come again', (t) => {
  const seen: string[] = [];
  const reader = new FrameReader((headers) => seen.push([...headers.keys()].join()));
  reader.push(event('messageStart', {}));
  const bad = framed(Buffer.from([1, 97, 99]), 'x');
  for (let time = 0; time < 2; time++) t.throws(() => reader.push(bad), /unknown type/);
  t.equal(seen.length, 1, 'and are not read as those before');
  t.end();
});

void t.test('headers of every type are passed over', (t) => {
  const named = (name: string, ...value: number[]): Buffer =>
    Buffer.concat([Buffer.from([name.length]), Buffer.from(name), Buffer.from(value)]);
  const all = Buffer.concat([
    named('t', 0),
    named('f', 1),
    named('b', 2, 9),
    named('s', 3, 0, 9),
    named('i', 4, 0, 0, 0, 9),
    named('l', 5, ...Buffer.alloc(8)),
    named('y', 6, 0, 2, 1, 1),
    named('d', 8, ...Buffer.alloc(8)),
    named('u', 9, ...Buffer.alloc(16)),
    named(':event-type', 7, 0, 3, ...Buffer.from('end')),
  ]);
  t.same(read([framed(all, '{}')]), ['end {}']);
  t.throws(() => read([framed(all.subarray(0, -1), '{}')]), /header is cut/);
  t.throws(() => read([framed(named('x', 10), '{}')]), /unknown type/);
  t.throws(() => read([framed(Buffer.from([200]), '{}')]), /unknown type/);
  t.throws(() => read([framed(Buffer.from([1, 65, 7, 0]), '{}')]), /header is cut/);
  const longHeaders = framed(all, '{}');
  longHeaders.writeUInt32BE(longHeaders.length - 15, 4);
  longHeaders.writeUInt32BE(crc(longHeaders.subarray(0, 8)), 8);
  t.throws(() => read([longHeaders]), /shorter than its headers/);
  t.end();
});

/** A message with those bytes for headers. */
function framed(headers: Buffer, payload: string): Buffer {
  const bytes = Buffer.alloc(16 + headers.length + payload.length);
  bytes.writeUInt32BE(bytes.length, 0);
  bytes.writeUInt32BE(headers.length, 4);
  bytes.writeUInt32BE(crc(bytes.subarray(0, 8)), 8);
  headers.copy(bytes, 12);
  bytes.write(payload, 12 + headers.length, 'latin1');
  bytes.writeUInt32BE(crc(bytes.subarray(0, -4)), bytes.length - 4);
  return bytes;
}

/** CRC-32, bit by bit. */
function crc(bytes: Uint8Array): number {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (sum ^ 0xffffffff) >>> 0;
}
