/** Bytes put together piece by piece: what went in comes out, in order, and nothing of the batch before. */
import t from 'tap';
import { LineBuffer } from '#src/telemetry/line-buffer.js';

const taken = (buffer: LineBuffer): string => {
  let text = '';
  buffer.drain((bytes) => (text += bytes.toString('latin1')));
  return text;
};

void t.test('pieces, text and numbers', (t) => {
  const buffer = new LineBuffer();
  const numbers = [0, 7, 10, 99, 100, 2 ** 31 - 1, 2 ** 31, 2 ** 53, -1, -0.5, 1.25, 1e21, 1e-7];
  for (const number of numbers) {
    buffer.bytes(Buffer.from('<'));
    buffer.number(number);
    buffer.ascii('>');
  }
  const text = numbers.map((number) => `<${JSON.stringify(number)}>`).join('');
  t.equal(buffer.length, text.length);
  t.equal(taken(buffer), text);
  t.equal(buffer.length, 0);
  buffer.ascii('next');
  t.equal(taken(buffer), 'next');
  buffer.drain(() => t.fail('nothing is there to be shown'));
  t.end();
});

void t.test('a batch that is longer than any before', (t) => {
  const buffer = new LineBuffer();
  const piece = Buffer.from('0123456789');
  let text = '';
  for (let at = 0; at < 20_000; at += 1) {
    buffer.bytes(piece);
    buffer.number(at);
    buffer.ascii('x');
    text += `0123456789${at}x`;
  }
  buffer.bytes(Buffer.alloc(500_000, 'y'));
  t.ok(taken(buffer) === text + 'y'.repeat(500_000));
  t.end();
});
