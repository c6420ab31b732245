/** One account that is called at several hosts at once, and what became of the calls of all. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Customer } from './admin-client.js';
import { Caller, callsOf, rejectionsOf } from './crash-load.js';
import type { Call } from './call-span.js';
import { eventually } from './gateway.js';
import type { Host } from './hosts.js';

const CONNECTIONS = 3;
/** An account has used up what it may when it was refused so often by each host. */
const REFUSED_ENOUGH = 20;
const USE_UP_MS_MAX = 120_000;
const REFUSED_PAUSE_MS = 25;

export class Crowd {
  /** In the order of the hosts. */
  readonly callers: readonly Caller[];

  /** `paceMs`: what each call takes, answered or refused. */
  constructor(hosts: readonly Host[], { key }: Customer, connections = CONNECTIONS, paceMs?: number) {
    const refusedPauseMs = paceMs ?? REFUSED_PAUSE_MS;
    this.callers = hosts.map(
      ({ gateway: { port } }) => new Caller({ port, key, connections, refusedPauseMs, upstreamMs: paceMs }),
    );
  }

  get answered(): number {
    return this.callers.reduce((sum, { answeredMs }) => sum + answeredMs.length, 0);
  }

  /** The calls that were answered, each with its two moments. */
  get calls(): Call[] {
    return callsOf(this.callers);
  }

  get broken(): number {
    return this.callers.reduce((sum, { broken }) => sum + broken, 0);
  }

  /** Statuses but 200 and 503. */
  get refusals(): number[] {
    return rejectionsOf(this.callers);
  }

  /** Calls that were answered or refused, at all hosts. */
  get asked(): number {
    const refusedBy = ({ refused }: Caller): number =>
      [...refused.values()].reduce((sum, one) => sum + one, 0);
    return this.callers.reduce((sum, caller) => sum + caller.answeredMs.length + refusedBy(caller), 0);
  }

  /** A line for each host: what became of its calls, by status. */
  lines(what: string): string[] {
    return this.callers.map(({ answeredMs, refused, broken }, host) => {
      const byStatus = [...refused].sort(([one], [other]) => one - other);
      const statuses = [[200, answeredMs.length] as const, ...byStatus];
      const counts = statuses.map(([status, count]) => `${status} × ${count}`);
      return `${what}, host ${host + 1}: ${counts.join(', ')}${broken === 0 ? '' : `, broken × ${broken}`}`;
    });
  }

  async stop(): Promise<void> {
    for (const caller of this.callers) caller.stop();
    await Promise.all(this.callers.map(({ done }) => done));
  }

  /** Until every host has refused often, and for `ms` at the least. */
  async useUp(ms: number): Promise<void> {
    await sleep(ms);
    const isRejected = (caller: Caller): boolean =>
      rejectionsOf([caller]).some((status) => caller.refused.get(status)! >= REFUSED_ENOUGH);
    await eventually(
      'what is left is refused',
      () => (this.callers.every(isRejected) ? true : undefined),
      USE_UP_MS_MAX,
    );
    await this.stop();
  }
}
