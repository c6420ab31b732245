/**
 * What calls have cost beyond their holds and the lease of this process did not cover: it is collected from the balance that all
 * share. A settlement cannot wait for the coordinator, so it leaves the rest uncovered, and a record of its own charges that when the
 * coordinator has granted it. Main thread.
 *
 * Nothing is collected twice: an entry shrinks by what was charged, and its record is written with that charge. What is not collected
 * in time, or when the process ends, stays recorded as uncovered.
 */
import { COMMIT_WAIT_MS_MAX } from '../core/limits.js';
import { asPicoUnits, type AccountIndex, type PicoUnits } from '../core/units.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import { IDLE_MS_PLENTIFUL, type LeaseTimers } from './lease-terms.js';

/** Entries at a time, some 200 bytes each. What comes beyond stays uncovered: an upstream that reports nonsense all the time. */
const ENTRIES_MAX = 10_000;
/** Where responses are held for their charges to be on disk, a charge may be taken back: not any more after so long. */
export const COLLECT_HELD_AFTER_MS = 2 * COMMIT_WAIT_MS_MAX;
/** Then all others have given back what lay idle with them. */
export const COLLECT_FOR_MS = 2 * IDLE_MS_PLENTIFUL;

interface Entry {
  readonly journal: number;
  readonly record: JournalRecord;
  left: bigint;
  isDue: boolean;
}

export interface UncoveredChargesOptions {
  /** Asks the coordinator for so much of the account; 0: for nothing more. Calls `collect` when something is there. */
  readonly owe: (account: AccountIndex, amount: PicoUnits) => void;
  /** Charges at most so much of the account's lease; returns how much. */
  readonly charge: (account: AccountIndex, most: PicoUnits) => PicoUnits;
  /** To be written with the next flush. */
  readonly correct: (journal: number, record: JournalRecord) => void;
  /** Whether responses are held for their charges to be on disk. */
  readonly holdsAnswers: () => boolean;
  readonly timers: Pick<LeaseTimers, 'after'>;
}

export class UncoveredCharges {
  readonly #options: UncoveredChargesOptions;
  readonly #entries = new Set<Entry>();

  constructor(options: UncoveredChargesOptions) {
    this.#options = options;
  }

  /** A call was counted that has left something uncovered, or takes that back. */
  note(journal: number, record: JournalRecord): void {
    if (record.outcome === 'collected') return;
    if (record.outcome === 'reversed') this.#forgetCall(journal, record);
    else if (record.uncovered > 0n && this.#entries.size < ENTRIES_MAX) this.#add(journal, record);
  }

  /** Something of the account is there: charges of it what is due, at most `most`; returns how much. */
  collect(account: AccountIndex, most: PicoUnits): PicoUnits {
    const due = this.#dueOf(account);
    const taken = this.#options.charge(account, due < most ? due : most);
    let left: bigint = taken;
    for (const entry of this.#entries) {
      if (left === 0n) break;
      if (!entry.isDue || entry.record.account !== account) continue;
      const part = left < entry.left ? left : entry.left;
      left -= part;
      entry.left -= part;
      if (entry.left === 0n) this.#entries.delete(entry);
      this.#options.correct(entry.journal, collectionOf(entry.record, part));
    }
    return taken;
  }

  #add(journal: number, record: JournalRecord): void {
    const { timers, holdsAnswers: holdsReplies } = this.#options;
    // A journal's record is overwritten by the next.
    const entry: Entry = { journal, record: { ...record }, left: record.uncovered, isDue: false };
    this.#entries.add(entry);
    const { account } = record;
    timers.after(holdsReplies() ? COLLECT_HELD_AFTER_MS : 0, () => {
      if (!this.#entries.has(entry)) return;
      entry.isDue = true;
      this.#tell(account);
      timers.after(COLLECT_FOR_MS, () => {
        if (this.#entries.delete(entry)) this.#tell(account);
      });
    });
  }

  #forgetCall(journal: number, { request, account }: JournalRecord): void {
    for (const entry of this.#entries) {
      const { record } = entry;
      if (entry.journal !== journal || record.request !== request || record.account !== account) continue;
      this.#entries.delete(entry);
      if (entry.isDue) this.#tell(account);
    }
  }

  #tell(account: AccountIndex): void {
    this.#options.owe(account, this.#dueOf(account));
  }

  #dueOf(account: AccountIndex): PicoUnits {
    let due = 0n;
    for (const { isDue, left, record } of this.#entries) if (isDue && record.account === account) due += left;
    return asPicoUnits(due);
  }
}

function collectionOf(record: JournalRecord, amount: bigint): JournalRecord {
  return {
    ...record,
    outcome: 'collected',
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    charged: asPicoUnits(amount),
    uncovered: asPicoUnits(0n - amount),
    durationMs: 0,
  };
}
