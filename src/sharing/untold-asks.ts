/**
 * What a node holds by state while the authority cannot be reached, for the authority to be told of before anything else: the
 * newest that was said of each subject, with what was lent since. Main thread.
 *
 * Bounded by the accounts and keys of the ledger.
 */
import { asPicoUnits } from '../core/units.js';
import { EXCHANGE_ASKS_MAX, type LeaseAnswer, type LeaseAsk } from './authority.js';

const NOTHING = asPicoUnits(0n);

export class UntoldAsks {
  readonly #asks = new Map<string, LeaseAsk>();

  get size(): number {
    return this.#asks.size;
  }

  /** `ask` was answered here. */
  note({ subject, limits, day, slots, money }: LeaseAsk, answer: LeaseAnswer): void {
    const before = this.#asks.get(subject);
    const told: LeaseAsk = {
      ...before,
      subject,
      limits,
      ...(day === undefined
        ? {}
        : { day: { ...day, unused: day.unused + (answer.day?.granted ?? 0), least: 0, most: 0 } }),
      ...(slots === undefined
        ? {}
        : { slots: { outstanding: slots.outstanding + (answer.slots?.granted ?? 0), least: 0, most: 0 } }),
      ...(money === undefined
        ? {}
        : {
            money: {
              ...money,
              outstanding: asPicoUnits(money.outstanding + (answer.money?.granted ?? 0n)),
              least: NOTHING,
              most: NOTHING,
            },
          }),
    };
    this.#asks.set(subject, told);
  }

  /** The next ones to be told, at most as many as one exchange carries. */
  page(): LeaseAsk[] {
    const page: LeaseAsk[] = [];
    for (const ask of this.#asks.values()) {
      if (page.length === EXCHANGE_ASKS_MAX) break;
      page.push(ask);
    }
    return page;
  }

  /** The authority has them. What was said anew of a subject meanwhile stays. */
  told(page: readonly LeaseAsk[]): void {
    for (const ask of page) if (this.#asks.get(ask.subject) === ask) this.#asks.delete(ask.subject);
  }
}
