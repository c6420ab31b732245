/**
 * Processes that share a limit of calls a day, while the clock of one of them, or the coordinator's and all,
 * is days ahead for a while: the day's limit is never passed, and what is left of it can be used.
 */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { EventTime, GOOD_NETWORK, LeaseNode } from '../../support/lease-world.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { newSeed, randomOf } from '../../support/random.js';

const ACCOUNT = asAccountIndex(0);
const DAY_MS = 86_400_000;
const LIMIT = 100;
const QUOTAS = { ...NO_QUOTAS, callsPerMonth: 31 * LIMIT, tokensPerDay: 10 * LIMIT };

class World {
  readonly time = new EventTime();
  readonly shared = new MemoryCoordinator(this.time.clock);
  readonly nodes: LeaseNode[] = [];
  readonly #random = randomOf(newSeed());
  /** Of each host. */
  readonly aheadMs = [0, 0];
  #lives = 0;

  /** Starts the process of the host anew. Its life before ends as if it was killed. */
  start(host: number): void {
    const { time } = this;
    if (this.nodes[host] !== undefined) this.nodes[host].dead = true;
    const clock: Clock = {
      monotonicMs: () => time.clock.monotonicMs(),
      wallMs: () => asWallMs(time.clock.wallMs() + this.aheadMs[host]!),
    };
    const node = new LeaseNode(
      time,
      this.shared,
      { host: `host${host}`, slot: 0, incarnation: `life${(this.#lives += 1)}` },
      {
        accountsMax: 1,
        subjectOf: () => 'acct_1',
        limitsOf: () => ({ requestsPerMinute: 0, callsPerDay: LIMIT, callsInFlight: 1_000 }),
        quotas: QUOTAS,
      },
      this.#random,
      GOOD_NETWORK,
      1_000,
      undefined,
      clock,
    );
    this.nodes[host] = node;
    void node.keeper.start();
  }

  /** So many calls at the host, one after the other; returns how many were served. */
  async call(host: number, calls: number): Promise<number> {
    const node = this.nodes[host]!;
    let served = 0;
    for (let number = 0; number < calls; number++) {
      let made: Awaited<ReturnType<LeaseNode['call']>> | undefined;
      void node.call(ACCOUNT, asPicoUnits(0n), undefined, 10).then((call) => (made = call));
      while (made === undefined) await this.time.run(50);
      if (made.slot === undefined) break;
      served += 1;
      node.endCall(ACCOUNT, made.slot, asPicoUnits(0n), 10);
    }
    return served;
  }
}

async function open(): Promise<World> {
  const world = new World();
  world.shared.setCredited('acct_1', asPicoUnits(10n ** 12n));
  for (const host of [0, 1]) world.start(host);
  await world.time.run(1_000);
  return world;
}

/** The idle leases of the other one come back meanwhile. */
const REST_MS = 40_000;

async function all(world: World): Promise<number> {
  let served = 0;
  for (const host of [0, 1, 0]) {
    await world.time.run(REST_MS);
    served += await world.call(host, 2 * LIMIT);
  }
  return served;
}

for (const days of [1.5, 9, 400])
  void t.test(`one host is ${days} days ahead for a while, the other one is right`, async (t) => {
    const world = await open();
    let served = (await world.call(0, 20)) + (await world.call(1, 20));
    world.aheadMs[0] = days * DAY_MS;
    served += await world.call(0, 10);
    served += await world.call(1, 10);
    world.aheadMs[0] = 0;
    served += await world.call(0, 10);
    world.aheadMs[0] = days * DAY_MS;
    served += await all(world);
    t.equal(served, LIMIT);
    world.time.clock.advance(DAY_MS);
    world.aheadMs[0] = 0;
    t.equal(await all(world), LIMIT, 'the next day has all of it');
  });

for (const days of [3, 9, 400])
  void t.test(`all clocks are ${days} days ahead for a while, and one process starts anew`, async (t) => {
    const world = await open();
    const { clock } = world.time;
    await world.call(0, 20);
    clock.turnWall(days * DAY_MS);
    let served = (await world.call(0, 15)) + (await world.call(1, 15));
    t.equal(served, 30, 'that day has begun');
    await world.time.run(REST_MS);
    clock.turnWall(-days * DAY_MS);
    const rest = await world.call(1, 10);
    t.equal(rest, 10, 'calls go on at once');
    await world.time.run(REST_MS);
    world.start(1);
    await world.time.run(1_000);
    served += rest + (await all(world));
    t.equal(served, LIMIT, 'what was counted then counts for now');
    clock.advance(DAY_MS);
    t.equal(await all(world), LIMIT, 'the next day has all of it');
  });
