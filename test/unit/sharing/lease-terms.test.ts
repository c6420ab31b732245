/** What lies idle is found in time, however the sweeps come, and nothing that was used counts as idle. */
import t from 'tap';
import {
  IDLE_MS_SCARCE,
  IdleFloor,
  SWEEP_MS,
  UseRate,
  WAIT_FOR_OTHERS_MS,
} from '#src/sharing/lease-terms.js';
import { newSeed, randomBelow } from '../../support/random.js';

/** A timer of 60 ms sweeps at a multiple of that, and each timer may come early or late. */
const SWEEPS_MS = [SWEEP_MS - 1, SWEEP_MS - 0.4, SWEEP_MS, SWEEP_MS + 1, SWEEP_MS + 10, 300, 310];

void t.test('what was granted and never used is found while a request waits for it', (t) => {
  for (const sweepMs of SWEEPS_MS)
    for (let firstMs = 0; firstMs <= sweepMs; firstMs += 0.5) {
      const floor = new IdleFloor(0);
      let nowMs = firstMs;
      while (floor.idleAmount(10n, IDLE_MS_SCARCE, nowMs) === 0n) nowMs += sweepMs;
      // 600 ms are left for two exchanges: the one that gives back, and that of who waits.
      const latestMs = WAIT_FOR_OTHERS_MS * 0.6;
      if (nowMs > latestMs || nowMs < IDLE_MS_SCARCE - 2)
        t.fail(`after ${nowMs} ms, by sweeps each ${sweepMs} ms from ${firstMs} ms on`);
    }
  t.end();
});

void t.test('only what no sweep of the last time saw in use counts as idle', (t) => {
  const seed = newSeed();
  const below = randomBelow(seed);
  for (const idleMs of [IDLE_MS_SCARCE, 8_000]) {
    const floor = new IdleFloor(0);
    const seen: { readonly ms: number; readonly amount: bigint }[] = [];
    let nowMs = 0;
    for (let sweep = 0; sweep < 5_000; sweep++) {
      nowMs += SWEEPS_MS[below(SWEEPS_MS.length)]!;
      const amount = BigInt(below(20) === 0 ? below(10) : 10);
      seen.push({ ms: nowMs, amount });
      const idle = floor.idleAmount(amount, idleMs, nowMs);
      const least = seen.filter(({ ms }) => ms > nowMs - idleMs + 2).map((row) => row.amount);
      if (least.some((was) => was < idle)) t.fail(`${idle} of ${least.join()} at ${nowMs}, seed ${seed}`);
    }
  }
  t.end();
});

void t.test('a rate follows the use, and is never negative', (t) => {
  const rate = new UseRate(0, 0);
  t.equal(rate.perSecond, 0);
  for (let ms = 100; ms <= 20_000; ms += 100) rate.read(ms / 10, ms);
  t.ok(Math.abs(rate.perSecond - 100) < 1, `${rate.perSecond} a second`);
  const before = rate.perSecond;
  t.equal(rate.read(1_000_000, 20_049), true, 'it has grown');
  t.equal(rate.perSecond, before, 'but so short a time sets no rate');
  t.equal(rate.read(0, 21_000), false, 'a total that shrinks is no use');
  t.ok(rate.perSecond >= 0 && rate.perSecond < before);
  t.end();
});
