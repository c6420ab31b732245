/** The bytes of a file, as another package reads them; test/exports/recipes.test.ts has programs do so. */
import { Writable } from 'node:stream';
import { parquetMetadata, parquetReadObjects } from 'hyparquet';
import t from 'tap';
import { ParquetFile, type ParquetKind } from '#src/cli/parquet.js';

const KINDS = {
  name: 'text',
  at: 'time',
  count: 'integer',
  ms: 'float',
  ok: 'boolean',
  cost: 'money',
  list: 'json',
} as const satisfies Record<string, ParquetKind>;

type Row = Readonly<Partial<Record<keyof typeof KINDS, unknown>>>;

/** Writes pages of rows. Returns the file, and how many bytes each write to the output had. */
async function written(
  ...pages: readonly (readonly Row[])[]
): Promise<{ file: ArrayBuffer; sizes: number[] }> {
  const chunks: Buffer[] = [];
  const output = new Writable({
    // Always full, so that each write waits for the reader.
    highWaterMark: 1,
    write: (chunk: Buffer, _encoding, done) => {
      chunks.push(Buffer.from(chunk));
      setImmediate(done);
    },
  });
  const parquet = new ParquetFile<Row>(output, KINDS);
  for (const rows of pages) await parquet.write(rows);
  await parquet.end();
  return { file: new Uint8Array(Buffer.concat(chunks)).buffer, sizes: chunks.map(({ length }) => length) };
}

void t.test('each kind of column, and nothing', async (t) => {
  const rows: Row[] = [
    {
      name: 'Zoë 🚀',
      at: '2025-01-31T12:00:00.123Z',
      count: 2 ** 53 - 1,
      ms: 0.25,
      ok: false,
      cost: '-3000000.000000000001',
      list: [{ a: 1 }],
    },
    { name: '', count: 0, ok: true, cost: '0.00', list: [] },
    {},
  ];
  const { file } = await written(rows);
  const kindOf = Object.fromEntries(parquetMetadata(file).schema.map((element) => [element.name, element]));
  t.match(kindOf.cost, { converted_type: 'DECIMAL', precision: 38, scale: 12, type_length: 16 });
  t.match(kindOf.at, { converted_type: 'TIMESTAMP_MILLIS' });
  const read = await parquetReadObjects({ file });
  t.same(read.length, 3);
  t.match(read[0], { name: 'Zoë 🚀', count: BigInt(2 ** 53 - 1), ms: 0.25, ok: false });
  t.same(read[0]!.at, new Date('2025-01-31T12:00:00.123Z'));
  t.ok(Math.abs((read[0]!.cost as number) + 3_000_000) < 1e-6, `${read[0]!.cost as number}`);
  t.match(read[1], { name: '', count: 0n, ok: true, cost: 0 });
  for (const name of Object.keys(KINDS)) t.equal(read[2]![name] ?? null, null, name);
});

void t.test('no row is a file too', async (t) => {
  const { file } = await written();
  t.same(await parquetReadObjects({ file }), []);
});

void t.test('a row group is written when it is full, so that memory holds one', async (t) => {
  const page = Array.from({ length: 20_000 }, (_, index) => ({ name: `n${index}`, count: index }));
  const { file, sizes } = await written(page, page, page);
  t.same(
    parquetMetadata(file).row_groups.map(({ num_rows }) => Number(num_rows)),
    [50_000, 10_000],
  );
  t.equal(sizes.length, 3, 'two row groups and the end');
  const long = Array.from({ length: 5 }, () => ({ name: 'x'.repeat(9 * 1024 * 1024) }));
  t.same(
    parquetMetadata((await written(long)).file).row_groups.map(({ num_rows }) => Number(num_rows)),
    [4, 1],
    'by its texts too',
  );
});

void t.test('one write at a time, and none after the end', async (t) => {
  const output = new Writable({ write: (_chunk, _encoding, done) => void setImmediate(done) });
  const parquet = new ParquetFile<Row>(output, KINDS);
  const first = parquet.write(Array.from({ length: 50_000 }, () => ({ name: 'a' })));
  const meanwhile = [parquet.write([{}]), parquet.end()];
  for (const call of meanwhile) await t.rejects(call, /one write at a time/);
  await first;
  await parquet.end();
  await t.rejects(parquet.write([{}]), /none after the end/);
  await t.rejects(parquet.end(), /none after the end/);
});
