import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { randomBytes } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { CollectBudget } from '#src/request/collected-response.js';
import {
  KeyedCall,
  bodyDigestOf,
  bodyDigestOfPieces,
  checkIdempotencyKey,
} from '#src/request/idempotency.js';
import { IdempotencyChannel, type LockMessage, type LockReply } from '#src/channel/idempotency-channel.js';
import type { Question } from '#src/core/ask-port.js';

const ACCOUNT = asAccountIndex(0);
const MIB = 1024 * 1024;
const ANSWER_BYTES_MAX = 300 * 1024 * 1024;

/** A call that was granted its key, and what it says from then on. */
async function claimed(t: { teardown(after: () => void): unknown }, budget = new CollectBudget()) {
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  const call = new KeyedCall('k', new IdempotencyChannel(port2, ANSWER_BYTES_MAX), budget);
  const granted = call.lock(ACCOUNT, bodyDigestOf(Buffer.from('{}')));
  const { id } = (receiveMessageOnPort(port1) as { message: Question }).message;
  port1.postMessage({ id, ok: true, result: { state: 'new' } satisfies LockReply });
  await granted;
  const note = () => receiveMessageOnPort(port1)?.message as LockMessage | undefined;
  return { call, note };
}

void t.test('a large body is hashed in steps, however many pieces it comes in', async (t) => {
  const whole = randomBytes(8 * MIB);
  for (const pieceBytes of [whole.length, 3 * MIB, 64 * 1024, 1_000_000]) {
    const pieces: Uint8Array[] = [];
    for (let start = 0; start < whole.length; start += pieceBytes)
      pieces.push(whole.subarray(start, start + pieceBytes));
    let digest: string | undefined;
    const done = bodyDigestOfPieces(pieces).then((text) => (digest = text));
    let turns = 0;
    for (; digest === undefined; turns += 1) await nextTurn();
    await done;
    t.equal(digest, bodyDigestOf(whole));
    t.ok(turns >= 4, `${turns} turns for pieces of ${pieceBytes} bytes`);
  }
  t.equal(await bodyDigestOfPieces([]), bodyDigestOf(new Uint8Array(0)));
});

void t.test('keys are 1 to 255 printable ASCII characters', (t) => {
  for (const key of ['a', '~'.repeat(255), 'with space', '5d2b1f6e-8a54-4bb5-a0b6-4f2f6f1f3b11']) {
    t.equal(checkIdempotencyKey(key), undefined, key);
  }
  for (const key of ['', '~'.repeat(256), 'tab\t', 'ü', '\u007f', 'a\u0000']) {
    t.match(checkIdempotencyKey(key), {
      code: 'invalid_parameters',
      message: /Idempotency-Key must be 1 to 255 printable ASCII/,
    });
  }
  t.end();
});

void t.test('an answer is handed over whole, and copied from where it came', async (t) => {
  const { call, note } = await claimed(t);
  const frame = Buffer.from('one');
  call.collect(frame);
  frame.fill(0);
  call.keep(Buffer.from('two'), false, 9);
  const kept = note();
  t.match(kept, { kind: 'keep', stream: false, position: 9, lock: { account: ACCOUNT, key: 'k' } });
  t.equal(kept?.kind === 'keep' && Buffer.from(kept.bytes!).toString(), 'onetwo');
  call.giveUp();
  t.equal(note(), undefined, 'what is kept is not given up');
  call.forget(10);
  t.match(note(), { kind: 'forget', position: 10 });
});

void t.test(
  'an answer that is too long to collect is charged all the same, and its bytes are given back',
  async (t) => {
    const budget = new CollectBudget();
    const { call, note } = await claimed(t, budget);
    budget.take(256 * MIB - 5);
    call.collect(Buffer.from('four'));
    t.notOk(budget.take(2));
    call.keep(Buffer.from('two'), true, 0);
    t.match(note(), { kind: 'keep', bytes: undefined });
    t.ok(budget.take(5));
  },
);

void t.test('a response that shares its memory is not transferred: others would lose theirs', (t) => {
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  const channel = new IdempotencyChannel(port2, ANSWER_BYTES_MAX);
  const lock = { account: ACCOUNT, key: 'k', bodyDigest: '' };
  const whole = Uint8Array.of(1, 2, 3);
  const bytes = whole.subarray(1);
  t.throws(() => channel.send({ kind: 'keep', lock, stream: false, bytes, position: 0 }), /its own memory/);
  t.same([...whole], [1, 2, 3]);
  channel.send({ kind: 'keep', lock, stream: false, bytes: whole, position: 0 });
  t.equal(whole.length, 0, 'it is the other end that has it');
  t.end();
});
