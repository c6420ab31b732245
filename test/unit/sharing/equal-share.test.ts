/**
 * Nodes that are cut off use their equal shares, and the limit is never exceeded: random cuts on a real
 * server.
 */
import t, { type Test } from 'tap';
import type { Clock } from '#src/core/clock.js';
import { asMonotonicMs, asPicoUnits, asWallMs } from '#src/core/units.js';
import {
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type Coordinator,
  type LeaseAsk,
} from '#src/sharing/coordinator.js';
import { EqualShare, SHARE_BEGINS_MS } from '#src/sharing/equal-share.js';
import type { FallbackCoordinator } from '#src/sharing/fallback-coordinator.js';
import { ValkeyError } from '#src/sharing/valkey-client.js';
import { QUARANTINE_MS, SILENT_MS } from '#src/sharing/valkey-lua.js';
import { identity } from '../../support/authority-conformance.js';
import { eventually } from '../../support/gateway.js';
import { NO_REDIS, startRedis } from '../../support/redis-server.js';
import { EventTime } from '../../support/lease-world.js';
import { TestHost, ValkeyWorld } from '../../support/valkey-world.js';
import { exchangePlain, type PlainAsk } from '../../support/plain-asks.js';
import { newSeed, randomOf } from '../../support/random.js';

const SHARES = 3;
const LIMIT = 60;
const EXPIRY_MS = 900_000;
const STEP_MS = 300;

interface Permit {
  readonly tick: number;
  readonly validMs: number;
  left: number;
}

/** One node, with the permits that it has; `cut` is the wire. */
class Member {
  cut = false;
  /** While it is cut: requests are sent, and none arrives. */
  isDeaf = false;
  readonly share: EqualShare;
  readonly permits: Permit[] = [];

  constructor(
    authority: Coordinator,
    readonly clock: Clock,
  ) {
    const through = <Result>(call: () => Promise<Result>): Promise<Result> =>
      this.cut ? Promise.reject(this.isDeaf ? unanswered() : offline()) : call();
    this.share = new EqualShare({
      coordinator: {
        join: () => through(() => authority.join()),
        exchange: (asks) => through(() => authority.exchange(asks)),
        view: (subjects) => authority.view(subjects),
        leave: () => through(() => authority.leave()),
        close: () => authority.close(),
      },
      clock,
      shares: SHARES,
      nodeExpiryMs: EXPIRY_MS,
    });
  }

  /** Uses up to `count`; returns how many it could. */
  async use(count: number): Promise<number> {
    const nowMs = this.clock.monotonicMs();
    if (count > 0) {
      try {
        const { answers } = await exchangePlain(this.share, [minuteAsk(0, count)]);
        const { granted, tick, validMs } = answers[0]!.minute!;
        this.permits.push({ tick, validMs: nowMs + validMs, left: granted });
      } catch (error) {
        if (!(error instanceof CoordinatorLost)) throw error;
      }
    }
    let used = 0;
    for (const permit of this.permits) {
      if (permit.validMs <= nowMs) continue;
      const taken = Math.min(permit.left, count - used);
      permit.left -= taken;
      used += taken;
    }
    return used;
  }
}

const offline = (): CoordinatorLost =>
  new CoordinatorLost('unreachable', 'cut', { cause: new ValkeyError('offline', 'cut') });

const unanswered = (): CoordinatorLost =>
  new CoordinatorLost('unreachable', 'lost', { cause: new ValkeyError('late', 'lost') });

function minuteAsk(least: number, most: number): PlainAsk {
  return {
    scope: 'acct_1',
    limits: { requestsPerMinute: LIMIT },
    minute: { least, most, forMs: 16_000, returned: [] },
  };
}

interface Group {
  readonly world: ValkeyWorld;
  readonly members: readonly Member[];
}

async function startGroup(t: Test): Promise<Group> {
  const server = await startRedis(t);
  const world = new ValkeyWorld(() => server.url, 1, { equalShares: SHARES, nodeExpiryMs: EXPIRY_MS });
  t.teardown(() => world.close());
  const clock = {
    monotonicMs: () => asMonotonicMs(world.nowMs),
    wallMs: () => asWallMs(world.nowMs),
  };
  const members = await Promise.all(
    ['a', 'b', 'c'].map(async (host) => {
      const node = identity(host);
      return new Member(await world.connect(node, new TestHost()), clock);
    }),
  );
  for (const { share } of members) {
    await share.join();
    t.teardown(() => share.close());
  }
  return { world, members };
}

