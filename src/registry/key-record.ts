/**
 * What is kept of a key: its digest and never the key; and, apart from it, the use that was made of it. Plain records; main
 * thread.
 */
import type { AccountIndex, KeyIndex, WallMs } from '../core/units.js';

export interface KeyRecord {
  /** The key's slot in the key table; free again when the key has been deleted. */
  readonly index: KeyIndex;
  /** `key_` and 16 characters. */
  readonly id: string;
  readonly accountIndex: AccountIndex;
  readonly accountId: string;
  /** For people. Keys of several accounts may share one; of one account only those that were rotated, and such as were made before that was so. */
  readonly name: string;
  /** SHA-256 of the key, 32 bytes. */
  readonly digest: Buffer;
  /** The key's beginning, so that its owner knows it again: `sk-` and four of its 43 characters. */
  readonly prefix: string;
  readonly active: boolean;
  readonly createdMs: WallMs;
  /** Unix seconds from which on the key is refused; undefined where it does not expire. */
  readonly expiresSeconds: number | undefined;
  /** Own limits, each where it is lower than the plan's; undefined where the plan's alone counts. */
  readonly requestsPerMinute: number | undefined;
  readonly callsPerDay: number | undefined;
  /** The key that rotation put in its place. */
  readonly replacedById: string | undefined;
  /** Where limits are shared: what the key in whose place it came had used of its own. */
  readonly inherited?: InheritedUse | undefined;
}

/** Counts of a key with limits of its own, at a moment. */
export type InheritedUse = Pick<KeyUseRecord, 'minuteUsed' | 'dayNumber' | 'dayCalls' | 'takenMs'>;

/** Absolute figures as of the last flush. Counts are those of a key with limits of its own, else 0. */
export interface KeyUseRecord {
  /** Undefined for a key that has only its predecessor's counts. */
  readonly lastUsedSeconds: number | undefined;
  readonly minuteUsed: number;
  /** The day of `dayCalls`, counted from 1970-01-01 in UTC+8. */
  readonly dayNumber: number;
  readonly dayCalls: number;
  readonly takenMs: WallMs;
}

/** Whether a minute or a day of the key's own is counted. */
export function isLimited({ requestsPerMinute, callsPerDay }: KeyRecord): boolean {
  return requestsPerMinute !== undefined || callsPerDay !== undefined;
}

const PREFIX_CHARS = 7;

/** The part of a key that may be shown: it leaves 232 of the 256 random bits unknown. */
export function prefixOf(key: string): string {
  return key.slice(0, PREFIX_CHARS);
}
