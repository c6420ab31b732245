/**
 * The store's tables of API keys: their records, their slots, and the last use and counts of each key.
 * store.ts makes KeyRows; the registry, recovery, the flush and registry-copy.ts use it. Main thread.
 *
 * Must hold: a new field is optional and is left out if it is not set. Stores of formats 1 to 3, which had no
 * expiry, limits or rotation, or fewer limits, are read by this same schema
 * (test/unit/store/key-rows.key-codec.test.ts). `put` and `removeWithoutFreeing` change all tables of a key.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import {
  type AccountIndex,
  asAccountIndex,
  asKeyIndex,
  asWallMs,
  type KeyIndex,
  type WallMs,
} from '../core/units.js';
import type { KeyRecord, KeyUseRecord } from '../registry/key-record.js';
import { KEY_EXPIRES_SECONDS_MAX } from '../registry/key-table.js';
import type { KeyStore, Page } from '../registry/record-store.js';
import {
  AFTER_ALL_NUMBERS,
  closedObject,
  Count,
  Digest,
  findRow,
  Format,
  FORMAT,
  idAt,
  Moment,
  type NoFields,
  rowCodec,
  rowReader,
  rowsIn,
  Slot,
} from './record-codec.js';
import { LIMITS, packLimits, readLimits } from './limits-codec.js';
import { quotaUseKeyOf, SETTLED_FIELDS } from './quota-use-rows.js';
import { SlotRows } from './slot-rows.js';
import { StoreError } from './store-file.js';
import { KEY_SLOTS_USED, type Tables } from './tables.js';

const StoredKey = closedObject({
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
  ...LIMITS,
  isPrivate: Type.Optional(Type.Literal(true)),
  replacedById: Type.Optional(Type.String()),
  /** Of a rotated key's successor: what was used of the rotated key (InheritedUse). */
  inherited: Type.Optional(
    closedObject({
      minuteUsed: Count,
      dayNumber: Count,
      dayCalls: Count,
      takenMs: Moment,
      quotas: Type.Optional(closedObject(SETTLED_FIELDS)),
    }),
  ),
});

const StoredKeyUse = closedObject({
  format: Format,
  lastUsedSeconds: Type.Optional(Count),
  minuteUsed: Count,
  dayNumber: Count,
  dayCalls: Count,
  takenMs: Moment,
});

type StoredKeyUse = Static<typeof StoredKeyUse>;

export const { pack: packKey, read: readKey } = rowCodec('StoredKey', StoredKey, {
  pack: (record: KeyRecord) => {
    const { index, id, accountIndex, accountId, name, digest, prefix, active, createdMs, ...more } = record;
    const { expiresSeconds, limits, isPrivate, replacedById, inherited, ...others } = more;
    others satisfies NoFields;
    return {
      format: FORMAT,
      ...{ index, id, accountIndex, accountId, name, prefix, active, createdMs },
      digest: digest.toString('hex'),
      expiresSeconds,
      ...packLimits(limits),
      isPrivate: isPrivate === true ? isPrivate : undefined,
      replacedById,
      inherited,
    };
  },
  unpack: keyOf,
});

function keyOf(stored: Static<typeof StoredKey>, location: string): KeyRecord {
  const { expiresSeconds } = stored;
  // Not in the schema, because an operator has to learn which key a former version has left like this.
  if (expiresSeconds !== undefined && (expiresSeconds < 1 || expiresSeconds > KEY_EXPIRES_SECONDS_MAX))
    throw new StoreError(
      'damaged',
      `${location} is damaged: expiresSeconds of the key ${stored.id} is ${expiresSeconds}, ` +
        `want 1 to ${KEY_EXPIRES_SECONDS_MAX}, or none. Delete the key with the version that wrote it, ` +
        'or restore the store from a backup.',
    );
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
    expiresSeconds,
    limits: readLimits(stored),
    replacedById: stored.replacedById,
    ...(stored.isPrivate === true ? { isPrivate: true } : {}),
    ...(stored.inherited === undefined
      ? {}
      : { inherited: { ...stored.inherited, takenMs: asWallMs(stored.inherited.takenMs) } }),
  };
}

export function packKeyUse(record: KeyUseRecord): StoredKeyUse {
  const { lastUsedSeconds, minuteUsed, dayNumber, dayCalls, takenMs } = record;
  // Field by field, because a flush packs many rows and a spread object is slower.
  if (lastUsedSeconds === undefined) return { format: FORMAT, minuteUsed, dayNumber, dayCalls, takenMs };
  return { format: FORMAT, lastUsedSeconds, minuteUsed, dayNumber, dayCalls, takenMs };
}

export const readKeyUse = rowReader('StoredKeyUse', StoredKeyUse, (stored): KeyUseRecord => ({
  lastUsedSeconds: stored.lastUsedSeconds,
  minuteUsed: stored.minuteUsed,
  dayNumber: stored.dayNumber,
  dayCalls: stored.dayCalls,
  takenMs: asWallMs(stored.takenMs),
}));

