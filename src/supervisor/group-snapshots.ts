/**
 * The figures of all gateways, for the one that has the admin interface, and what those had counted that have ended, so that
 * no sum falls when a process does. Supervisor process.
 *
 * A gateway that drains tells its last figures; of one that is killed those count that were last asked for. Nobody has seen
 * higher ones.
 */
import { addStatus, endedStatus } from '../gateway/group-status.js';
import { ERRANDS, type GroupSnapshot, type Snapshot, type SnapshotKind } from '../gateway/snapshots.js';
import { addEnded, endedSnapshot } from '../telemetry/metrics-snapshot.js';

/** Of whom figures can be asked. */
export interface ReadableProcess {
  read(what: SnapshotKind, accounts?: readonly string[]): Promise<Snapshot>;
}

interface Entry {
  readonly slot: number;
  last: Snapshot;
}

export class GroupSnapshots {
  readonly #entries = new Map<ReadableProcess, Entry>();
  #ended: Snapshot = {};
  /** Those who ask while figures are being collected get them too: two operators cost as much as one. */
  readonly #underWay = new Map<SnapshotKind, Promise<GroupSnapshot>>();
  /** Begins when that has ended: for those who ask meanwhile for an errand. */
  readonly #next = new Map<SnapshotKind, Promise<GroupSnapshot>>();

  /** Its figures belong to the whole from now on. */
  add(process: ReadableProcess, slot: number): void {
    this.#entries.set(process, { slot, last: {} });
  }

  /** Figures that it told by itself. */
  note(process: ReadableProcess, snapshot: Snapshot): void {
    const entry = this.#entries.get(process);
    if (entry !== undefined) entry.last = { ...entry.last, ...snapshot };
  }

  /** It has ended: its counters stay. */
  remove(process: ReadableProcess): void {
    const entry = this.#entries.get(process);
    this.#entries.delete(process);
    if (entry !== undefined) this.#ended = addSnapshots(this.#ended, entry.last);
  }

  /** Takes as long as the slowest gateway, and no longer than a gateway may. */
  collect(what: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot> {
    if (accounts !== undefined) return this.#ask(what, accounts);
    const underWay = this.#underWay.get(what);
    if (underWay !== undefined) return ERRANDS.has(what) ? this.#collectNext(what, underWay) : underWay;
    const collected = this.#collect(what).finally(() => this.#underWay.delete(what));
    this.#underWay.set(what, collected);
    return collected;
  }

  #collectNext(what: SnapshotKind, underWay: Promise<GroupSnapshot>): Promise<GroupSnapshot> {
    const waited = this.#next.get(what);
    if (waited !== undefined) return waited;
    const next = underWay.then(() => {
      this.#next.delete(what);
      return this.collect(what);
    });
    this.#next.set(what, next);
    return next;
  }

  /** About these accounts, for who asks alone: nothing of it is kept. */
  async #ask(what: SnapshotKind, accounts: readonly string[]): Promise<GroupSnapshot> {
    const members = [...this.#entries].map(async ([process, { slot }]) => ({
      slot,
      reading: await process.read(what, accounts),
    }));
    return { members: await Promise.all(members), ended: {} };
  }

  async #collect(what: SnapshotKind): Promise<GroupSnapshot> {
    await Promise.all(
      [...this.#entries.keys()].map(async (process) => this.note(process, await process.read(what))),
    );
    // Looked at in one turn: whoever has ended meanwhile is in the second part and not in the first.
    return {
      members: [...this.#entries.values()].map(({ slot, last }) => ({ slot, reading: only(last, what) })),
      ended: only(this.#ended, what),
    };
  }
}

function only(snapshot: Snapshot, what: SnapshotKind): Snapshot {
  return { [what]: snapshot[what] };
}

/** Tellings of processes that have ended: whoever sums them up has had them two seconds later, before so many more have ended. */
const ENDED_TELLINGS_MAX = 4;

function addSnapshots(ended: Snapshot, { metrics, status, accounts = [] }: Snapshot): Snapshot {
  return {
    accounts: [...(ended.accounts ?? []), ...accounts].slice(-ENDED_TELLINGS_MAX),
    metrics: addEnded(ended.metrics ?? [], endedSnapshot(metrics ?? [])),
    ...(status === undefined
      ? { ...(ended.status && { status: ended.status }) }
      : {
          status:
            ended.status === undefined ? endedStatus(status) : addStatus(ended.status, endedStatus(status)),
        }),
  };
}
