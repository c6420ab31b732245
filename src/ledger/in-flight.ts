/**
 * How many calls of an account are in flight in this process, and how many may be. Any thread.
 */
import type { AccountIndex } from '../core/units.js';
import { COUNTED_WORDS32, GRANTED_SLOTS, LOW_SLOTS, type LedgerViews } from './layout.js';

/** Against a limit that comes with the call. */
export class InFlight {
  protected readonly counts: Int32Array;

  constructor(views: LedgerViews) {
    this.counts = views.inFlight;
  }

  of(account: AccountIndex): number {
    return Atomics.load(this.counts, account);
  }

  /** Takes a place; false, and none is taken, where `callsMax` are taken. For a moment of a refusal it is counted all the same. */
  take(account: AccountIndex, callsMax: number): boolean {
    if (Atomics.add(this.counts, account, 1) < callsMax) return true;
    Atomics.sub(this.counts, account, 1);
    return false;
  }

  giveBack(account: AccountIndex): void {
    Atomics.sub(this.counts, account, 1);
  }
}

/** Against places that were granted. The place is taken before they are read, so who takes some back sees every place that is taken. */
export class LeasedInFlight extends InFlight {
  readonly #records32: Int32Array;
  readonly #onLow: (account: AccountIndex) => void;

  /** `onLow` is called by whoever takes the place that leaves few. */
  constructor(views: LedgerViews, onLow: (account: AccountIndex) => void) {
    super(views);
    this.#records32 = views.accounts.records32;
    this.#onLow = onLow;
  }

  override take(account: AccountIndex): boolean {
    const before = Atomics.add(this.counts, account, 1);
    const first = account * COUNTED_WORDS32;
    const left = Atomics.load(this.#records32, first + GRANTED_SLOTS) - before - 1;
    if (left < 0) {
      Atomics.sub(this.counts, account, 1);
      return false;
    }
    if (left === Atomics.load(this.#records32, first + LOW_SLOTS)) this.#onLow(account);
    return true;
  }
}
