/**
 * Four threads want more than the limits give, all the time: never one call too many in any 60 seconds, never
 * one too few. The time lies in shared memory and moves when every thread has been refused, so hours pass in
 * seconds. Time that moves while threads are in the middle of a call is in ledger-window.test.ts and
 * unit/ledger/window.test.ts.
 *
 * In `npm test` each case makes some 80,000 attempts; with TOLLGATE_CRASH_FULL=1 (`npm run test:crash`)
 * 2,000,000 a thread.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { TICK_MS } from '#src/ledger/window.js';
import {
  COST,
  CREDIT,
  SPAN_TICKS,
  STEERING_BYTES,
  TICK,
  type SaturationJob,
  type SaturationReport,
} from '../fixtures/ledger-saturation.js';
import { stateOf } from '../fixtures/ledger-world.js';
import { newSeed } from '../support/random.js';

const FULL = process.env.TOLLGATE_CRASH_FULL === '1';
const THREADS = 4;
const ATTEMPTS = THREADS * (FULL ? 2_000_000 : 20_000);
const MINUTE_MS = 60_000;
/** What the issue asks for; the window's ticks make it 98.04 %. */
const SHARE_MIN = 0.98;

const sum = (numbers: Iterable<number>): number => {
  let total = 0;
  for (const number of numbers) total += number;
  return total;
};

/**
 * Whole spans: as many as the attempts allow, two at least. Each takes all permits once and is refused in
 * every tick.
 */
function spansOf(limits: Int32Array): number {
  const attemptsPerSpan = sum(limits) + limits.length * THREADS * SPAN_TICKS;
  return Math.max(2, Math.floor(ATTEMPTS / attemptsPerSpan));
}

/** The most calls admitted to an account within 51 ticks in a row, which is longer than a minute. */
function mostInASpan(counts: Int32Array, account: number, accounts: number): number {
  let [inside, most] = [0, 0];
  for (let place = account, tick = 0; place < counts.length; place += accounts, tick++) {
    inside += counts[place]!;
    if (tick >= SPAN_TICKS) inside -= counts[place - SPAN_TICKS * accounts]!;
    most = Math.max(most, inside);
  }
  return most;
}

/** From 1 to 1,000, evenly on a logarithmic scale, and one of a million. */
const mixed = Int32Array.from({ length: 1_000 }, (_, n) =>
  n === 0 ? (FULL ? 1_000_000 : 50_000) : Math.round(10 ** ((3 * n) / 999)),
);
const CASES: readonly { readonly name: string; readonly limits: Int32Array }[] = [
  ...(FULL ? [1, 60, 1_000, 100_000, 1_000_000] : [1, 1_000, 1_000_000]).map((limit) => ({
    name: `1 account of ${limit}`,
    limits: Int32Array.of(limit),
  })),
  { name: '1,000 accounts of 1', limits: new Int32Array(1_000).fill(1) },
  ...(FULL ? [{ name: '1,000 accounts of 60', limits: new Int32Array(1_000).fill(60) }] : []),
  { name: `1,000 accounts of 1 to ${Math.max(...mixed)}`, limits: mixed },
];

async function run(job: Omit<SaturationJob, 'thread'>): Promise<SaturationReport[]> {
  const steering = new Int32Array(job.steering);
  steering[TICK] = -1;
  const workers = Array.from(
    { length: job.threads },
    (_, thread) =>
      new Worker(new URL('../fixtures/ledger-saturation.worker.js', import.meta.url), {
        workerData: { ...job, thread } satisfies SaturationJob,
      }),
  );
  await Promise.all(workers.map((worker) => once(worker, 'message')));
  const reports = Promise.all(
    workers.map(async (worker) => {
      const [report] = (await once(worker, 'message')) as [SaturationReport];
      return report;
    }),
  );
  Atomics.store(steering, TICK, 0);
  Atomics.notify(steering, TICK);
  return reports;
}

for (const { name, limits } of CASES) {
  for (const shape of ['burst', 'spread'] as const) {
    // A million a minute takes two million attempts at least.
    if (!FULL && shape === 'spread' && sum(limits) === 1_000_000) continue;
    void t.test(`${name}, ${shape}`, { timeout: 900_000 }, async (t) => {
      const accounts = limits.length;
      const spans = spansOf(limits);
      const ticks = spans * SPAN_TICKS;
      const seed = newSeed();
      const buffers = createLedgerBuffers({ accountsMax: accounts, callsInFlightMax: THREADS });
      const ledger = new Ledger(buffers, new SystemClock());
      for (let account = 0; account < accounts; account++)
        ledger.openAccount(asAccountIndex(account), stateOf({ credited: asPicoUnits(CREDIT) }));
      const admitted = new SharedArrayBuffer(ticks * accounts * Int32Array.BYTES_PER_ELEMENT);
      const steering = new SharedArrayBuffer(STEERING_BYTES);
      const startMs = performance.now();
      const reports = await run({
        buffers,
        steering,
        admitted,
        limits,
        ticks,
        threads: THREADS,
        shape,
        seed,
      });

      const counts = new Int32Array(admitted);
      const total = sum(counts);
      const allowed = (sum(limits) * ticks * TICK_MS) / MINUTE_MS;
      let tooMany = 0;
      let wrongBooks = 0;
      for (const [index, limit] of limits.entries()) {
        if (mostInASpan(counts, index, accounts) > limit) tooMany++;
        const { spent, held, available, dayCalls } = ledger.snapshot(asAccountIndex(index));
        const calls = limit * spans;
        if (dayCalls !== calls || spent !== BigInt(calls) * COST) wrongBooks++;
        else if (held !== 0n || available + spent !== CREDIT) wrongBooks++;
      }
      t.comment(
        `seed ${seed}: ${sum(reports.map((report) => report.attempts))} attempts, ${total} admitted in ` +
          `${spans} spans, ${((100 * total) / allowed).toFixed(2)} % of what the limits allow, ` +
          `${(performance.now() - startMs).toFixed(0)} ms`,
      );
      t.equal(tooMany, 0, 'accounts that admitted more than their limit in a span');
      t.equal(total, sum(reports.map((report) => report.admitted)));
      t.equal(total, sum(limits) * spans, 'every permit of every span was taken');
      t.ok(total / allowed >= SHARE_MIN, 'at least 98 % of what the limits allow');
      t.equal(wrongBooks, 0, 'accounts whose day or money is not what their calls cost');
    });
  }
}
