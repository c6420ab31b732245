/**
 * The use of keys between the shared buffers and the store: what a flush writes, and what a start takes over. Main thread.
 */
import { asWallMs, type KeyIndex, type WallMs } from '../core/units.js';
import type { KeyCounts } from '../ledger/key-limits.js';
import { isLimited, type KeyRecord, type KeyUseRecord } from './key-record.js';
import type { LiveBuffers } from './registry-options.js';

const NO_COUNTS: KeyCounts = { minuteUsed: 0, dayNumber: 0, dayCalls: 0 };

/** Undefined for a key that was never used and has no limits, or is gone. */
export function keyUseOf(key: KeyIndex, live: LiveBuffers, nowMs: WallMs): KeyUseRecord | undefined {
  const { ledger, keyTable } = live;
  if (!keyTable.has(key)) return undefined;
  const lastUsedSeconds = keyTable.lastUsedSecondsOf(key);
  const limited = keyTable.isLimited(key);
  if (lastUsedSeconds === undefined && !limited) return undefined;
  const { minuteUsed, dayNumber, dayCalls } = limited ? ledger.keys.countsOf(key) : NO_COUNTS;
  return { lastUsedSeconds, minuteUsed, dayNumber, dayCalls, takenMs: asWallMs(Math.floor(nowMs)) };
}

/** Makes all threads know a key, unused so far. */
export function openKey(record: KeyRecord, { ledger, keyTable }: LiveBuffers): void {
  const { index, digest, accountIndex, active, expiresSeconds } = record;
  const limited = isLimited(record);
  if (limited) ledger.keys.open(index, record);
  keyTable.insert(index, digest, accountIndex, active, { expiresSeconds, limited });
}

/** Takes over what a key has been used for before; nothing happens where it is gone. Before any thread looks at its counts. */
export function restoreKeyUse(
  key: KeyIndex,
  use: KeyUseRecord,
  { ledger, keyTable }: LiveBuffers,
  nowMs: WallMs,
): void {
  if (!keyTable.has(key)) return;
  if (use.lastUsedSeconds !== undefined) keyTable.noteUse(key, use.lastUsedSeconds);
  if (keyTable.isLimited(key)) ledger.keys.open(key, ledger.keys.limitOf(key), use, nowMs - use.takenMs);
}
