/**
 * Quotas of accounts and of a tree of groups over four processes of two hosts, with random needs: tokens of
 * the minute wherever one counts a call, calls in flight, and what days and months allow are never exceeded,
 * and little of them lies unused.
 */
import t from 'tap';
import { NO_QUOTAS, type QuotaLimits } from '#src/core/quotas.js';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { EventTime, GOOD_NETWORK, LeaseNode, type Network } from '../../support/lease-world.js';
import { randomOf } from '../../support/random.js';

const MINUTE_MS = 60_000;
const ACCOUNTS = 3;
const TOKENS_MAX = 1_000;
const BAD: Network = { delayMs: 30, lost: 0.1, doubled: 0.2 };
const NO_LIMITS = { requestsPerMinute: 0, callsPerDay: 1_000_000, callsInFlight: 100_000 };

interface Shape {
  readonly root: Partial<QuotaLimits>;
  readonly leaf?: Partial<QuotaLimits>;
  readonly quotas?: Partial<QuotaLimits>;
  readonly seconds: number;
  readonly callMs: number;
  readonly arrivalMs: number;
  readonly network: Network;
  readonly deathsPerSecond: number;
  readonly seed: number;
}

/** A call that was admitted. */
interface Call {
  readonly account: number;
  readonly hold: bigint;
  readonly held: number;
  used: number;
  endMs: number | undefined;
}

/** Counts, by all calls, what a scope has used. */
class Referee {
  readonly calls: Call[] = [];
  readonly most = { tokensPerMinute: 0, callsInFlight: 0 };
  tokens = 0;
  spent = 0n;
  readonly #of: (call: Call) => boolean;

  constructor(of: (call: Call) => boolean = () => true) {
    this.#of = of;
  }

