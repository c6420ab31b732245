/**
 * Applies to this process's shared buffers what any process of this host has changed in the registry.
 * gateway/shared-accounting.ts makes one on the main thread of a gateway process that shares its registry.
 *
 * A poll, every 25 ms, reads the newest number of the change feed, in some µs. It then reads each record that
 * the changes touched (a group, an account, a key) as it is now. So several changes of one record are applied
 * once. If that fails, the record is tried again: with the next two polls, then after pauses up to 10 s. If
 * the feed does not reach back to the last poll, or a group was applied late, a _resync_ reads all records,
 * page by page, over many event-loop turns.
 *
 * Must hold: every thread of every process rejects a disabled key within 100 ms. The unit test accepts 2 s,
 * because machines of tests may be slow.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { errorText } from '../core/errors.js';
import { asAccountIndex, asGroupIndex, asKeyIndex } from '../core/units.js';
import type { ChangeApplier } from '../registry/change-applier.js';
import type { ChangeFeed, TouchedSlots } from '../store/change-feed.js';
import type { Log } from '../telemetry/log.js';

/** Leaves time for two polls within the 100 ms, even if the main thread is busy. */
const POLL_PERIOD_MS = 25;

/** How many records of a kind one event-loop turn reads or tries again; so many take some 10 ms. */
const PAGE_RECORDS = 500;

/** After so many failed polls (10 s) the log repeats that the store cannot be read. */
const LOG_PERIOD_POLLS = 400;

/** The longest pause before a record is tried again, in polls: 10 s. */
const PAUSE_POLLS_MAX = 400;
/** After so many tries, 13 s after the first, the pause is the longest. */
const TRIES_UNTIL_LONGEST = 11;
/** After so many tries (about 10 minutes) the log repeats that the record cannot be applied. */
const LOG_PERIOD_TRIES = 60;

interface FailedRecord {
  /** How often the record was tried, and failed, since its last change. */
  readonly tries: number;
  /** The number of the poll that tries again. */
  readonly duePoll: number;
  readonly tryAgain: () => void;
}

interface ChangeFollowerOptions {
  readonly feed: Pick<ChangeFeed, 'newest' | 'since'>;
  readonly applier: Pick<ChangeApplier, 'applyGroup' | 'applyAccount' | 'applyKey'>;
  /** `feed.newest()`, read before the buffers were filled from the store, so that no change is missed. */
  readonly appliedTo: number;
  /** How many slots there are: a resync visits each. */
  readonly groupsMax: number;
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly log: Log;
}

