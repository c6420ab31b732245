/**
 * Collects the snapshots of all gateway processes for the one that has the admin interface. It also keeps the
 * counters of processes that have ended, so that no sum falls when a process ends. ProcessGroup owns it. Runs
 * in the supervisor process.
 *
 * A process that drains sends a last snapshot. For a killed one the last collected snapshot counts, because
 * no operator has seen higher numbers.
 *
 * Must hold: no sum falls, a process that ends while it is asked is counted once, and nothing replaces its
 * last snapshot (test/unit/supervisor/group-snapshots.test.ts).
 */
import { addStatus, endedStatus } from '../gateway/group-status.js';
import { GROUP_REQUESTS, type GroupSnapshot, type Snapshot, type SnapshotKind } from '../gateway/messages.js';
import { addEnded, endedSnapshot } from '../telemetry/metrics-snapshot.js';

/** A process that can be asked for snapshots; GatewayProcess is one. */
export interface ReadableProcess {
  /** Resolves with an empty snapshot if the process ends or does not reply in time. Never rejects. */
  read(kind: SnapshotKind, accounts?: readonly string[]): Promise<Snapshot>;
}

interface Entry {
  readonly slot: number;
  /** The latest snapshots that the process sent, without replies to GROUP_REQUESTS. */
  last: Snapshot;
  /** Whether `last` has the last snapshot. What the process replies to later requests lacks a part of it. */
  isFinal: boolean;
}

export class GroupSnapshots {
  readonly #entries = new Map<ReadableProcess, Entry>();
  /** The summed counters of all processes that have ended. */
  #ended: Snapshot = {};
  /** Collections in progress. Requests that come meanwhile share the result. */
  readonly #underWay = new Map<SnapshotKind, Promise<GroupSnapshot>>();
  /**
   * GROUP_REQUESTS that start when the current one has ended. Requests that come meanwhile share the next
   * one, because the current one may have begun before the change in question.
   */
  readonly #next = new Map<SnapshotKind, Promise<GroupSnapshot>>();

  /** Includes the process in all later collections. */
  add(process: ReadableProcess, slot: number): void {
    this.#entries.set(process, { slot, last: {}, isFinal: false });
  }

  /** Stores the last snapshot, which the process sends unasked. The process is asked for no more to store. */
  recordLast(process: ReadableProcess, snapshot: Snapshot): void {
    const entry = this.#entries.get(process);
    if (entry === undefined) return;
    entry.last = { ...entry.last, ...snapshot };
    entry.isFinal = true;
  }

  /** Drops the reply if the last snapshot has come meanwhile. */
  #record(entry: Entry, reply: Snapshot): void {
    if (!entry.isFinal) entry.last = { ...entry.last, ...reply };
  }

  /** To be called when the process has ended. Its counters are kept. */
  remove(process: ReadableProcess): void {
    const entry = this.#entries.get(process);
    this.#entries.delete(process);
    if (entry !== undefined) this.#ended = addSnapshots(this.#ended, entry.last);
  }

  /**
   * Asks every process and waits for the slowest, at most for the time limit of one. A process that does not
   * reply in time counts with its latest snapshot; for GROUP_REQUESTS and `calls` its part is empty.
   */
  collect(kind: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot> {
    if (accounts !== undefined) return this.#ask(kind, accounts);
    const underWay = this.#underWay.get(kind);
    if (underWay !== undefined)
      return GROUP_REQUESTS.has(kind) ? this.#collectNext(kind, underWay) : underWay;
    const collected = (GROUP_REQUESTS.has(kind) ? this.#ask(kind) : this.#collect(kind)).finally(() =>
      this.#underWay.delete(kind),
    );
    this.#underWay.set(kind, collected);
    return collected;
  }

  #collectNext(kind: SnapshotKind, underWay: Promise<GroupSnapshot>): Promise<GroupSnapshot> {
    const waited = this.#next.get(kind);
    if (waited !== undefined) return waited;
    const next = underWay.then(() => {
      this.#next.delete(kind);
      return this.collect(kind);
    });
    this.#next.set(kind, next);
    return next;
  }

  /**
   * Asks every process and stores nothing, because an old reply is no reply to a later request. Leaves out
   * processes that have ended meanwhile.
   */
  async #ask(kind: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot> {
    const replies = await Promise.all(
      [...this.#entries.keys()].map(async (process) => ({
        process,
        reading: only(await process.read(kind, accounts), kind),
      })),
    );
    const members = replies.flatMap(({ process, reading }) => {
      const entry = this.#entries.get(process);
      return entry === undefined ? [] : [{ slot: entry.slot, reading }];
    });
    return { members, ended: {} };
  }

  async #collect(kind: SnapshotKind): Promise<GroupSnapshot> {
    await Promise.all(
      [...this.#entries].map(async ([process, entry]) => {
        if (!entry.isFinal) this.#record(entry, await process.read(kind));
      }),
    );
    // No await between these two: a process that has just ended is then in `ended` and not in `members`.
    return {
      members: [...this.#entries.values()].map(({ slot, last }) => ({ slot, reading: only(last, kind) })),
      ended: only(this.#ended, kind),
    };
  }
}

/** Returns the snapshot with the member of that kind alone. */
function only(snapshot: Snapshot, kind: SnapshotKind): Snapshot {
  return { [kind]: snapshot[kind] };
}

/**
 * How many account reports of ended processes are kept. The history recorder reads them every two seconds,
 * before that many more processes have ended.
 */
const ENDED_REPORTS_MAX = 4;

/** Adds the last snapshot of a process to those of the processes that ended before it. */
function addSnapshots(ended: Snapshot, { metrics, status, accounts = [] }: Snapshot): Snapshot {
  const statuses = [ended.status, status && endedStatus(status)].filter((part) => part !== undefined);
  return {
    accounts: [...(ended.accounts ?? []), ...accounts].slice(-ENDED_REPORTS_MAX),
    metrics: addEnded(ended.metrics ?? [], endedSnapshot(metrics ?? [])),
    ...(statuses.length > 0 && { status: statuses.reduce(addStatus) }),
  };
}
