/**
 * Collects uncovered charges: what calls cost beyond their holds, and the lease of this process did not
 * cover. A settlement cannot wait for the coordinator, so it leaves this part uncovered. UncoveredCharges
 * asks the coordinator for the part, out of the balance that all processes share, and charges the grants.
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
 * How many entries there may be, of some 200 bytes each; further charges stay uncovered. Only upstreams that
 * report nonsense make so many.
 */
const ENTRIES_MAX = 10_000;
/**
 * How long an entry waits if responses wait until their charge is on disk: such a charge may be taken back,
 * but not so late.
 */
export const COLLECT_HELD_AFTER_MS = 2 * COMMIT_WAIT_MS_MAX;
/** An entry that is due for so long is dropped. By then others have given back what lay idle. */
export const COLLECT_FOR_MS = 2 * IDLE_MS_PLENTIFUL;

/** An uncovered charge that is to be collected. */
interface Entry {
  /** Prefix and `record.request` together are the id of the call. */
  readonly requestPrefix: string;
  readonly record: JournalRecord;
  /** How much of `record.uncovered` is still to be collected. */
  uncollected: bigint;
  /** Whether the charge can no longer be taken back, so that it is collected now. */
  isDue: boolean;
}

interface UncoveredChargesOptions {
  /** Asks the coordinator for `amount` in all; 0 ends that. `collect` is called when some money is here. */
  readonly setUncovered: (account: AccountIndex, amount: PicoUnits) => void;
  /** Charges the account's lease `amountMax` at most; returns how much it has charged. */
  readonly charge: (account: AccountIndex, amountMax: PicoUnits) => PicoUnits;
  /** Has a correction record written with the next flush. */
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

  /** Begins an entry for an uncovered charge, and forgets the entries of a call that is reversed. */
  record(requestPrefix: string, record: JournalRecord): void {
    if (record.outcome === 'collected') return;
    if (record.outcome === 'reversed') this.#forgetCall(requestPrefix, record);
    else if (record.uncovered > 0n && this.#entries.size < ENTRIES_MAX) this.#add(requestPrefix, record);
  }

  /** Called when the lease has money. Charges what is due, oldest first, `amountMax` at most. */
  collect(account: AccountIndex, amountMax: PicoUnits): PicoUnits {
    const due = this.#dueOf(account);
    const charged = this.#options.charge(account, asPicoUnits(minOf(due, amountMax)));
    let toDivide: bigint = charged;
    for (const entry of this.#entries) {
      if (toDivide === 0n) break;
      if (!entry.isDue || entry.record.account !== account) continue;
      const amount = minOf(toDivide, entry.uncollected);
      toDivide -= amount;
      entry.uncollected -= amount;
      if (entry.uncollected === 0n) this.#entries.delete(entry);
      this.#options.correct(entry.requestPrefix, correctionOf(entry.record, amount));
    }
    return charged;
  }

  #add(requestPrefix: string, record: JournalRecord): void {
    const { timers, holdsResponses } = this.#options;
    // A copy, because the journal reuses the object for its next record.
    const uncollected = record.uncovered;
    const entry: Entry = { requestPrefix, record: { ...record }, uncollected, isDue: false };
    this.#entries.add(entry);
    const { account } = record;
    // Also after 0 ms it is a later turn, as it must be: a flush calls `record` while it drains.
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
    for (const { isDue, uncollected, record } of this.#entries)
      if (isDue && record.account === account) due += uncollected;
    return asPicoUnits(due);
  }
}

/** The correction record: its counts add nothing, and it moves `amount` from uncovered to charged. */
function correctionOf(record: JournalRecord, amount: bigint): JournalRecord {
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
