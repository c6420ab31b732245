/**
 * What the store tells of the use of a subject of which nothing is lent yet: by gateways that shared nothing, or before the
 * machine was started again. Main thread.
 */
import type { WallMs } from '../core/units.js';
import type { SpendingRecord } from '../registry/account-record.js';
import type { KeyUseRecord } from '../registry/key-record.js';
import type { Store } from '../store/store.js';
import type { UsedBefore } from './subject-leases.js';

const NOTHING: UsedBefore = { dayNumber: 0, dayCalls: 0, minuteUsed: 0, ageMs: 0 };

/** Of an account or of a key with limits of its own. Throws `StoreFault`. Two reads, some microseconds. */
export function usedBefore(
  store: Pick<Store, 'findAccount' | 'findSpending' | 'keys'>,
  subject: string,
  nowMs: WallMs,
): UsedBefore {
  const use = useOf(store, subject);
  if (use === undefined) return NOTHING;
  const { dayNumber, dayCalls, minuteUsed, takenMs } = use;
  return { dayNumber, dayCalls, minuteUsed, ageMs: nowMs - takenMs };
}

function useOf(
  store: Pick<Store, 'findAccount' | 'findSpending' | 'keys'>,
  subject: string,
): SpendingRecord | KeyUseRecord | undefined {
  const account = store.findAccount(subject);
  if (account !== undefined) return store.findSpending(account.index);
  const key = store.keys.find(subject);
  return key === undefined ? undefined : store.keys.findUse(key.index);
}
