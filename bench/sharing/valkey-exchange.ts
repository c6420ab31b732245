/**
 * What an exchange of leases costs over a Valkey or Redis: CPU of the node and of the server, and the time
 * until the response, by the number of asks in it and of nodes that hold something. `node
 * build/bench/sharing/valkey-exchange.js [url]`; without a URL it starts a redis-server of its own. Prints a
 * checksum of what was granted.
 */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { SystemClock } from '#src/core/clock.js';
import { Calendar } from '#src/core/calendar.js';
import { asPicoUnits } from '#src/core/units.js';
import type { LeaseAsk } from '#src/sharing/coordinator.js';
import { ValkeyCoordinator } from '#src/sharing/valkey-coordinator.js';
import { ValkeyClient } from '#src/sharing/valkey-client.js';
import { askOf, dayNumberOf } from '../../test/support/plain-asks.js';
import { machineLine } from '../support/machine.js';

const PORT = 16_399;
const ROUND_MS = 1_500;
const NODES = [1, 64];
const BATCHES = [1, 10, 100, 1_000];
const CLOCK_TICKS_PER_SECOND = 100;
const NOTHING = { epoch: '', places: [] };
const NO_PROMISE = { term: 0, server: '' };
const CREDITED = { totalPicoUnits: asPicoUnits(3_000_000_000_000_000_000n), version: 1 };
const clock = new SystemClock();

const given = process.argv[2];
const server =
  given === undefined
    ? spawn('redis-server', ['--port', String(PORT), '--save', '', '--appendonly', 'no'], { stdio: 'ignore' })
    : undefined;

/** User and system, of a process of this machine. */
function cpuMsOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return ((Number(fields[11]) + Number(fields[12])) * 1_000) / CLOCK_TICKS_PER_SECOND;
}

const TODAY = dayNumberOf(clock.wallMs());
const SPENT = { totalPicoUnits: asPicoUnits(5n), version: 1 };

function asksOf(subject: number): LeaseAsk {
  return askOf(
    {
      scope: `acct_bench${subject}`,
      limits: { requestsPerMinute: 1_000_000, callsPerDay: 1_440_000_000, callsInFlight: 1_000_000 },
      minute: { least: 1, most: 2, forMs: 16_000, returned: [] },
      day: { dayNumber: TODAY, used: 5, unused: 1, least: 1, most: 2 },
      slots: { outstanding: 1, least: 1, most: 2 },
      money: { outstanding: 7n, least: 1n, most: 9n },
    },
    TODAY,
  );
}

async function connected(node: number): Promise<ValkeyCoordinator> {
  const client = new ValkeyClient({
    url: given ?? `redis://127.0.0.1:${PORT}`,
    name: 'bench',
    deadlineMs: 5_000,
  });
  for (let tries = 0; tries < 100; tries++) {
    if ((await client.command(undefined, ['PING']).catch(() => undefined)) !== undefined) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const authority = new ValkeyCoordinator({
    client,
    namespace: 'bench',
    partitions: 1,
    node: { host: `host${node}`, slot: 0, incarnation: randomUUID() },
    clock,
    calendar: new Calendar(),
    accounting: {
      spentOf: () => SPENT,
      creditedOf: () => CREDITED,
      accounts: () => [],
      inheritedOf: () => undefined,
    },
    memory: {
      of: () => NOTHING,
      set: () => undefined,
      promisedBy: () => NO_PROMISE,
      promiseTerm: (_place, _partition, promised) => promised,
    },
    equalShares: 0,
    hasShare: false,
    nodeExpiryMs: 900_000,
    endedAfterMs: () => 1_800_000,
    log: { error: (message) => console.error(message) },
  });
  await authority.join();
  return authority;
}

let checksum = 0;
process.stdout.write(`${machineLine()}\n`);
process.stdout.write(
  'nodes  asks  exchanges/s  asks/s  node us/exchange  server us/exchange  server us/ask\n',
);
const authorities: ValkeyCoordinator[] = [];
for (const nodes of NODES) {
  while (authorities.length < nodes) authorities.push(await connected(authorities.length));
  for (const batch of BATCHES) {
    const asks = Array.from({ length: batch }, (_, subject) => asksOf(subject));
    // All hold something of each scope.
    for (const authority of authorities) await authority.exchange(asks);
    const before = { node: process.cpuUsage(), server: server?.pid === undefined ? 0 : cpuMsOf(server.pid) };
    const startMs = performance.now();
    let exchanges = 0;
    while (performance.now() - startMs < ROUND_MS) {
      const { replies } = await authorities[exchanges % nodes]!.exchange(asks);
      checksum = (checksum + replies[0]!.minute!.granted) % 1_000_003;
      exchanges += 1;
    }
    const seconds = (performance.now() - startMs) / 1_000;
    const used = process.cpuUsage(before.node);
    const serverUs = server?.pid === undefined ? NaN : (cpuMsOf(server.pid) - before.server) * 1_000;
    const figures = [
      nodes,
      batch,
      Math.round(exchanges / seconds),
      Math.round((exchanges * batch) / seconds),
      Math.round((used.user + used.system) / exchanges),
      Math.round(serverUs / exchanges),
      (serverUs / exchanges / batch).toFixed(1),
    ];
    process.stdout.write(`${figures.join('  ')}\n`);
  }
}
for (const authority of authorities) await authority.close();
server?.kill('SIGKILL');
process.stdout.write(`checksum ${checksum}\n`);
