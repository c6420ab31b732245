import t from 'tap';
import { CollectBudget, CollectedPieces } from '#src/request/collected-response.js';

const MIB = 1024 * 1024;

void t.test('what is collected is bounded, for all calls of a listener', (t) => {
  const budget = new CollectBudget();
  const pieces = new CollectedPieces(budget, 300 * MIB);
  const piece = new Uint8Array(100 * MIB);
  pieces.add(piece);
  pieces.add(piece);
  t.notOk(budget.take(piece.length), '256 MiB hold two of 100');
  t.notOk(pieces.isEmpty);
  pieces.add(piece);
  t.ok(pieces.isEmpty, 'a call that does not fit keeps nothing');
  t.ok(budget.take(2 * piece.length), 'and all that it had is there for others');
  pieces.add(new Uint8Array(1));
  pieces.drop();
  t.equal(pieces.take(), undefined);
  t.notOk(budget.take(piece.length), 'it gives nothing back twice');
  t.throws(() => budget.giveBack(2 * piece.length + 1), /no more is given back/);
  t.end();
});

void t.test('pieces are copied and joined in memory of their own, once', (t) => {
  const budget = new CollectBudget();
  const pieces = new CollectedPieces(budget, 6);
  const frame = Buffer.from('one');
  pieces.add(frame);
  frame.fill(0);
  pieces.add(Buffer.from('two'));
  const bytes = pieces.take()!;
  t.equal(Buffer.from(bytes).toString(), 'onetwo');
  t.equal(bytes.buffer.byteLength, bytes.length, 'its buffer can be transferred');
  t.equal(pieces.take(), undefined);
  t.ok(budget.take(256 * MIB), 'the budget has all back');
  t.same(new CollectedPieces(budget, 6).take(), new Uint8Array(0), 'a response may be empty');
  t.end();
});

void t.test('a response of more bytes than its bound is not kept', (t) => {
  const budget = new CollectBudget();
  const pieces = new CollectedPieces(budget, 6);
  pieces.add(Buffer.from('whole'));
  t.notOk(pieces.isEmpty);
  pieces.add(Buffer.from('is'));
  t.equal(pieces.take(), undefined);
  t.ok(budget.take(256 * MIB));
  t.end();
});
