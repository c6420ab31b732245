/** The most that a node can hold, after asks with a reply and asks without one. */
import t from 'tap';
import type { LeaseAsk, LeaseReply, StockGrant } from '#src/sharing/coordinator.js';
import { GrantedStock } from '#src/sharing/granted-stock.js';
import { HeldLeases } from '#src/sharing/held-leases.js';
import { newSeed, randomBelow } from '../../support/random.js';

const wanted = { least: 0n, most: 9n };
const none = { period: 0, used: 0n };
const grant = { remaining: 4n, heldByOthers: false, freeInMs: 0 };

function ask(period: number, used: bigint, slots: bigint, money: bigint, scope = 'a'): LeaseAsk {
  return {
    scope,
    stocks: {
      calls_per_day: { limit: 10n, period, used, unused: 0n, ...wanted },
      calls_in_flight: { limit: 5n, ...none, unused: slots, ...wanted },
      balance: { limit: 0n, ...none, unused: money, ...wanted },
    },
  };
}

function answer(period: number, day: bigint, slots: bigint, money: bigint): LeaseReply {
  const of = (granted: bigint, at = 0): StockGrant => ({ ...grant, granted, period: at });
  return {
    stocks: { calls_per_day: of(day, period), calls_in_flight: of(slots), balance: of(money) },
  };
}

void t.test('grants are added to what was said, and lost ones are not', (t) => {
  const held = new HeldLeases();
  held.record(ask(0, 0n, 0n, 0n), answer(7, 3n, 2n, 5n));
  const day = { period: 7, used: 0n, unused: 3n, seen: 6n };
  const of = (unused: bigint) => ({ ...none, unused, seen: 0n });
  t.same(held.of('a'), { calls_per_day: day, calls_in_flight: of(2n), balance: of(5n) });
  held.record(ask(7, 2n, 1n, 4n), undefined);
  t.same(held.of('a'), {
    calls_per_day: { ...day, used: 2n, unused: 0n },
    calls_in_flight: of(1n),
    balance: of(4n),
  });
  held.record({ scope: 'a' }, {});
  t.same(held.of('a').calls_in_flight, of(1n), 'what is not asked for stays');
  t.end();
});

void t.test('a new day ends what the old one counted, and what holds nothing goes', (t) => {
  const held = new HeldLeases();
  held.record(ask(0, 0n, 0n, 0n), answer(7, 3n, 0n, 0n));
  held.record(ask(0, 0n, 0n, 0n, 'b'), answer(7, 1n, 1n, 0n));
  held.record(ask(0, 0n, 0n, 0n, 'c'), answer(8, 1n, 0n, 0n));
  t.same(held.of('a'), {});
  t.same(Object.keys(held.of('b')), ['calls_in_flight']);
  t.same([...held.keys()], ['b', 'c']);
  const back = { limit: 5n, ...none, unused: 0n, least: 0n, most: 0n };
  held.record({ scope: 'b', stocks: { calls_in_flight: back } }, {});
  t.same([...held.keys()].length, 1);
  t.end();
});

void t.test('a day that was a mistake of a clock ends nothing that is held', (t) => {
  const held = new HeldLeases();
  for (const scope of ['a', 'b']) held.record(ask(0, 0n, 0n, 0n, scope), answer(7, 3n, 0n, 0n));
  const day = { period: 7, used: 0n, unused: 3n, seen: 6n };
  held.record(ask(20, 0n, 0n, 0n), undefined);
  t.same(held.of('a').calls_per_day, day, 'nothing is known of the later day yet');
  held.record(ask(20, 0n, 0n, 0n), answer(7, 0n, 0n, 0n));
  for (const scope of ['a', 'b']) t.same(held.of(scope).calls_per_day, day, 'it was a mistake');
  for (const scope of ['a', 'b']) held.record(ask(20, 0n, 0n, 0n, scope), answer(20, 2n, 0n, 0n));
  held.record(ask(20, 1n, 0n, 0n), undefined);
  held.record(ask(20, 1n, 0n, 0n), answer(7, 0n, 0n, 0n));
  t.match(held.of('a').calls_per_day, { period: 7, used: 1n }, 'that day was begun, and was one');
  t.match(held.of('b').calls_per_day, { period: 20, unused: 2n }, 'held until its own ask');
  held.record(ask(7, 1n, 0n, 0n), answer(7, 1n, 0n, 0n));
  t.match(held.of('a').calls_per_day, { period: 7, used: 1n, unused: 1n });
  t.end();
});

void t.test('random use, lost asks and lost replies: an entry is never less than what the node has', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const below = randomBelow(seed);
  const amountUpTo = (most: bigint): bigint => BigInt(below(Number(most) + 1));
  for (const name of ['calls_per_day', 'calls_in_flight'] as const) {
    const isOfDay = name === 'calls_per_day';
    const coordinator = new GrantedStock(name);
    const held = new HeldLeases();
    let [day, used, unused] = [isOfDay ? 20_000 : 0, 0n, 0n];
    for (let step = 0; step < 5_000; step++) {
      const action = below(10);
      if (action < 3) {
        // Calls use some; slots come back instead, and are given back.
        const amount = amountUpTo(unused);
        unused -= amount;
        if (isOfDay && action > 0) used += amount;
      } else if (action === 3 && isOfDay && below(20) === 0) {
        [day, used, unused] = [day + 1, 0n, 0n];
      } else {
        const most = amountUpTo(9n);
        const stock = { limit: 50n, period: day, used, unused, least: most > 0n ? 1n : 0n, most };
        const sent: LeaseAsk = { scope: 'a', stocks: { [name]: stock } };
        held.record(sent, undefined);
        const reply = below(10) > 0 ? coordinator.reply('node', 50n, stock, 0, day) : undefined;
        if (reply !== undefined && below(5) > 0) {
          held.record(sent, { stocks: { [name]: reply } });
          unused += reply.granted;
        }
      }
      const entry = held.of('a')[name];
      const covered = entry?.period === day ? entry.used + entry.unused : 0n;
      if (covered < used + unused) t.fail(`${name}, step ${step}: ${covered} of ${used + unused}`);
    }
  }
  t.end();
});
