/**
 * When keys expire. Pure; main thread.
 */
import { ceilDiv, type WallMs } from '../core/units.js';
import type { KeyRecord } from './key-record.js';
import { KEY_EXPIRES_SECONDS_MAX } from './key-table.js';
import { conflict, invalid } from './record-id.js';

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
