/**
 * What a call costs beyond its hold and the lease is charged from the shared balance, once, and never beyond
 * it.
 */
import t from 'tap';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs, type PicoUnits } from '#src/core/units.js';
import type { JournalRecord } from '#src/ledger/journal-layout.js';
import { UncoveredCharges, COLLECT_FOR_MS, COLLECT_HELD_AFTER_MS } from '#src/sharing/uncovered-charges.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { EventTime, GOOD_NETWORK, LeaseNode, type Network } from '../../support/lease-world.js';
import { randomOf } from '../../support/random.js';

const ACCOUNT = asAccountIndex(0);
const SUBJECT = 'acct_uncovered';
const LIMITS = { requestsPerMinute: 1_000_000, callsPerDay: 1_000_000, callsInFlight: 1_000 };
const pico = (amount: bigint): PicoUnits => asPicoUnits(amount);

function world(credited: bigint, network: Network = GOOD_NETWORK) {
  const time = new EventTime();
  const shared = new MemoryCoordinator(time.clock);
  shared.setCredited(SUBJECT, pico(credited));
  const nodes = [0, 1].map((slot) => {
    const node = new LeaseNode(
      time,
      shared,
      { host: 'host', slot, incarnation: 'one' },
      { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => LIMITS },
      randomOf(slot + 1),
      network,
    );
    void node.keeper.start();
    const flush = (): void => {
      node.flush();
      time.after(200, flush);
    };
    flush();
    return node;
  }) as [LeaseNode, LeaseNode];
  const seen = () => shared.view([SUBJECT])[0]!;
  return { time, nodes, seen };
}

/** A call that costs so much; returns what was left uncovered at its end. */
async function costly(time: EventTime, node: LeaseNode, hold: bigint, cost: bigint): Promise<bigint> {
  let slot: number | undefined;
  // A call whose messages the network loses is tried again.
  while (slot === undefined) {
    void node.call(ACCOUNT, pico(hold)).then((call) => (slot = call.slot));
    await time.run(3_000);
  }
  const charged = node.endCall(ACCOUNT, slot, pico(cost));
  return cost - charged;
}

for (const [name, network] of [
  ['a good network', GOOD_NETWORK],
  ['a network that loses and doubles', { delayMs: 20, lost: 0.2, doubled: 0.3 }],
] as const)
  void t.test(`two processes: all of it is charged from what both share, over ${name}`, async (t) => {
    const { time, nodes, seen } = world(1_000_000n, network);
    const [first, second] = nodes;
    // The other process has a lease of its own, which comes back when it lies idle.
    t.equal(await costly(time, second, 1_000n, 10n), 0n);
    const uncovered = await costly(time, first, 1_000n, 700_003n);
    t.ok(uncovered > 0n, 'the lease does not cover it');
    first.keeper.setUncovered(ACCOUNT, pico(uncovered));
    await time.run(40_000);
    t.equal(seen().spent, 700_013n, 'to the last pico-unit');
    t.equal(seen().stocks.balance!.unused, 0n, 'and nothing is left out');
    t.match(first.ledger.snapshot(ACCOUNT), { uncovered: 0n, held: 0n });
    await time.run(40_000);
    t.equal(seen().spent, 700_013n, 'once');
  });

void t.test('what the balance does not cover stays uncovered', async (t) => {
  const { time, nodes, seen } = world(5_000n);
  const uncovered = await costly(time, nodes[0], 1_000n, 9_000n);
  nodes[0].keeper.setUncovered(ACCOUNT, pico(uncovered));
  await time.run(20_000);
  t.equal(seen().spent, 5_000n);
  t.equal(nodes[0].ledger.snapshot(ACCOUNT).uncovered, 4_000n);
  nodes[0].keeper.setUncovered(ACCOUNT, pico(0n));
  await time.run(5_000);
  const exchanges = nodes[0].authority.exchanges;
  await time.run(20_000);
  t.equal(nodes[0].authority.exchanges, exchanges, 'and nobody asks for it any more');
  t.equal(seen().spent, 5_000n);
});

const RECORD: JournalRecord = {
  request: 7,
  endedMs: asWallMs(1_000),
  promptTokens: 3,
  cachedTokens: 1,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 2,
  charged: pico(50n),
  uncovered: pico(30n),
  account: ACCOUNT,
  key: asKeyIndex(0),
  model: 0,
  requested: 0,
  outcome: 'served',
  source: 0,
  durationMs: 5,
};

