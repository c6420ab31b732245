/**
 * What is kept of a key: its digest and never the key; and, apart from it, the use that was made of it. Plain records; main
 * thread.
 */
import { type AccountIndex, ceilDiv, type KeyIndex, type WallMs } from '../core/units.js';
import { KEY_EXPIRES_SECONDS_MAX } from './key-table.js';
import { conflict, invalid } from './record-id.js';

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

/* What a key that rotation made begins with: the counts of the key in whose place it came. Pure; main thread. */

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

/*
 * When keys expire. Pure; main thread.
 */

const MS_PER_SECOND = 1_000;

/** The moments from which on a key is refused are whole seconds, as the key table keeps them. */
export function isExpired({ expiresSeconds }: KeyRecord, nowMs: WallMs): boolean {
  return expiresSeconds !== undefined && expiresSeconds <= Math.floor(nowMs / MS_PER_SECOND);
}

/** Of a new key, in Unix seconds; undefined where it does not expire. Throws `invalid_parameters`. */
export function expiryOf(
  request: { readonly expiresSeconds?: number | undefined; readonly expiresInSeconds?: number | undefined },
  nowMs: WallMs,
): number | undefined {
  const { expiresSeconds, expiresInSeconds } = request;
  if (expiresSeconds !== undefined && expiresInSeconds !== undefined) {
    throw invalid('expires and expires_in exclude each other: give one of them');
  }
  const expiry = expiresInSeconds === undefined ? expiresSeconds : afterSeconds(nowMs, expiresInSeconds);
  if (expiry === undefined) return undefined;
  const nowSeconds = Math.floor(nowMs / MS_PER_SECOND);
  if (expiry > nowSeconds && expiry <= KEY_EXPIRES_SECONDS_MAX) return expiry;
  throw invalid(
    `expires must be a moment from now, ${nowSeconds}, to ${KEY_EXPIRES_SECONDS_MAX} in Unix seconds, got ${expiry}`,
  );
}

/** When a key that is rotated now expires: not before the grace is over, and without one at once. */
export function endOfGrace(nowMs: WallMs, graceSeconds: number): number {
  return graceSeconds === 0 ? Math.floor(nowMs / MS_PER_SECOND) : afterSeconds(nowMs, graceSeconds);
}

/** Throws `invalid_parameters` where a new key must not take this one's place. */
export function assertRotatable(record: KeyRecord, nowMs: WallMs): void {
  const { id, name, replacedById } = record;
  if (replacedById !== undefined) {
    throw conflict(`the key ${id} (${name}) has been rotated already: ${replacedById} is in its place`);
  }
  if (!record.active)
    throw invalid(`the key ${id} (${name}) is disabled: enable it, or delete it and create another`);
  if (isExpired(record, nowMs))
    throw invalid(`the key ${id} (${name}) has expired: delete it and create another`);
}

function afterSeconds(nowMs: WallMs, seconds: number): number {
  return ceilDiv(nowMs, MS_PER_SECOND) + seconds;
}
