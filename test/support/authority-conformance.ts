/**
 * What every Coordinator must do, as tests. An implementation gives a world: nodes on one coordinator, and
 * where it can, its time.
 */
import { randomBytes } from 'node:crypto';
import type { Test } from 'tap';
import { Calendar } from '#src/core/calendar.js';
import { asPicoUnits, type PicoUnits } from '#src/core/units.js';
import {
  CoordinatorLost,
  type Coordinator,
  type NodeIdentity,
  type GrantedPermits,
} from '#src/sharing/coordinator.js';
import type { ManualClock } from '../fixtures/manual-clock.js';
import { exchangePlain, plainView, type PlainAsk, type PlainReply } from './plain-asks.js';

export interface AuthorityWorld {
  /** A node's end; not yet joined. Of what shall be one host the name is the same. */
  connect(node: NodeIdentity): Promise<Coordinator>;
  /** Puts money into an account, as the registry would. */
  credit(subject: string, amount: PicoUnits): Promise<void>;
  /** A host's store has so much more of the account as spent. */
  readonly spend: (host: string, subject: string, amount: PicoUnits) => Promise<void>;
  /** Where no response is ever lost, what one has lent is not taken back. */
  readonly losesNoAnswer?: true;
  /** The coordinator's. */
  readonly clock: Pick<ManualClock, 'advance' | 'turnWall' | 'setBeforeMidnight'>;
  close(): Promise<void>;
}

const NO_LIMITS = { requestsPerMinute: 0, callsPerDay: 0, callsInFlight: 0 };
const pico = (amount: bigint): PicoUnits => asPicoUnits(amount);

export function identity(host: string, slot = 0): NodeIdentity {
  return { host, slot, incarnation: randomBytes(8).toString('hex') };
}

let subjects = 0;
const newSubject = (): string => `acct_conformance${(subjects += 1)}`;

async function joined(world: AuthorityWorld, host: string, slot = 0): Promise<Coordinator> {
  const node = await world.connect(identity(host, slot));
  await node.join();
  return node;
}

async function one(node: Coordinator, ask: PlainAsk): Promise<PlainReply> {
  const { answers } = await exchangePlain(node, [ask]);
  return answers[0]!;
}

const minuteAsk = (subject: string, requestsPerMinute: number, least: number, most = least): PlainAsk => ({
  scope: subject,
  limits: { ...NO_LIMITS, requestsPerMinute },
  minute: { least, most, forMs: 0, returned: [] },
});

const dayAsk = (
  subject: string,
  callsPerDay: number,
  held: { dayNumber: number; used: number; unused: number },
  least: number,
  most = least,
): PlainAsk => ({ scope: subject, limits: { ...NO_LIMITS, callsPerDay }, day: { ...held, least, most } });

const slotsAsk = (subject: string, callsInFlight: number, outstanding: number, least: number): PlainAsk => ({
  scope: subject,
  limits: { ...NO_LIMITS, callsInFlight },
  slots: { outstanding, least, most: least },
});

const moneyAsk = (subject: string, outstanding: bigint, least: bigint, most = least): PlainAsk => ({
  scope: subject,
  limits: NO_LIMITS,
  money: { outstanding: pico(outstanding), least: pico(least), most: pico(most) },
});

