/**
 * Applies to this process's shared buffers what other processes of this host change in the registry.
 * gateway/shared-accounting.ts starts one on the main thread of a gateway process that shares its registry.
 *
 * It reads the newest number of the change feed every 25 ms, in some µs. It then reads the records that the
 * changes touched as they are now, so several changes of one record are applied once. A record that could not
 * be applied is tried again: twice with the next look, then after pauses that double up to 10 s.
 *
 * Must hold: a disabled key is rejected by every thread of every process within 100 ms. Test:
 * test/unit/sharing/change-follower.test.ts, which accepts 2 s, because machines of tests may be slow.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { errorText } from '../core/errors.js';
import { asAccountIndex, asGroupIndex, asKeyIndex } from '../core/units.js';
import type { ChangeApplier } from '../registry/live-buffers.js';
import type { ChangeFeed, Touched } from '../store/change-feed.js';
import type { Log } from '../telemetry/log.js';

/** A disabled key must be rejected within 100 ms: time for two looks, even if the main thread is busy. */
const LOOK_PERIOD_MS = 25;

/** How many records are read anew in one event-loop turn, in some 10 ms. */
const PAGE_RECORDS = 500;

/** After how many failed looks the log repeats that the store cannot be read: 10 s. */
const LOG_PERIOD_LOOKS = 400;

/** The longest pause before a record is tried again: 10 s. */
const PAUSE_LOOKS_MAX = 400;
/** With this try, 13 s after the first, the pause has become the longest. */
const TRIES_UNTIL_LONGEST = 11;
/** After so many tries more the log repeats that the record cannot be applied: 10 minutes. */
const LOG_PERIOD_TRIES = 60;

/** A record whose change could not be applied. */
interface FailedRecord {
  /** How often, since its last change. */
  readonly tries: number;
  /** The look that tries again. */
  readonly dueLook: number;
  readonly again: () => void;
}

export interface ChangeFollowerOptions {
  readonly feed: Pick<ChangeFeed, 'newest' | 'since'>;
  readonly applier: Pick<ChangeApplier, 'applyGroup' | 'applyAccount' | 'applyKey'>;
  /** `feed.newest()` from before the buffers were filled from the store. */
  readonly appliedTo: number;
  readonly groupsMax: number;
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly log: Log;
}

export class ChangeFollower {
  readonly #options: ChangeFollowerOptions;
  #appliedTo: number;
  #failedLooks = 0;
  #readsAll = false;
  /** Whether a group was taken over after all. Until then its accounts were disabled. */
  #isGroupBack = false;
  /** How often all records were read anew. */
  #readings = 0;
  /** How many looks there were, but for those while all records were read anew. */
  #looks = 0;
  /** The records whose changes could not be applied, by what the log calls them. */
  readonly #failed = new Map<string, FailedRecord>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ChangeFollowerOptions) {
    this.#options = options;
    this.#appliedTo = options.appliedTo;
  }

  /** Looks every 25 ms from now on. A failed look is logged, and the next one tries again. */
  start(): void {
    this.#timer = setInterval(() => this.look(), LOOK_PERIOD_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /**
   * The newest change that every thread of this process sees; 0 while it reads everything anew, or lacks a
   * change that could not be applied. A record that has failed for 13 s does not count: whoever changed it
   * was warned long before, and later changes of other records are no cause for a warning.
   */
  get appliedTo(): number {
    const isLate = [...this.#failed.values()].some(({ tries }) => tries < TRIES_UNTIL_LONGEST);
    return this.#readsAll || isLate ? 0 : this.#appliedTo;
  }

  /** Applies all changes that any process has committed. Every thread of this process sees them on return. */
  look(): void {
    try {
      this.#follow();
      this.#failedLooks = 0;
      if (this.#isGroupBack) void this.#applyAll('a group was taken over late');
    } catch (error) {
      if (this.#failedLooks++ % LOG_PERIOD_LOOKS > 0) return;
      this.#options.log.error('changes of other processes cannot be read; they are looked for again', {
        error: errorText(error),
      });
    }
  }

  #follow(): void {
    const { feed } = this.#options;
    if (!this.#readsAll) this.#tryAgain();
    const newest = feed.newest();
    if (newest === this.#appliedTo) return;
    const touched = feed.since(this.#appliedTo);
    this.#appliedTo = newest;
    if (touched !== undefined) this.#apply(touched);
    else void this.#applyAll('this process fell far behind the others');
  }

  #tryAgain(): void {
    this.#looks += 1;
    if (this.#failed.size === 0) return;
    const due = [...this.#failed.values()].filter(({ dueLook }) => dueLook <= this.#looks);
    for (const { again } of due.slice(0, PAGE_RECORDS)) again();
  }

  #apply({ groups = [], accounts, keys }: Touched): void {
    const { applier } = this.#options;
    for (const group of groups) this.#attempt('group', group, () => applier.applyGroup(group));
    for (const account of accounts) this.#attempt('account', account, () => applier.applyAccount(account));
    for (const key of keys) this.#attempt('key', key, () => applier.applyKey(key));
  }

  /** Reads all records: the feed does not tell which changes this process lacks. `why` is for the log. */
  async #applyAll(why: string): Promise<void> {
    const { groupsMax, accountsMax, keysMax, log } = this.#options;
    this.#readsAll = true;
    this.#isGroupBack = false;
    const reading = ++this.#readings;
    log.warn(`${why}; all groups, accounts and keys are read anew`);
    // All groups first: an account whose group is not in the buffers is disabled.
    for (let first = 0; first < groupsMax; first += PAGE_RECORDS) {
      this.#apply({ groups: page(first, groupsMax).map(asGroupIndex), accounts: [], keys: [] });
      await nextTurn();
    }
    for (let first = 0; first < Math.max(accountsMax, keysMax); first += PAGE_RECORDS) {
      this.#apply({
        accounts: page(first, accountsMax).map(asAccountIndex),
        keys: page(first, keysMax).map(asKeyIndex),
      });
      await nextTurn();
    }
    // If it fell behind again meanwhile, the later reading goes on.
    if (reading === this.#readings) this.#readsAll = false;
  }

  /**
   * One record that cannot be read must not keep the others from being applied. `tries`: how often its change
   * could not be applied; 0 for a new change.
   */
  #attempt(kind: 'account' | 'group' | 'key', slot: number, work: () => void, tries = 0): void {
    const { log } = this.#options;
    const name = `${kind} in slot ${slot}`;
    const hasFailed = this.#failed.delete(name);
    try {
      work();
      if (!hasFailed) return;
      log.warn(`a change of the ${name} was taken over after all`);
      if (kind === 'group') this.#isGroupBack = true;
    } catch (error) {
      const failed = tries + 1;
      const pauseLooks = Math.min(Math.max(1, 2 ** (failed - 2)), PAUSE_LOOKS_MAX);
      // At the end, so that those after it are tried too.
      this.#failed.set(name, {
        tries: failed,
        dueLook: this.#looks + pauseLooks,
        again: () => this.#attempt(kind, slot, work, failed),
      });
      if (tries % LOG_PERIOD_TRIES === 0)
        log.error(`a change of the ${name} was not taken over; it is tried again`, {
          error: errorText(error),
        });
    }
  }
}

/** The slots of one page, from `first` to below `end`. */
function page(first: number, end: number): number[] {
  return Array.from({ length: Math.min(PAGE_RECORDS, Math.max(0, end - first)) }, (_, at) => first + at);
}
