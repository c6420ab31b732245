/**
 * Collects uncovered charges: what calls cost beyond their holds and beyond what this process has leased. A
 * settlement cannot wait for the coordinator, so it leaves that part uncovered. UncoveredCharges asks the
 * coordinator for it, out of the balance that all processes share, and charges what is granted.
 * gateway/shared-accounting.ts makes one; store/flush.ts calls `record`, and money-lease.ts calls
 * `collect`. Main thread.
 *
 * What cannot be collected in time, or before the process ends, stays recorded as uncovered.
 *
 * Must hold (test/unit/sharing/uncovered-charges.test.ts):
 * - No more is charged than was left uncovered: an entry shrinks by each charge, and each charge has its
 *   correction record.
 * - A flush may record thousands of entries at once. So the work for one entry does not grow with the number
 *   of entries, and an entry that ends leaves no timer.
 */
import { COMMIT_WAIT_MS_MAX } from '../core/limits.js';
import { asPicoUnits, minOf, type AccountIndex, type PicoUnits } from '../core/units.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import { IDLE_MS_PLENTIFUL } from './lease-terms.js';
import { type LeaseTimers } from './lease-timers.js';

/** How many entries there may be, of some 200 bytes; only upstreams that report nonsense make so many. */
const ENTRIES_MAX = 10_000;
/** If responses wait until their charge is on disk, it may be reversed until then: an entry is due later. */
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
  /** Whether the charge can no longer be reversed, so that it is collected now. */
  isDue: boolean;
  /** Cancels the timer that makes the entry due, and after that the timer that drops it. */
  cancelTimer: () => void;
}

interface AccountEntries {
  /** By the id of the call, oldest first. A call is settled once, so it has one entry at most. */
  readonly byCall: Map<string, Entry>;
  /** The sum of `uncollected` of the entries that are due. */
  due: bigint;
}

interface UncoveredChargesOptions {
  /** Asks the coordinator for `amount` in all; 0 ends that. `collect` is called when the lease has money. */
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
  /** An account without entries is not in the map. */
  readonly #accounts = new Map<AccountIndex, AccountEntries>();
  #size = 0; // how many entries all accounts have

  constructor(options: UncoveredChargesOptions) {
    this.#options = options;
  }

  /** Begins an entry for an uncovered charge, and forgets the entry of a call that is reversed. */
  record(requestPrefix: string, record: JournalRecord): void {
    if (record.outcome === 'collected') return;
    const entry = this.#accounts.get(record.account)?.byCall.get(callIdOf(requestPrefix, record));
    if (record.outcome !== 'reversed') {
      const isWanted = record.uncovered > 0n && this.#size < ENTRIES_MAX;
      if (isWanted && entry === undefined) this.#add(requestPrefix, record);
    } else if (entry !== undefined) this.#drop(entry);
  }

  /** Called when the lease has money. Charges what is due, oldest first, `amountMax` at most. */
  collect(account: AccountIndex, amountMax: PicoUnits): PicoUnits {
    const entries = this.#accounts.get(account);
    const charged = this.#options.charge(account, asPicoUnits(minOf(entries?.due ?? 0n, amountMax)));
    if (entries === undefined) return charged;
    let toDivide: bigint = charged;
    for (const entry of entries.byCall.values()) {
      if (toDivide === 0n) break;
      if (!entry.isDue) continue;
      const amount = minOf(toDivide, entry.uncollected);
      toDivide -= amount;
      entry.uncollected -= amount;
      entries.due -= amount;
      if (entry.uncollected === 0n) this.#remove(entry);
      this.#options.correct(entry.requestPrefix, correctionOf(entry.record, amount));
    }
    return charged;
  }

  #add(requestPrefix: string, record: JournalRecord): void {
    const { timers, holdsResponses } = this.#options;
    const { account, uncovered } = record;
    const entries = this.#accounts.get(account) ?? { byCall: new Map<string, Entry>(), due: 0n };
    this.#accounts.set(account, entries);
    const entry: Entry = {
      requestPrefix,
      // A copy, because the journal reuses the object for its next record.
      record: { ...record },
      uncollected: uncovered,
      isDue: false,
      // Even 0 ms is a later event-loop turn. It must be: a flush calls `record` while it drains the journal.
      cancelTimer: timers.after(holdsResponses() ? COLLECT_HELD_AFTER_MS : 0, () => {
        entry.isDue = true;
        entries.due += entry.uncollected;
        entry.cancelTimer = timers.after(COLLECT_FOR_MS, () => this.#drop(entry));
        this.#publish(account);
      }),
    };
    entries.byCall.set(callIdOf(requestPrefix, record), entry);
    this.#size += 1;
  }

  /** Ends an entry that is not to be collected any more. */
  #drop(entry: Entry): void {
    this.#remove(entry);
    if (entry.isDue) this.#publish(entry.record.account);
  }

  #remove({ requestPrefix, record, uncollected, isDue, cancelTimer }: Entry): void {
    // `!`: an account with an entry is in the map.
    const entries = this.#accounts.get(record.account)!;
    cancelTimer();
    entries.byCall.delete(callIdOf(requestPrefix, record));
    if (isDue) entries.due -= uncollected;
    if (entries.byCall.size === 0) this.#accounts.delete(record.account);
    this.#size -= 1;
  }

  /** May collect at once: `setUncovered` calls `collect` if the lease has money. */
  #publish(account: AccountIndex): void {
    this.#options.setUncovered(account, asPicoUnits(this.#accounts.get(account)?.due ?? 0n));
  }
}

function callIdOf(requestPrefix: string, { request }: JournalRecord): string {
  return `${requestPrefix}${request}`;
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
