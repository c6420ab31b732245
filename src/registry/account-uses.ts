/**
 * What all processes together use of accounts, and of keys with limits of their own, that they share, as far as it has been asked for. Who asks cannot wait while a
 * transaction runs, so it is asked beforehand: work is run once to see whose use it shows. Main thread.
 */
import type { PicoUnits } from '../core/units.js';

export interface AccountUse {
  /** Lent to processes and not yet in the store as spent. */
  readonly held: PicoUnits;
  /** Of all hosts. */
  readonly spent: PicoUnits;
  /** Permits that weigh in the current minute, lent ones included, as are the next. */
  readonly minuteUsed: number;
  readonly dayNumber: number;
  readonly dayCalls: number;
  readonly callsInFlight: number;
}

export type KnownUses = ReadonlyMap<string, AccountUse>;

export class AccountUses {
  #known: KnownUses | undefined;
  #missed: Set<string> | undefined;

  /** Runs `work` with what is known; `missed` are ids of those whose use was wanted beyond that. Not nested. */
  show<Result>(
    known: KnownUses,
    work: () => Result,
  ): { readonly result: Result; readonly missed: ReadonlySet<string> } {
    const missed = new Set<string>();
    this.#known = known;
    this.#missed = missed;
    try {
      return { result: work(), missed };
    } finally {
      this.#known = undefined;
      this.#missed = undefined;
    }
  }

  /** By the id of an account or a key. */
  find(id: string): AccountUse | undefined {
    const use = this.#known?.get(id);
    if (use === undefined) this.#missed?.add(id);
    return use;
  }
}
