/** Nodes with random demand over a bad network: no limit is ever exceeded, and little of it lies unused. */
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { EventTime, GOOD_NETWORK, LeaseNode, type Network } from '../../support/lease-world.js';
import { randomOf } from '../../support/random.js';

const ACCOUNT = asAccountIndex(0);
const SUBJECT = 'acct_law';
const MINUTE_MS = 60_000;

interface Shape {
  readonly nodes: number;
  readonly limit: number;
  readonly perSecond: readonly number[];
  readonly seconds: number;
  readonly network?: Network;
  readonly seed: number;
}

/** When each request of the minute was admitted, over all nodes. */
async function admissions(shape: Shape): Promise<number[]> {
  const time = new EventTime();
  const random = randomOf(shape.seed);
  const shared = new MemoryCoordinator(time.clock);
  shared.setCredited(SUBJECT, asPicoUnits(10n ** 18n));
  const limits = { requestsPerMinute: shape.limit, callsPerDay: 10_000_000, callsInFlight: 100_000 };
  const admittedMs: number[] = [];
  const nodes = Array.from(
    { length: shape.nodes },
    (_, index) =>
      new LeaseNode(
        time,
        shared,
        { host: `host${index}`, slot: 0, incarnation: 'one' },
        { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => limits },
        random,
        shape.network ?? GOOD_NETWORK,
        20_000,
      ),
  );
  const arrive = (node: LeaseNode, perSecond: number): void => {
    time.after((-Math.log(1 - random()) * 1_000) / perSecond, () => {
      void node
        .call(ACCOUNT, asPicoUnits(1_000n), () => admittedMs.push(time.nowMs))
        .then(({ slot }) => {
          if (slot !== undefined) time.after(50, () => node.endCall(ACCOUNT, slot, asPicoUnits(10n)));
        });
      arrive(node, perSecond);
    });
  };
  for (const [index, node] of nodes.entries()) {
    void node.keeper.start();
    const perSecond = shape.perSecond[index % shape.perSecond.length]!;
    if (perSecond > 0) arrive(node, perSecond);
  }
  await time.run(shape.seconds * 1_000);
  return admittedMs;
}

/** The most that were admitted in any span of 60 s. */
function mostInMinute(admittedMs: readonly number[]): number {
  let most = 0;
  let first = 0;
  for (const [index, atMs] of admittedMs.entries()) {
    while (admittedMs[first]! <= atMs - MINUTE_MS) first++;
    most = Math.max(most, index - first + 1);
  }
  return most;
}

const perMinuteOf = (admittedMs: readonly number[], seconds: number): number =>
  (admittedMs.length * 60) / seconds;

/** Each node's part of what all ask for. */
const DEMANDS = [
  { name: 'all of four nodes hammer', parts: [0.25, 0.25, 0.25, 0.25] },
  { name: 'one of four nodes has 97 % of the demand', parts: [0.97, 0.01, 0.01, 0.01] },
];
/**
 * How many times the limit they ask for. Of the largest less: each request is played, most of them a refusal.
 */
const hammerTimesOf = (limit: number): number => (limit > 1_000 ? 3 : 8);
const WINDOWS = 3;
const NETWORKS = [
  { way: 'a good network', network: GOOD_NETWORK },
  { way: 'a network that loses every tenth exchange', network: { delayMs: 5, lost: 0.05, doubled: 0 } },
];

for (const { name, parts } of DEMANDS)
  for (const { way, network } of NETWORKS)
    void t.test(`three windows, ${name}, over ${way}`, async (t) => {
      const seconds = (WINDOWS * MINUTE_MS) / 1_000;
      for (const limit of [5, 20, 60, 600, 6_000]) {
        const perSecond = parts.map((part) => (part * limit * hammerTimesOf(limit)) / 60);
        const admitted = await admissions({ nodes: 4, limit, perSecond, seconds, network, seed: limit });
        const share = perMinuteOf(admitted, seconds) / limit;
        t.comment(`${limit}: ${(share * 100).toFixed(1)} % admitted, at most ${mostInMinute(admitted)}`);
        t.ok(mostInMinute(admitted) <= limit, `never above ${limit}`);
        t.ok(share >= (limit < 60 ? 0.8 : 0.95), `${share} of ${limit}`);
      }
    });

void t.test('over a bad network the limit holds', async (t) => {
  const seed = Number(process.env.TOLLGATE_SEED ?? 20_260_105);
  t.comment(`seed ${seed}`);
  const network = { delayMs: 40, lost: 0.1, doubled: 0.2 };
  for (const limit of [5, 60, 600]) {
    const shape = { nodes: 5, limit, perSecond: [limit / 40, limit / 20, 0.2], seconds: 200, network, seed };
    const admitted = await admissions(shape);
    t.comment(`${limit}: ${((perMinuteOf(admitted, 200) / limit) * 100).toFixed(1)} % admitted`);
    t.ok(mostInMinute(admitted) <= limit, `${mostInMinute(admitted)} of ${limit}`);
    t.ok(admitted.length > limit, 'and something is admitted');
  }
});
