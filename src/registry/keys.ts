/**
 * Creates, finds, lists, limits, disables, rotates and deletes keys. registry.ts makes the object for the
 * admin interface and the commands. Main thread of a gateway process, or a command.
 *
 * Must hold: from its creation to its deletion a key is both on disk and in the key table (commitAndApply). A
 * rejected request leaves no trace. Test: test/unit/registry/registry-keys.test.ts.
 */
import { hasQuotas, NO_QUOTAS, type QuotaLimits } from '../core/quotas.js';
import type { AccountIndex, KeyIndex, WallMs } from '../core/units.js';
import type { AccountRecord } from './account-record.js';
import type { Accounts } from './accounts.js';
import { digestOf, generateKey } from './key-digest.js';
import {
  assertRotatable,
  endOfGrace,
  expiryOf,
  type InheritedUse,
  isExpired,
  type KeyRecord,
  type KeyUseRecord,
  prefixOf,
} from './key-record.js';
import type { QuotaUse, QuotaUseRecord } from './quota-use.js';
import {
  assertReference,
  createId,
  findSpelled,
  invalid,
  isId,
  newName,
  notFound,
  spellingsOf,
} from './record-id.js';
import { commitAndApply, type Page } from './record-store.js';
import { recordMomentMs, type RegistryContext } from './registry-context.js';

/** A key with its use, as an operator reads it. */
export interface KeyStatement {
  readonly record: KeyRecord;
  /** The name of the key's account; the account's id if the store lacks the account. */
  readonly accountName: string;
  readonly expired: boolean;
  /** Unix seconds; undefined if the key was never used. */
  readonly lastUsedSeconds: number | undefined;
  /** What is used of the key's own limits. */
  readonly quotas: readonly QuotaUse[];
}

export interface NewKey {
  readonly name: string;
  /** When the key expires: Unix seconds, or seconds from now. If neither is given, it never expires. */
  readonly expiresSeconds?: number | undefined;
  readonly expiresInSeconds?: number | undefined;
  /** The key's own limits, which apply within those of its account. */
  readonly limits?: Partial<QuotaLimits> | undefined;
  /** True if no contents of its calls may be kept. */
  readonly isPrivate?: boolean | undefined;
}

/** A new key. `key` is the only copy of its text, and can never be read again. */
export interface CreatedKey {
  readonly record: KeyRecord;
  readonly accountName: string;
  readonly key: string;
}

export interface RotatedKey extends CreatedKey {
  /** The former key, with its new expiry. */
  readonly replaced: KeyStatement;
}

/** What a rotation has put, for the live state. A use is undefined if none is known. */
interface Rotation {
  readonly created: CreatedKey;
  readonly replaced: KeyRecord;
  readonly keyUse: KeyUseRecord | undefined;
  readonly quotaUse: QuotaUseRecord | undefined;
}

/** A key's row of quota use has no counts of its minute and day, because its row of key use has them. */
const NO_MINUTE_DAY_COUNTS = { minuteRequests: 0, callDayNumber: 0, callsPerDay: 0 };

/**
 * Throws `invalid_parameters` if another key of the account has the name. A rotated key gives its name to its
 * successor. Stores from before this rule may have several keys of one name, which go on working.
 */
function assertUnique(name: string, namesakes: readonly KeyRecord[]): void {
  const current = namesakes.find(({ replacedById }) => replacedById === undefined);
  if (current === undefined) return;
  throw invalid(
    `name must be unique in the account, and ${current.id} is named ${name} already: rotate it, delete it, or take another name`,
  );
}

export class Keys {
  readonly #context: RegistryContext;
  readonly #accounts: Accounts;

  constructor(context: RegistryContext, accounts: Accounts) {
    this.#context = context;
    this.#accounts = accounts;
  }

