/** Blocks with wrong numbers and the right checksum. Other tests of blocks are in call-log.test.ts. */
import { crc32 } from 'node:zlib';
import t from 'tap';
import { BlockBuilder } from '#src/call-log/block-builder.js';
import {
  Block,
  CHECKED_AT,
  FIXED_BYTES,
  HEAD,
  HEAD_BYTES,
  PLAIN,
  FLAGS,
  VARIABLE,
} from '#src/call-log/call-block.js';
import { randomOf } from '../../support/random.js';
import { randomCall } from '../../support/stored-calls.js';

/** A block of some calls, with the bytes that `change` has changed, and the checksum of these. */
function changed(change: (bytes: Buffer) => void): Block | undefined {
  const random = randomOf(1);
  const builder = new BlockBuilder();
  for (let call = 0; call < 5; call++)
    builder.add(randomCall(random, call, 1_763_950_000_000, { accounts: 2, models: 2, upstreams: 2 }));
  const bytes = builder.take().data;
  change(bytes);
  bytes.writeUInt32LE(crc32(bytes.subarray(CHECKED_AT)), HEAD.crc32 * 4);
  return Block.read(bytes, 0);
}

void t.test('a call that begins at or after the end of the bytes is an error, and no endless loop', (t) => {
  for (const variable of [2 ** 32 - 1, 2 ** 31, 100_000])
    for (const flags of [0, PLAIN]) {
      const block = changed((bytes) => {
        bytes.writeUInt32LE(variable, HEAD_BYTES + FIXED_BYTES + VARIABLE * 4);
        bytes.writeUInt16LE(flags, HEAD_BYTES + FIXED_BYTES + FLAGS * 2);
      });
      t.ok(block!.recordOf(0), 'the others are read');
      t.throws(() => block!.recordOf(1), /ends within a call/);
    }
  t.end();
});

void t.test('a block whose parts are longer than the block is damaged', (t) => {
  for (const word of [HEAD.count, HEAD.variableBytes, HEAD.namesBytes])
    for (const value of [2 ** 32 - 1, 100_000])
      t.equal(
        changed((bytes) => bytes.writeUInt32LE(value, word * 4)),
        undefined,
        `${value} in word ${word}`,
      );
  t.ok(
    changed(() => undefined),
    'a sound block is read',
  );
  t.end();
});

void t.test('any wrong byte of a call ends in a record or in an error', (t) => {
  const random = randomOf(2);
  for (let turn = 0; turn < 2_000; turn++) {
    const block = changed((bytes) => {
      const at = HEAD_BYTES + Math.floor(random() * (bytes.length - HEAD_BYTES));
      bytes[at] = Math.floor(random() * 256);
    });
    try {
      for (let call = 0; call < block!.count; call++) block!.recordOf(call);
    } catch {
      // An error is as good as a wrong record.
    }
  }
  t.end();
});
