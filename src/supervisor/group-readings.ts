/**
 * The figures of all gateways, for the one that has the admin interface, and what those had counted that have ended, so that
 * no sum falls when a process does. Supervisor process.
 *
 * A gateway that drains tells its last figures; of one that is killed those count that were last asked for. Nobody has seen
 * higher ones.
 */
import { addStatus, endedStatus } from '../gateway/group-status.js';
import { ERRANDS, type GroupReading, type Reading, type ReadingKind } from '../gateway/snapshots.js';
import { addEnded, endedReading } from '../telemetry/metrics-reading.js';

/** Of whom figures can be asked. */
export interface ReadableProcess {
  read(what: ReadingKind, accounts?: readonly string[]): Promise<Reading>;
}

interface Entry {
  readonly slot: number;
  last: Reading;
}

export class GroupReadings {
  readonly #entries = new Map<ReadableProcess, Entry>();
  #ended: Reading = {};
  /** Those who ask while figures are being collected get them too: two operators cost as much as one. */
  readonly #underWay = new Map<ReadingKind, Promise<GroupReading>>();
  /** Begins when that has ended: for those who ask meanwhile for an errand. */
  readonly #next = new Map<ReadingKind, Promise<GroupReading>>();

  /** Its figures belong to the whole from now on. */
  add(process: ReadableProcess, slot: number): void {
    this.#entries.set(process, { slot, last: {} });
  }

  /** Figures that it told by itself. */
  note(process: ReadableProcess, reading: Reading): void {
    const entry = this.#entries.get(process);
    if (entry !== undefined) entry.last = { ...entry.last, ...reading };
  }

  /** It has ended: its counters stay. */
  remove(process: ReadableProcess): void {
    const entry = this.#entries.get(process);
    this.#entries.delete(process);
    if (entry !== undefined) this.#ended = addReadings(this.#ended, entry.last);
  }

  /** Takes as long as the slowest gateway, and no longer than a gateway may. */
  collect(what: ReadingKind, accounts?: readonly string[]): Promise<GroupReading> {
    if (accounts !== undefined) return this.#ask(what, accounts);
    const underWay = this.#underWay.get(what);
    if (underWay !== undefined) return ERRANDS.has(what) ? this.#collectNext(what, underWay) : underWay;
    const collected = this.#collect(what).finally(() => this.#underWay.delete(what));
    this.#underWay.set(what, collected);
    return collected;
  }

  #collectNext(what: ReadingKind, underWay: Promise<GroupReading>): Promise<GroupReading> {
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
  async #ask(what: ReadingKind, accounts: readonly string[]): Promise<GroupReading> {
    const members = [...this.#entries].map(async ([process, { slot }]) => ({
      slot,
      reading: await process.read(what, accounts),
    }));
    return { members: await Promise.all(members), ended: {} };
  }

  async #collect(what: ReadingKind): Promise<GroupReading> {
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

function only(reading: Reading, what: ReadingKind): Reading {
  return { [what]: reading[what] };
}

/** Tellings of processes that have ended: whoever sums them up has had them two seconds later, before so many more have ended. */
const ENDED_TELLINGS_MAX = 4;

function addReadings(ended: Reading, { metrics, status, accounts = [] }: Reading): Reading {
  return {
    accounts: [...(ended.accounts ?? []), ...accounts].slice(-ENDED_TELLINGS_MAX),
    metrics: addEnded(ended.metrics ?? [], endedReading(metrics ?? [])),
    ...(status === undefined
      ? { ...(ended.status && { status: ended.status }) }
      : {
          status:
            ended.status === undefined ? endedStatus(status) : addStatus(ended.status, endedStatus(status)),
        }),
  };
}
