/**
 * Collects the snapshots of all gateway processes for the one that has the admin interface, and keeps the
 * counters of processes that have ended, so that no sum falls when a process ends. ProcessGroup
 * (process-group.ts) owns the one object, in the supervisor process.
 *
 * A process that drains sends a last snapshot. For a killed one its latest collected snapshot counts: no
 * operator has seen higher numbers.
 *
 * Must hold: no sum falls, a process that ends while it is asked is counted once, and nothing replaces the
 * last snapshot of a process. GroupSnapshot is a message between processes that may be of different versions,
 * so its fields keep their names: each running process is one of `members`, and its snapshot is `reading`.
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
  /**
   * Whether `latest` has the last snapshot. Later replies are dropped: the last one also has the running
   * spans of `accounts` (`readLast` of telemetry/top-accounts.ts), which a reply lacks.
   */
  isFinal: boolean;
}

/** Call `add` when a process serves, `recordLast` if it sends a last snapshot, `remove` when it has ended. */
export class GroupSnapshots {
  readonly #running = new Map<ReadableProcess, RunningProcess>();
  /** The summed counters of all processes that have ended. */
  #ended: Snapshot = {};
  /** The collection in progress of each kind, which never rejects. Calls of `collect` meanwhile share it. */
  readonly #current = new Map<SnapshotKind, Promise<GroupSnapshot>>();
  /**
   * Collections of GROUP_REQUESTS (`changes`, `books`) that start when the current one has ended. Calls of
   * `collect` that come meanwhile share the next one, because the current one may have begun before what they
   * ask about.
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
   * reply in time counts with its latest snapshot; for GROUP_REQUESTS and `calls` with an empty one.
   * `accounts` are the ids of the accounts whose calls are counted, for `calls` alone, which nobody shares.
   */
  collect(kind: SnapshotKind, accounts: readonly string[] = []): Promise<GroupSnapshot> {
    if (kind === 'calls') return this.#ask(kind, accounts);
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

  /** Asks every process that runs, and stores nothing: an old reply does not answer a later question. */
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
 * How many account reports of ended processes, the items of `accounts`, are kept: those of the last to end.
 * gateway/history-recorder.ts collects them every two seconds, and telemetry/account-history.ts counts each
 * once. If more end within two seconds, the charts lack the last calls of the first; but a replacement ends
 * one after the other, and a stop ends the recorder too. A collection sends all, up to 20 KB each.
 */
const ENDED_REPORTS_MAX = 4;

/** Adds the value of a process that ends, in its latest snapshot, to the value of those that ended before. */
type AddEnded<Kind extends SnapshotKind> = (ended: Snapshot, latest: Snapshot) => Snapshot[Kind];

/** How each kind outlives a process; undefined for what means nothing once the process has ended. */
const ADD_ENDED: { readonly [Kind in SnapshotKind]: AddEnded<Kind> | undefined } = {
  metrics: (ended, { metrics = [] }) => addEnded(ended.metrics ?? [], endedSnapshot(metrics)),
  status: (ended, { status }) => {
    if (status === undefined) return ended.status;
    return ended.status === undefined ? endedStatus(status) : addStatus(ended.status, endedStatus(status));
  },
  accounts: (ended, { accounts = [] }) => [...(ended.accounts ?? []), ...accounts].slice(-ENDED_REPORTS_MAX),
  changes: undefined,
  books: undefined,
  calls: undefined,
};

function addSnapshots(ended: Snapshot, latest: Snapshot): Snapshot {
  return Object.fromEntries(
    Object.entries(ADD_ENDED).flatMap(([kind, add]) =>
      add === undefined ? [] : [[kind, add(ended, latest)]],
    ),
  ) as Snapshot;
}
