/** What a key that rotation made begins with: the counts of the key in whose place it came. Pure; main thread. */
import type { InheritedUse, KeyUseRecord } from './key-record.js';

/** Permits weigh no longer. */
const WINDOW_MS = 60_000;

export function inheritedOf(use: KeyUseRecord | undefined): InheritedUse | undefined {
  if (use === undefined) return undefined;
  const { minuteUsed, dayNumber, dayCalls, takenMs } = use;
  return { minuteUsed, dayNumber, dayCalls, takenMs };
}

/** `now` with what was inherited `before`, which nobody has counted yet where the key was not used since. */
export function laterUse(now: InheritedUse, before: InheritedUse | undefined): InheritedUse {
  if (before === undefined) return now;
  const weighs = now.takenMs - before.takenMs < WINDOW_MS;
  const later = before.dayNumber > now.dayNumber ? before : now;
  const dayCalls =
    before.dayNumber === now.dayNumber ? Math.max(before.dayCalls, now.dayCalls) : later.dayCalls;
  return {
    minuteUsed: weighs ? Math.max(before.minuteUsed, now.minuteUsed) : now.minuteUsed,
    dayNumber: later.dayNumber,
    dayCalls,
    takenMs: now.takenMs,
  };
}
