/**
 * What the ledger and the key table cost: nanoseconds a call of `minute.take`, `admit`, both in a row (an
 * admission), `settle` and key `find`, over few and many accounts, on one thread and on more at once. Closed
 * loop, fixed orders, a checksum of what was admitted. The time is the thread's own on a CPU (Linux), so that
 * what else the machine does at that moment is not counted.
 *
 *     node build/bench/micro/ledger.js [--smoke]
 *
 * In which order accounts are used decides what a million of them cost, for their records (256 MB) do not fit
 * a cache:
 *
 * - `random`: each account as likely as any other, drawn anew for each call: what a gateway with a million
 *   equal customers does, and the hardest for it, for each call's line comes from memory (160 ns for one on
 *   the machine this was written on).
 * - `zipf`: the customer of rank n has 1/n of the first's calls: what customers are like.
 * - `stride`: every 7,919th account, around and around. No gateway does this; it hides half the cost, because
 *   the
 *   processor sees the constant distance and fetches ahead. Kept to compare with older figures.
 *
 * `settle` follows its `admit` after IN_FLIGHT others, as in a gateway with that many calls open. Then comes
 * a drain of 100,000 accounts that changed: the ledger's part of a flush. The last lines are calls of one
 * account with the plan's two limits, and with four quotas at three scopes: key, account and group.
 *
 * What was tried for a million accounts in random order, and did not pay (2 x AMD EPYC, node 20.20): the time
 * over that of 1,000 accounts is one line from memory, 145 to 160 ns, in each operation that is the first to
 * touch the account (a key's look-up pays the same for its digest), and a second one in `minute.take`, for
 * the marks, when the account's tick is over.
 * - Records of 48 or 64 bytes with the marks elsewhere: 145 and 154 ns a line against 164, for 48 MB are too
 *   much for a
 *   32 MB cache too.
 * - Huge pages (GLIBC_TUNABLES=glibc.malloc.hugetlb=1 does give them to shared buffers): 5 to 20 ns less.
 * - Plain loads of an account's line and of its marks ahead of the atomic ones, so that both come at once:
 *   within the noise.
 * - `credited` and `uncovered` behind the marks, so that all of an admission is in one line: within the
 *   noise.
 * - Plain stores in a reservation before its state word: 10 ns of 290. Of the 160 ns of `minute.take` that
 *   left, 113 are readings of clocks: two of the monotonic one, one of the calendar's.
 */
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { SystemClock } from '#src/core/clock.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asCallSlot, asGroupIndex, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers, type LedgerBuffers } from '#src/ledger/layout.js';
import { type AccountState, Ledger } from '#src/ledger/ledger.js';
import { digestOf } from '#src/registry/key-digest.js';
import { createKeyTableBuffers, KeyTable, type KeyTableBuffers } from '#src/registry/key-table.js';
import { accountOrder, ORDERS, type Order } from '../support/account-order.js';

interface World {
  readonly ledger: LedgerBuffers;
  readonly keys: KeyTableBuffers;
  readonly accounts: number;
  readonly rounds: number;
  readonly order: Order;
  /** One shared word: whether all may go. */
  readonly gate: SharedArrayBuffer;
  readonly thread: number;
}

const OPERATIONS = ['takeMinute', 'admit', 'admission', 'settle', 'find'] as const;
type Figures = Record<(typeof OPERATIONS)[number] | 'checksum', number>;

const GO = 0;
/** Threads wait for each other before they are measured, no longer than a start can take. */
const START_TIMEOUT_MS = 60_000;
/** Digests looked up: enough that the table, not the digests, decides what is in the cache. */
const DIGESTS = 65_536;
/** Calls open at once in each thread; the settings' default is 20,000 in a process. */
const IN_FLIGHT = 8_192;
const THREADS_MAX = 4;
/** Accounts of the flush that is measured. */
const DIRTY = 100_000;
const LIMIT = 1_000_000;
/** An account that can pay for all rounds. */
const RICH: AccountState = {
  credited: asPicoUnits(1_000_000_000_000_000n),
  spent: asPicoUnits(0n),
  uncovered: asPicoUnits(0n),
  dayNumber: 0,
  dayCalls: 0,
  planIndex: 0,
  active: true,
};
const HOLD = asPicoUnits(1_000n);
const COST = asPicoUnits(700n);
const PLAN = { callsPerDay: LIMIT, callsInFlightMax: LIMIT, quotas: NO_QUOTAS };
const NEEDS = { hold: HOLD, tokens: 0 };
const QUOTAS = {
  ...NO_QUOTAS,
  tokensPerMinute: 1_000_000_000_000,
  tokensPerDay: 1_000_000_000_000,
  tokensPerMonth: 1_000_000_000_000,
  spendPerMonth: asPicoUnits(1_000_000_000_000_000n),
};

