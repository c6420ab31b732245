import t from 'tap';
import {
  createFrameRing,
  FrameRingReader,
  FrameRingWriter,
  KIND_AT,
  RECORD_BYTES_MAX,
} from '#src/channel/frame-ring.js';

const KIND = 7;
const MARK_AT = 8;
/** Positions count modulo this. */
const POSITIONS = 2 ** 32;

function bed() {
  const shared = createFrameRing();
  return { writer: new FrameRingWriter(shared), reader: new FrameRingReader(shared) };
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
      writer.floats[(at + MARK_AT) >> 3] = mark++;
      bytes += length;
    }
    reader.read(writer.takeUnreported(), (at) => {
      if (reader.ints[(at + KIND_AT) >> 2] !== KIND || reader.floats[(at + MARK_AT) >> 3] !== read)
        wrong += 1;
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
  reader.read(writer.takeUnreported(), () => (read += 1));
  t.equal(read, written);
  t.equal(writer.reserve(KIND, 16), -1, 'read is not given back');
  reader.giveBack();
  t.not(writer.reserve(KIND, RECORD_BYTES_MAX), -1);
  t.equal(writer.reserve(KIND, RECORD_BYTES_MAX + 1), -1, 'longer than a record may be');
  t.end();
});