export class ChangeFollower {
  readonly #options: ChangeFollowerOptions;
  #appliedTo: number; // the number of the newest change that was read
  #failedPolls = 0; // how many polls in a row have failed
  #hasStopped = false;
  /** Whether a group was applied late. Its accounts stay disabled until the next resync. */
  #wasGroupLate = false;
  #resyncs = 0; // how many resyncs are under way: one may begin while another reads
  #pollCount = 0; // how many polls there were outside of resyncs: the clock of `FailedRecord.duePoll`
  /** The records whose changes could not be applied, by what the log calls them. */
  readonly #failed = new Map<string, FailedRecord>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ChangeFollowerOptions) {
    this.#options = options;
    this.#appliedTo = options.appliedTo;
  }

  /** Polls every 25 ms from now on. A failed poll is logged, and the next one tries again. */
  start(): void {
    this.#timer = setInterval(() => this.poll(), POLL_PERIOD_MS);
  }

  /** From now on nothing reads the store, which may be closed next: no `poll`, and no resync under way. */
  stop(): void {
    this.#hasStopped = true;
    clearInterval(this.#timer);
  }

  /**
   * The number of the newest change that every thread of this process sees, for the process that made it
   * (`followChanges` of gateway/shared-accounting.ts). 0 during a resync, and while a record cannot be
   * applied, for 13 s at most: by then the operator who changed it was warned, and others need no warning.
   */
  get appliedTo(): number {
    const isLate = [...this.#failed.values()].some(({ tries }) => tries < TRIES_UNTIL_LONGEST);
    return this.#resyncs > 0 || isLate ? 0 : this.#appliedTo;
  }

  /**
   * Applies all changes that any process has committed. On return every thread of this process sees the
   * changes that could be applied. Does nothing after `stop`: other processes, and changes under way, may
   * still cause a poll. Never throws.
   */
  poll(): void {
    if (this.#hasStopped) return;
    try {
      this.#follow();
      this.#failedPolls = 0;
      if (this.#wasGroupLate) void this.#resync('a group was applied late');
    } catch (error) {
      if (this.#failedPolls++ % LOG_PERIOD_POLLS > 0) return;
      this.#options.log.error('changes of other processes cannot be read; they are looked for again', {
        error: errorText(error),
      });
    }
  }

  #follow(): void {
    const { feed } = this.#options;
    if (this.#resyncs === 0) this.#tryAgain();
    const newest = feed.newest();
    if (newest === this.#appliedTo) return;
    // Undefined if the feed does not reach back so far.
    const touched = feed.since(this.#appliedTo);
    // Set before the records are applied: those that fail are in `#failed` and hold `appliedTo` at 0.
    this.#appliedTo = newest;
    if (touched !== undefined) this.#apply(touched);
    else void this.#resync('this process fell far behind the others');
  }

  #tryAgain(): void {
    this.#pollCount += 1;
    if (this.#failed.size === 0) return;
    const due = [...this.#failed.values()].filter(({ duePoll }) => duePoll <= this.#pollCount);
    for (const { tryAgain } of due.slice(0, PAGE_RECORDS)) tryAgain();
  }

  #apply({ groups, accounts, keys }: TouchedSlots): void {
    const { applier } = this.#options;
    for (const group of groups) this.#attempt('group', group, () => applier.applyGroup(group));
    for (const account of accounts) this.#attempt('account', account, () => applier.applyAccount(account));
    for (const key of keys) this.#attempt('key', key, () => applier.applyKey(key));
  }

  /** Reads and applies all records. `why` is for the log. Never rejects. */
  async #resync(why: string): Promise<void> {
    const { groupsMax, accountsMax, keysMax, log } = this.#options;
    this.#resyncs += 1;
    this.#wasGroupLate = false;
    log.warn(`${why}; all groups, accounts and keys are read anew`);
    // Groups come first: an account whose group is not in the buffers is disabled.
    for (let first = 0; first < groupsMax; first += PAGE_RECORDS) {
      this.#apply({ groups: slotsOfPage(first, groupsMax).map(asGroupIndex), accounts: [], keys: [] });
      // A group that was applied late here needs no further resync: all accounts are still to be read.
      this.#wasGroupLate = false;
      await nextTurn();
      if (this.#hasStopped) return;
    }
    for (let first = 0; first < Math.max(accountsMax, keysMax); first += PAGE_RECORDS) {
      this.#apply({
        groups: [],
        accounts: slotsOfPage(first, accountsMax).map(asAccountIndex),
        keys: slotsOfPage(first, keysMax).map(asKeyIndex),
      });
      await nextTurn();
      if (this.#hasStopped) return;
    }
    this.#resyncs -= 1;
  }

  /**
   * Applies one record. If `applyRecord` throws, the record is tried later, and the other records go on.
   * `tries`: how often the change has failed; 0 for a new change.
   */
  #attempt(kind: 'account' | 'group' | 'key', slot: number, applyRecord: () => void, tries = 0): void {
    const { log } = this.#options;
    const name = `${kind} in slot ${slot}`;
    const hasFailed = this.#failed.delete(name);
    try {
      applyRecord();
      if (!hasFailed) return;
      log.warn(`a change of the ${name} was applied after all`);
      if (kind === 'group') this.#wasGroupLate = true;
    } catch (error) {
      const triesFailed = tries + 1;
      const pausePolls = Math.min(Math.max(1, 2 ** (triesFailed - 2)), PAUSE_POLLS_MAX);
      // `set` puts the record at the end of the map, so that the others have their turn if more are due than
      // PAGE_RECORDS.
      this.#failed.set(name, {
        tries: triesFailed,
        duePoll: this.#pollCount + pausePolls,
        tryAgain: () => this.#attempt(kind, slot, applyRecord, triesFailed),
      });
      if (tries % LOG_PERIOD_TRIES === 0)
        log.error(`a change of the ${name} was not applied; it is tried again`, {
          error: errorText(error),
        });
    }
  }
}

function slotsOfPage(first: number, end: number): number[] {
  const length = Math.min(PAGE_RECORDS, Math.max(0, end - first));
  return Array.from({ length }, (_, index) => first + index);
}
