import t from 'tap';
import {
  ADDED,
  addTo,
  amountOf,
  headsSince,
  lowestBitOf,
  MISADDED,
  MISSED,
  numberOf,
  pack,
  PackedWords,
} from '#src/ledger/packed-words.js';
import { interruptAt } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const HEAD_BITS = 11;
const wordOf = (head: number, amount: number): bigint => (BigInt(head) << 53n) | BigInt(amount);

void t.test('a word is the number that `Number` makes of it', (t) => {
  const below = randomBelow(newSeed());
  const edges = [0n, 1n, 2n ** 31n, 2n ** 32n, 2n ** 53n, 2n ** 62n, 2n ** 63n - 1n];
  const drawn = Array.from({ length: 10_000 }, () => BigInt(below(2 ** 31)) << BigInt(below(32)));
  for (const amount of [...edges, ...drawn]) {
    for (const word of [amount - 1n, amount, -amount])
      if (numberOf(word) !== Number(word)) t.fail(`${word}: ${numberOf(word)}`);
  }
  t.pass('also beyond 2^53');
  t.end();
});

void t.test('an amount is added or taken off below a head, whole or not at all', (t) => {
  const below = randomBelow(newSeed());
  const words = new BigInt64Array(2);
  const packed = new PackedWords(words);
  const before = { low: 0, high: 0 };
  for (let run = 0; run < 20_000; run++) {
    const head = below(2_048);
    const otherHead = below(2) === 0 ? head : below(2_048);
    const there = below(3) === 0 ? 2 ** 32 - below(50) : below(2 ** 31) * 2 ** below(20);
    const amount = below(4) === 0 ? 1 : below(2 ** 31);
    const most = there + below(3) * amount + below(3) - 1;
    const word = BigInt.asIntN(64, wordOf(head, there));
    const fits = otherHead === head && there < most && there + amount <= most;
    words[1] = word;
    const added = packed.addWithin(1, HEAD_BITS, otherHead, amount, most, before);
    if (added !== (fits ? ADDED : MISSED) || words[1] !== word + (fits ? BigInt(amount) : 0n))
      t.fail(`${amount} to ${there} of ${head}, at most ${most} of ${otherHead}: ${words[1]}`);
    words[1] = word;
    const isTaken = otherHead === head && amount <= there;
    const hasTaken = packed.takeOff(1, HEAD_BITS, otherHead, amount);
    if (hasTaken !== isTaken || words[1] !== word - (isTaken ? BigInt(amount) : 0n))
      t.fail(`${amount} off ${there} of ${head}, of ${otherHead}: ${words[1]}`);
  }
  t.equal(words[0], 0n, 'its neighbour stays');
  t.end();
});

void t.test('another thread comes between the glance and the step', (t) => {
  const words = new BigInt64Array(1);
  const packed = new PackedWords(words);
  const before = { low: 0, high: 0 };
  for (const [name, later] of [
    ['a later head', wordOf(6, 3)],
    ['too little room', wordOf(5, 95)],
  ] as const) {
    words[0] = wordOf(5, 10);
    let result: number | boolean = MISSED;
    interruptAt(
      0,
      () => (result = packed.addWithin(0, HEAD_BITS, 5, 10, 100, before)),
      () => (words[0] = later),
    );
    t.same([result, words[0]], [MISADDED, later + 10n], `${name}: the addition is known to be wrong`);
    t.equal((BigInt(before.high) << 32n) | BigInt(before.low), later, 'and what it was added to');
    words[0] = wordOf(5, 10);
    interruptAt(
      0,
      () => (result = packed.takeOff(0, HEAD_BITS, 5, 10)),
      () => (words[0] = later),
    );
    t.same([result, words[0]], [false, later], `${name}: nothing is taken off`);
  }
  t.end();
});

void t.test(
  'a head and an amount are read as they were packed, and heads are compared modulo 2^bits',
  (t) => {
    const below = randomBelow(newSeed());
    const word = { low: 0, high: 0 };
    for (const headBits of [11, 22] as const) {
      const heads = 2 ** headBits;
      const amounts = [0, 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** (64 - headBits) - 1];
      for (let run = 0; run < 10_000; run++) {
        const head = below(2 ** 31);
        const amount = run < amounts.length ? amounts[run]! : below(2 ** 31) * below(2 ** (32 - headBits));
        pack(word, headBits, head, amount);
        const later = below(heads / 2);
        if (
          amountOf(word, headBits) !== amount ||
          headsSince(word, headBits, head + later) !== later ||
          headsSince(word, headBits, head - later) !== -later ||
          headsSince(word, headBits, head + heads) !== 0
        )
          t.fail(`${amount} below ${head}, ${later} later`);
      }
      pack(word, headBits, 0, 2 ** (64 - headBits) + 8);
      t.same([amountOf(word, headBits), headsSince(word, headBits, 0)], [8, 0], 'no amount changes the head');
    }
    t.end();
  },
);

void t.test('a sum is that of 64 bits, and only a word that is as it was read is replaced', (t) => {
  const below = randomBelow(newSeed());
  const words = new BigInt64Array(1);
  const packed = new PackedWords(words);
  const [read, next, other] = [
    { low: 0, high: 0 },
    { low: 0, high: 0 },
    { low: 0, high: 0 },
  ];
  for (let run = 0; run < 10_000; run++) {
    const before = BigInt.asIntN(64, (BigInt(below(2 ** 31)) << 33n) + BigInt(below(2 ** 31)));
    const amount = (below(2) === 0 ? 1 : -1) * below(2 ** 31) * 2 ** below(22);
    const after = BigInt.asIntN(64, before + BigInt(amount));
    words[0] = before;
    packed.load(0, read);
    addTo(read, amount, next);
    if (!packed.compareExchange(0, read, next) || words[0] !== after) t.fail(`${amount} to ${before}`);
    if (after !== before && packed.compareExchange(0, read, next)) t.fail('it was another word');
    words[0] = before;
    packed.add(0, amount, other);
    if (words[0] !== after || other.low !== read.low || other.high !== read.high) t.fail(`add ${amount}`);
  }
  for (let bit = 0; bit < 32; bit++) t.equal(lowestBitOf((1 << bit) | (bit < 31 ? 1 << 31 : 0)), bit);
  t.end();
});
