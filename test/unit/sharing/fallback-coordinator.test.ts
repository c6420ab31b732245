/**
 * Nodes that are cut off use their fallback quotas, while others go on with leases. Together they never
 * exceed a limit or a balance, and in the end no call and no pico-unit is missing.
 */
import t, { type Test } from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { EqualShare } from '#src/sharing/equal-share.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { FallbackCoordinator } from '#src/sharing/fallback-coordinator.js';
import {
  EventTime,
  GOOD_NETWORK,
  LeaseNode,
  PlayedAuthority,
  type CallEnd,
  type Network,
} from '../../support/lease-world.js';
import { plainView } from '../../support/plain-asks.js';
import { randomOf } from '../../support/random.js';

const ACCOUNT = asAccountIndex(0);
const SUBJECT = 'acct_cut';
const NODES = 3;
const MINUTE_MS = 60_000;
const CUT: Network = { delayMs: 0.3, lost: 1, doubled: 0 };
const HOLD = asPicoUnits(1_000n);
const COST = asPicoUnits(301n);
const CALL_MS = 200;
const FLUSH_MS = 500;
const EXPIRY_MS = 900_000;
const LONGEST_CALL_MS = 600_000;

interface Limits {
  readonly requestsPerMinute: number;
  readonly callsPerDay: number;
  readonly callsInFlight: number;
}
const PLENTY: Limits = { requestsPerMinute: 600, callsPerDay: 100_000, callsInFlight: 900 };

/** A host with its two nodes: one for calls, one for the fallback quotas. */
class Host {
  readonly node: LeaseNode;
  readonly ends: CallEnd[] = [];
  share!: EqualShare;
  #fallback!: PlayedAuthority;
  served = 0;

  constructor(
    readonly world: World,
    name: string,
  ) {
    const { time, shared, random } = world;
    const identity = { host: name, slot: 0, incarnation: 'one' };
    const timers = { soon: (act: () => void) => void time.after(0, act), after: time.after.bind(time) };
    this.node = new LeaseNode(
      time,
      shared,
      identity,
      {
        ...{ accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => world.limits },
        silentMsMax: EXPIRY_MS - LONGEST_CALL_MS,
      },
      random,
      GOOD_NETWORK,
      1_000,
      (authority) => {
        const common = { clock: time.clock, nodeExpiryMs: EXPIRY_MS, timers, random };
        this.#fallback = new PlayedAuthority(time, shared, { ...identity, slot: 9 }, random, GOOD_NETWORK);
        this.share = new EqualShare({
          ...common,
          coordinator: authority,
          shares: NODES,
          openFallback: (mayReport) =>
            new FallbackCoordinator({
              ...common,
              shares: NODES,
              mayReport,
              coordinator: new EqualShare({
                ...common,
                coordinator: this.#fallback,
                shares: 0,
              }),
            }),
        });
        return this.share;
      },
    );
    void this.node.keeper.start();
    const flush = (): void => {
      this.node.flush();
      time.after(FLUSH_MS, flush);
    };
    time.after(FLUSH_MS * random(), flush);
  }

  set network(network: Network) {
    this.node.authority.network = network;
    this.#fallback.network = network;
  }

  async call(): Promise<CallEnd> {
    const { world } = this;
    const { end, slot } = await this.node.call(ACCOUNT, HOLD, () => world.minuteMs.push(world.time.nowMs));
    this.ends.push(end);
    if (slot === undefined) return end;
    this.served += 1;
    world.inFlight += 1;
    world.inFlightMost = Math.max(world.inFlightMost, world.inFlight);
    world.time.after(CALL_MS, () => {
      world.inFlight -= 1;
      world.charged += this.node.endCall(ACCOUNT, slot, COST);
    });
    return end;
  }

  /** Calls for so long, one every `everyMs` and none waiting for another; returns how they ended. */
  async hammer(ms: number, everyMs: number): Promise<CallEnd[]> {
    const { time } = this.world;
    const before = this.ends.length;
    for (let atMs = 0; atMs < ms; atMs += everyMs) time.after(atMs, () => void this.call());
    await time.run(ms + 2_000);
    return this.ends.slice(before);
  }
}

class World {
  readonly time = new EventTime();
  readonly random: () => number;
  readonly shared = new MemoryCoordinator(this.time.clock);
  readonly hosts: readonly Host[];
  readonly minuteMs: number[] = [];
  charged = 0n;
  inFlight = 0;
  inFlightMost = 0;

  constructor(
    readonly limits: Limits,
    readonly credit: bigint,
    seed = 1,
  ) {
    this.random = randomOf(seed);
    this.shared.setCredited(SUBJECT, asPicoUnits(credit));
    this.hosts = Array.from({ length: NODES }, (_, index) => new Host(this, `host${index}`));
  }

