import t from 'tap';
import { numberOf } from '#src/ledger/packed-words.js';
import { newSeed, randomBelow } from '../../support/random.js';

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
