/**
 * Debian's Redis servers as one Cluster of masters on loopback, without replicas: each has an equal part of
 * the slots.
 */
import { eventually } from './gateway.js';
import type { Scope } from './mock.js';
import { startRedis, type RedisServer } from './redis-server.js';

const SLOTS = 16_384;
/** Until a server says of another, or of the Cluster, that it fails. Long enough for a busy machine. */
const NODE_TIMEOUT_MS = 5_000;
const READY_MS_MAX = 60_000;

export interface RedisCluster {
  readonly servers: readonly RedisServer[];
  /** `redis-cluster://127.0.0.1:port,…` */
  readonly url: string;
  readonly flush: () => Promise<void>;
}

/** Resolves when every server says that all slots are served. */
export async function startCluster(t: Scope, masters = 3): Promise<RedisCluster> {
  const servers = await Promise.all(
    Array.from({ length: masters }, () =>
      startRedis(t, ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT_MS)]),
    ),
  );
  const [first] = servers as [RedisServer];
  for (const [index, server] of servers.entries()) {
    const from = Math.floor((index * SLOTS) / masters);
    const to = Math.floor(((index + 1) * SLOTS) / masters) - 1;
    await told(server, 'CLUSTER', 'ADDSLOTSRANGE', String(from), String(to));
    await told(server, 'CLUSTER', 'SET-CONFIG-EPOCH', String(index + 1));
    if (server !== first)
      await told(first, 'CLUSTER', 'MEET', '127.0.0.1', String(server.port), String(server.busPort));
  }
  await eventually(
    'all slots are served',
    async () => ((await Promise.all(servers.map(isReady))).every(Boolean) ? true : undefined),
    READY_MS_MAX,
  );
  const addresses = servers.map(({ port }) => `127.0.0.1:${port}`).join(',');
  return {
    servers,
    url: `redis-cluster://${addresses}`,
    flush: async () => {
      for (const server of servers) await told(server, 'FLUSHALL');
    },
  };
}

async function isReady({ command }: RedisServer): Promise<boolean> {
  const info = await command('CLUSTER', 'INFO');
  return info.includes('cluster_state:ok') && info.includes(`cluster_slots_ok:${SLOTS}`);
}

async function told({ command }: RedisServer, ...words: string[]): Promise<void> {
  const reply = await command(...words);
  if (reply !== '+OK') throw new Error(`${words.join(' ')}: ${reply}`);
}