/** Nanoseconds that the calling thread has been on a CPU. */
function cpuNs(): number {
  return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]);
}

function measure(world: World): Figures {
  const { rounds } = world;
  const ledger = new Ledger(world.ledger, new SystemClock());
  const keys = new KeyTable(world.keys);
  const order = accountOrder(world.order, world.accounts, rounds, world.thread + 1);
  const digests = Array.from({ length: DIGESTS }, (_, n) => digestOf(`key-${order[n % rounds]!}`));
  const firstSlot = world.thread * IN_FLIGHT;
  const gate = new Int32Array(world.gate);
  const figures: Figures = { takeMinute: 0, admit: 0, admission: 0, settle: 0, find: 0, checksum: 0 };

  /** Runs `work` for the rounds from `from` up to `to` and adds what it took. */
  const timed = (
    name: (typeof OPERATIONS)[number],
    from: number,
    to: number,
    work: (n: number) => boolean,
  ): void => {
    const startNs = cpuNs();
    for (let n = from; n < to; n++) if (work(n)) figures.checksum++;
    figures[name] += (cpuNs() - startNs) / rounds;
  };
  const account = (n: number): ReturnType<typeof asAccountIndex> => asAccountIndex(order[n]!);
  const slot = (n: number): ReturnType<typeof asCallSlot> => asCallSlot(firstSlot + (n % IN_FLIGHT));
  const take = (n: number): boolean => ledger.minute.take(account(n), LIMIT).admitted;
  const admit = (n: number): boolean =>
    ledger.admit(slot(n), { account: account(n), plan: PLAN, key: undefined }, NEEDS) === undefined;
  const admission = (n: number): boolean => take(n) && admit(n);
  const settle = (n: number): boolean => ledger.settle(slot(n), COST) !== undefined;
  const release = (n: number): boolean => ledger.release(slot(n));
  const find = (n: number): boolean => keys.find(digests[n % DIGESTS]!) !== undefined;

  // The first turn warms the compiler and touches the pages; the second counts.
  for (let turn = 0; turn < 2; turn++) {
    if (turn === 1) {
      parentPort!.postMessage('ready');
      Atomics.wait(gate, GO, 0, START_TIMEOUT_MS);
    }
    for (const name of OPERATIONS) figures[name] = 0;
    timed('takeMinute', 0, rounds, take);
    for (let from = 0; from < rounds; from += IN_FLIGHT) {
      const to = Math.min(rounds, from + IN_FLIGHT);
      timed('admit', from, to, admit);
      for (let n = from; n < to; n++) release(n);
    }
    for (let from = 0; from < rounds; from += IN_FLIGHT) {
      const to = Math.min(rounds, from + IN_FLIGHT);
      timed('admission', from, to, admission);
      timed('settle', from, to, settle);
    }
    timed('find', 0, rounds, find);
  }
  return figures;
}

/** Nanoseconds an account, of the best of three drains of `count` accounts that are all dirty. */
function drainNs(ledger: Ledger, count: number): number {
  let best = Infinity;
  for (let turn = 0; turn < 3; turn++) {
    for (let n = 0; n < count; n++) ledger.credit(asAccountIndex(n), COST);
    const startNs = cpuNs();
    let spent = 0n;
    const drained = ledger.dirty.drain((account) => (spent += ledger.snapshot(account).spent), count);
    best = Math.min(best, (cpuNs() - startNs) / drained);
    if (drained !== count || spent < 0n) throw new Error(`${drained} of ${count} accounts were drained`);
  }
  return best;
}

/**
 * Nanoseconds of admission, of reading what it left, and of settling: the best of `rounds`, each too short
 * for the account of CPU time.
 */