  /** The key is on disk and known to every thread on return. Throws `invalid_parameters` and `not_found`. */
  create(request: NewKey & { readonly account: string }): CreatedKey {
    const { store, live } = this.#context;
    return commitAndApply(
      store,
      () => this.put(this.#accounts.recordOf(request.account), request),
      (created) => (this.#isOnDisk(created) ? created : undefined),
      ({ record }) => live.putKey(record),
    );
  }

  /** Returns keys of `account`, or of all accounts, from slot `from` on. */
  list(account: string | undefined, from: number, limit: number): Page<KeyStatement> {
    const index = account === undefined ? undefined : this.#accounts.recordOf(account).index;
    const { items, next } = this.#context.store.keys.list(index, from, limit);
    return { items: items.map((record) => this.#statementOf(record)), next };
  }

  find(idOrName: string): KeyStatement {
    return this.#statementOf(this.recordOf(idOrName));
  }

  /** The change is on disk and in force on every thread on return; so are the changes below. */
  setActive(idOrName: string, active: boolean): KeyStatement {
    return this.#change(idOrName, (key) => ({ ...key, active }));
  }

  /** Sets the limits that `change` has; undefined in `change` removes a limit. What was used stays. */
  setLimits(idOrName: string, change: Partial<QuotaLimits>): KeyStatement {
    return this.#change(idOrName, (key) => ({ ...key, limits: { ...key.limits, ...change } }));
  }

  /** Contents of earlier calls stay until they expire. */
  setPrivate(idOrName: string, isPrivate: boolean): KeyStatement {
    return this.#change(idOrName, (key) => ({ ...key, isPrivate }));
  }

  /**
   * Replaces a key by a new key of the same account, name, limits, privacy and expiry. The new key starts
   * with the former key's use, so that a rotation renews no limit. The former key expires after
   * `graceSeconds`, or earlier if it would have anyway; with 0 it is also disabled, because a clock that is
   * set back makes an expiry void. Both changes are one transaction. Throws `conflict`, `invalid_parameters`
   * and `not_found`.
   */
  rotate(idOrName: string, graceSeconds: number): RotatedKey {
    const { store, clock } = this.#context;
    const nowMs = recordMomentMs(clock);
    const { created, replaced } = commitAndApply(
      store,
      () => this.#putRotation(this.recordOf(idOrName), graceSeconds, nowMs),
      (rotation) => (this.#isOnDisk(rotation.created) ? rotation : undefined),
      (rotation) => this.#applyRotation(rotation, nowMs),
    );
    return { ...created, replaced: this.#statementOf(replaced) };
  }

  /** Puts the new key, with the use of the former key, and ends the former key. Called in a commit. */
  #putRotation(former: KeyRecord, graceSeconds: number, nowMs: WallMs): Rotation {
    const { store, live } = this.#context;
    assertRotatable(former, nowMs);
    const account = this.#accounts.recordOf(former.accountId);
    // The new key gets this use as a row of key use and, with a quota record, a row of quota use.
    const formerUse = hasQuotas(former.limits) ? live.useForSuccessor(former, nowMs) : undefined;
    const inherited = live.inheritsByRecord ? formerUse : undefined;
    const created = this.#putNew(account, former, this.takeSlots(1)[0]!, inherited);
    const { index, id: replacedById } = created.record;
    const replaced = {
      ...former,
      active: graceSeconds > 0,
      expiresSeconds: Math.min(former.expiresSeconds ?? Infinity, endOfGrace(nowMs, graceSeconds)),
      replacedById,
    };
    store.keys.put(replaced);
    const keyUse = formerUse && { ...formerUse, lastUsedSeconds: undefined };
    const quotaUse = formerUse?.quotas && {
      ...NO_MINUTE_DAY_COUNTS,
      ...formerUse.quotas,
      takenMs: formerUse.takenMs,
    };
    if (keyUse !== undefined) store.keys.putUse(index, keyUse);
    if (quotaUse !== undefined) store.quotaUses.put({ kind: 'key', index }, quotaUse);
    return { created, replaced, keyUse, quotaUse };
  }

  #applyRotation({ created, replaced, keyUse, quotaUse }: Rotation, nowMs: WallMs): void {
    const { live } = this.#context;
    const { record } = created;
    const { index } = record;
    // The new key is put first, so that the account is never without a valid key.
    live.putKey(record);
    if (keyUse !== undefined) live.restoreKeyUse(index, keyUse, nowMs);
    if (quotaUse !== undefined) live.restoreQuotaUse({ kind: 'key', index }, quotaUse, nowMs);
    live.putKey(replaced);
  }

  /** Calls in flight go on. The key's slot rests (SlotRest). Throws `not_found`. */
  delete(idOrName: string): KeyRecord {
    const { store, live, clock } = this.#context;
    const remove = (): KeyRecord => {
      const record = this.recordOf(idOrName);
      store.keys.remove(record, recordMomentMs(clock));
      return record;
    };
    return commitAndApply(
      store,
      remove,
      (removed) => (store.keys.find(removed.id) === undefined ? removed : undefined),
      ({ index }) => live.removeKey(index),
    );
  }

  /** Takes and returns exactly `count` slots for new keys. Call it in the commit that puts the keys. */
  takeSlots(count: number): KeyIndex[] {
    const { store, slotRest, keysMax } = this.#context;
    return store.keys.takeIndexes(count, slotRest.restedBeforeMs(), keysMax);
  }

  /** Makes a key and puts its record. Call it in a commit, and `live.putKey` after the commit. */
  put(account: AccountRecord, request: NewKey, index = this.takeSlots(1)[0]!): CreatedKey {
    const name = newName('name', request.name);
    for (const spelling of spellingsOf(name))
      assertUnique(name, this.#context.store.keys.findOfAccount(account.index, spelling));
    return this.#putNew(account, { ...request, name }, index);
  }

  #putNew(account: AccountRecord, request: NewKey, index: KeyIndex, inherited?: InheritedUse): CreatedKey {
    const { store, live, keysMax, clock } = this.#context;
    const { name, limits, isPrivate } = request;
    const nowMs = recordMomentMs(clock);
    const expiresSeconds = expiryOf(request, nowMs);
    if (index >= keysMax) {
      throw invalid(
        `limits.keys allows ${keysMax} keys, of which those deleted in the last 24 hours still count: ` +
          'raise it and restart',
      );
    }
    const key = generateKey();
    const record: KeyRecord = {
      index,
      id: createId('key_'),
      accountIndex: account.index,
      accountId: account.id,
      name,
      digest: digestOf(key),
      prefix: prefixOf(key),
      active: true,
      createdMs: nowMs,
      expiresSeconds,
      limits: { ...NO_QUOTAS, ...limits },
      replacedById: undefined,
      ...(isPrivate === true ? { isPrivate } : {}),
      ...(inherited === undefined ? {} : { inherited }),
    };
    live.assertCountable({ kind: 'key', ...record });
    store.keys.put(record);
    return { record, accountName: account.name, key };
  }

  /** Whether the disk has a key that was put. Called if the commit threw. */
  #isOnDisk({ record }: Pick<CreatedKey, 'record'>): boolean {
    return this.#context.store.keys.find(record.id) !== undefined;
  }

  #change(idOrName: string, change: (key: KeyRecord) => KeyRecord): KeyStatement {
    const { store, live } = this.#context;
    const put = (): KeyRecord => {
      const changed = change(this.recordOf(idOrName));
      live.assertCountable({ kind: 'key', ...changed });
      store.keys.put(changed);
      return changed;
    };
    const record = commitAndApply(
      store,
      put,
      ({ id }) => store.keys.find(id),
      (key) => live.putKey(key),
    );
    return this.#statementOf(record);
  }

  #statementOf(record: KeyRecord): KeyStatement {
    const { store, live, clock } = this.#context;
    const nowMs = recordMomentMs(clock);
    return {
      record,
      accountName: store.findAccount(record.accountId)?.name ?? record.accountId,
      expired: isExpired(record, nowMs),
      lastUsedSeconds: live.keyUseOf(record.index, nowMs)?.lastUsedSeconds,
      quotas: live.quotasOf({ kind: 'key', ...record }, nowMs),
    };
  }

  /** Looks a name up in `account`, or in all accounts. Throws `not_found`, and as `#findByName`. */
  recordOf(idOrName: string, account?: string): KeyRecord {
    const { store } = this.#context;
    assertReference('key', idOrName);
    if (isId(idOrName)) {
      const record = store.keys.find(idOrName);
      if (record !== undefined) return record;
    } else {
      const accountIndex = account === undefined ? undefined : this.#accounts.recordOf(account).index;
      const record = findSpelled(idOrName, (spelling) => this.#findByName(spelling, accountIndex));
      if (record !== undefined) return record;
    }
    const inAccount = account === undefined ? '' : ` in the account ${account}`;
    throw notFound(`there is no key ${idOrName}${inAccount}: see the list of keys`);
  }

  /** Throws `invalid_parameters` if several keys have the name. */
  #findByName(name: string, account: AccountIndex | undefined): KeyRecord | undefined {
    const { keys } = this.#context.store;
    // A rotated key gives its name to its successor, and stays until it is deleted. No bound ends the search
    // before a second current key is found: with two of them the operator must choose.
    const current: KeyRecord[] = [];
    const replaced: KeyRecord[] = [];
    const namesakes = account === undefined ? keys.eachOfName(name) : keys.findOfAccount(account, name);
    for (const record of namesakes) {
      (record.replacedById === undefined ? current : replaced).push(record);
      if (current.length > 1) break;
    }
    const [first, second] = current.length > 0 ? current : replaced;
    if (second !== undefined) throw invalid(`several keys are named ${name}: give the id of one`);
    return first;
  }
}
