/** The form in which a body goes on, and that a call is the same in either. */
import t from 'tap';
import type { ChatCall } from '#src/protocol/chat-call.js';
import { freeBytes } from '#src/core/bytes.js';
import { readChatBytes, readLargeChatBytes } from '#src/protocol/request-bytes.js';

const bodyOf = (content: string, more: object = {}): Buffer =>
  Buffer.from(JSON.stringify({ messages: [{ role: 'user', content }], model: 'tiny', ...more }));

function accepted(bytes: Uint8Array): ChatCall {
  const read = readChatBytes(bytes);
  if (!read.ok) throw new Error(`refused: ${read.error.message}`);
  return read.call;
}

void t.test('a small body goes on as text, one of some KB as bytes', (t) => {
  const empty = bodyOf('').length;
  const below = accepted(bodyOf('x'.repeat(4_095 - empty)));
  t.equal(below.body.length, 4_095);
  t.equal(below.largeBody, undefined);
  const from = accepted(bodyOf('x'.repeat(4_096 - empty)));
  t.equal(from.body, '');
  t.equal(from.largeBody!.length, 4_096);
  t.end();
});

for (const [what, letter] of [
  ['ASCII', 'x'],
  ['Latin-1', 'é'],
  ['Chinese', '汉'],
  ['beyond the basic plane', '🚀'],
] as const) {
  void t.test(`bytes of a body, ${what}`, (t) => {
    const bytes = bodyOf(letter.repeat(5_000));
    const { largeBody, modelStart, modelEnd, bodyBytes } = accepted(bytes);
    t.equal(Buffer.compare(largeBody!, bytes), 0, 'the same');
    t.not(largeBody!.buffer, bytes.buffer, 'and a copy, for those that came are gone soon');
    t.equal(
      largeBody!.buffer.byteLength,
      largeBody!.length,
      'in memory of its own, which may be transferred',
    );
    t.equal(Buffer.from(largeBody!.subarray(modelStart, modelEnd)).toString(), '"tiny"');
    t.equal(bodyBytes, bytes.length);
    const stream = accepted(bodyOf(letter.repeat(5_000), { stream: true })).largeBody!;
    const asked = Buffer.from(stream).toString();
    t.same((JSON.parse(asked) as { stream_options: unknown }).stream_options, { include_usage: true });
    const pieces = [bytes.subarray(0, 3_333), bytes.subarray(3_333)];
    const joined = readLargeChatBytes(pieces);
    t.ok(joined.ok && Buffer.compare(joined.call.largeBody!, bytes) === 0, 'from pieces the same');
    const streamBytes = bodyOf(letter.repeat(5_000), { stream: true });
    const joinedStream = readLargeChatBytes([streamBytes.subarray(0, 3_333), streamBytes.subarray(3_333)]);
    t.ok(joinedStream.ok && Buffer.compare(joinedStream.call.largeBody!, stream) === 0, 'and of a stream');
    for (const read of [joined, joinedStream]) {
      const { length } = read.ok ? read.call.largeBody! : bytes;
      if (read.ok) freeBytes(read.call.largeBody!);
      t.equal(read.ok && read.call.largeBody!.length, 'transfer' in ArrayBuffer.prototype ? 0 : length);
    }
    t.end();
  });
}

void t.test('a body that was read in pieces goes on as bytes, however small', (t) => {
  const bytes = bodyOf('é');
  const read = readLargeChatBytes([bytes]);
  t.ok(read.ok && Buffer.compare(read.call.largeBody!, bytes) === 0);
  t.end();
});