function quotasNs(hasQuotas: boolean, rounds: number): string {
  const ledger = new Ledger(
    createLedgerBuffers({ accountsMax: 1, callsInFlightMax: IN_FLIGHT, keysMax: 1, groupsMax: 1 }),
    new SystemClock(),
  );
  const [account, key, group] = [asAccountIndex(0), asKeyIndex(0), asGroupIndex(0)];
  ledger.openAccount(account, RICH);
  if (hasQuotas) {
    ledger.keys.open(key, QUOTAS);
    ledger.groups.open(group, QUOTAS);
    ledger.setGroup(account, group);
  }
  const plan = hasQuotas ? { ...PLAN, quotas: QUOTAS } : PLAN;
  const scopes = { account, plan, key: hasQuotas ? key : undefined, model: undefined };
  const best = { admit: Infinity, left: Infinity, settle: Infinity };
  const timed = (name: keyof typeof best, work: (slot: number) => boolean): void => {
    const startMs = performance.now();
    for (let slot = 0; slot < IN_FLIGHT; slot++) if (!work(slot)) throw new Error(`${name} fails`);
    best[name] = Math.min(best[name], ((performance.now() - startMs) * 1e6) / IN_FLIGHT);
  };
  for (let round = 0; round < rounds; round++) {
    const needs = { hold: HOLD, tokens: 1_000 };
    timed('admit', (slot) => ledger.admit(asCallSlot(slot), scopes, needs) === undefined);
    timed('left', () => ledger.quotasLeft(account, 1).inFlight > 0);
    timed('settle', (slot) => ledger.settle(asCallSlot(slot), COST, 700) !== undefined);
  }
  return Object.entries(best)
    .map(([name, ns]) => `${name} ${ns.toFixed(0)}`)
    .join(', ');
}

function createWorld(accounts: number, rounds: number): World {
  const world: World = {
    ledger: createLedgerBuffers({ accountsMax: accounts, callsInFlightMax: THREADS_MAX * IN_FLIGHT }),
    keys: createKeyTableBuffers({ keysMax: accounts }),
    accounts,
    rounds,
    order: 'random',
    gate: new SharedArrayBuffer(8),
    thread: 0,
  };
  const ledger = new Ledger(world.ledger, new SystemClock());
  const keys = new KeyTable(world.keys);
  for (let n = 0; n < accounts; n++) {
    ledger.openAccount(asAccountIndex(n), RICH);
    keys.insert(asKeyIndex(n), digestOf(`key-${n}`), asAccountIndex(n), true);
  }
  return world;
}

async function runThreads(world: World, threads: number): Promise<Figures[]> {
  const gate = new Int32Array(world.gate);
  gate.fill(0);
  let ready = 0;
  const results = Array.from(
    { length: threads },
    (_, thread) =>
      new Promise<Figures>((resolve, reject) => {
        const worker = new Worker(fileURLToPath(import.meta.url), { workerData: { ...world, thread } });
        worker.once('error', reject);
        worker.on('message', (message: 'ready' | Figures) => {
          if (message !== 'ready') {
            resolve(message);
            return;
          }
          if (++ready < threads) return;
          Atomics.store(gate, GO, 1);
          Atomics.notify(gate, GO);
        });
      }),
  );
  return Promise.all(results);
}

async function main(smoke: boolean): Promise<void> {
  const sizes = smoke ? [100, 1_000] : [1_000, 1_000_000];
  const rounds = smoke ? 10_000 : 1_000_000;
  console.log(
    `${cpus().length} x ${cpus()[0]?.model ?? 'unknown'}, node ${process.version}, ${rounds} rounds`,
  );
  console.log(
    `accounts  order   threads  ${OPERATIONS.map((name) => name.padStart(10)).join('')}  (ns a round)`,
  );
  for (const accounts of sizes) {
    const world = createWorld(accounts, rounds);
    for (const order of ORDERS) {
      for (const threads of order === 'random' ? [1, 2, THREADS_MAX] : [1]) {
        const all = await runThreads({ ...world, order }, threads);
        const mean = (name: keyof Figures): number =>
          all.reduce((sum, figures) => sum + figures[name], 0) / threads;
        const cells = OPERATIONS.map((name) => mean(name).toFixed(0).padStart(10)).join('');
        const place = `${String(accounts).padStart(8)}  ${order.padEnd(6)}  ${String(threads).padStart(7)}`;
        console.log(`${place}  ${cells}  checksum ${mean('checksum') * threads}`);
      }
    }
    if (accounts !== sizes.at(-1)) continue;
    const ledger = new Ledger(world.ledger, new SystemClock());
    while (ledger.dirty.drain(() => undefined, accounts) > 0);
    const dirty = Math.min(accounts, DIRTY);
    console.log(`drain of ${dirty} accounts: ${drainNs(ledger, dirty).toFixed(0)} ns an account`);
  }
  for (const hasQuotas of [false, true]) {
    const name = hasQuotas ? 'four quotas at three scopes' : 'limits of the plan alone';
    console.log(`${name}: ${quotasNs(hasQuotas, smoke ? 2 : 50)} (ns a call)`);
  }
}

if (isMainThread) await main(process.argv.includes('--smoke'));
else parentPort!.postMessage(measure(workerData as World));
