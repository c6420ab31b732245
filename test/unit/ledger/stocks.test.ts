/**
 * Stocks against a model: in each period no more is taken than the limit, whatever the calendar and other
 * threads do; what a lease has taken back is never taken too.
 */
import t from 'tap';
import { createLedgerBuffers, openLedgerViews, STOCKS, QUOTA_WORDS64, LEASES } from '#src/ledger/layout.js';
import { LeasedStocks } from '#src/ledger/leased-stocks.js';
import { Stocks } from '#src/ledger/stocks.js';
import { FakeClock, interruptAt } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const STOCK = QUOTA_WORDS64 + STOCKS;
const DAY = 20_454;
/** Its number modulo 2,048 is 0, so a word of it with nothing counted has no bit set. */
const DAY_OF_ZEROS = 20_480;

const createWords = (): BigInt64Array =>
  openLedgerViews(createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 1 })).quotas.words64;

void t.test('a period begins at nothing once, and what comes late changes nothing', (t) => {
  const stocks = new Stocks(createWords());
  t.equal(stocks.take(STOCK, DAY, 60, 100), DAY);
  t.equal(stocks.take(STOCK, DAY, 41, 100), undefined);
  stocks.settle(STOCK, DAY, 60, 10);
  t.same(stocks.read(STOCK, DAY), { taken: 10, settled: 10 });
  t.equal(stocks.take(STOCK, DAY, 90, 100), DAY);
  t.equal(stocks.take(STOCK, DAY + 1, 100, 100), DAY + 1);
  stocks.settle(STOCK, DAY, 90, 90);
  t.same(stocks.read(STOCK, DAY + 1), { taken: 100, settled: 0 }, 'the day before is over');
  t.equal(stocks.take(STOCK, DAY, 1, 100), undefined, 'a clock that was set back over midnight');
  t.equal(
    stocks.take(STOCK, DAY - 3, 1, 100, () => DAY - 3),
    undefined,
    'or by days',
  );
  stocks.settle(STOCK, DAY - 3, 100, 30);
  t.same(stocks.read(STOCK, DAY - 3), { taken: 30, settled: 30 });
  stocks.reverse(STOCK, DAY - 3, 30);
  t.same(stocks.read(STOCK, DAY - 3), { taken: 0, settled: 0 });
  t.end();
});

void t.test(
  'a call of a day that was a mistake of the clock ends, and what later calls used stays known',
  (t) => {
    const stocks = new Stocks(createWords());
    t.equal(stocks.take(STOCK, DAY + 5, 10, 100), DAY + 5, 'the clock is five days ahead');
    t.equal(
      stocks.take(STOCK, DAY, 20, 100, () => DAY),
      DAY,
      'and is put right',
    );
    stocks.settle(STOCK, DAY, 20, 20);
    stocks.settle(STOCK, DAY + 5, 10, 7);
    t.same(stocks.read(STOCK, DAY), { taken: 30, settled: 20 });
    t.equal(stocks.take(STOCK, DAY, 30, 100), DAY);
    stocks.settle(STOCK, DAY, 30, 25);
    t.same(stocks.read(STOCK, DAY), { taken: 55, settled: 45 });
    t.end();
  },
);

void t.test('what a stock without a word for it has used is not touched by others', (t) => {
  const words = createWords();
  const stocks = new Stocks(words, { hasSettled: false });
  words[STOCK + 1] = 77n;
  t.equal(stocks.take(STOCK, DAY, 3, 9), DAY);
  stocks.settle(STOCK, DAY, 1, 0);
  t.throws(() => stocks.settle(STOCK, DAY, 1, 1), /next word/);
  t.throws(() => stocks.reverse(STOCK, DAY, 1), /next word/);
  t.equal(words[STOCK + 1], 77n);
  t.equal(stocks.read(STOCK, DAY).taken, 2);
  t.end();
});

void t.test('a day whose word may be all zeros counts like others', (t) => {
  const stocks = new Stocks(createWords());
  t.equal(stocks.take(STOCK, DAY_OF_ZEROS, 0, 100), DAY_OF_ZEROS);
  stocks.settle(STOCK, DAY_OF_ZEROS, 0, 6);
  t.equal(stocks.take(STOCK, DAY_OF_ZEROS, 95, 100), undefined);
  t.equal(stocks.take(STOCK, DAY_OF_ZEROS, 94, 100), DAY_OF_ZEROS);
  t.same(stocks.read(STOCK, DAY_OF_ZEROS), { taken: 100, settled: 6 });
  t.end();
});