/** If so many keys of all accounts have one name, `findOfAccount` searches the account's keys instead. */
const KEYS_OF_NAME_MAX = 20;

export class KeyRows extends SlotRows<KeyRecord, KeyIndex> implements KeyStore {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    super(tables, { records: tables.keys, slots: tables.keySlots }, readKey);
    this.#tables = tables;
  }

  /** The key that has the slot, or had it last: a call may end after its key was deleted. */
  findId(index: KeyIndex): string | undefined {
    return idAt(this.#tables.keyIds, index);
  }

  /** Whether a key has the slot. */
  has(index: KeyIndex): boolean {
    return this.#tables.keySlots.get(index) !== undefined;
  }

  *eachOfName(name: string): Generator<KeyRecord> {
    // The range has no end, as no key would follow all rows of the name: a row of another name ends the loop.
    for (const [rowName, id] of this.#tables.keyNames.getKeys({ start: [name, ''] })) {
      if (rowName !== name) return;
      yield this.recordOf(id);
    }
  }

  findOfAccount(account: AccountIndex, name: string): KeyRecord[] {
    const namesakes: KeyRecord[] = [];
    for (const record of this.eachOfName(name)) if (namesakes.push(record) === KEYS_OF_NAME_MAX) break;
    if (namesakes.length < KEYS_OF_NAME_MAX)
      return namesakes.filter(({ accountIndex }) => accountIndex === account);
    const { keysOfAccount, keyNames } = this.#tables;
    const ids = keysOfAccount.getRange({ start: [account, 0], end: [account, AFTER_ALL_NUMBERS] });
    return Array.from(ids)
      .filter(({ value }) => typeof value === 'string' && keyNames.get([name, value]) !== undefined)
      .map(({ value }) => this.recordOf(value));
  }

  /** Ordered by slot, from slot `from` on; of all accounts if `account` is undefined. */
  list(account: AccountIndex | undefined, from: number, limit: number): Page<KeyRecord> {
    if (account === undefined) return this.listAll(from, limit);
    const ids = this.#tables.keysOfAccount
      .getRange({ start: [account, from], end: [account, AFTER_ALL_NUMBERS], limit: limit + 1 })
      .map(({ key, value }) => ({ key: key[1], value }));
    return this.pageOf(ids, limit);
  }

  takeIndexes(count: number, deletedBeforeMs: WallMs, slotsMax: number): KeyIndex[] {
    const { keySlotsFree: freed, keyUses, quotaUses } = this.#tables;
    const clearUse = (slot: number): void => {
      keyUses.removeSync(slot);
      quotaUses.removeSync(quotaUseKeyOf({ kind: 'key', index: asKeyIndex(slot) }));
    };
    const source = { freed, slotsUsedName: KEY_SLOTS_USED, clearUse };
    return this.takeSlots(source, count, deletedBeforeMs, slotsMax).map(asKeyIndex);
  }

  /** The registry never changes name, account or slot of a key, so no index row of a former record stays. */
  put(record: KeyRecord): void {
    this.#tables.keys.putSync(record.id, packKey(record));
    this.#tables.keySlots.putSync(record.index, record.id);
    this.#tables.keyIds.putSync(record.index, record.id);
    this.#tables.keysOfAccount.putSync([record.accountIndex, record.index], record.id);
    this.#tables.keyNames.putSync([record.name, record.id], true);
  }

  /** Removes the key. Its slot rests from `nowMs` on. */
  remove(record: KeyRecord, nowMs: WallMs): void {
    this.removeWithoutFreeing(record);
    this.#tables.keySlotsFree.putSync([nowMs, record.index], true);
  }

  /**
   * Removes the key but does not free its slot, which the host that deleted the key has freed. If another key
   * has the slot already, the rows of the slot stay.
   */
  removeWithoutFreeing({ id, index, accountIndex, name }: KeyRecord): void {
    const { keys, keySlots, keysOfAccount, keyNames, keyUses, quotaUses } = this.#tables;
    keys.removeSync(id);
    keyNames.removeSync([name, id]);
    if (keysOfAccount.get([accountIndex, index]) === id) keysOfAccount.removeSync([accountIndex, index]);
    if (keySlots.get(index) !== id) return;
    keySlots.removeSync(index);
    keyUses.removeSync(index);
    quotaUses.removeSync(quotaUseKeyOf({ kind: 'key', index }));
  }

  findUse(index: KeyIndex): KeyUseRecord | undefined {
    return findRow(this.#tables.keyUses, index, readKeyUse);
  }

  putUse(index: KeyIndex, record: KeyUseRecord): void {
    this.#tables.keyUses.putSync(index, packKeyUse(record));
  }

  /** Ordered by slot. */
  *uses(): Generator<[KeyIndex, KeyUseRecord]> {
    for (const [slot, use] of rowsIn(this.#tables.keyUses, readKeyUse)) yield [asKeyIndex(slot), use];
  }
}
