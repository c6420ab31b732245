/**
 * The ledger's way to keep money against others: nanoseconds for a hold and its settling, on 1 account and on
 * 1,000, with 1, 2 and 4 threads. First each is checked against a model on one thread; then every threaded
 * run is checked against the law, available + spent = credited, and its verdict printed. Closed loop; the
 * time is each thread's own on a CPU (Linux).
 *
 *     node build/bench/micro/ledger-contenders.js [--smoke]
 *
 * What to read in it: without atomics money is made and lost. One mutex is right, and dearer with every
 * thread. Paired words are right only under a lock, and a thread that is put aside while it holds one stops
 * its account for that long.
 */
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { unitRandom } from '../support/account-order.js';
import { createMoneyBuffers, MONEY_KEEPERS, type MoneyBuffers } from '../support/money-contenders.js';

interface Job {
  readonly keeper: number;
  readonly buffers: MoneyBuffers;
  readonly accounts: number;
  readonly rounds: number;
  readonly thread: number;
  readonly gate: SharedArrayBuffer;
}

const CREDIT = 1_000_000_000_000_000n;
const HOLD = 1_000n;
const COST = 700n;
const THREADS = [1, 2, 4];
const START_TIMEOUT_MS = 60_000;
const SEED = 7;

function cpuNs(): number {
  return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]);
}

/**
 * Throws where a keeper and the model differ: amounts beyond 32 bits, refusals at the edge, whole and partial
 * costs.
 */
function checkAlone(): void {
  for (const { name, create } of MONEY_KEEPERS) {
    const random = unitRandom(SEED);
    const keeper = create(createMoneyBuffers(2));
    const model = [0, 1].map(() => ({ available: CREDIT, spent: 0n }));
    keeper.set(0, CREDIT);
    keeper.set(1, CREDIT);
    for (let n = 0; n < 20_000; n++) {
      const account = n % 2;
      const record = model[account]!;
      const amount =
        n % 10 === 0 ? record.available + BigInt((n % 3) - 1) : BigInt(Math.floor(random() * 1e11));
      const expected = amount <= record.available;
      let agrees = keeper.hold(account, amount) === expected;
      if (expected) {
        const cost = n % 10 === 0 ? 0n : BigInt(Math.floor(random() * Number(amount)));
        keeper.settle(account, amount, cost);
        record.available -= cost;
        record.spent += cost;
      }
      agrees &&= keeper.available(account) === record.available && keeper.spent(account) === record.spent;
      if (!agrees) throw new Error(`${name} is wrong on one thread, at operation ${n}`);
    }
  }
}

/** One thread's part: a warm-up of a tenth, then the rounds; returns nanoseconds a round. */
function spend({ keeper: index, buffers, accounts, rounds, thread, gate }: Job): number {
  const keeper = MONEY_KEEPERS[index]!.create(buffers);
  if (!MONEY_KEEPERS[index]!.shared)
    for (let account = 0; account < accounts; account++) keeper.set(account, CREDIT);
  const random = unitRandom(SEED + thread);
  const order = Uint32Array.from({ length: 65_536 }, () => Math.floor(random() * accounts));
  const run = (count: number): void => {
    for (let n = 0; n < count; n++) {
      const account = order[n & 65_535]!;
      if (keeper.hold(account, HOLD)) keeper.settle(account, HOLD, COST);
    }
  };
  run(rounds / 10);
  parentPort!.postMessage('ready');
  Atomics.wait(new Int32Array(gate), 0, 0, START_TIMEOUT_MS);
  const startNs = cpuNs();
  run(rounds);
  return (cpuNs() - startNs) / rounds;
}

async function runThreads(job: Omit<Job, 'thread' | 'gate'>, threads: number): Promise<number> {
  const gate = new Int32Array(new SharedArrayBuffer(4));
  let ready = 0;
  const results = await Promise.all(
    Array.from(
      { length: threads },
      (_, thread) =>
        new Promise<number>((resolve, reject) => {
          const worker = new Worker(fileURLToPath(import.meta.url), {
            workerData: { ...job, thread, gate: gate.buffer },
          });
          worker.once('error', reject);
          worker.on('message', (message: 'ready' | number) => {
            if (message !== 'ready') {
              resolve(message);
              return;
            }
            if (++ready < threads) return;
            Atomics.store(gate, 0, 1);
            Atomics.notify(gate, 0);
          });
        }),
    ),
  );
  return results.reduce((sum, ns) => sum + ns, 0) / threads;
}

/** What the law says of a run: that it holds, or how much money is there too much or too little. */
function verdict(keeper: number, buffers: MoneyBuffers, accounts: number, calls: bigint): string {
  const { create, shared } = MONEY_KEEPERS[keeper]!;
  if (!shared) return 'one thread only';
  const books = create(buffers);
  let [there, spent] = [0n, 0n];
  for (let account = 0; account < accounts; account++) {
    spent += books.spent(account);
    there += books.available(account) + books.spent(account);
  }
  const [gained, uncharged] = [there - CREDIT * BigInt(accounts), calls * COST - spent];
  return gained === 0n && uncharged === 0n
    ? 'the law holds'
    : `WRONG: ${gained} too much, ${uncharged} not charged`;
}

async function main(smoke: boolean): Promise<void> {
  const rounds = smoke ? 20_000 : 1_000_000;
  checkAlone();
  console.log(
    `${cpus().length} x ${cpus()[0]?.model ?? 'unknown'}, node ${process.version}, ${rounds} rounds a thread`,
  );
  for (const accounts of [1, 1_000]) {
    for (const [keeper, { name, create, shared }] of MONEY_KEEPERS.entries()) {
      for (const threads of shared ? THREADS : [1]) {
        const buffers = createMoneyBuffers(accounts);
        const books = create(buffers);
        for (let account = 0; account < accounts; account++) books.set(account, CREDIT);
        const ns = await runThreads({ keeper, buffers, accounts, rounds }, threads);
        const calls = BigInt(Math.floor(rounds * 1.1)) * BigInt(threads);
        console.log(
          `${String(accounts).padStart(5)} accounts  ${name.padEnd(31)} ${threads} threads ${ns.toFixed(0).padStart(6)} ns  ` +
            verdict(keeper, buffers, accounts, calls),
        );
      }
    }
  }
}

if (isMainThread) await main(process.argv.includes('--smoke'));
else parentPort!.postMessage(spend(workerData as Job));