void t.test(
  'a node that is cut off waits, has its share, and loses it with the first contact',
  NO_REDIS,
  async (t) => {
    const { world, members } = await startGroup(t);
    const [first, second, third] = members as [Member, Member, Member];
    first.cut = true;
    await t.rejects(exchangePlain(first.share, [minuteAsk(1, 1)]), {
      code: 'authority_lost',
      reason: 'unreachable',
    });
    const beat = async (): Promise<void> => {
      await second.share.exchange([]);
      await third.share.exchange([]);
    };
    for (let waitedMs = 0; waitedMs < SHARE_BEGINS_MS; waitedMs += 5_000) {
      world.nowMs += 5_000;
      await beat();
    }
    const { answers } = await exchangePlain(first.share, [minuteAsk(20, 60)]);
    t.equal(answers[0]!.minute!.granted, LIMIT / SHARES);
    t.ok(first.share.isAlone);
    t.match((await exchangePlain(second.share, [minuteAsk(41, 41)])).answers[0]!.minute, {
      granted: 0,
      remaining: 40,
    });
    const money = { outstanding: asPicoUnits(0n), least: asPicoUnits(1n), most: asPicoUnits(1n) };
    t.match(await exchangePlain(first.share, [{ ...minuteAsk(0, 0), money }]), {
      answers: [{ isUnknown: true, money: { granted: 0n, heldByOthers: true } }],
    });
    first.cut = false;
    world.nowMs += 3_000;
    await eventually('contact', async () => {
      await first.share.exchange([]);
      return first.share.isAlone ? undefined : true;
    });
    t.match((await exchangePlain(second.share, [minuteAsk(41, 41)])).answers[0]!.minute, {
      granted: 0,
      remaining: 40,
    });
    first.cut = true;
    await t.rejects(exchangePlain(first.share, [minuteAsk(1, 1)]), {
      code: 'authority_lost',
      reason: 'unreachable',
    });
  },
);

void t.test("the calls' node leaves though the fallback's cannot", async (t) => {
  const left: string[] = [];
  const leaves = (name: string, error?: Error) => ({
    leave: () => {
      left.push(name);
      return error === undefined ? Promise.resolve() : Promise.reject(error);
    },
  });
  const lost = offline();
  const share = new EqualShare({
    coordinator: leaves('calls') as unknown as Coordinator,
    clock: { monotonicMs: () => asMonotonicMs(0), wallMs: () => asWallMs(0) },
    shares: SHARES,
    nodeExpiryMs: EXPIRY_MS,
    openFallback: () => leaves('fallback', lost) as unknown as FallbackCoordinator,
  });
  await t.rejects(share.leave(), lost);
  t.same(left, ['fallback', 'calls']);
});

void t.test(
  'a page of unreported grants that arrives counts as heard though the next does not',
  async (t) => {
    let nowMs = 0;
    let isLost = false;
    const pages: number[] = [];
    const left: string[] = [];
    const share = new EqualShare({
      coordinator: {
        join: () => Promise.resolve(asWallMs(0)),
        exchange: (asks: readonly LeaseAsk[]) => {
          if (isLost || pages.length > 0) return Promise.reject(offline());
          pages.push(asks.length);
          return Promise.resolve({ wallMs: asWallMs(0), replies: [] });
        },
        leave: () => Promise.resolve(left.push('calls')),
      } as unknown as Coordinator,
      clock: { monotonicMs: () => asMonotonicMs(nowMs), wallMs: () => asWallMs(nowMs) },
      shares: SHARES,
      nodeExpiryMs: EXPIRY_MS,
      timers: { soon: () => undefined, after: () => () => undefined },
    });
    await share.join();
    isLost = true;
    nowMs = SHARE_BEGINS_MS;
    const asks = Array.from({ length: EXCHANGE_ASKS_MAX + 1 }, (_, n) => ({ scope: `acct_${n}` }));
    t.ok((await share.exchange(asks)).isAlone);
    t.equal(share.silentMs, SHARE_BEGINS_MS, 'what was not sent was not heard');
    isLost = false;
    await t.rejects(share.leave(), { code: 'authority_lost' });
    t.same(pages, [EXCHANGE_ASKS_MAX]);
    t.equal(share.silentMs, 0);
    t.same(left, [], 'and a node that could not report all does not leave');
  },
);

void t.test('with a connection again nothing waits for the next try', async (t) => {
  const time = new EventTime();
  let isLost = false;
  let exchanges = 0;
  const reply = <Reply>(value: Reply): Promise<Reply> =>
    isLost ? Promise.reject(offline()) : Promise.resolve(value);
  const share = new EqualShare({
    coordinator: {
      join: () => reply(asWallMs(0)),
      exchange: () => {
        exchanges += 1;
        return reply({ wallMs: asWallMs(0), replies: [] });
      },
    } as unknown as Coordinator,
    clock: time.clock,
    shares: 0,
    nodeExpiryMs: EXPIRY_MS,
    random: () => 0.99,
    timers: { soon: (act) => void time.after(0, act), after: (ms, act) => time.after(ms, act) },
  });
  let backs = 0;
  share.onBack = () => (backs += 1);
  share.onConnected();
  t.equal(backs, 1, 'before it has joined: whoever joins is told');
  await share.join();
  share.onConnected();
  t.equal(exchanges, 0, 'nothing was disturbed');
  isLost = true;
  await t.rejects(share.exchange([]), { code: 'authority_lost' });
  await time.run(10_000);
  t.ok(exchanges >= 10 && exchanges <= 30, `${exchanges} tries in 10 s`);
  isLost = false;
  const before = exchanges;
  share.onConnected();
  await time.run(0);
  await new Promise(setImmediate);
  t.equal(exchanges, before + 1);
  t.equal(backs, 2);
  share.onConnected();
  await time.run(2_000);
  t.ok(exchanges <= before + 2, 'and once more at the most');
});

