/**
 * Day, slots and money over a bad network and with nodes that die: no limit and no balance is ever exceeded.
 */
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { EventTime, GOOD_NETWORK, LeaseNode, type Network } from '../../support/lease-world.js';
import { randomOf } from '../../support/random.js';

const ACCOUNT = asAccountIndex(0);
const SUBJECT = 'acct_stock';
const HOLD = asPicoUnits(1_000n);

interface Shape {
  readonly callsPerDay: number;
  readonly callsInFlight: number;
  readonly credited: bigint;
  readonly seconds: number;
  readonly network: Network;
  /** Each node dies so often, and comes back as another life. */
  readonly deathsPerSecond: number;
  readonly seed: number;
}

interface Found {
  served: number;
  admitted: number;
  /** Of admitted ones, those that failed and gave their call of the day back. */
  failed: number;
  inFlightMax: number;
  spent: bigint;
}

async function play(shape: Shape, check: (found: Found) => void): Promise<Found> {
  const time = new EventTime();
  const random = randomOf(shape.seed);
  const shared = new MemoryCoordinator(time.clock);
  shared.setCredited(SUBJECT, asPicoUnits(shape.credited));
  const { callsPerDay, callsInFlight } = shape;
  const limits = { requestsPerMinute: 1_000_000, callsPerDay, callsInFlight };
  const found: Found = { served: 0, admitted: 0, failed: 0, inFlightMax: 0, spent: 0n };
  let inFlight = 0;

  const live = (slot: number, life: number): void => {
    const node = new LeaseNode(
      time,
      shared,
      { host: 'host', slot, incarnation: `life${life}` },
      { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => limits },
      random,
      shape.network,
      5_000,
    );
    void node.keeper.start();
    let inFlightHere = 0;
    const arrive = (): void => {
      time.after(-Math.log(1 - random()) * 25, () => {
        if (node.dead) return;
        void node.call(ACCOUNT, HOLD).then(({ slot: callSlot }) => {
          if (callSlot === undefined || node.dead) return;
          found.admitted += 1;
          inFlight += 1;
          inFlightHere += 1;
          found.inFlightMax = Math.max(found.inFlightMax, inFlight);
          check(found);
          time.after(200 * random(), () => {
            if (node.dead) return;
            inFlight -= 1;
            inFlightHere -= 1;
            const fails = random() < 0.1;
            const cost = fails ? undefined : asPicoUnits(BigInt(Math.floor(random() * 1_200)));
            // A process that dies loses what it has not flushed: the law is about what was reported.
            found.spent += node.endCall(ACCOUNT, callSlot, cost);
            if (fails) found.failed += 1;
            else found.served += 1;
            node.flush();
            check(found);
          });
        });
        arrive();
      });
    };
    arrive();
    const lookForDeath = (): void => {
      time.after(1_000, () => {
        if (random() < shape.deathsPerSecond) {
          node.dead = true;
          inFlight -= inFlightHere;
          live(slot, life + 1);
        } else lookForDeath();
      });
    };
    lookForDeath();
  };
  for (let slot = 0; slot < 4; slot++) live(slot, 0);
  await time.run(shape.seconds * 1_000);
  return found;
}

const WIDE = { callsPerDay: 1_000_000, callsInFlight: 100_000, credited: 10n ** 15n };
const BAD: Network = { delayMs: 30, lost: 0.1, doubled: 0.2 };

for (const network of [GOOD_NETWORK, BAD]) {
  const name = network === BAD ? 'bad network, nodes die' : 'good network';
  const deathsPerSecond = network === BAD ? 0.02 : 0;
  const seed = Number(process.env.TOLLGATE_SEED ?? 5);
  const base = { ...WIDE, seconds: 40, network, deathsPerSecond, seed };

  void t.test(`the day: ${name}`, async (t) => {
    const callsPerDay = 1_000;
    const found = await play({ ...base, callsPerDay }, ({ admitted, failed }) => {
      if (admitted - failed > callsPerDay) t.fail(`${admitted - failed} of ${callsPerDay}`);
    });
    t.comment(`seed ${seed}`, found);
    if (network === BAD) t.ok(found.served > 500, `${found.served} served`);
    else t.ok(found.served >= 980, `${found.served} served: the last are in flight`);
  });

  void t.test(`calls in flight: ${name}`, async (t) => {
    const callsInFlight = 10;
    const found = await play({ ...base, callsInFlight, seconds: 20 }, ({ inFlightMax }) => {
      if (inFlightMax > callsInFlight) t.fail(`${inFlightMax} of ${callsInFlight}`);
    });
    t.comment(found);
    t.ok(found.inFlightMax >= 8, 'and nearly all are used');
    t.ok(found.served > 500);
  });

  void t.test(`money: ${name}`, async (t) => {
    const credited = 500_000n;
    const found = await play({ ...base, credited }, ({ spent }) => {
      if (spent > credited) t.fail(`${spent} of ${credited}`);
    });
    t.comment(found);
    t.ok(found.spent <= credited);
    // What is left does not cover one more hold, but for what dead nodes took along.
    if (network === GOOD_NETWORK) t.ok(credited - found.spent < HOLD, `${credited - found.spent} left`);
    else t.ok(found.spent > credited / 2n);
  });
}
