/**
 * The accounts and keys of which this node holds something, or for which somebody waits. Bounded by the accounts and keys of the
 * ledger; one that has come to rest is forgotten. Main thread.
 */
import type { AccountIndex, KeyIndex } from '../core/units.js';
import { LeaseSubject, type SubjectPlace } from './lease-subject.js';

export interface SubjectPlaces {
  /** Where the leases of an account, or of a key, are; undefined for one that is not known. */
  readonly placeOfAccount: (account: AccountIndex) => SubjectPlace | undefined;
  readonly placeOfKey: (key: KeyIndex) => SubjectPlace | undefined;
}

export class LeaseSubjects {
  readonly #places: SubjectPlaces;
  readonly #accounts = new Map<AccountIndex, LeaseSubject>();
  readonly #keys = new Map<KeyIndex, LeaseSubject>();

  constructor(places: SubjectPlaces) {
    this.#places = places;
  }

  get size(): number {
    return this.#accounts.size + this.#keys.size;
  }

  account(account: AccountIndex, nowMs: number): LeaseSubject | undefined {
    return this.#accounts.get(account) ?? open(account, this.#accounts, this.#places.placeOfAccount, nowMs);
  }

  /** Undefined where nothing is held of it and nobody waits. */
  findAccount(account: AccountIndex): LeaseSubject | undefined {
    return this.#accounts.get(account);
  }

  key(key: KeyIndex, nowMs: number): LeaseSubject | undefined {
    return this.#keys.get(key) ?? open(key, this.#keys, this.#places.placeOfKey, nowMs);
  }

  *[Symbol.iterator](): Iterator<LeaseSubject> {
    yield* this.#accounts.values();
    yield* this.#keys.values();
  }

  forget({ place }: LeaseSubject): void {
    if (place.account === undefined) this.#keys.delete(place.index as KeyIndex);
    else this.#accounts.delete(place.account.index);
  }
}

function open<Index extends number>(
  index: Index,
  subjects: Map<Index, LeaseSubject>,
  placeOf: (index: Index) => SubjectPlace | undefined,
  nowMs: number,
): LeaseSubject | undefined {
  const place = placeOf(index);
  if (place === undefined) return undefined;
  const subject = new LeaseSubject(place, nowMs);
  subjects.set(index, subject);
  return subject;
}
