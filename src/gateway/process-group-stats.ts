/**
 * Adds up the snapshots of all gateways of a process group, for the gateway that has the admin interface:
 * its metrics, its status (group-status.ts writes the document) and its busiest accounts. stats.ts owns the
 * ProcessGroupStats, on the main thread of each gateway process.
 *
 * Must hold: a sum over all gateways never falls, or Prometheus takes the fall for a restart and counts
 * twice. So there is no sum if the supervisor does not reply. A member without the snapshot is left out: it
 * has never sent one, so no earlier sum has counted it. One that has sent one counts with it while it runs,
 * and `ended` has it afterwards (test/unit/supervisor/group-snapshots.test.ts, "a sum never falls").
 */
import { invariant, ProxyError } from '../core/errors.js';
import type { AccountReport } from '../telemetry/account-history.js';
import type { FamilySamples } from '../telemetry/exposition.js';
import { mergeFamily } from '../telemetry/metrics-snapshot.js';
import type { StatusDocument } from '../telemetry/status-document.js';
import { statusDocument } from './group-status.js';
import type { GroupSnapshot, Snapshot, SnapshotKind } from './messages.js';

/** The kinds of snapshots that are added up here. */
export type StatsKind = Extract<SnapshotKind, 'metrics' | 'status' | 'accounts'>;

interface ProcessGroupStatsOptions {
  /** The slot of this gateway process. */
  readonly slot: number;
  /** Reads this gateway alone. The snapshot has that kind. */
  readonly read: (kind: StatsKind) => Promise<Snapshot>;
  /** Asks all gateways, by the supervisor. Undefined if it does not reply in time. */
  readonly readAll: (kind: StatsKind) => Promise<GroupSnapshot | undefined>;
}

const SUPERVISOR_RETRY_SECONDS = 5;
const SUPERVISOR_LATE =
  'The supervisor did not answer in time, so nothing is known of the other processes: this machine has too much ' +
  `work, or the supervisor stands still. Retry after ${SUPERVISOR_RETRY_SECONDS} seconds.`;

/**
 * Sums over the running gateways (`members`, each with its snapshot `reading`) and the last counters of those
 * that have `ended`. If the supervisor does not reply, methods reject with ProxyError `overloaded`: a scrape
 * then fails, or a chart has a gap.
 */
export class ProcessGroupStats {
  readonly #options: ProcessGroupStatsOptions;

  constructor(options: ProcessGroupStatsOptions) {
    this.#options = options;
  }

  async metrics(): Promise<FamilySamples> {
    const { slot } = this.#options;
    const { members, ended } = await this.#readAll('metrics');
    const snapshots = members.flatMap(({ slot: memberSlot, reading: { metrics } }) =>
      metrics === undefined ? [] : [{ slot: memberSlot, own: memberSlot === slot, families: metrics }],
    );
    return (family) => mergeFamily(family, snapshots, ended.metrics ?? []);
  }

  /** The status document: what runs in all gateways, and the sums of their counts. */
  async status(): Promise<StatusDocument> {
    const { slot } = this.#options;
    const { members, ended } = await this.#readAll('status');
    const statuses = members.flatMap(({ reading: { status } }) => (status === undefined ? [] : [status]));
    const ownStatus = members.find((member) => member.slot === slot)?.reading.status;
    invariant(ownStatus !== undefined, '`read` gives the kind that it is asked for');
    return statusDocument(ownStatus, statuses, ended.status);
  }

  /** One report for each process, also for processes that have just ended. */
  async accounts(): Promise<readonly AccountReport[]> {
    const { members, ended } = await this.#readAll('accounts');
    return [...members.map(({ reading }) => reading), ended].flatMap(({ accounts = [] }) => accounts);
  }

  /** Asks all gateways. Adds the snapshot of this one if the supervisor does not know it yet. */
  async #readAll(kind: StatsKind): Promise<GroupSnapshot> {
    const { slot, read, readAll } = this.#options;
    const all = await readAll(kind);
    // Without the other processes each sum would fall, and rise again at the next read.
    if (all === undefined)
      throw new ProxyError('overloaded', 'gateway', SUPERVISOR_LATE, SUPERVISOR_RETRY_SECONDS);
    if (all.members.some((member) => member.slot === slot && member.reading[kind] !== undefined)) return all;
    const otherMembers = all.members.filter((member) => member.slot !== slot);
    return { ...all, members: [...otherMembers, { slot, reading: await read(kind) }] };
  }
}