void t.test('any order of takes, ends, reversals and days', (t) => {
  const seed = newSeed();
  for (let run = 0; run < 100; run++) {
    const random = randomBelow(seed + run);
    const words = createWords();
    const threads = [0, 1].map(() => new Stocks(words));
    const limit = 1 + random(2) * 3_000_000_000_000_000 + random(1_000);
    const open: { period: number; held: number }[] = [];
    let day = run % 2 === 0 ? DAY : DAY_OF_ZEROS;
    let [used, held] = [0, 0];
    for (let step = 0; step < 300; step++) {
      const stocks = threads[random(2)]!;
      if (random(20) === 0) {
        day += 1 + random(40);
        used = held = 0;
      } else if (random(2) === 0 || open.length === 0) {
        const amount = random(2) === 0 ? random(50) : Math.floor((limit / 16) * random(16));
        const left = limit - used - held;
        const taken = stocks.take(STOCK, day, amount, limit);
        if ((taken !== undefined) !== (left > 0 && amount <= left))
          t.fail(`seed ${seed + run}, step ${step}`);
        if (taken === undefined) continue;
        held += amount;
        open.push({ period: taken, held: amount });
      } else {
        const [call] = open.splice(random(open.length), 1);
        const uses = random(4) === 0 ? call!.held + random(9) : Math.floor((call!.held / 8) * random(8));
        stocks.settle(STOCK, call!.period, call!.held, uses);
        if (call!.period === day) {
          held -= call!.held;
          used += uses;
          if (random(5) === 0) {
            stocks.reverse(STOCK, day, uses);
            used -= uses;
          }
        }
      }
      const read = stocks.read(STOCK, day);
      if (read.settled !== used || read.taken !== used + held) {
        t.same(read, { taken: used + held, settled: used }, `seed ${seed + run}, step ${step}`);
      }
    }
  }
  t.pass(`seed ${seed}`);
  t.end();
});

void t.test(
  'at whatever step of an end a new day begins, or another call ends, each day keeps its use',
  (t) => {
    for (const [name, otherDay] of [
      ['the same day', DAY],
      ['midnight', DAY + 1],
    ] as const) {
      for (const used of [40, 70]) {
        for (let step = 0; ; step++) {
          const words = createWords();
          const [one, two] = [new Stocks(words), new Stocks(words)];
          one.take(STOCK, DAY, 10, 1_000);
          one.settle(STOCK, DAY, 10, 5);
          one.take(STOCK, DAY, 60, 1_000);
          const reached = interruptAt(
            step,
            () => one.settle(STOCK, DAY, 60, used),
            () => {
              two.take(STOCK, otherDay, 30, 1_000);
              two.settle(STOCK, otherDay, 30, 20);
              two.take(STOCK, otherDay, 7, 1_000);
            },
          );
          if (!reached) break;
          const settled = 20 + (otherDay === DAY ? 5 + used : 0);
          t.same(
            two.read(STOCK, otherDay),
            { taken: settled + 7, settled },
            `${name}, ${used}, step ${step}`,
          );
        }
      }
    }
    t.end();
  },
);

void t.test('at whatever step of an end another call ends, no amount passes the bound of amounts', (t) => {
  const most = 2 ** 52 - 1;
  for (let step = 0; ; step++) {
    const words = createWords();
    const [one, two] = [new Stocks(words), new Stocks(words)];
    one.set(STOCK, DAY, most - 50, DAY);
    const reached = interruptAt(
      step,
      () => one.settle(STOCK, DAY, 0, 40),
      () => two.settle(STOCK, DAY, 0, 40),
    );
    if (!reached) break;
    t.same(two.read(STOCK, DAY), { taken: most, settled: most }, `step ${step}`);
  }
  t.end();
});

