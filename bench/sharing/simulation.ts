/**
 * Many hosts on one coordinator, by a clock that jumps from event to event: what the coordinator has to
 * carry, what is admitted of what one limiter alone would admit, and whether a limit is ever passed. Ledgers
 * and keepers are the real ones; the coordinator is the reference, the network is played. Requests go to
 * hosts at random, which is the worst for leases.
 */
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { MemoryCoordinator } from '../../test/support/memory-coordinator.js';
import { EventTime, LeaseNode } from '../../test/support/lease-world.js';
import { randomOf } from '../../test/support/random.js';

export interface SimulationOptions {
  readonly hosts: number;
  readonly accounts: number;
  /** Of all accounts together; an account's share follows Zipf's law with exponent 1. */
  readonly requestsPerSecond: number;
  readonly seconds: number;
  readonly seed: number;
  /** Of every account; by its rank where it is left out. */
  readonly requestsPerMinute?: number | undefined;
  /** Before `measuredFromSeconds` there come so many requests a second instead. */
  readonly requestsPerSecondBefore?: number;
  /** Requests before are not in `admittedShare`. Default 0. */
  readonly measuredFromSeconds?: number;
  /** The part of all requests that the first host gets. Default: as much as each other. */
  readonly firstShare?: number;
}

export interface SimulationResult {
  readonly requests: number;
  readonly accountsUsed: number;
  readonly exchangesPerSecond: number;
  /** Asks of one account each, in all exchanges. */
  readonly asksPerSecond: number;
  readonly asksPerRequest: number;
  /** Of what one limiter for all hosts would have admitted of the same requests. */
  readonly admittedShare: number;
  /** Requests that were refused by that limiter too, of all. */
  readonly refusedShare: number;
  /** Of any account in any 60 s, beyond its limit. */
  readonly overshootMax: number;
  /** Of what was admitted: how many waited for the coordinator. */
  readonly waitedShare: number;
}

const MINUTE_MS = 60_000;
const HOLD = asPicoUnits(1_000n);
const COST = asPicoUnits(300n);
const CALL_MS = 500;
const FLUSH_MS = 1_000;

/** A few large customers, many small ones; the largest of each kind want more than they may. */
function requestsPerMinuteOf(rank: number): number {
  if (rank < 10) return 10_000;
  return rank < 1_000 ? 600 : 60;
}

/** Ranks by Zipf's law: the sum of weights, and where in it a random number falls. */
function zipf(count: number, random: () => number): () => number {
  const sums = new Float64Array(count);
  let sum = 0;
  for (let rank = 0; rank < count; rank++) sums[rank] = sum += 1 / (rank + 1);
  return () => {
    const wanted = random() * sum;
    let low = 0;
    let high = count - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sums[middle]! < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  };
}

/** What one limiter admits: a request where fewer than the limit were admitted in the 60 s before it. */
function idealOf(arrivalsMs: readonly number[], limit: number): number[] {
  const admittedMs: number[] = [];
  for (const atMs of arrivalsMs) {
    const oldest = admittedMs[admittedMs.length - limit];
    if (oldest === undefined || oldest <= atMs - MINUTE_MS) admittedMs.push(atMs);
  }
  return admittedMs;
}

function countFrom(timesMs: readonly number[], fromMs: number): number {
  return timesMs.reduce((count, atMs) => (atMs >= fromMs ? count + 1 : count), 0);
}

function mostInMinute(admittedMs: readonly number[]): number {
  let most = 0;
  let first = 0;
  for (const [index, atMs] of admittedMs.entries()) {
    while (admittedMs[first]! <= atMs - MINUTE_MS) first++;
    most = Math.max(most, index - first + 1);
  }
  return most;
}

interface Host {
  readonly node: LeaseNode;
  /** By rank: the account's index here, given when it is first seen. */
  readonly indices: Map<number, number>;
  readonly ranks: number[];
}

