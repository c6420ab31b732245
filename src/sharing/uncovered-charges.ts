/**
 * Collects uncovered charges: what calls cost beyond their holds, and the lease of this process did not
 * cover. A settlement cannot wait for the coordinator, so it leaves the rest uncovered. This asks the
 * coordinator for the rest, out of the balance that all processes share, and charges what is granted.
 * gateway/shared-accounting.ts makes one; store/flush.ts calls `record`, and stock-leases.ts calls
 * `collect`. Main thread.
 *
 * What cannot be collected in time, or before the process ends, stays recorded as uncovered.
 *
 * Must hold: no more is charged than was left uncovered, because an entry shrinks by each charge; each
 * charge has its correction record.
 */
import { COMMIT_WAIT_MS_MAX } from '../core/limits.js';
import { asPicoUnits, minOf, type AccountIndex, type PicoUnits } from '../core/units.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import { IDLE_MS_PLENTIFUL, type LeaseTimers } from './lease-terms.js';

/**
 * Bound of the entries, of some 200 bytes; further charges stay uncovered. Only nonsense of upstreams makes
 * so many.
 */
const ENTRIES_MAX = 10_000;
/** If responses wait until their charge is on disk, a charge may be taken back, but never so late. */
export const COLLECT_HELD_AFTER_MS = 2 * COMMIT_WAIT_MS_MAX;
/** An entry that is due so long is given up: others have given back by then what lay idle. */
export const COLLECT_FOR_MS = 2 * IDLE_MS_PLENTIFUL;

interface Entry {
  /** With `record.request` it is the id of the call. */
  readonly requestPrefix: string;
  readonly record: JournalRecord;
  /** How much of `record.uncovered` is still to be collected. */
  left: bigint;
  /** False until the charge can no longer be taken back. */
  isDue: boolean;
}

export interface UncoveredChargesOptions {
  /** Asks the coordinator for so much money in all; 0 ends that. `collect` is called when some is here. */
  readonly setUncovered: (account: AccountIndex, amount: PicoUnits) => void;
  /** Charges the account's lease at most so much; returns how much it has charged. */
  readonly charge: (account: AccountIndex, most: PicoUnits) => PicoUnits;
  /** Has a record written with the next flush. */
  readonly correct: (requestPrefix: string, record: JournalRecord) => void;
  /** Whether responses wait until their charge is on disk. */
  readonly holdsResponses: () => boolean;
  readonly timers: Pick<LeaseTimers, 'after'>;
}

export class UncoveredCharges {
  readonly #options: UncoveredChargesOptions;
  readonly #entries = new Set<Entry>();

  constructor(options: UncoveredChargesOptions) {
    this.#options = options;
  }

  /** Takes in the record of a call that left something uncovered, or that reverses such a charge. */
  record(requestPrefix: string, record: JournalRecord): void {
    if (record.outcome === 'collected') return;
    if (record.outcome === 'reversed') this.#forgetCall(requestPrefix, record);
    else if (record.uncovered > 0n && this.#entries.size < ENTRIES_MAX) this.#add(requestPrefix, record);
  }

  /** Called when the lease has money: charges what is due, at most `most`, oldest first; returns how much. */
  collect(account: AccountIndex, most: PicoUnits): PicoUnits {
    const due = this.#dueOf(account);
    const taken = this.#options.charge(account, asPicoUnits(minOf(due, most)));
    let left: bigint = taken;
    for (const entry of this.#entries) {
      if (left === 0n) break;
      if (!entry.isDue || entry.record.account !== account) continue;
      const part = minOf(left, entry.left);
      left -= part;
      entry.left -= part;
      if (entry.left === 0n) this.#entries.delete(entry);
      this.#options.correct(entry.requestPrefix, collectionOf(entry.record, part));
    }
    return taken;
  }

  #add(requestPrefix: string, record: JournalRecord): void {
    const { timers, holdsResponses } = this.#options;
    // A copy, because the journal reuses the object for its next record.
    const entry: Entry = { requestPrefix, record: { ...record }, left: record.uncovered, isDue: false };
    this.#entries.add(entry);
    const { account } = record;
    // 0 ms is a later turn: a flush calls `record` while it drains.
    timers.after(holdsResponses() ? COLLECT_HELD_AFTER_MS : 0, () => {
      if (!this.#entries.has(entry)) return;
      entry.isDue = true;
      this.#publish(account);
      timers.after(COLLECT_FOR_MS, () => {
        if (this.#entries.delete(entry)) this.#publish(account);
      });
    });
  }

  #forgetCall(requestPrefix: string, { request, account }: JournalRecord): void {
    for (const entry of this.#entries) {
      const { record } = entry;
      if (entry.requestPrefix !== requestPrefix || record.request !== request || record.account !== account)
        continue;
      this.#entries.delete(entry);
      if (entry.isDue) this.#publish(account);
    }
  }

  #publish(account: AccountIndex): void {
    this.#options.setUncovered(account, this.#dueOf(account));
  }

  #dueOf(account: AccountIndex): PicoUnits {
    let due = 0n;
    for (const { isDue, left, record } of this.#entries) if (isDue && record.account === account) due += left;
    return asPicoUnits(due);
  }
}

/** The correction: its counts add nothing, and it moves `amount` from uncovered to charged. */
function collectionOf(record: JournalRecord, amount: bigint): JournalRecord {
  return {
    ...record,
    outcome: 'collected',
    promptTokens: 0,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    charged: asPicoUnits(amount),
    uncovered: asPicoUnits(0n - amount),
    durationMs: 0,
  };
}