function uncovered(holdsResponses: boolean) {
  const time = new EventTime();
  const asked: bigint[] = [];
  const written: JournalRecord[] = [];
  const lease = { left: 0n };
  const charges = new UncoveredCharges({
    setUncovered: (_account, amount) => asked.push(amount),
    charge: (_account, most) => {
      const taken = lease.left < most ? lease.left : most;
      lease.left -= taken;
      return pico(taken);
    },
    correct: (prefix, record) => {
      t.equal(prefix, 'req_0-', 'that of the call, whoever listens now');
      written.push(record);
    },
    holdsResponses: () => holdsResponses,
    timers: time,
  });
  return { time, asked, written, lease, charges };
}

void t.test('a record for each part that is collected, and no more than is due', async (t) => {
  const { time, asked, written, lease, charges } = uncovered(false);
  charges.record('req_0-', RECORD);
  charges.record('req_0-', { ...RECORD, request: 8, uncovered: pico(5n) });
  await time.run(0);
  t.equal(asked.at(-1), 35n);
  lease.left = 33n;
  t.equal(charges.collect(ACCOUNT, pico(35n)), 33n);
  lease.left = 100n;
  t.equal(charges.collect(ACCOUNT, pico(100n)), 2n);
  t.equal(charges.collect(ACCOUNT, pico(100n)), 0n);
  t.equal(lease.left, 98n);
  t.same(
    written.map(({ request, charged, uncovered }) => [request, charged, uncovered]),
    [
      [7, 30n, -30n],
      [8, 3n, -3n],
      [8, 2n, -2n],
    ],
  );
  t.match(written[0], { outcome: 'collected', promptTokens: 0, completionTokens: 0, durationMs: 0 });
  for (const record of written) charges.record('req_0-', record);
  await time.run(0);
  t.equal(asked.at(-1), 35n, 'what was collected is not asked');
});

void t.test('what is not there in time stays uncovered', async (t) => {
  const { time, asked, charges } = uncovered(false);
  charges.record('req_0-', RECORD);
  await time.run(COLLECT_FOR_MS);
  t.same(asked, [30n, 0n]);
});

void t.test('nothing is collected of a call that is taken back', async (t) => {
  const { time, asked, lease, charges } = uncovered(true);
  lease.left = 100n;
  charges.record('req_0-', RECORD);
  await time.run(COLLECT_HELD_AFTER_MS - 1);
  t.same(asked, [], 'while it may be taken back');
  charges.record('req_1-', { ...RECORD, outcome: 'reversed', uncovered: pico(-30n) });
  charges.record('req_0-', { ...RECORD, outcome: 'reversed', uncovered: pico(-30n) });
  t.equal(charges.collect(ACCOUNT, pico(100n)), 0n);
  await time.run(COLLECT_FOR_MS);
  t.same(asked, []);
});

void t.test('thousands at once take little time, and leave no timer', (t) => {
  const COUNT = 10_000;
  for (const accounts of [1, COUNT]) {
    const timers = new Set<() => void>();
    const runTimers = (): void => {
      for (const act of [...timers]) if (timers.delete(act)) act();
    };
    let corrections = 0;
    const charges = new UncoveredCharges({
      setUncovered: () => undefined,
      charge: (_account, most) => most,
      correct: () => (corrections += 1),
      holdsResponses: () => false,
      timers: {
        after: (_ms, act) => {
          timers.add(act);
          return () => timers.delete(act);
        },
      },
    });
    const recordOf = (request: number): JournalRecord => ({
      ...RECORD,
      request,
      account: asAccountIndex(request % accounts),
    });
    const beganMs = performance.now();
    for (let request = 0; request < COUNT; request++) charges.record('req_0-', recordOf(request));
    runTimers();
    for (let account = 0; account < accounts; account++) charges.collect(asAccountIndex(account), pico(30n));
    t.equal(corrections, accounts);
    t.equal(timers.size, COUNT - accounts, 'what is collected has no timer');
    for (let request = accounts; request < COUNT; request++)
      charges.record('req_0-', { ...recordOf(request), outcome: 'reversed', uncovered: pico(-30n) });
    t.equal(timers.size, 0);
    t.ok(performance.now() - beganMs < 1_000, 'each in the same time, however many there are');
  }
  t.end();
});
