/**
 * Collects the figures of all gateway processes for the one that has the admin interface, and keeps the
 * counters of processes that have ended, so that no sum falls when a process does. Supervisor process.
 *
 * A process that drains sends its last figures. Of one that is killed, the figures that were last asked for
 * count: nobody has seen higher ones.
 */
import { addStatus, endedStatus } from '../gateway/group-status.js';
import { ERRANDS, type GroupSnapshot, type Snapshot, type SnapshotKind } from '../gateway/messages.js';
import { addEnded, endedSnapshot } from '../telemetry/metrics-snapshot.js';

/** Of whom figures can be asked. */
export interface ReadableProcess {
  /** Empty if the process ends or does not answer in time; never rejects. */
  read(what: SnapshotKind, accounts?: readonly string[]): Promise<Snapshot>;
}

interface Entry {
  readonly slot: number;
  /** Its figures as it last sent them; no replies to errands. */
  last: Snapshot;
}

export class GroupSnapshots {
  readonly #entries = new Map<ReadableProcess, Entry>();
  /** The counters of all processes that have ended. */
  #ended: Snapshot = {};
  /** Who asks while figures are being collected gets the same: two operators cost as much as one. */
  readonly #underWay = new Map<SnapshotKind, Promise<GroupSnapshot>>();
  /** Errands that begin when the one under way has ended: for those who asked meanwhile. */
  readonly #next = new Map<SnapshotKind, Promise<GroupSnapshot>>();

  /** Its figures belong to the whole from now on. */
  add(process: ReadableProcess, slot: number): void {
    this.#entries.set(process, { slot, last: {} });
  }

  /** Takes figures that the process sent unasked. */
  note(process: ReadableProcess, snapshot: Snapshot): void {
    const entry = this.#entries.get(process);
    if (entry !== undefined) entry.last = { ...entry.last, ...snapshot };
  }

  /** The process has ended; its counters stay. */
  remove(process: ReadableProcess): void {
    const entry = this.#entries.get(process);
    this.#entries.delete(process);
    if (entry !== undefined) this.#ended = addSnapshots(this.#ended, entry.last);
  }

  /**
   * Asks every process. Takes as long as the slowest of them, and no longer than one may take. Figures of a
   * process that does not answer in time are those that it sent last; an errand, and what calls use, it has
   * then not answered.
   */
  collect(what: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot> {
    if (accounts !== undefined) return this.#ask(what, accounts);
    const underWay = this.#underWay.get(what);
    if (underWay !== undefined) return ERRANDS.has(what) ? this.#collectNext(what, underWay) : underWay;
    const collected = (ERRANDS.has(what) ? this.#ask(what) : this.#collect(what)).finally(() =>
      this.#underWay.delete(what),
    );
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

  /**
   * Keeps nothing of the replies: that a process had flushed, or what its calls used, says nothing of now. A
   * process that has ended meanwhile is left out.
   */
  async #ask(what: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot> {
    const replies = await Promise.all(
      [...this.#entries.keys()].map(async (process) => ({
        process,
        reading: only(await process.read(what, accounts), what),
      })),
    );
    const members = replies.flatMap(({ process, reading }) => {
      const entry = this.#entries.get(process);
      return entry === undefined ? [] : [{ slot: entry.slot, reading }];
    });
    return { members, ended: {} };
  }

  async #collect(what: SnapshotKind): Promise<GroupSnapshot> {
    await Promise.all(
      [...this.#entries.keys()].map(async (process) => this.note(process, await process.read(what))),
    );
    // Read without a wait in between: a process that has ended meanwhile is in the second part and not in the
    // first.
    return {
      members: [...this.#entries.values()].map(({ slot, last }) => ({ slot, reading: only(last, what) })),
      ended: only(this.#ended, what),
    };
  }
}

function only(snapshot: Snapshot, what: SnapshotKind): Snapshot {
  return { [what]: snapshot[what] };
}

/**
 * Account reports of ended processes that are kept. The reader sums them up every two seconds, before so many
 * more have ended.
 */
const ENDED_REPORTS_MAX = 4;

function addSnapshots(ended: Snapshot, { metrics, status, accounts = [] }: Snapshot): Snapshot {
  return {
    accounts: [...(ended.accounts ?? []), ...accounts].slice(-ENDED_REPORTS_MAX),
    metrics: addEnded(ended.metrics ?? [], endedSnapshot(metrics ?? [])),
    ...(status === undefined
      ? { ...(ended.status && { status: ended.status }) }
      : {
          status:
            ended.status === undefined ? endedStatus(status) : addStatus(ended.status, endedStatus(status)),
        }),
  };
}
