/**
 * Collects the snapshots of all gateway processes for the one that has the admin interface, and keeps the
 * counters of processes that have ended, so that no sum falls when a process ends. ProcessGroup
 * (process-group.ts) owns the one object, in the supervisor process. GroupSnapshot is a message, whose fields
 * keep their names: each running process is one of `members`, and its snapshot is `reading`.
 *
 * A process that drains sends a last snapshot. For a killed one its latest collected snapshot counts: no
 * operator has seen higher numbers.
 *
 * Must hold: no sum falls, a process that ends while it is asked is counted once, and nothing replaces the
 * last snapshot of a process.
 */
import { addStatus, endedStatus } from '../gateway/group-status.js';
import { GROUP_REQUESTS, type GroupSnapshot, type Snapshot, type SnapshotKind } from '../gateway/messages.js';
import { addEnded, endedSnapshot } from '../telemetry/metrics-snapshot.js';

/** A process that can be asked for snapshots; GatewayProcess is one. */
export interface ReadableProcess {
  /** Resolves with an empty snapshot if the process ends or does not reply in time. Never rejects. */
  read(kind: SnapshotKind, accounts?: readonly string[]): Promise<Snapshot>;
}

/** A running process and its latest snapshot of each kind, without replies to GROUP_REQUESTS. */
interface RunningProcess {
  readonly slot: number;
  latest: Snapshot;
  /** Whether `latest` has the last snapshot. Later replies lack a part of its counts, so they are dropped. */
  isFinal: boolean;
}

export class GroupSnapshots {
  readonly #running = new Map<ReadableProcess, RunningProcess>();
  /** The summed counters of all processes that have ended. */
  #ended: Snapshot = {};
  /** The collection in progress of each kind. Calls of `collect` that come meanwhile share its result. */
  readonly #current = new Map<SnapshotKind, Promise<GroupSnapshot>>();
  /**
   * Collections of GROUP_REQUESTS that start when the current one has ended. Calls of `collect` that come
   * meanwhile share the next one, because the current one may have begun before what they ask about.
   */
  readonly #next = new Map<SnapshotKind, Promise<GroupSnapshot>>();

  add(process: ReadableProcess, slot: number): void {
    this.#running.set(process, { slot, latest: {}, isFinal: false });
  }

  /** Stores the last snapshot, which the process sends without a question, and no reply after that. */
  recordLast(process: ReadableProcess, snapshot: Snapshot): void {
    const running = this.#running.get(process);
    if (running === undefined) return;
    running.latest = { ...running.latest, ...snapshot };
    running.isFinal = true;
  }

  /** Call it when the process has ended. Its counters are added to those of the others that ended. */
  remove(process: ReadableProcess): void {
    const running = this.#running.get(process);
    this.#running.delete(process);
    if (running !== undefined) this.#ended = addSnapshots(this.#ended, running.latest);
  }

  /**
   * Asks every process and waits for the slowest, at most for the time limit of one. A process that does not
   * reply in time counts with its latest snapshot; for GROUP_REQUESTS and `calls` with an empty one. Only
   * `calls` has `accounts`: the ids of the accounts whose calls are counted.
   */
  collect(kind: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot> {
    if (accounts !== undefined) return this.#ask(kind, accounts);
    const current = this.#current.get(kind);
    if (current !== undefined) return GROUP_REQUESTS.has(kind) ? this.#collectNext(kind, current) : current;
    const started = (GROUP_REQUESTS.has(kind) ? this.#ask(kind) : this.#collect(kind)).finally(() =>
      this.#current.delete(kind),
    );
    this.#current.set(kind, started);
    return started;
  }

  #collectNext(kind: SnapshotKind, current: Promise<GroupSnapshot>): Promise<GroupSnapshot> {
    const waiting = this.#next.get(kind);
    if (waiting !== undefined) return waiting;
    const next = current.then(() => {
      this.#next.delete(kind);
      return this.collect(kind);
    });
    this.#next.set(kind, next);
    return next;
  }

  /**
   * Asks every process and stores nothing, because an old reply does not answer a later question. Leaves out
   * processes that have ended meanwhile.
   */
  async #ask(kind: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot> {
    const replies = await Promise.all(
      [...this.#running.keys()].map(async (process) => ({
        process,
        reading: only(await process.read(kind, accounts), kind),
      })),
    );
    const members = replies.flatMap(({ process, reading }) => {
      const running = this.#running.get(process);
      return running === undefined ? [] : [{ slot: running.slot, reading }];
    });
    return { members, ended: {} };
  }

  /** Asks every process and stores the replies. */
  async #collect(kind: SnapshotKind): Promise<GroupSnapshot> {
    await Promise.all(
      [...this.#running].map(async ([process, running]) => {
        if (!running.isFinal) storeReply(running, await process.read(kind));
      }),
    );
    // No await between `members` and `ended`, so that a process is in one of them and not in both.
    return {
      members: [...this.#running.values()].map(({ slot, latest }) => ({ slot, reading: only(latest, kind) })),
      ended: only(this.#ended, kind),
    };
  }
}

/** Drops a reply if the last snapshot has come while the question waited. */
function storeReply(running: RunningProcess, reply: Snapshot): void {
  if (!running.isFinal) running.latest = { ...running.latest, ...reply };
}

function only(snapshot: Snapshot, kind: SnapshotKind): Snapshot {
  return { [kind]: snapshot[kind] };
}

/**
 * How many account reports of ended processes, the items of `accounts`, are kept. The history recorder
 * (gateway/history-recorder.ts) collects them every two seconds, in which fewer processes end.
 */
const ENDED_REPORTS_MAX = 4;

/** Adds the latest snapshot of a process that has ended to the counters of those that ended before it. */
function addSnapshots(ended: Snapshot, { metrics, status, accounts = [] }: Snapshot): Snapshot {
  const statuses = [ended.status, status && endedStatus(status)].filter((item) => item !== undefined);
  return {
    accounts: [...(ended.accounts ?? []), ...accounts].slice(-ENDED_REPORTS_MAX),
    metrics: addEnded(ended.metrics ?? [], endedSnapshot(metrics ?? [])),
    ...(statuses.length > 0 && { status: statuses.reduce(addStatus) }),
  };
}