/** Runs all of it, each test in a world of its own. */
export function authorityConformance(t: Test, name: string, make: () => Promise<AuthorityWorld>): void {
  const run = (title: string, body: (t: Test, world: AuthorityWorld) => Promise<void>): void =>
    void t.test(`${name}: ${title}`, async (t) => {
      const world = await make();
      t.teardown(() => world.close());
      await body(t, world);
    });

  run('the minute is lent up to its limit, over nodes', async (t, world) => {
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    const granted = await one(first, minuteAsk(subject, 10, 3));
    t.match(granted.minute, { granted: 3, remaining: 7, heldByOthers: false, freeInMs: 0 });
    t.ok(granted.minute!.validMs > 0 && granted.minute!.validMs <= 20_000, 'valid for a while');
    t.match((await one(second, minuteAsk(subject, 10, 7))).minute, { granted: 7, remaining: 0 });
    const refused = (await one(first, minuteAsk(subject, 10, 1))).minute!;
    t.match(refused, { granted: 0, remaining: 0, heldByOthers: true });
    t.ok(refused.freeInMs > 55_000 && refused.freeInMs <= 80_000, `free in a minute: ${refused.freeInMs}`);
    t.equal(plainView((await first.view([subject]))[0]!).minuteUsed, 10);
  });

  run('least or nothing, never more than most', async (t, world) => {
    const node = await joined(world, 'a');
    const subject = newSubject();
    t.match((await one(node, minuteAsk(subject, 10, 11, 20))).minute, { granted: 0, remaining: 10 });
    const some = (await one(node, minuteAsk(subject, 10, 2, 20))).minute!;
    t.ok(some.granted >= 2 && some.granted <= 10, `granted ${some.granted}`);
    t.equal(some.remaining, 10 - some.granted);
    t.match((await one(node, minuteAsk(subject, 10, 0, 0))).minute, { granted: 0 }, 'a look takes nothing');
  });

  run('what is returned of the minute can be lent anew', async (t, world) => {
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    const { tick } = (await one(first, minuteAsk(subject, 5, 5))).minute!;
    t.match((await one(second, minuteAsk(subject, 5, 1))).minute, { granted: 0, heldByOthers: true });
    const ask = minuteAsk(subject, 5, 0);
    await one(first, { ...ask, minute: { ...ask.minute!, returned: [{ tick, count: 2 }] } });
    t.match((await one(second, minuteAsk(subject, 5, 2))).minute, { granted: 2, remaining: 0 });
    t.match((await one(second, minuteAsk(subject, 5, 1))).minute, { granted: 0 });
  });

  run('a limit that was lowered', async (t, world) => {
    const node = await joined(world, 'a');
    const subject = newSubject();
    await one(node, minuteAsk(subject, 10, 8));
    t.match((await one(node, minuteAsk(subject, 5, 1))).minute, { granted: 0, remaining: 0 });
    t.match((await one(node, minuteAsk(subject, 9, 1))).minute, { granted: 1, remaining: 0 });
  });

  run('the minute slides', async (t, world) => {
    const node = await joined(world, 'a');
    const subject = newSubject();
    await one(node, minuteAsk(subject, 10, 4));
    world.clock.advance(30_000);
    await one(node, minuteAsk(subject, 10, 6));
    const { freeInMs } = (await one(node, minuteAsk(subject, 10, 1))).minute!;
    world.clock.advance(freeInMs - 1);
    t.match((await one(node, minuteAsk(subject, 10, 1))).minute, { granted: 0 }, 'not before it said');
    world.clock.advance(1);
    t.match((await one(node, minuteAsk(subject, 10, 4))).minute, { granted: 4, remaining: 0 });
    world.clock.advance(90_000);
    t.match((await one(node, minuteAsk(subject, 10, 10))).minute, { granted: 10 }, 'all is forgotten');
  });

  run('permits weigh for a minute after the end of their validity', async (t, world) => {
    const node = await joined(world, 'a');
    const subject = newSubject();
    const ask = minuteAsk(subject, 100, 1);
    const { validMs } = (await one(node, { ...ask, minute: { ...ask.minute!, forMs: 16_000 } })).minute!;
    t.ok(validMs > 10_000, `a quiet account gets long validity: ${validMs}`);
    world.clock.advance(validMs + 59_999);
    t.equal(plainView((await node.view([subject]))[0]!).minuteUsed, 1);
    world.clock.advance(2_000);
    t.equal(plainView((await node.view([subject]))[0]!).minuteUsed, 0);
  });

  run('what was used of a long permit weighs for a minute from then on', async (t, world) => {
    const [node, other] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    const ask = minuteAsk(subject, 100, 4);
    const granted = (await one(node, { ...ask, minute: { ...ask.minute!, forMs: 16_000 } })).minute!;
    const used = [{ tick: granted.tick, count: 3 }];
    const report = minuteAsk(subject, 100, 0);
    await one(other, { ...report, minute: { ...report.minute!, used } });
    await one(node, { ...report, minute: { ...report.minute!, used } });
    await one(node, { ...report, minute: { ...report.minute!, used: [{ tick: granted.tick, count: 0 }] } });
    t.equal(plainView((await node.view([subject]))[0]!).minuteUsed, 4, 'all weigh as before');
    world.clock.advance(60_599);
    t.equal(plainView((await node.view([subject]))[0]!).minuteUsed, 4, 'used within 0.6 s from then');
    world.clock.advance(1_300);
    t.equal(plainView((await node.view([subject]))[0]!).minuteUsed, 1, 'the other one may still be used');
    world.clock.advance(20_000);
    t.equal(plainView((await node.view([subject]))[0]!).minuteUsed, 0);
  });

  run('the day counts what all use and hold, by what each says', async (t, world) => {
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    const none = { dayNumber: 0, used: 0, unused: 0 };
    const { day } = await one(first, dayAsk(subject, 10, none, 6));
    t.match(day, { granted: 6, remaining: 4, heldByOthers: false });
    const { dayNumber } = day!;
    t.match((await one(second, dayAsk(subject, 10, none, 5))).day, { granted: 0, heldByOthers: true });
    await one(first, dayAsk(subject, 10, { dayNumber, used: 3, unused: 1 }, 0));
    t.match((await one(second, dayAsk(subject, 10, none, 6))).day, { granted: 6, remaining: 0 });
    await one(first, dayAsk(subject, 10, { dayNumber, used: 4, unused: 0 }, 0));
    t.match(
      (await one(second, dayAsk(subject, 10, { dayNumber, used: 6, unused: 0 }, 1))).day,
      { granted: 0, heldByOthers: false },
      'all is used up',
    );
    t.match(plainView((await first.view([subject]))[0]!), { dayNumber, dayUsed: 10 });
  });

  run('an operator is shown what was used apart from what was granted', async (t, world) => {
    const [first, second] = [await joined(world, 'a'), await joined(world, 'a', 1)];
    const subject = newSubject();
    const none = { dayNumber: 0, used: 0, unused: 0 };
    const ordered = minuteAsk(subject, 10, 2);
    const order = { number: 5, heardNumber: 4 };
    await one(second, { ...ordered, minute: { ...ordered.minute!, order } });
    const { dayNumber } = (await one(first, dayAsk(subject, 20, none, 6))).day!;
    await one(second, dayAsk(subject, 20, none, 5));
    await one(first, dayAsk(subject, 20, { dayNumber, used: 4, unused: 2 }, 0));
    const seen = async () => (await first.view([subject], [0, 1, 2]))[0]!;
    const { processes, stocks, minute } = await seen();
    t.match(stocks.calls_per_day, { used: 4n, unused: 7n });
    t.match(minute, { weighing: 2, unexpired: 2 });
    const nothing = { weighing: 0, unexpired: 0, number: 0 };
    const byslot = processes.toSorted((one, other) => one.slot - other.slot);
    t.same(byslot, [
      { slot: 0, minute: nothing, used: { calls_per_day: 4n } },
      { slot: 1, minute: { weighing: 2, unexpired: 2, number: 5 }, used: { calls_per_day: 0n } },
    ]);
    // The life of the first ends. Nobody knows whether it has used the two, and they are granted to nobody.
    await joined(world, 'a');
    t.match((await seen()).stocks.calls_per_day, { used: 4n, unused: 7n });
    t.match((await seen()).processes, [{ slot: 1 }]);
    t.match((await one(second, dayAsk(subject, 20, { dayNumber, used: 0, unused: 5 }, 10))).day, {
      granted: 0,
      remaining: 9,
    });
  });

  run('an answer that was lost is taken back by the next ask', async (t, world) => {
    const node = await joined(world, 'a');
    const subject = newSubject();
    const held = { dayNumber: 0, used: 0, unused: 0 };
    for (let round = 0; round < 5; round++) {
      t.match((await one(node, dayAsk(subject, 10, held, 8))).day, { granted: 8 });
      t.match((await one(node, slotsAsk(subject, 3, 0, 3))).slots, { granted: 3 });
    }
  });

  run('permits of an answer that was lost are taken back by the next ask', async (t, world) => {
    if (world.losesNoAnswer === true) return;
    const [node, other] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    const ask = (most: number, number: number, heardNumber: number, returned: GrantedPermits[] = []) => {
      const plain = minuteAsk(subject, 10, most);
      return one(node, { ...plain, minute: { ...plain.minute!, returned, order: { number, heardNumber } } });
    };
    const { tick } = (await ask(3, 1, 0)).minute!;
    t.match((await ask(4, 2, 1)).minute, { granted: 4, remaining: 3 }, 'what was heard of stays lent');
    t.match((await ask(6, 3, 1)).minute, { granted: 6, remaining: 1 }, 'once');
    t.match((await ask(7, 4, 1)).minute, { granted: 7, remaining: 0 }, 'and again');
    const returned = [{ tick, count: 3 }];
    t.match((await ask(0, 5, 4, returned)).minute, { granted: 0, remaining: 3 });
    t.match(
      (await ask(0, 6, 4, returned)).minute,
      { remaining: 3 },
      'returned once, though it is said twice',
    );
    t.match((await one(other, minuteAsk(subject, 10, 3))).minute, { granted: 3, remaining: 0 });
  });

  run('a new life takes back nothing of the one before', async (t, world) => {
    const old = await joined(world, 'a', 3);
    const subject = newSubject();
    const ask = minuteAsk(subject, 10, 6);
    const ordered = (number: number): PlainAsk => ({
      ...ask,
      minute: { ...ask.minute!, order: { number, heardNumber: number - 1 } },
    });
    t.match((await one(old, ordered(17))).minute, { granted: 6 });
    const next = await joined(world, 'a', 3);
    t.match((await one(next, ordered(1))).minute, { granted: 0, remaining: 4 }, 'it may have been used');
  });

  run('a new day begins at nothing, and old counts are of the old', async (t, world) => {
    world.clock.setBeforeMidnight(10_000);
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    const none = { dayNumber: 0, used: 0, unused: 0 };
    const { dayNumber } = (await one(first, dayAsk(subject, 5, none, 5))).day!;
    world.clock.advance(10_000);
    const next = (await one(second, dayAsk(subject, 5, none, 3))).day!;
    t.match(next, { granted: 3, dayNumber: dayNumber + 1 });
    t.match(
      (await one(first, dayAsk(subject, 5, { dayNumber, used: 5, unused: 0 }, 2))).day,
      { granted: 2, remaining: 0, dayNumber: dayNumber + 1 },
      'calls of yesterday do not count today',
    );
  });

  const mistakenDay = { used: 0, unused: 0 };
  const days = 86_400_000;

  run('who asks for a day far ahead leads nobody there, and loses nothing', async (t, world) => {
    world.clock.setBeforeMidnight(12 * 3_600_000);
    const [ahead, right] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    const none = { dayNumber: 0, used: 0, unused: 0 };
    const { dayNumber } = (await one(ahead, dayAsk(subject, 10, none, 4))).day!;
    for (const far of [2, 9, 400]) {
      const { day } = await one(
        ahead,
        dayAsk(subject, 10, { dayNumber: dayNumber + far, ...mistakenDay }, 3),
      );
      t.match(day, { granted: 0, dayNumber }, `${far} days ahead`);
    }
    t.match(
      (await one(right, dayAsk(subject, 10, none, 7))).day,
      { granted: 0, heldByOthers: true },
      'what the one ahead holds is held',
    );
    t.match((await one(right, dayAsk(subject, 10, none, 6))).day, { granted: 6, remaining: 0, dayNumber });
    const next = { dayNumber: dayNumber + 1, ...mistakenDay };
    t.match((await one(ahead, dayAsk(subject, 10, next, 2))).day, { granted: 2, dayNumber: dayNumber + 1 });
    t.match((await one(right, dayAsk(subject, 10, none, 9))).day, { granted: 0, dayNumber: dayNumber + 1 });
  });

  run('what was counted while the calendar was days ahead counts when it is right', async (t, world) => {
    world.clock.setBeforeMidnight(12 * 3_600_000);
    const [one1, two, three] = [
      await joined(world, 'a'),
      await joined(world, 'b'),
      await joined(world, 'c'),
    ] as const;
    const subject = newSubject();
    const none = { dayNumber: 0, used: 0, unused: 0 };
    const { dayNumber } = (await one(one1, dayAsk(subject, 10, none, 2))).day!;
    await one(three, dayAsk(subject, 10, none, 3));
    world.clock.turnWall(40 * days);
    const far = (await one(one1, dayAsk(subject, 10, none, 4))).day!;
    t.match(far, { granted: 4, remaining: 6, dayNumber: dayNumber + 40 });
    await one(two, dayAsk(subject, 10, none, 1));
    world.clock.turnWall(-40 * days);
    t.match(
      (await one(two, dayAsk(subject, 10, { dayNumber: dayNumber + 40, used: 1, unused: 0 }, 1))).day,
      { granted: 0, dayNumber },
      'it has to ask for today',
    );
    t.match((await one(two, dayAsk(subject, 10, { dayNumber, used: 1, unused: 0 }, 6))).day, { granted: 0 });
    t.match((await one(two, dayAsk(subject, 10, { dayNumber, used: 1, unused: 0 }, 5))).day, {
      granted: 5,
      remaining: 0,
    });
    t.match(
      (await one(one1, dayAsk(subject, 10, { dayNumber, used: 3, unused: 0 }, 1))).day,
      { granted: 1, remaining: 0 },
      'what it has not used is free',
    );
    t.match(
      (await one(three, dayAsk(subject, 10, { dayNumber, used: 1, unused: 2 }, 1))).day,
      { granted: 0, dayNumber },
      'one that slept meanwhile counts with what it holds',
    );
    t.match(plainView((await two.view([subject]))[0]!), { dayNumber, dayUsed: 13 });
    world.clock.turnWall(days);
    t.match(
      (await one(three, dayAsk(subject, 10, none, 10))).day,
      { granted: 10, dayNumber: dayNumber + 1 },
      'the next day begins at nothing',
    );
  });

  run('months and days of the time zone of the settings likewise', async (t, world) => {
    world.clock.setBeforeMidnight(12 * 3_600_000);
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    const calendar = new Calendar();
    const ask = async (node: Coordinator, month: number, day: number, unused: bigint, most: bigint) => {
      const stock = { limit: 10n, used: 0n, unused, least: most, most };
      const more = {
        tokens_per_day: { ...stock, period: day },
        spend_per_month: { ...stock, period: month },
      };
      const { tokens_per_day, spend_per_month } = (await one(node, { scope: subject, more })).more;
      return [
        tokens_per_day!.granted,
        tokens_per_day!.period,
        spend_per_month!.granted,
        spend_per_month!.period,
      ];
    };
    const { wallMs } = await first.exchange([]);
    for (let at = 0; at < 1_500; at += 31) {
      const now = wallMs + at * days;
      const [month, day] = [calendar.monthAt(now).number, calendar.dayAt(now).number];
      t.same(await ask(first, month + 2, day + 2, 0n, 5n), [0n, day, 0n, month], `${at} days from now`);
      t.same(await ask(second, month, day, 0n, 6n), [6n, day, 6n, month]);
      world.clock.turnWall(31 * days);
    }
  });

  run(
    'what calls in flight use of the minute counts, although the node was denied more',
    async (t, world) => {
      const node = await joined(world, 'a');
      const subject = newSubject();
      const ask = async (used: bigint, unused: bigint, most: bigint) => {
        const stock = { limit: 10n, period: 0, used, unused, least: most, most };
        return (await one(node, { scope: subject, more: { tokens_per_minute: stock } })).more
          .tokens_per_minute!;
      };
      t.equal((await ask(0n, 0n, 4n)).granted, 4n);
      t.equal((await ask(12n, 0n, 1n)).granted, 0n, 'one of two calls has used more than both held');
      await ask(20n, 0n, 0n);
      t.match((await node.view([subject]))[0]!.stocks.tokens_per_minute, { used: 20n, unused: 0n });
      world.clock.advance(62_000);
      t.equal((await ask(20n, 0n, 10n)).granted, 10n, 'and weighs for a minute');
    },
  );

  run('a node that joins twice in one life keeps what it holds', async (t, world) => {
    const subject = newSubject();
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    t.match((await one(first, slotsAsk(subject, 4, 0, 3))).slots, { granted: 3 });
    await first.join();
    t.match((await one(second, slotsAsk(subject, 4, 0, 2))).slots, { granted: 0, heldByOthers: true });
  });

  run('slots are counted by what each holds', async (t, world) => {
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    t.match((await one(first, slotsAsk(subject, 4, 0, 3))).slots, { granted: 3, remaining: 1 });
    t.match((await one(second, slotsAsk(subject, 4, 0, 2))).slots, { granted: 0, heldByOthers: true });
    t.match((await one(first, slotsAsk(subject, 4, 1, 0))).slots, { granted: 0, remaining: 3 });
    t.match((await one(second, slotsAsk(subject, 4, 0, 3))).slots, { granted: 3, remaining: 0 });
    t.equal(plainView((await first.view([subject]))[0]!).callsInFlight, 4);
  });

  run('money is lent to the last pico-unit, and no further', async (t, world) => {
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    t.match((await one(first, moneyAsk(subject, 0n, 1n))).money, { granted: 0n, remaining: 0n });
    // Amounts that a double cannot hold.
    const total = 8_999_999_999_999_999_999n;
    await world.credit(subject, pico(total));
    t.match((await one(first, moneyAsk(subject, 0n, total - 1n))).money, {
      granted: total - 1n,
      remaining: 1n,
    });
    t.match((await one(second, moneyAsk(subject, 0n, 2n))).money, { granted: 0n, heldByOthers: true });
    t.match((await one(second, moneyAsk(subject, 0n, 1n))).money, { granted: 1n, remaining: 0n });
    t.equal(plainView((await first.view([subject]))[0]!).moneyOutstanding, total);
    t.match((await one(first, moneyAsk(subject, 5n, 0n))).money, { granted: 0n, remaining: total - 6n });
  });

  run('what is spent is gone, seen before it is no more held', async (t, world) => {
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    await world.credit(subject, pico(100n));
    await one(first, moneyAsk(subject, 0n, 60n));
    await world.spend('a', subject, pico(25n));
    t.equal(plainView((await first.view([subject]))[0]!).spent, 25n, 'as its own store has it');
    await one(first, moneyAsk(subject, 60n, 0n));
    for (const node of [first, second]) t.equal(plainView((await node.view([subject]))[0]!).spent, 25n);
    t.match(
      (await one(second, moneyAsk(subject, 0n, 16n))).money,
      { granted: 0n },
      'counted twice for a moment',
    );
    await one(first, moneyAsk(subject, 35n, 0n));
    t.match((await one(second, moneyAsk(subject, 0n, 40n))).money, { granted: 40n, remaining: 0n });
    // A reversal: spent shrinks, and the charge is in nobody's lease.
    await world.spend('a', subject, pico(-5n));
    t.match((await one(first, moneyAsk(subject, 35n, 0n))).money, { remaining: 5n });
  });

  run('resources of one ask do not hang together', async (t, world) => {
    const node = await joined(world, 'a');
    const subject = newSubject();
    const answer = await one(node, {
      scope: subject,
      limits: { requestsPerMinute: 5, callsPerDay: 5, callsInFlight: 5 },
      minute: { least: 6, most: 6, forMs: 0, returned: [] },
      day: { dayNumber: 0, used: 0, unused: 0, least: 5, most: 5 },
      slots: { outstanding: 0, least: 1, most: 1 },
      money: { outstanding: pico(0n), least: pico(1n), most: pico(1n) },
    });
    t.match(answer, {
      minute: { granted: 0 },
      day: { granted: 5 },
      slots: { granted: 1 },
      money: { granted: 0n },
    });
  });

  run('many asks are answered in their order', async (t, world) => {
    const node = await joined(world, 'a');
    const asked = Array.from({ length: 1_000 }, (_, index) => minuteAsk(newSubject(), 2_000, index + 1));
    const { answers, wallMs } = await exchangePlain(node, asked);
    t.same(
      answers.map(({ minute }) => minute!.granted),
      asked.map(({ minute }) => minute!.least),
    );
    t.ok(wallMs > 0);
    t.same((await node.exchange([])).replies, [], 'a sign of life');
  });

  run('a new life voids the leases of the one before, and the old one is refused', async (t, world) => {
    const old = await joined(world, 'a', 3);
    const other = await joined(world, 'b', 3);
    const subject = newSubject();
    await world.credit(subject, pico(100n));
    await one(old, slotsAsk(subject, 4, 0, 4));
    await one(old, moneyAsk(subject, 0n, 100n));
    const { dayNumber } = (await one(old, dayAsk(subject, 5, { dayNumber: 0, used: 0, unused: 0 }, 5))).day!;
    t.match((await one(other, slotsAsk(subject, 4, 0, 1))).slots, { granted: 0 });
    await joined(world, 'a', 3);
    t.match((await one(other, slotsAsk(subject, 4, 0, 4))).slots, { granted: 4 });
    t.match((await one(other, moneyAsk(subject, 0n, 100n))).money, { granted: 100n });
    t.match(
      (await one(other, dayAsk(subject, 5, { dayNumber, used: 0, unused: 0 }, 1))).day,
      { granted: 0 },
      'how much it used is not known',
    );
    await t.rejects(old.exchange([]), { code: 'authority_lost', reason: 'unknown_node' });
  });

  run('a node that leaves frees what it holds', async (t, world) => {
    const [first, second] = [await joined(world, 'a'), await joined(world, 'b')];
    const subject = newSubject();
    await world.credit(subject, pico(10n));
    await one(first, moneyAsk(subject, 0n, 10n));
    await one(first, slotsAsk(subject, 1, 0, 1));
    await first.leave();
    t.match((await one(second, moneyAsk(subject, 0n, 10n))).money, { granted: 10n });
    t.match((await one(second, slotsAsk(subject, 1, 0, 1))).slots, { granted: 1 });
    await t.rejects(first.exchange([]), { code: 'authority_lost', reason: 'unknown_node' });
  });

  run('who has not joined, or has closed, is told so', async (t, world) => {
    const stranger = await world.connect(identity('stranger'));
    await t.rejects(stranger.exchange([]), { code: 'authority_lost', reason: 'unknown_node' });
    const node = await joined(world, 'a');
    await node.close();
    await t.rejects(node.exchange([]), CoordinatorLost);
    await t.rejects(node.exchange([]), { code: 'authority_lost', reason: 'closed' });
  });
}
