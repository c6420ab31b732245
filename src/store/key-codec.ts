/**
 * Keys, and the use that was made of them, as they lie on disk; see record-codec.ts. Main thread.
 *
 * Format 1 knew no expiry, no limits and no rotation: its records lack these fields, and so do those of keys without them.
 */
import { Type, type Static } from 'typebox';
import { Compile } from 'typebox/compile';
import { asAccountIndex, asKeyIndex, asWallMs } from '../core/units.js';
import type { KeyRecord, KeyUseRecord } from '../registry/key-record.js';
import { Count, damaged, Digest, fast, Format, FORMAT, Moment, Slot } from './record-codec.js';

const StoredKey = Type.Object(
  {
    format: Format,
    index: Slot,
    id: Type.String(),
    accountIndex: Slot,
    accountId: Type.String(),
    name: Type.String(),
    digest: Digest,
    prefix: Type.String(),
    active: Type.Boolean(),
    createdMs: Moment,
    expiresSeconds: Type.Optional(Count),
    requestsPerMinute: Type.Optional(Type.Integer({ minimum: 1 })),
    callsPerDay: Type.Optional(Type.Integer({ minimum: 1 })),
    replacedById: Type.Optional(Type.String()),
    inherited: Type.Optional(
      Type.Object(
        { minuteUsed: Count, dayNumber: Count, dayCalls: Count, takenMs: Moment },
        { additionalProperties: false },
      ),
    ),
  },
  { additionalProperties: false },
);

const StoredKeyUse = Type.Object(
  {
    format: Format,
    lastUsedSeconds: Type.Optional(Count),
    minuteUsed: Count,
    dayNumber: Count,
    dayCalls: Count,
    takenMs: Moment,
  },
  { additionalProperties: false },
);

export type StoredKey = Static<typeof StoredKey>;
export type StoredKeyUse = Static<typeof StoredKeyUse>;

const keys = fast(Compile(StoredKey));
const keyUses = fast(Compile(StoredKeyUse));

export function packKey(record: KeyRecord): StoredKey {
  const { digest, expiresSeconds, requestsPerMinute, callsPerDay, replacedById, inherited, ...rest } = record;
  return {
    format: FORMAT,
    ...rest,
    digest: digest.toString('hex'),
    ...(expiresSeconds === undefined ? {} : { expiresSeconds }),
    ...(requestsPerMinute === undefined ? {} : { requestsPerMinute }),
    ...(callsPerDay === undefined ? {} : { callsPerDay }),
    ...(replacedById === undefined ? {} : { replacedById }),
    ...(inherited === undefined ? {} : { inherited }),
  };
}

/** Throws `damaged`; `place` names the record in the message. */
export function readKey(stored: unknown, place: string): KeyRecord {
  if (!keys.Check(stored)) throw damaged(place);
  return {
    index: asKeyIndex(stored.index),
    id: stored.id,
    accountIndex: asAccountIndex(stored.accountIndex),
    accountId: stored.accountId,
    name: stored.name,
    digest: Buffer.from(stored.digest, 'hex'),
    prefix: stored.prefix,
    active: stored.active,
    createdMs: asWallMs(stored.createdMs),
    expiresSeconds: stored.expiresSeconds,
    requestsPerMinute: stored.requestsPerMinute,
    callsPerDay: stored.callsPerDay,
    replacedById: stored.replacedById,
    ...(stored.inherited === undefined
      ? {}
      : { inherited: { ...stored.inherited, takenMs: asWallMs(stored.inherited.takenMs) } }),
  };
}

export function packKeyUse(record: KeyUseRecord): StoredKeyUse {
  const { lastUsedSeconds, minuteUsed, dayNumber, dayCalls, takenMs } = record;
  // Field by field: a flush has many of them.
  if (lastUsedSeconds === undefined) return { format: FORMAT, minuteUsed, dayNumber, dayCalls, takenMs };
  return { format: FORMAT, lastUsedSeconds, minuteUsed, dayNumber, dayCalls, takenMs };
}

/** Throws `damaged`. */
export function readKeyUse(stored: unknown, place: string): KeyUseRecord {
  if (!keyUses.Check(stored)) throw damaged(place);
  return {
    lastUsedSeconds: stored.lastUsedSeconds,
    minuteUsed: stored.minuteUsed,
    dayNumber: stored.dayNumber,
    dayCalls: stored.dayCalls,
    takenMs: asWallMs(stored.takenMs),
  };
}
