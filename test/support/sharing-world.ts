/**
 * What gateways that share a data directory work on in tests: two accounts, a key for each slot, subjects
 * with limits alone.
 */
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asPicoUnits, type AccountIndex, type PicoUnits } from '#src/core/units.js';
import { Store } from '#src/store/store.js';
import { offlineRegistry } from '../unit/store/support.js';

export interface SharingAccount {
  readonly index: AccountIndex;
  readonly name: string;
  readonly credit: PicoUnits;
}

/** More than can be spent in a test. */
export const RICH: SharingAccount = {
  index: asAccountIndex(0),
  name: 'rich',
  credit: asPicoUnits(10n ** 15n),
};

/** Spent to the end, to which the cost of a call does not lead. */
export const POOR: SharingAccount = { index: asAccountIndex(1), name: 'poor', credit: asPicoUnits(300_004n) };

export const SLOTS = 4;

/** Subjects that are asked for calls all the time, by their limit. */
export const MINUTE_LIMITS = [5, 60, 1_000] as const;
export const DAY_LIMIT = 700;

/** A permit that is used weighs at most so long. */
export const MINUTE_MS = 60_000;

/** Makes the store. */
export async function makeSharingWorld(path: string): Promise<void> {
  const store = new Store(path);
  const registry = offlineRegistry(store, new SystemClock());
  for (const { name, credit } of [RICH, POOR]) registry.accounts.create({ name, planId: 'free', credit });
  for (let slot = 0; slot < SLOTS; slot++) registry.keys.create({ account: RICH.name, name: `slot ${slot}` });
  await store.close();
}
