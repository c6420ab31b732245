/** One account that is called at several hosts at once, and what became of the calls of all. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Customer } from './admin-client.js';
import { Caller } from './crash-load.js';
import { eventually } from './gateway.js';
import type { Host } from './hosts.js';

const CONNECTIONS = 3;
/** An account has used up what it may when it was refused so often by each host. */
const REFUSED_ENOUGH = 20;
const USE_UP_MS_MAX = 30_000;

export class Crowd {
  readonly callers: readonly Caller[];

  constructor(hosts: readonly Host[], { key }: Customer) {
    this.callers = hosts.map(
      ({ gateway }) => new Caller({ port: gateway.port, key, connections: CONNECTIONS }),
    );
  }

  get answeredMs(): number[] {
    return this.callers.flatMap(({ answeredMs }) => answeredMs);
  }

  get broken(): number {
    return this.callers.reduce((sum, { broken }) => sum + broken, 0);
  }

  /** Statuses but 200. */
  get refusals(): number[] {
    return [...new Set(this.callers.flatMap(({ refused }) => [...refused.keys()]))];
  }

  async stop(): Promise<void> {
    for (const caller of this.callers) caller.stop();
    await Promise.all(this.callers.map(({ done }) => done));
  }

  /** Until every host has refused often, and for `ms` at the least. */
  async useUp(ms: number): Promise<void> {
    await sleep(ms);
    const isRefused = ({ refused }: Caller): boolean =>
      [...refused.values()].some((times) => times >= REFUSED_ENOUGH);
    await eventually(
      'what is left is refused',
      () => (this.callers.every(isRefused) ? true : undefined),
      USE_UP_MS_MAX,
    );
    await this.stop();
  }
}

/** The most that fell into one span. */
export function mostWithin(timesMs: readonly number[], spanMs: number): number {
  const sorted = [...timesMs].sort((one, other) => one - other);
  let first = 0;
  return sorted.reduce((most, timeMs, last) => {
    while (timeMs - sorted[first]! >= spanMs) first += 1;
    return Math.max(most, last - first + 1);
  }, 0);
}
