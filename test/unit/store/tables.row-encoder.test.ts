/** Rows are what msgpackr alone makes of them, so that every Tollgate reads those of every other. */
import { Encoder, RESET_BUFFER_MODE, REUSE_BUFFER_MODE } from 'msgpackr';
import t from 'tap';
import { RowEncoder, UNREADABLE } from '#src/store/tables.js';

/** As lmdb makes them for a table. */
const OPTIONS = { copyBuffers: true } as const;

const VALUES: readonly unknown[] = [
  ...[0, 1, 31, 32, 63, 64, 127, 128, 255, 256, 65_535, 65_536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1],
  ...[-1, -32, -33, -129, -40_000, -(2 ** 31) - 1, 0.5, NaN, Infinity, 1_795_000_000_000],
  ...[
    '',
    '0',
    'a'.repeat(31),
    'é'.repeat(20),
    '\u{1f600}',
    'x'.repeat(70),
    'y'.repeat(300),
    'z'.repeat(70_000),
  ],
  ...[true, false, undefined, 2n ** 63n - 1n, -1n],
];
const NOT_SCALAR: readonly unknown[] = [
  null,
  Buffer.from('bytes'),
  [],
  [1, 'a'],
  {},
  { minuteUsed: 3, a: 'b' },
];

/** A row of each of the values in each of the places, then again in another order. */
function* rowsOf(fields: readonly string[]): Generator<Record<string, unknown>> {
  const values = [...VALUES, ...NOT_SCALAR];
  for (let at = 0; at < values.length; at++) {
    yield Object.fromEntries(fields.map((field, place) => [field, values[(at + place) % values.length]]));
    yield Object.fromEntries(fields.map((field, place) => [field, VALUES[(at * 7 + place) % VALUES.length]]));
  }
}

const SHAPES: readonly (readonly string[])[] = [
  [],
  ['format'],
  ['format', 'minuteUsed', 'dayNumber', 'dayCalls', 'takenMs'],
  ['format', 'lastUsedSeconds', 'minuteUsed', 'dayNumber', 'dayCalls', 'takenMs'],
  ['takenMs', 'format'],
  ['é', '1', 'z', '', '0'],
  Array.from({ length: 15 }, (_, at) => `field${at}`),
  Array.from({ length: 16 }, (_, at) => `field${at}`),
  ['l'.repeat(245)],
  ['l'.repeat(246)],
  ['l'.repeat(255)],
  ['l'.repeat(256)],
];

void t.test('the same bytes, whatever was encoded and read before', (t) => {
  const ours = new RowEncoder(OPTIONS);
  const plain = new Encoder(OPTIONS);
  const generators = SHAPES.map(rowsOf);
  let rows = 0;
  // In turn, so that no two of one shape follow each other; and each shape alone.
  for (const order of [interleaved(generators), ...SHAPES.map(rowsOf), VALUES, NOT_SCALAR]) {
    for (const row of order) {
      const expected = Buffer.from(plain.encode(row));
      const bytes = Buffer.from(ours.encode(row));
      if (!bytes.equals(expected)) t.same(bytes.toString('hex'), expected.toString('hex'));
      t.same(ours.decode(bytes), plain.decode(expected));
      rows++;
    }
  }
  t.ok(rows > 1_000);
  t.end();
});

void t.test('in a buffer that is used again', (t) => {
  const ours = new RowEncoder(OPTIONS);
  let same = 0;
  for (const mode of [REUSE_BUFFER_MODE, REUSE_BUFFER_MODE | RESET_BUFFER_MODE]) {
    // The last ones are longer than the buffer is.
    for (let calls = 0; calls < 2_000; calls++) {
      const row = { format: 3, calls, costPicoUnits: String(calls * 1e9), id: 'x'.repeat(calls * 7) };
      const buffer = ours.encode(row, mode) as Buffer & { start: number; end: number };
      const bytes = buffer.subarray(buffer.start, buffer.end);
      if (bytes.equals(new Encoder(OPTIONS).encode(row))) same++;
    }
  }
  t.equal(same, 4_000);
  t.end();
});

void t.test('what is no value is unreadable', (t) => {
  t.equal(new RowEncoder(OPTIONS).decode(Buffer.from([0xc1, 0xff])), UNREADABLE);
  t.end();
});

function* interleaved<Item>(generators: readonly Generator<Item>[]): Generator<Item> {
  for (let going = generators; going.length > 0;) {
    const results = going.map((generator) => generator.next());
    for (const { done, value } of results) if (done !== true) yield value;
    going = going.filter((_, at) => results[at]!.done !== true);
  }
}