  get served(): number {
    return this.hosts.reduce((sum, { served }) => sum + served, 0);
  }

  /** Lets all reach the coordinator and rest, until they have given back their leases. */
  async settle(t: Test): Promise<void> {
    for (const host of this.hosts) host.network = GOOD_NETWORK;
    await this.time.run(200_000);
    const view = plainView(this.shared.view([SUBJECT])[0]!);
    t.equal(view.moneyOutstanding, 0n, 'no money is out');
    t.equal(view.spent, this.charged, 'what was charged is what is spent');
    t.equal(this.charged, BigInt(this.served) * COST, 'each call once');
    if (this.limits.callsPerDay > 0) t.equal(view.dayUsed, this.served, 'each call of the day once');
    t.equal(view.callsInFlight, 0);
  }
}

function mostInMinute(admittedMs: readonly number[]): number {
  let [most, first] = [0, 0];
  for (const [index, atMs] of admittedMs.entries()) {
    while (admittedMs[first]! <= atMs - MINUTE_MS) first++;
    most = Math.max(most, index - first + 1);
  }
  return most;
}

const countOf = (ends: readonly CallEnd[], end: CallEnd): number => ends.filter((one) => one === end).length;

for (const [name, limits, calls] of [
  ['of the day', { ...PLENTY, callsPerDay: 300 }, 1_000_000n],
  ['of money', PLENTY, 300n],
  ['of the minute', { ...PLENTY, requestsPerMinute: 300 }, 1_000_000n],
] as const) {
  void t.test(`a host that is cut off serves its part ${name}, and no more`, async (t) => {
    const world = new World(limits, HOLD * calls);
    const [first, cut] = world.hosts as [Host, Host];
    for (const host of world.hosts) t.same(await host.hammer(3_000, 1_000), ['served', 'served', 'served']);
    // It has come to rest: nothing is leased to its calls.
    await world.time.run(5_000);
    const leftOf300 = 300 - world.served;
    cut.network = CUT;
    const alone = await cut.hammer(8_000, 50);
    const served = countOf(alone, 'served');
    t.comment(`${served} of ${leftOf300} that were left, among ${NODES}`);
    // Permits are renewed all at once, from what the others leave.
    const least = leftOf300 / ((name === 'of the minute' ? 3 : 2) * NODES);
    t.ok(served >= least, 'it has a good part of an equal share');
    t.ok(served <= leftOf300 / NODES, 'and no more than its share');
    t.equal(served + countOf(alone, 'lost'), alone.length, 'the rest is told as not known');
    t.ok(cut.share.isAlone || served < alone.length);
    // The others have all but what was granted to the host that is cut off.
    await first.hammer(15_000, 25);
    const most = mostInMinute(world.minuteMs);
    t.ok(most <= limits.requestsPerMinute, `${most} in a minute`);
    t.ok(world.charged <= HOLD * calls);
    t.ok(world.served >= 180, `${world.served} of 300 were used while a host was cut off`);
    await world.settle(t);
  });
}

void t.test('where nobody can reach the authority, all have their parts', async (t) => {
  const world = new World({ ...PLENTY, callsPerDay: 400 }, HOLD * 500n);
  for (const host of world.hosts) await host.hammer(3_000, 1_000);
  await world.time.run(5_000);
  for (const host of world.hosts) host.network = CUT;
  const before = world.served;
  for (const host of world.hosts)
    for (let call = 0; call < 200; call++) world.time.after(call * 50, () => void host.call());
  await world.time.run(12_000);
  for (const [index, { served }] of world.hosts.entries()) t.ok(served > 30, `host ${index}: ${served}`);
  t.ok(world.served > before + 120, `${world.served} of 400`);
  t.ok(world.served <= 400);
  await world.settle(t);
});

void t.test('what is set aside goes to who lacks it', async (t) => {
  const world = new World({ ...PLENTY, callsPerDay: 200 }, HOLD * 100_000n);
  for (const host of world.hosts) await host.hammer(3_000, 1_000);
  await world.time.run(5_000);
  await world.hosts[0]!.hammer(60_000, 100);
  t.equal(world.served, 200, 'all of the day, by one host');
  await world.settle(t);
});

void t.test('what was lent to a few calls is not lost while nobody can be given it back', async (t) => {
  // A part of the call slots is set aside, and two calls are granted it.
  const world = new World({ ...PLENTY, callsInFlight: 30 }, HOLD * 300n);
  const [, , cut] = world.hosts as [Host, Host, Host];
  for (const host of world.hosts) await host.hammer(3_000, 1_000);
  await world.time.run(5_000);
  cut.network = CUT;
  // For as long as the permits that are set aside are valid.
  const ends = await cut.hammer(7_000, 1_000);
  t.same([...new Set(ends)], ['served'], `${ends.length} calls, one a second`);
  cut.network = GOOD_NETWORK;
  await world.time.run(12_000);
  await world.hosts[0]!.hammer(5_000, 5);
  t.equal(world.inFlightMost, 30, 'back again, it has given back what it did not use');
  await world.settle(t);
});

