/**
 * A key with the use that was made of it, as an operator wants to see it. Pure; main thread.
 */
import type { WallMs } from '../core/units.js';
import { isExpired, type KeyRecord, type KeyUseRecord } from './key-record.js';

export interface KeyStatement {
  readonly record: KeyRecord;
  /** Its account's; the id where that is not there. */
  readonly accountName: string;
  readonly expired: boolean;
  /** Unix seconds; undefined where it was never used. */
  readonly lastUsedSeconds: number | undefined;
}

/** `use` is that of the running gateway, or of the last flush; undefined where there was none. */
export function keyStatement(
  record: KeyRecord,
  accountName: string,
  use: KeyUseRecord | undefined,
  nowMs: WallMs,
): KeyStatement {
  return {
    record,
    accountName,
    expired: isExpired(record, nowMs),
    lastUsedSeconds: use?.lastUsedSeconds,
  };
}
