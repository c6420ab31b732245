/**
 * Gateways as hosts that share one Redis: each has a data directory of its own and reaches the server over a
 * wire of its own, which the test can cut.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startGateway, temporaryFolder, testSettings, type Gateway } from './gateway.js';
import { startMock, type Scope } from './mock.js';
import { startRedis, type RedisServer } from './redis-server.js';
import { startWire, type Wire } from './tcp-proxy.js';

export interface Host {
  readonly gateway: Gateway;
  readonly wire: Wire;
  /** kill -9 of supervisor and gateway. */
  kill(): Promise<void>;
  /** On the same data directory, after `kill`. */
  restart(): Promise<Host>;
}

export interface HostsOptions {
  readonly count: number;
  /** Over those of `testSettings`; `sharing` beside its URL. */
  readonly settings?: Parameters<typeof testSettings>[1] & { readonly sharing?: object };
  /** Default one without persistence. With a URL, hosts go there and not over their wires. */
  readonly server?: {
    readonly redis: RedisServer;
    readonly url?: string;
    /** Of the hosts, in place of wires of loopback. */
    readonly wires?: readonly Wire[];
  };
  /** How far the calendar of the last host is ahead. Default 0. */
  readonly lastAheadMs?: number;
}

export interface Hosts {
  readonly redis: RedisServer;
  readonly hosts: readonly Host[];
}

/** Resolves when all of them serve. */
export async function startHosts(
  t: Scope,
  { count, settings = {}, lastAheadMs = 0, server }: HostsOptions,
): Promise<Hosts> {
  const redis = server?.redis ?? (await startRedis(t));
  const mock = await startMock(t);
  const start = async (wire: Wire, folder: string, env: Record<string, string>): Promise<Host> => {
    const sharing = { ...settings.sharing, url: server?.url ?? `redis://${wire.host}:${wire.port}` };
    const config = testSettings(mock.url, { ...settings, sharing });
    const gateway = await startGateway(t, { config, folder, env });
    return {
      gateway,
      wire,
      kill: async () => {
        const pid = gateway.pid();
        await gateway.child.stop('SIGKILL', KILL_TIMEOUT_MS);
        process.kill(pid, 'SIGKILL');
      },
      restart: () => start(wire, folder, env),
    };
  };
  // One after the other: four at once are late where the machine is busy.
  const hosts: Host[] = [];
  for (let index = 0; index < count; index++) {
    const folder = temporaryFolder(t);
    const aheadMs = index === count - 1 ? lastAheadMs : 0;
    const env = aheadMs === 0 ? {} : { NODE_OPTIONS: `--require ${calendarAhead(folder, aheadMs)}` };
    const wire = server?.wires?.[index] ?? (await startWire(t, () => redis.port));
    hosts.push(await start(wire, folder, env));
  }
  return { redis, hosts };
}

const KILL_TIMEOUT_MS = 60_000;

/**
 * A module that sets the calendar of a process and all of its threads forward; clocks that never step are as
 * they were.
 */
function calendarAhead(folder: string, aheadMs: number): string {
  const path = join(folder, 'calendar.cjs');
  const text = `
    const now = Date.now;
    const Ahead = class extends Date {
      constructor(...words) { super(...(words.length === 0 ? [Ahead.now()] : words)); }
      static now() { return now() + ${aheadMs}; }
    };
    globalThis.Date = Ahead;
  `;
  writeFileSync(path, text);
  return path;
}