void t.test('who is cut off for long begins no call whose slot others may have by its end', async (t) => {
  const world = new World({ ...PLENTY, requestsPerMinute: 0, callsInFlight: 30 }, HOLD * 1_000_000n);
  const [, cut] = world.hosts as [Host, Host];
  for (const host of world.hosts) await host.hammer(3_000, 1_000);
  cut.network = CUT;
  const endMs = world.time.nowMs + EXPIRY_MS - LONGEST_CALL_MS;
  await world.time.run(200_000);
  t.ok(countOf(await cut.hammer(10_000, 200), 'served') > 20, 'of what was set aside');
  await world.time.run(endMs - world.time.nowMs + 1_000);
  t.ok(cut.share.isAlone);
  t.equal(countOf(await cut.hammer(60_000, 500), 'served'), 0);
  cut.network = GOOD_NETWORK;
  await world.time.run(12_000);
  t.ok(countOf(await cut.hammer(5_000, 200), 'served') > 20, 'back again');
  await world.settle(t);
});

void t.test('a scope that is not served any more gives all back and costs no more asks', async (t) => {
  const time = new EventTime();
  const identity = { host: 'a', slot: 9, incarnation: 'one' };
  const shared = new MemoryCoordinator(time.clock);
  const random = randomOf(1);
  const coordinator = new PlayedAuthority(time, shared, identity, random, GOOD_NETWORK);
  const timers = { soon: (act: () => void) => void time.after(0, act), after: time.after.bind(time) };
  const fallback = new FallbackCoordinator({
    ...{ coordinator, clock: time.clock, timers, shares: NODES, nodeExpiryMs: EXPIRY_MS },
    mayReport: () => true,
  });
  fallback.start();
  await time.run(1_000);
  const ask = { least: 1, most: 4, forMs: 2_000, limit: 600, returned: [] };
  const grant = { granted: 4, remaining: 596, heldByOthers: false, tick: 1, validMs: 16_000, freeInMs: 0 };
  fallback.recordReply({ scope: SUBJECT, minute: ask }, { minute: grant });
  await time.run(60_000);
  t.ok(fallback.holdsAny);
  await time.run(70_000);
  t.notOk(fallback.holdsAny);
  const { asks } = coordinator;
  await time.run(60_000);
  t.equal(coordinator.asks, asks, 'no more asks');
});

void t.test('random cuts, random use', async (t) => {
  const seed = Number(process.env.TOLLGATE_SEED ?? 20_261_122);
  t.comment(`seed ${seed}`);
  for (let round = 0; round < 5; round++) {
    const pick = randomOf(seed + round);
    const limits = {
      requestsPerMinute: 30 + Math.floor(pick() * 300),
      callsPerDay: 100 + Math.floor(pick() * 600),
      callsInFlight: round % 2 === 0 ? 900 : 6,
    };
    const calls = 100 + Math.floor(pick() * 600);
    const world = new World(limits, HOLD * BigInt(calls) + 777n, seed + round);
    const isCut = world.hosts.map(() => false);
    let alone = 0;
    for (let step = 0; step < 40; step++) {
      for (const [index, host] of world.hosts.entries()) {
        if (pick() < 0.2) isCut[index] = !isCut[index];
        host.network = isCut[index]! ? { ...CUT, lost: pick() < 0.3 ? 0.7 : 1 } : GOOD_NETWORK;
        const before = host.served;
        const count = Math.floor(pick() * 12);
        for (let call = 0; call < count; call++) world.time.after(pick() * 1_000, () => void host.call());
        if (host.share.isAlone) alone += host.served - before;
      }
      await world.time.run(1_000 + pick() * 4_000);
      for (const [index, host] of world.hosts.entries()) if (isCut[index] && host.share.isAlone) alone += 1;
    }
    const most = mostInMinute(world.minuteMs);
    t.ok(most <= limits.requestsPerMinute, `${most} of ${limits.requestsPerMinute} a minute`);
    t.ok(world.served <= limits.callsPerDay, `${world.served} of ${limits.callsPerDay} a day`);
    t.ok(world.charged <= HOLD * BigInt(calls) + 777n, `${world.charged} of ${HOLD * BigInt(calls)}`);
    t.ok(world.inFlightMost <= limits.callsInFlight, `${world.inFlightMost} at once`);
    t.ok(alone > 0, 'hosts lived on what was set aside');
    await world.settle(t);
  }
});
