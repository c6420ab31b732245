import t from 'tap';
import { createSpscRing, FIELDS_AT, SpscReader, SpscWriter } from '#src/core/spsc-ring.js';

const KIND = 7;
const RING_BYTES = 256 * 1024;
const RECORD_BYTES_MAX = 32 * 1024;
/** Positions count modulo this. */
const POSITIONS = 2 ** 32;

function bed() {
  const shared = createSpscRing(RING_BYTES);
  return { shared, writer: new SpscWriter(shared), reader: new SpscReader(shared) };
}

void t.test('records are found where they were put, also after four gigabytes', (t) => {
  const { writer, reader } = bed();
  let mark = 0;
  let read = 0;
  let wrong = 0;
  // Lengths that leave gaps of several sizes at the end of the ring.
  for (let bytes = 0; bytes < POSITIONS + 2 ** 20;) {
    for (let record = 0; record < 4; record += 1) {
      const length = RECORD_BYTES_MAX - ((mark * 40) % 4_000);
      const at = writer.reserve(KIND, length);
      if (at === -1) throw new Error(`no room after ${bytes} bytes, though all was given back`);
      writer.floats[(at + FIELDS_AT) >> 3] = mark++;
      bytes += length;
    }
    reader.read(writer.takeUnannounced(), (at) => {
      if (reader.kindAt(at) !== KIND || reader.floats[(at + FIELDS_AT) >> 3] !== read) wrong += 1;
      read += 1;
    });
    reader.giveBack();
  }
  t.equal(read, mark);
  t.equal(wrong, 0);
  t.end();
});

void t.test('what is not given back is not written over: there is no room', (t) => {
  const { writer, reader } = bed();
  let written = 0;
  while (writer.reserve(KIND, RECORD_BYTES_MAX) !== -1) written += 1;
  t.equal(written, 8, 'a ring of 256 KB');
  t.equal(writer.reserve(KIND, 16), -1);
  let read = 0;
  reader.read(writer.takeUnannounced(), () => (read += 1));
  t.equal(read, written);
  t.equal(writer.reserve(KIND, 16), -1, 'read is not given back');
  reader.giveBack();
  t.not(writer.reserve(KIND, RECORD_BYTES_MAX), -1);
  t.equal(writer.reserve(KIND, RING_BYTES + 1), -1, 'longer than the ring');
  t.end();
});

void t.test(
  'a writer and a reader go on where those before them stopped, without what was not published',
  (t) => {
    const { shared, writer, reader } = bed();
    const put = (end: SpscWriter, mark: number): void => {
      end.floats[(end.reserve(KIND, 2 * FIELDS_AT) + FIELDS_AT) >> 3] = mark;
    };
    const marksOf = (end: SpscReader): number[] => {
      const marks: number[] = [];
      end.read(end.published(), (at) => marks.push(end.floats[(at + FIELDS_AT) >> 3]!));
      return marks;
    };
    put(writer, 1);
    put(writer, 2);
    writer.publish();
    put(writer, 3);
    t.same(marksOf(reader), [1, 2]);
    t.equal(reader.published(), 0);
    const nextWriter = new SpscWriter(shared);
    put(nextWriter, 4);
    nextWriter.publish();
    t.same(marksOf(new SpscReader(shared)), [1, 2, 4], 'nothing was given back yet');
    t.same(marksOf(reader), [4]);
    reader.giveBack();
    t.same(marksOf(new SpscReader(shared)), []);
    t.end();
  },
);

void t.test('a ring without `publish` gets no second writer', (t) => {
  const { shared, writer, reader } = bed();
  writer.reserve(KIND, 16);
  reader.read(writer.takeUnannounced(), () => undefined);
  reader.giveBack();
  t.throws(() => new SpscWriter(shared), { message: /gets a second writer/ });
  t.end();
});

void t.test('what follows a record whose reading throws is read later, if it was published', (t) => {
  const { writer, reader } = bed();
  for (let record = 0; record < 3; record += 1) writer.reserve(KIND, 16);
  writer.publish();
  const failing = (): void => {
    throw new Error('failed');
  };
  t.throws(() => reader.read(reader.published(), failing), { message: 'failed' });
  let read = 0;
  reader.read(reader.published(), () => (read += 1));
  t.equal(read, 2);
  t.end();
});

void t.test('a ring has a power of two of bytes, from 8 on', (t) => {
  for (const bytes of [0, 0.5, 4, 12, 2 ** 31]) t.throws(() => createSpscRing(bytes), /power of two/);
  t.equal(createSpscRing(8).byteLength, 72);
  t.end();
});
