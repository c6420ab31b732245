import t from 'tap';
import { takeRandomBytes } from '#src/registry/key-digest.js';

void t.test('no byte is given twice, over the ends of blocks and in any size', (t) => {
  const taken: Buffer[] = [];
  for (let count = 0; count < 600; count++) taken.push(takeRandomBytes(16 + (count % 33)));
  taken.push(takeRandomBytes(4_096), takeRandomBytes(4_096));
  const copies = taken.map((bytes) => bytes.toString('hex'));
  t.equal(new Set(copies).size, taken.length);
  t.same(
    taken.map((bytes) => bytes.toString('hex')),
    copies,
    'they stay as they are',
  );
  const places = new Set<string>();
  for (const { buffer, byteOffset, length } of taken) {
    for (const other of taken) {
      if (other.buffer !== buffer || other.byteOffset === byteOffset) continue;
      const apart = other.byteOffset >= byteOffset + length || other.byteOffset + other.length <= byteOffset;
      if (!apart) places.add(`${byteOffset} and ${other.byteOffset}`);
    }
  }
  t.same([...places], [], 'no two overlap');
  t.throws(() => takeRandomBytes(4_097), /a block has the bytes/);
  t.end();
});