export async function simulate(options: SimulationOptions): Promise<SimulationResult> {
  const { hosts: hostCount, requestsPerSecond, seconds } = options;
  const { requestsPerSecondBefore = requestsPerSecond, firstShare = 1 / hostCount } = options;
  const fromMs = (options.measuredFromSeconds ?? 0) * 1_000;
  const time = new EventTime();
  const random = randomOf(options.seed);
  const rankOf = zipf(options.accounts, random);
  const shared = new MemoryCoordinator(time.clock);
  // Twice what a host is to see of different accounts.
  // Four times as many calls as are under way in the mean.
  const slots = Math.max(500, Math.ceil((requestsPerSecond * CALL_MS * 4) / 1_000 / hostCount));
  const limitOf = (rank: number): number => options.requestsPerMinute ?? requestsPerMinuteOf(rank);
  const accountsMax = Math.max(256, Math.ceil((requestsPerSecond * seconds * 2) / hostCount));
  const hosts = Array.from({ length: hostCount }, (_, index): Host => {
    const indices = new Map<number, number>();
    const ranks: number[] = [];
    const subjects = {
      accountsMax,
      subjectOf: (account: number) => `acct_${ranks[account]}`,
      limitsOf: (account: number) => ({
        requestsPerMinute: limitOf(ranks[account]!),
        callsPerDay: 1_000_000,
        callsInFlight: 100_000,
      }),
    };
    const identity = { host: `host${index}`, slot: 0, incarnation: 'one' };
    const node = new LeaseNode(time, shared, identity, subjects, random, undefined, slots);
    return { node, indices, ranks };
  });
  for (const { node } of hosts) {
    void node.keeper.start();
    const flush = (): void => {
      node.flush();
      time.after(FLUSH_MS, flush);
    };
    time.after(FLUSH_MS * random(), flush);
  }
  const startMs = time.nowMs;
  const arrivedMs = new Map<number, number[]>();
  const admittedMs = new Map<number, number[]>();
  const counts = { requests: 0, waited: 0 };
  const arrive = (): void => {
    const perSecond = time.nowMs - startMs < fromMs ? requestsPerSecondBefore : requestsPerSecond;
    time.after((-Math.log(1 - random()) * 1_000) / perSecond, () => {
      const isFirst = random() < firstShare;
      request(hosts[isFirst ? 0 : 1 + Math.floor(random() * (hostCount - 1))]!, rankOf());
      arrive();
    });
  };
  const request = ({ node, indices, ranks }: Host, rank: number): void => {
    let index = indices.get(rank);
    if (index === undefined) {
      index = ranks.push(rank) - 1;
      indices.set(rank, index);
    }
    if (!arrivedMs.has(rank)) {
      shared.setCredited(`acct_${rank}`, asPicoUnits(10n ** 15n));
      arrivedMs.set(rank, []);
      admittedMs.set(rank, []);
    }
    const account = asAccountIndex(index);
    const beganMs = time.nowMs;
    arrivedMs.get(rank)!.push(beganMs);
    counts.requests += 1;
    const onMinute = (): void => {
      admittedMs.get(rank)!.push(time.nowMs);
    };
    void node.call(account, HOLD, onMinute).then(({ slot }) => {
      if (time.nowMs > beganMs) counts.waited += 1;
      if (slot !== undefined) time.after(CALL_MS, () => node.endCall(account, slot, COST));
    });
  };
  arrive();
  await time.run(seconds * 1_000);

  let ideal = 0;
  let admitted = 0;
  let overshootMax = 0;
  for (const [rank, arrivals] of arrivedMs) {
    const limit = limitOf(rank);
    ideal += countFrom(idealOf(arrivals, limit), startMs + fromMs);
    admitted += countFrom(admittedMs.get(rank)!, startMs + fromMs);
    overshootMax = Math.max(overshootMax, mostInMinute(admittedMs.get(rank)!) - limit);
  }
  const exchanges = hosts.reduce((sum, { node }) => sum + node.authority.exchanges, 0);
  const asks = hosts.reduce((sum, { node }) => sum + node.authority.asks, 0);
  return {
    requests: counts.requests,
    accountsUsed: arrivedMs.size,
    exchangesPerSecond: exchanges / seconds,
    asksPerSecond: asks / seconds,
    asksPerRequest: asks / counts.requests,
    admittedShare: admitted / ideal,
    refusedShare: 1 - ideal / counts.requests,
    overshootMax: Math.max(0, overshootMax),
    waitedShare: counts.waited / counts.requests,
  };
}
