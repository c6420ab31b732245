/**
 * Microseconds that one exchange of leases costs a process of a host: by itself, and with three others that
 * exchange too.
 *
 *     node build/bench/micro/leases.js [--smoke]
 *
 * Each process asks for a permit of the minute, a call of the day, a place for a call and some money of each
 * subject, subjects that all of them share; CPU time of this process and wall time, medians of the rounds.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { SystemClock } from '#src/core/clock.js';
import { Calendar } from '#src/core/calendar.js';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import type { LeaseAsk } from '#src/sharing/coordinator.js';
import { openLeaseFile } from '#src/sharing/lease-file.js';
import { LmdbCoordinator } from '#src/sharing/lmdb-coordinator.js';
import { Store } from '#src/store/store.js';
import { askOf } from '../../test/support/plain-asks.js';
import { machineLine } from '../support/machine.js';

const smoke = process.argv.includes('--smoke');
const SUBJECTS = 1_000;
const SIZES = [1, 10, 1_000];
/** Subjects of all exchanges of one round. */
const ROUND_SUBJECTS = smoke ? 1_000 : 10_000;
const ROUND_EXCHANGES_MAX = smoke ? 20 : 2_000;
const ROUNDS = smoke ? 1 : 5;
const OTHERS = 3;

const subjectOf = (index: number): string => `acct_${String(index).padStart(16, '0')}`;

function seed(path: string): Promise<void> {
  const store = new Store(path);
  store.commit(() => {
    for (let index = 0; index < SUBJECTS; index++) {
      const id = subjectOf(index);
      const account = { index: asAccountIndex(index), id, name: id, planId: 'free', active: true };
      store.putAccount({ ...account, createdMs: asWallMs(1), credited: asPicoUnits(10n ** 15n) });
    }
  });
  return store.close();
}

const asksOf = (index: number): LeaseAsk =>
  askOf({
    scope: subjectOf(index % SUBJECTS),
    limits: { requestsPerMinute: 100_000, callsPerDay: 1_000_000, callsInFlight: 1_000 },
    minute: { least: 1, most: 1, forMs: 0, returned: [] },
    day: { dayNumber: 1, used: 0, unused: 0, least: 1, most: 1 },
    slots: { outstanding: 0, least: 1, most: 1 },
    money: { outstanding: 0n, least: 1n, most: 1_000_000n },
  });

async function openAuthority(path: string, slot: number): Promise<LmdbCoordinator> {
  const node = { host: 'bench', slot, incarnation: `${process.pid}` };
  const file = openLeaseFile(path);
  const authority = new LmdbCoordinator({
    ...{ node, file, store: new Store(path), clock: new SystemClock() },
    calendar: new Calendar(),
    log: { error: (message) => console.error(message) },
  });
  await authority.join();
  return authority;
}

interface Micros {
  readonly cpu: number;
  readonly wall: number;
}

/** Of one exchange. */
async function round(authority: LmdbCoordinator, size: number): Promise<Micros> {
  const exchanges = Math.min(ROUND_EXCHANGES_MAX, Math.ceil(ROUND_SUBJECTS / size));
  let next = 0;
  const startCpu = process.cpuUsage();
  const startMs = performance.now();
  for (let exchange = 0; exchange < exchanges; exchange++) {
    const asks = Array.from({ length: size }, () => asksOf(next++));
    const { replies } = await authority.exchange(asks);
    if (replies.some(({ stocks }) => stocks?.calls_in_flight?.granted !== 1n))
      throw new Error('nothing was lent');
  }
  const wall = ((performance.now() - startMs) * 1_000) / exchanges;
  const { user, system } = process.cpuUsage(startCpu);
  return { cpu: (user + system) / exchanges, wall };
}

async function mediansOf(authority: LmdbCoordinator, size: number): Promise<string> {
  const rounds: Micros[] = [];
  for (let at = 0; at < ROUNDS; at++) rounds.push(await round(authority, size));
  const median = (of: keyof Micros): string => {
    const figures = rounds.map((figure) => figure[of]).sort((left, right) => left - right);
    return figures[figures.length >> 1]!.toFixed(0);
  };
  return `${median('cpu')} us of CPU, ${median('wall')} us`;
}

async function contend(path: string, slot: number): Promise<never> {
  const authority = await openAuthority(path, slot);
  process.send!('ready');
  for (let at = 0; ; at++) {
    await authority.exchange([asksOf(at)]);
    if (at % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}

async function run(): Promise<void> {
  const path = mkdtempSync(join(tmpdir(), 'tollgate-leases-'));
  await seed(path);
  const authority = await openAuthority(path, 0);
  process.stdout.write(`${machineLine()}\n`);
  const alone = new Map<number, string>();
  for (const size of SIZES) alone.set(size, await mediansOf(authority, size));
  const others = Array.from({ length: OTHERS }, (_, at) =>
    fork(fileURLToPath(import.meta.url), ['--contend', path, String(at + 1)]),
  );
  try {
    await Promise.all(others.map((other) => once(other, 'message')));
    for (const size of SIZES) {
      const contended = await mediansOf(authority, size);
      const figures = `${alone.get(size)!} alone; ${contended} beside ${OTHERS} others`;
      process.stdout.write(`${String(size).padStart(5)} subjects an exchange: ${figures}\n`);
    }
  } finally {
    for (const other of others) other.kill('SIGKILL');
    rmSync(path, { recursive: true, force: true });
  }
}

const contender = process.argv.indexOf('--contend');
if (contender >= 0) await contend(process.argv[contender + 1]!, Number(process.argv[contender + 2]));
else {
  await run();
  process.exit(0);
}
