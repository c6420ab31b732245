import t from 'tap';
import { expiryTickOf, grantedOf, grantedStockOf, LONG_TICKS } from '#src/sharing/grant-policy.js';

void t.test('a grant is between least and most, within what is left, or nothing', (t) => {
  for (let left = -2; left <= 40; left++) {
    for (let least = 0; least <= 12; least++) {
      for (let most = least; most <= 14; most++) {
        const granted = grantedOf(left, { least, most });
        const money = grantedStockOf(BigInt(left), { least: BigInt(least), most: BigInt(most) });
        if (money !== BigInt(granted)) t.fail('money unlike', { left, least, most });
        if (granted === 0) {
          if (most > 0 && left >= Math.max(1, least))
            t.fail('something could be granted', { left, least, most });
        } else if (granted < least || granted > most || granted > left)
          t.fail('bounds', { left, least, most });
      }
    }
  }
  t.equal(grantedOf(100, { least: 1, most: 1_000 }), 25, 'who comes next finds some');
  t.end();
});

void t.test('validity is long for quiet accounts alone', (t) => {
  t.equal(expiryTickOf(7, 50, 100, { forMs: 24_000 }), 7 + LONG_TICKS);
  t.equal(expiryTickOf(7, 51, 100, { forMs: 24_000 }), 8);
  t.equal(expiryTickOf(7, 51, 100, { forMs: 24_000, isFallback: true }), 7 + LONG_TICKS);
  t.equal(expiryTickOf(7, 1, 100, { forMs: 0 }), 8);
  t.equal(expiryTickOf(7, 1, 100, { forMs: 1_800 }), 10);
  t.equal(expiryTickOf(7, 1, 100, { forMs: 1e9 }), 7 + LONG_TICKS);
  t.equal(expiryTickOf(7, 2, 3, { forMs: 24_000 }), 8, 'two of three is much');
  t.end();
});
