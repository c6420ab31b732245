/**
 * Keys: created, listed, disabled, rotated, deleted. A change is on disk first and then in the live state. A
 * part of the registry (registry.ts), used on the main thread of a gateway process, or in a command.
 *
 * Must hold: from its creation to its deletion a key is both on disk and in the key table; a rejected request
 * leaves no trace. Test: test/unit/registry/registry-keys.test.ts.
 */
import { NO_QUOTAS, type QuotaLimits } from '../core/quotas.js';
import { asWallMs, type KeyIndex } from '../core/units.js';
import type { AccountRecord } from './account-record.js';
import type { Accounts } from './accounts.js';
import { digestOf, generateKey } from './key-digest.js';
import {
  assertRotatable,
  endOfGrace,
  expiryOf,
  type InheritedUse,
  isExpired,
  isLimited,
  type KeyRecord,
  prefixOf,
} from './key-record.js';
import type { QuotaUse, UsedScope } from './quota-use.js';
import { assertName, assertReference, createId, invalid, isId, notFound } from './record-id.js';
import { commitAndApply, type Page } from './record-store.js';
import { assertRoom, recordMomentMs, type RegistryContext, SLOT_REST_MS } from './registry-context.js';

/** A key with its use, as an operator reads it. */
export interface KeyStatement {
  readonly record: KeyRecord;
  /** The name of its account; the id if there is no such account. */
  readonly accountName: string;
  readonly expired: boolean;
  /** Unix seconds; undefined if it was never used. */
  readonly lastUsedSeconds: number | undefined;
  /** What is used of its own limits. */
  readonly quotas: readonly QuotaUse[];
}

export interface NewKey {
  readonly name: string;
  /** When it expires: Unix seconds, or seconds from now. It never does if neither is given. */
  readonly expiresSeconds?: number | undefined;
  readonly expiresInSeconds?: number | undefined;
  /** Own limits, within those of its account. */
  readonly limits?: Partial<QuotaLimits> | undefined;
  /** No contents of its calls may be kept. */
  readonly isPrivate?: boolean | undefined;
}

/** A new key. `key` is the only copy of its text, and can never be read again. */
export interface CreatedKey {
  readonly record: KeyRecord;
  readonly accountName: string;
  readonly key: string;
}

export interface RotatedKey extends CreatedKey {
  /** The key that it replaces, with its new expiry. */
  readonly replaced: KeyStatement;
}

/** For a key's row of quota use: its minute and day are in its row of key use. */
const NO_PLAIN_COUNTS = { minuteRequests: 0, callDayNumber: 0, callsPerDay: 0 };

/**
 * Throws `invalid_parameters` if another key of the account has the name. A rotated key gives its name to its
 * successor. Stores from before this rule may have several keys of one name, which go on working.
 */