void t.test('at whatever step another thread takes, the limit holds, also over midnights', (t) => {
  for (const [name, otherDay] of [
    ['the same day', DAY],
    ['midnight', DAY + 1],
    ['a machine that slept for days', DAY + 40],
  ] as const) {
    for (let step = 0; ; step++) {
      const words = createWords();
      const [one, two] = [new Stocks(words), new Stocks(words)];
      one.take(STOCK, DAY, 30, 100);
      const periods: (number | undefined)[] = [];
      let today = DAY;
      const now = (): number => today;
      const reached = interruptAt(
        step,
        () => periods.push(one.take(STOCK, DAY, 60, 100, now)),
        () => {
          today = otherDay;
          periods.push(two.take(STOCK, otherDay, 60, 100, now));
        },
      );
      if (!reached) break;
      for (const day of [DAY, otherDay]) {
        const taken = 60 * periods.filter((period) => period === day).length + (day === DAY ? 30 : 0);
        if (taken > 100) t.fail(`${name}, step ${step}: ${taken} on ${day}`);
      }
      const last = Math.max(...periods.map((period) => period ?? 0));
      const expected = 60 * periods.filter((period) => period === last).length + (last === DAY ? 30 : 0);
      t.equal(two.read(STOCK, last).taken, expected, `${name}, step ${step}`);
    }
  }
  t.end();
});

void t.test('a lease gives what was granted, and takes back what no call has', (t) => {
  const words = createWords();
  const clock = new FakeClock();
  const stocks = new LeasedStocks(words, clock);
  const lease = new LeasedStocks(words, clock).leaseOf(STOCK);
  t.equal(stocks.take(STOCK, 0, 1), undefined, 'nothing was granted');
  lease.add(0, 10n, 4n);
  t.equal(stocks.take(STOCK, 0, 5), 0);
  t.notOk(stocks.takeRanLow());
  t.equal(stocks.take(STOCK, 0, 1), 0);
  t.ok(stocks.takeRanLow());
  t.equal(stocks.take(STOCK, 0, 5), undefined);
  t.match(lease.read(), { period: 0, granted: 10n, available: 4n });
  t.equal(lease.takeBack(100n), 4n);
  t.match(lease.read(), { granted: 6n, available: 0n });
  stocks.settle(STOCK, 0, 5, 2);
  t.match(lease.read(), { granted: 6n, available: 3n });
  t.equal(stocks.take(STOCK, 0, 3), 0);
  t.ok(LEASES > STOCKS);
  t.end();
});

void t.test('at whatever step a lease is taken back, a call that is admitted was granted', (t) => {
  for (const [name, operate, intrude] of [
    ['take back in a take', 'take', 'takeBack'],
    ['take in a take back', 'takeBack', 'take'],
  ] as const) {
    for (let step = 0; ; step++) {
      const words = createWords();
      const clock = new FakeClock();
      const stocks = new LeasedStocks(words, clock);
      const lease = new LeasedStocks(words, clock).leaseOf(STOCK);
      lease.add(0, 10n, 0n);
      let [admitted, back] = [0, 0n];
      const act = {
        take: () => (admitted = stocks.take(STOCK, 0, 7) === undefined ? 0 : 7),
        takeBack: () => (back = lease.takeBack(6n)),
      };
      const reached = interruptAt(
        step,
        () => act[operate](),
        () => act[intrude](),
      );
      if (!reached) break;
      if (admitted + Number(back) > 10) t.fail(`${name}, step ${step}: ${admitted} and ${back}`);
      t.match(lease.read(), { granted: 10n - back, available: 10n - back - BigInt(admitted) });
    }
  }
  t.end();
});

void t.test('at whatever step of a take a new day is granted, what is taken of it stays counted', (t) => {
  for (let step = 0; ; step++) {
    const words = createWords();
    const clock = new FakeClock();
    const [one, two] = [new LeasedStocks(words, clock), new LeasedStocks(words, clock)];
    const lease = new LeasedStocks(words, clock).leaseOf(STOCK);
    lease.add(DAY, 20n, 0n);
    one.take(STOCK, DAY, 3);
    let of: number | undefined;
    const reached = interruptAt(
      step,
      () => (of = one.take(STOCK, DAY, 7)),
      () => {
        lease.add(DAY + 1, 10n, 0n);
        two.take(STOCK, DAY + 1, 8);
      },
    );
    if (!reached) break;
    const taken = 8 + (of === DAY + 1 ? 7 : 0);
    const left = two.take(STOCK, DAY + 1, 3) !== undefined;
    if (taken > 10 || left) t.fail(`step ${step}: ${taken} of 10, and 3 more: ${left}`);
  }
  t.end();
});