void t.test('a request that never arrives postpones no expiry', NO_REDIS, async (t) => {
  const { world, members } = await startGroup(t);
  const [first, second, third] = members as [Member, Member, Member];
  const pass = async (ms: number): Promise<void> => {
    for (let passedMs = 0; passedMs < ms; passedMs += 10_000) {
      world.nowMs += 10_000;
      await second.share.exchange([]);
      await third.share.exchange([]);
    }
  };
  await exchangePlain(first.share, [minuteAsk(0, 0)]);
  first.cut = true;
  await pass(EXPIRY_MS + SHARE_BEGINS_MS);
  first.isDeaf = true;
  await t.rejects(exchangePlain(first.share, [minuteAsk(1, 1)]), { code: 'authority_lost' });
  first.isDeaf = false;
  await pass(SHARE_BEGINS_MS);
  t.match((await exchangePlain(second.share, [minuteAsk(LIMIT, LIMIT)])).answers[0]!.minute, {
    granted: LIMIT,
  });
  await t.rejects(
    exchangePlain(first.share, [minuteAsk(1, 1)]),
    { code: 'authority_lost' },
    'it has no share',
  );
});

void t.test(
  'hosts of which one has more processes, or refuses: the share of a silent node is its own',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    // Two hosts: shares of a half each, which the first divides by its ten processes; a third one has none.
    for (const [equalShares, why] of [
      [20, 'more processes'],
      [0, 'refuses'],
    ] as const) {
      await server.command('FLUSHALL');
      const world = new ValkeyWorld(() => server.url, 1, { nodeExpiryMs: EXPIRY_MS });
      t.teardown(() => world.close());
      const here = await world.connect(identity('a'), new TestHost(), { equalShares });
      const silent = await world.connect(identity('b'), new TestHost(), { equalShares: 2 });
      for (const node of [here, silent]) await node.join();
      for (const node of [here, silent]) await node.exchange([]);
      const heldBack = async (): Promise<number> =>
        LIMIT - (await exchangePlain(here, [minuteAsk(0, 0)])).answers[0]!.minute!.remaining;
      const pass = async (ms: number): Promise<void> => {
        for (let passedMs = 0; passedMs < ms; passedMs += 5_000) {
          world.nowMs += 5_000;
          await here.exchange([]);
        }
      };
      t.equal(await heldBack(), 0, why);
      await pass(SILENT_MS + 1);
      t.equal(await heldBack(), LIMIT / 2, why);
      for (let passedMs = 0; passedMs < QUARANTINE_MS; passedMs += SILENT_MS) {
        await silent.exchange([]);
        t.equal(await heldBack(), LIMIT / 2, `${why}, ${passedMs} ms after it is back`);
        await pass(SILENT_MS);
      }
      t.equal(await heldBack(), 0, `${why}, long after it is back`);
    }
  },
);

void t.test('random cuts and random use', NO_REDIS, async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const below = (end: number): number => Math.floor(next() * end);
  const { world, members } = await startGroup(t);
  const used: { atMs: number; count: number }[] = [];
  let [worst, alone, total] = [0, 0, 0];
  for (let step = 0; step < 2_500; step++) {
    // Steps differ in length, and cuts are as long as shares take to begin.
    world.nowMs += below(4) === 0 ? STEP_MS : below(20) * STEP_MS;
    for (const member of members) {
      if (below(150) === 0) member.cut = !member.cut;
      member.isDeaf = below(40) === 0;
      const count = await member.use(below(3) === 0 ? below(40) : 0);
      if (count > 0) used.push({ atMs: world.nowMs, count });
      if (member.share.isAlone) alone += count;
      total += count;
    }
    while (used[0] !== undefined && used[0].atMs <= world.nowMs - 60_000) used.shift();
    worst = Math.max(
      worst,
      used.reduce((sum, { count }) => sum + count, 0),
    );
  }
  t.comment(`${total} used, ${alone} of them alone, at most ${worst} in 60 s`);
  t.ok(worst <= LIMIT, `${worst}`);
  t.ok(alone > 0, 'shares were used');
});
