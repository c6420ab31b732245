/**
 * What the ledger and the key table cost: nanoseconds a call of `takeMinute`, `admit`, `settle` and key `find`, over few
 * and many accounts, on one thread and on two at once. Closed loop, fixed order, a checksum of what was admitted. The time is the
 * thread's own on a CPU (Linux), so that what else the machine does at that moment is not counted.
 *
 *     node build/bench/micro/ledger.js [--smoke]
 */
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asCallSlot, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers, type LedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { digestOf } from '#src/registry/key-digest.js';
import { createKeyTableBuffers, KeyTable, type KeyTableBuffers } from '#src/registry/key-table.js';

interface World {
  readonly ledger: LedgerBuffers;
  readonly keys: KeyTableBuffers;
  readonly accounts: number;
  readonly rounds: number;
  /** One shared word: whether all may go. */
  readonly gate: SharedArrayBuffer;
  readonly thread: number;
}

interface Figures {
  takeNs: number;
  admitNs: number;
  settleNs: number;
  findNs: number;
  checksum: number;
}

const GO = 0;
/** Threads wait for each other before they are measured, no longer than a start can take. */
const START_TIMEOUT_MS = 60_000;
/** Digests looked up: enough that the table, not the digests, decides what is in the cache. */
const DIGESTS = 4_096;
/** A prime step visits every account before any twice, and no neighbour after its neighbour. */
const STRIDE = 7_919;
const LIMIT = 1_000_000;
const HOLD = asPicoUnits(1_000n);
const COST = asPicoUnits(700n);

/** Nanoseconds that the calling thread has been on a CPU. */
function cpuNs(): number {
  return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]);
}

function measure(world: World): Figures {
  const ledger = new Ledger(world.ledger, new SystemClock());
  const keys = new KeyTable(world.keys);
  const digests = Array.from({ length: DIGESTS }, (_, n) => digestOf(`key-${(n * STRIDE) % world.accounts}`));
  const slot = asCallSlot(world.thread);
  const gate = new Int32Array(world.gate);
  let checksum = 0;
  const figures = { takeNs: 0, admitNs: 0, settleNs: 0, findNs: 0, checksum: 0 };
  const nsOf = (startNs: number): number => (cpuNs() - startNs) / world.rounds;

  // The first turn warms the compiler and touches the pages; the second counts.
  for (let turn = 0; turn < 2; turn++) {
    if (turn === 1) {
      parentPort!.postMessage('ready');
      Atomics.wait(gate, GO, 0, START_TIMEOUT_MS);
    }
    let startNs = cpuNs();
    for (let n = 0; n < world.rounds; n++) {
      if (ledger.takeMinute(asAccountIndex((n * STRIDE) % world.accounts), LIMIT).admitted) checksum++;
    }
    figures.takeNs = nsOf(startNs);
    startNs = cpuNs();
    for (let n = 0; n < world.rounds; n++) {
      const account = asAccountIndex((n * STRIDE) % world.accounts);
      if (ledger.admit(slot, account, LIMIT, HOLD) === 'admitted') checksum++;
      ledger.release(slot);
    }
    figures.admitNs = nsOf(startNs);
    startNs = cpuNs();
    for (let n = 0; n < world.rounds; n++) {
      const account = asAccountIndex((n * STRIDE) % world.accounts);
      if (ledger.admit(slot, account, LIMIT, HOLD) === 'admitted') checksum++;
      if (ledger.settle(slot, COST) !== undefined) checksum++;
    }
    figures.settleNs = nsOf(startNs);
    startNs = cpuNs();
    for (let n = 0; n < world.rounds; n++) {
      if (keys.find(digests[n % DIGESTS]!) !== undefined) checksum++;
    }
    figures.findNs = nsOf(startNs);
  }
  return { ...figures, checksum };
}

function createWorld(accounts: number, rounds: number): World {
  const world: World = {
    ledger: createLedgerBuffers({ accountsMax: accounts, callsInFlightMax: 64 }),
    keys: createKeyTableBuffers({ keysMax: accounts }),
    accounts,
    rounds,
    gate: new SharedArrayBuffer(8),
    thread: 0,
  };
  const ledger = new Ledger(world.ledger, new SystemClock());
  const keys = new KeyTable(world.keys);
  for (let n = 0; n < accounts; n++) {
    ledger.openAccount(asAccountIndex(n), {
      credited: asPicoUnits(1_000_000_000_000_000n),
      spent: asPicoUnits(0n),
      uncovered: asPicoUnits(0n),
      dayNumber: 0,
      dayCalls: 0,
      planIndex: 0,
      active: true,
    });
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
  const rounds = smoke ? 5_000 : 2_000_000;
  console.log(
    `${cpus().length} x ${cpus()[0]?.model ?? 'unknown'}, node ${process.version}, ${rounds} rounds`,
  );
  console.log('accounts  threads  takeMinute  admit+release  admit+settle  find    (ns a round)');
  for (const accounts of sizes) {
    const world = createWorld(accounts, rounds);
    for (const threads of [1, 2]) {
      const all = await runThreads(world, threads);
      const mean = (of: (figures: Figures) => number): string =>
        (all.reduce((sum, figures) => sum + of(figures), 0) / threads).toFixed(0);
      const cells = [
        mean((f) => f.takeNs).padStart(10),
        mean((f) => f.admitNs).padStart(13),
        mean((f) => f.settleNs).padStart(12),
        mean((f) => f.findNs).padStart(4),
      ].join('  ');
      const checksum = all.reduce((sum, figures) => sum + figures.checksum, 0);
      console.log(
        `${String(accounts).padStart(8)}  ${String(threads).padStart(7)}  ${cells}    checksum ${checksum}`,
      );
    }
  }
}

if (isMainThread) await main(process.argv.includes('--smoke'));
else parentPort!.postMessage(measure(workerData as World));
