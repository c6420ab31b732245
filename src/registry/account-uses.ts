/**
 * What all processes together use of accounts, and of keys with limits of their own, that they share, as far as it has been asked for. Who asks cannot wait while a
 * transaction runs, so it is asked beforehand: work is run once to see whose use it shows. Main thread.
 */
import type { PicoUnits } from '../core/units.js';

/** What processes were lent of an account in advance, and its calls do not use. */
export interface LeasedAhead {
  readonly minute: number;
  readonly dayCalls: number;
  readonly callsInFlight: number;
  readonly money: PicoUnits;
}

export interface AccountUse {
  /** By calls of this host, or charged by them and not in the store yet. */
  readonly held: PicoUnits;
  /** Of all hosts. */
  readonly spent: PicoUnits;
  /** Permits that weigh in the current minute; of other hosts, as of keys, lent ones included, as are the next. */
  readonly minuteUsed: number;
  readonly dayNumber: number;
  readonly dayCalls: number;
  /** Of this host. */
  readonly callsInFlight: number;
  /** To all hosts; of others also what their calls use. */
  readonly leased: LeasedAhead;
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