  look(call: Call, nowMs: number): void {
    if (!this.#of(call)) return;
    if (!this.calls.includes(call)) this.calls.push(call);
    let [tokens, inFlight] = [0, 0];
    for (const { held, used, endMs } of this.calls) {
      if (endMs === undefined) inFlight += 1;
      if (endMs === undefined) tokens += held;
      else if (endMs > nowMs - MINUTE_MS) tokens += used;
    }
    this.most.tokensPerMinute = Math.max(this.most.tokensPerMinute, tokens);
    this.most.callsInFlight = Math.max(this.most.callsInFlight, inFlight);
  }
}

async function play(shape: Shape): Promise<{ root: Referee; accounts: Referee[]; admitted: number[] }> {
  const time = new EventTime();
  const random = randomOf(shape.seed);
  const shared = new MemoryCoordinator(time.clock);
  const subjectOf = (account: number): string => `acct_${account}`;
  for (let account = 0; account < ACCOUNTS; account++)
    shared.setCredited(subjectOf(account), asPicoUnits(10n ** 18n));
  const root = new Referee();
  const accounts = Array.from({ length: ACCOUNTS }, (_, at) => new Referee(({ account }) => account === at));
  const admitted: number[] = [];
  const groups = [
    { id: 'grp_root', limits: { ...NO_QUOTAS, ...shape.root } },
    { id: 'grp_leaf', parent: 0, limits: { ...NO_QUOTAS, ...shape.leaf } },
  ];
  const live = (slot: number, life: number): void => {
    const node = new LeaseNode(
      time,
      shared,
      { host: slot < 2 ? 'one' : 'two', slot: slot % 2, incarnation: `life${life}` },
      {
        accountsMax: ACCOUNTS,
        subjectOf,
        limitsOf: () => NO_LIMITS,
        quotas: { ...NO_QUOTAS, ...shape.quotas },
        groups,
      },
      random,
      shape.network,
      5_000,
    );
    void node.keeper.start();
    const here = new Set<Call>();
    const look = (call: Call): void => {
      for (const referee of [root, ...accounts]) referee.look(call, time.nowMs);
    };
    const end = (call: Call, used: number, cost: bigint): void => {
      here.delete(call);
      call.endMs = time.nowMs;
      call.used = used;
      for (const referee of [root, accounts[call.account]!]) {
        referee.tokens += used;
        referee.spent += cost;
      }
      look(call);
    };
    const arrive = (): void => {
      time.after(-Math.log(1 - random()) * shape.arrivalMs, () => {
        if (node.dead) return;
        const account = Math.floor(random() * ACCOUNTS);
        const held = 1 + Math.floor(random() * TOKENS_MAX);
        const hold = BigInt(held) * 1_500n;
        const asked = node.call(asAccountIndex(account), asPicoUnits(hold), () => undefined, held);
        void asked.then(({ slot: callSlot }) => {
          if (callSlot === undefined || node.dead) return;
          const call: Call = { account, hold, held, used: 0, endMs: undefined };
          here.add(call);
          admitted.push(time.nowMs);
          look(call);
          time.after(shape.callMs * random(), () => {
            if (node.dead) return;
            const used = Math.floor(random() * (held + 1));
            const cost = BigInt(used) * 1_500n;
            node.endCall(asAccountIndex(account), callSlot, asPicoUnits(cost), used);
            end(call, used, cost);
          });
        });
        arrive();
      });
    };
    arrive();
    const lookForDeath = (): void => {
      time.after(1_000, () => {
        if (random() >= shape.deathsPerSecond) lookForDeath();
        else {
          node.dead = true;
          // What its calls had used by then nobody knows: at most all.
          for (const call of here) end(call, call.held, call.hold);
          live(slot, life + 1);
        }
      });
    };
    lookForDeath();
  };
  for (let slot = 0; slot < 4; slot++) live(slot, 0);
  await time.run(shape.seconds * 1_000);
  return { root, accounts, admitted };
}

for (const network of [GOOD_NETWORK, BAD]) {
  const isBad = network === BAD;
  const name = isBad ? 'bad network, nodes die' : 'good network';
  const seed = Number(process.env.TOLLGATE_SEED ?? 7);
  const base = {
    network,
    deathsPerSecond: isBad ? 0.02 : 0,
    seed,
    seconds: 150,
    callMs: 3_000,
    arrivalMs: 60,
  };

  void t.test(`tokens of the minute: ${name}`, async (t) => {
    const [ofRoot, ofAccount] = [60_000, 30_000];
    const { root, accounts } = await play({
      ...base,
      root: { tokensPerMinute: ofRoot },
      quotas: { tokensPerMinute: ofAccount },
    });
    const share = root.tokens / ((ofRoot * base.seconds) / 60);
    t.comment(`${root.most.tokensPerMinute} of ${ofRoot} at most, ${(share * 100).toFixed(1)} % used`);
    t.ok(root.most.tokensPerMinute <= ofRoot, `${root.most.tokensPerMinute} of ${ofRoot}`);
    for (const { most } of accounts) t.ok(most.tokensPerMinute <= ofAccount, `${most.tokensPerMinute}`);
    if (!isBad) t.ok(share > 0.9, `${share} is used`);
    else t.ok(share > 0.5, `${share} is used`);
  });

  void t.test(`calls in flight of a group: ${name}`, async (t) => {
    const callsInFlight = 9;
    const { root, admitted } = await play({ ...base, seconds: 60, root: { callsInFlight } });
    t.ok(root.most.callsInFlight <= callsInFlight, `${root.most.callsInFlight} of ${callsInFlight}`);
    t.ok(root.most.callsInFlight >= callsInFlight - 1);
    t.comment(`${admitted.length} admitted`);
  });

  void t.test(`days and months: ${name}`, async (t) => {
    const [callsPerMonth, tokensPerDay, spendPerMonth] = [1_500, 400_000, 450_000_000n];
    for (const [leaf, check] of [
      [{ callsPerMonth }, ({ admitted }) => [admitted.length, callsPerMonth]],
      [{ tokensPerDay }, ({ root }) => [root.tokens, tokensPerDay]],
      [
        { spendPerMonth: asPicoUnits(spendPerMonth) },
        ({ root }) => [Number(root.spent), Number(spendPerMonth)],
      ],
    ] as const satisfies [Partial<QuotaLimits>, (of: Awaited<ReturnType<typeof play>>) => number[]][]) {
      const [used, limit] = check(await play({ ...base, seconds: 80, root: {}, leaf })) as [number, number];
      t.comment(`${Object.keys(leaf)[0]!}: ${used} of ${limit}`);
      t.ok(used <= limit, `${used} of ${limit}`);
      t.ok(used > limit * (isBad ? 0.6 : 0.98), `${used} of ${limit}`);
    }
  });
}