void t.test('at whatever step of a take a lease is moved back to today, nothing is taken twice', (t) => {
  for (const [name, operate] of [
    ['a call of the mistaken day', DAY + 9],
    ['a call of today', DAY],
  ] as const) {
    for (let step = 0; ; step++) {
      const words = createWords();
      const clock = new FakeClock();
      const stocks = new LeasedStocks(words, clock);
      const lease = new LeasedStocks(words, clock).leaseOf(STOCK);
      lease.add(DAY + 9, 20n, 0n);
      stocks.take(STOCK, DAY + 9, 5);
      stocks.settle(STOCK, DAY + 9, 5, 4);
      let of: number | undefined;
      const reached = interruptAt(
        step,
        () => (of = stocks.take(STOCK, operate, 7)),
        () => lease.moveBack(DAY),
      );
      if (!reached) break;
      const { period, granted, used, available } = lease.read();
      const least = 4n + (of === undefined ? 0n : 7n);
      // The thread may have given back in vain: then its call counts as taken.
      if (period !== DAY || available !== 0n || used !== 4n || granted < least || granted > 11n)
        t.fail(`${name}, step ${step}: ${granted} of ${period}, ${available} left`);
      lease.add(DAY, 3n, 0n);
      t.equal(stocks.take(STOCK, DAY, 4), undefined);
      t.equal(stocks.take(STOCK, DAY, 3), DAY);
    }
  }
  t.end();
});

void t.test('at whatever step a day that was a mistake is given up, no use that was settled is lost', (t) => {
  for (const [name, operate, intrude] of [
    ['a call of that day settles', 'giveUp', 'settle'],
    ['that day is given up while a call settles', 'settle', 'giveUp'],
    ['a call of that day settles all that it held', 'giveUp', 'settleAll'],
    ['that day is given up while a call settles all that it held', 'settleAll', 'giveUp'],
    ['another call gives up that day', 'giveUp', 'giveUp'],
  ] as const) {
    for (let step = 0; ; step++) {
      const words = createWords();
      const settling = new Stocks(words);
      settling.take(STOCK, DAY + 5, 10, 100);
      settling.settle(STOCK, DAY + 5, 6, 6);
      let today = 0;
      const act = {
        giveUp: () => {
          const of = new Stocks(words);
          t.equal(
            of.take(STOCK, DAY, 2, 100, () => DAY),
            DAY,
          );
          of.settle(STOCK, DAY, 2, 2);
          today += 2;
        },
        settle: () => settling.settle(STOCK, DAY + 5, 4, 3),
        settleAll: () => settling.settle(STOCK, DAY + 5, 4, 4),
      };
      const reached = interruptAt(step, act[operate], act[intrude]);
      act.giveUp();
      const { taken, settled } = settling.read(STOCK, DAY);
      // A call of a day that was a mistake may end as one of a day that is over: then it counts as held.
      const late = settled - 6 - today;
      const isKnown =
        late === 0 ||
        late === { settle: 3, settleAll: 4, giveUp: 0 }[operate === 'giveUp' ? intrude : operate];
      if (!isKnown || taken < settled || taken > 10 + today)
        t.fail(`${name}, step ${step}: ${taken} taken, ${settled} settled, today ${today}`);
      if (!reached) break;
    }
  }
  t.end();
});

void t.test('no thread takes of a lease of a day that is too far ahead', (t) => {
  const words = createWords();
  const stocks = new LeasedStocks(words, new FakeClock());
  const lease = stocks.leaseOf(STOCK);
  lease.add(DAY + 2, 10n, 0n);
  t.equal(stocks.take(STOCK, DAY, 1), undefined);
  t.equal(stocks.take(STOCK, DAY + 1, 1), DAY + 2);
  lease.moveBack(DAY + 2);
  t.match(lease.read(), { period: DAY + 2, granted: 10n }, 'of no later one');
  t.end();
});