function assertUnique(name: string, ofName: readonly KeyRecord[]): void {
  const other = ofName.find(({ replacedById }) => replacedById === undefined);
  if (other === undefined) return;
  throw invalid(
    `name must be unique in the account, and ${other.id} is named ${name} already: rotate it, delete it, or take another name`,
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
    const { store } = this.#context;
    return commitAndApply(
      store,
      () => this.put(this.#accounts.recordOf(request.account), request),
      (created) => (this.isOnDisk(created) ? created : undefined),
      ({ record }) => this.insert(record),
    );
  }

  /** Returns keys from slot `from` on: those of `account`, or of all accounts. */
  list(account: string | undefined, from: number, limit: number): Page<KeyStatement> {
    const index = account === undefined ? undefined : this.#accounts.recordOf(account).index;
    const { items, next } = this.#context.store.keys.list(index, from, limit);
    return { items: items.map((record) => this.#statementOf(record)), next };
  }

  find(idOrName: string): KeyStatement {
    return this.#statementOf(this.recordOf(idOrName));
  }

  /** In force on every thread on return, as are the changes below. */
  setActive(idOrName: string, active: boolean): KeyStatement {
    return this.#change(idOrName, (key) => ({ ...key, active }));
  }

  /** Sets the limits that `change` has, and removes those that are undefined in it. What was used stays. */
  setLimits(idOrName: string, change: Partial<QuotaLimits>): KeyStatement {
    return this.#change(idOrName, (key) => ({ ...key, limits: { ...key.limits, ...change } }));
  }

  /** Contents of earlier calls stay until they expire. */
  setPrivate(idOrName: string, isPrivate: boolean): KeyStatement {
    return this.#change(idOrName, (key) => ({ ...key, isPrivate }));
  }

  /**
   * Replaces a key by a new one of the same account, name, limits, privacy and expiry. The new key starts
   * with the old one's use, so that rotation renews no limit. The old key expires after `graceSeconds`, or
   * earlier if it would have anyway; with 0 it is also disabled, because a clock that is set back makes an
   * expiry void. One transaction: after a crash both changes are there or none. Throws `conflict`,
   * `invalid_parameters` and `not_found`.
   */
  rotate(idOrName: string, graceSeconds: number): RotatedKey {
    const { store, live, clock } = this.#context;
    const nowMs = recordMomentMs(clock);
    const replace = () => {
      const found = this.recordOf(idOrName);
      assertRotatable(found, nowMs);
      const account = this.#accounts.recordOf(found.accountId);
      const used = isLimited(found) ? live.countsOf(found, nowMs) : undefined;
      const inherited = live.inheritsByRecord ? used : undefined;
      const created = this.#make(account, found, this.takeSlots(1)[0]!, inherited);
      const old = {
        ...found,
        active: graceSeconds > 0,
        expiresSeconds: Math.min(found.expiresSeconds ?? Infinity, endOfGrace(nowMs, graceSeconds)),
        replacedById: created.record.id,
      };
      store.keys.put(old);
      const use = used && { ...used, lastUsedSeconds: undefined };
      const scope: UsedScope = { kind: 'key', index: created.record.index };
      const quotaUse = used?.quotas && { ...NO_PLAIN_COUNTS, ...used.quotas, takenMs: used.takenMs };
      if (use !== undefined) store.keys.putUse(created.record.index, use);
      if (quotaUse !== undefined) store.quotaUses.put(scope, quotaUse);
      return { created, old, use, scope, quotaUse };
    };
    const { created, old } = commitAndApply(
      store,
      replace,
      (made) => (this.isOnDisk(made.created) ? made : undefined),
      (made) => {
        const { record } = made.created;
        live.putKey(record);
        if (made.use !== undefined) live.restoreKeyUse(record.index, made.use, nowMs);
        if (made.quotaUse !== undefined) live.restoreQuotaUse(made.scope, made.quotaUse, nowMs);
        live.putKey(made.old);
      },
    );
    return { ...created, replaced: this.#statementOf(old) };
  }

  delete(idOrName: string): KeyRecord {
    const { store, live, clock } = this.#context;
    const remove = (): KeyRecord => {
      const found = this.recordOf(idOrName);
      store.keys.remove(found, recordMomentMs(clock));
      return found;
    };
    return commitAndApply(
      store,
      remove,
      (removed) => (store.keys.find(removed.id) === undefined ? removed : undefined),
      ({ index }) => live.removeKey(index),
    );
  }

  /** Takes slots for `count` new keys. Call it in the commit that puts them. */
  takeSlots(count: number): KeyIndex[] {
    const { store, clock, keysMax } = this.#context;
    return store.keys.takeIndexes(count, asWallMs(recordMomentMs(clock) - SLOT_REST_MS), keysMax);
  }

  /** Makes a key and puts its record. Call it in a commit, and `insert` after the commit. */
  put(account: AccountRecord, request: NewKey, index = this.takeSlots(1)[0]!): CreatedKey {
    assertName('name', request.name);
    assertUnique(request.name, this.#context.store.keys.findOfAccount(account.index, request.name));
    return this.#make(account, request, index);
  }

  #make(account: AccountRecord, request: NewKey, index: KeyIndex, inherited?: InheritedUse): CreatedKey {
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
    assertRoom(live, { kind: 'key', ...record });
    store.keys.put(record);
    return { record, accountName: account.name, key };
  }

  /** Whether the disk has a key that `put` has written, also if the commit threw. */
  isOnDisk({ record }: Pick<CreatedKey, 'record'>): boolean {
    return this.#context.store.keys.find(record.id) !== undefined;
  }

  /** Makes a key that `put` has written known to the live state. */
  insert(record: KeyRecord): void {
    this.#context.live.putKey(record);
  }

  #change(idOrName: string, change: (key: KeyRecord) => KeyRecord): KeyStatement {
    const { store, live } = this.#context;
    const put = (): KeyRecord => {
      const changed = change(this.recordOf(idOrName));
      assertRoom(live, { kind: 'key', ...changed });
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

  /**
   * `account`: the id or name of the only account in which a name is looked up. Throws `not_found`, and
   * `invalid_parameters` if several keys have the name, or a key itself was given.
   */
  recordOf(idOrName: string, account?: string): KeyRecord {
    const { store } = this.#context;
    assertReference('key', idOrName);
    if (isId(idOrName)) {
      const record = store.keys.find(idOrName);
      if (record !== undefined) return record;
    } else {
      // A rotated key gives its name to its successor, and stays until it is deleted. All keys of the name
      // are read: a bound could hide the second current one, and this would act on the first.
      const current: KeyRecord[] = [];
      const replaced: KeyRecord[] = [];
      const named =
        account === undefined
          ? store.keys.eachOfName(idOrName)
          : store.keys.findOfAccount(this.#accounts.recordOf(account).index, idOrName);
      for (const record of named) {
        (record.replacedById === undefined ? current : replaced).push(record);
        if (current.length > 1) break;
      }
      const [first, second] = current.length > 0 ? current : replaced;
      if (second !== undefined) throw invalid(`several keys are named ${idOrName}: give the id of one`);
      if (first !== undefined) return first;
    }
    const where = account === undefined ? '' : ` in the account ${account}`;
    throw notFound(`there is no key ${idOrName}${where}: see the list of keys`);
  }
}
