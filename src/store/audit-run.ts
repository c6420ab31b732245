/**
 * AuditRun: one run of the audit. It has the snapshot of the store that all checks read, the bounds of slots,
 * the list of differences that the checks find, and the checks of slots that groups and keys share. audit.ts
 * makes an AuditRun for each audit and gives it to one check after the other. Main thread of a command.
 *
 * Must hold: a check never throws because of a row; it adds a difference and goes on. Otherwise one damaged
 * row hides all others (test/unit/store/audit.test.ts).
 */
import { decimalOf } from '../core/money.js';
import { StoreError } from './store-file.js';
import type { StoreSnapshot, TableKeys, TableName } from './store-snapshot.js';

/** How many differences are listed. So many have one cause, so further differences are only counted. */
const DIFFERENCES_MAX = 1_000;

export interface Difference {
  /** Id of the account; null if the difference is about no account, or about a missing account. */
  readonly account: string | null;
  /** For example `record 7 of table spending`. */
  readonly location: string;
  /** What was compared: `spent`, `the row`, `the owner of slot 7`. */
  readonly what: string;
  /** The value that was found, and the value that the other records imply; amounts are decimal. */
  readonly is: string;
  readonly shouldBe: string;
}

export interface AuditBounds {
  /** How many slots a gateway has (`limits.accounts`, `limits.keys`, `limits.groups`). */
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly groupsMax: number;
}

/** What a comparison is about. */
interface AuditSubject {
  readonly account: string | null;
  readonly location: string;
}

interface SlotRecord {
  readonly id: string;
  readonly index: number;
  readonly name: string;
}

/** A bigint is an amount, in pico-units. */
type Compared = bigint | number | string | undefined;

export class AuditRun {
  readonly snapshot: StoreSnapshot;
  readonly bounds: AuditBounds;
  readonly #differences: Difference[] = [];
  /** Counts all differences, listed or not. */
  #differencesCount = 0;
  /** The account slot that `accountIdOf` has looked up last (-1: none yet), and its account's id. */
  #lastSlot = -1;
  #lastAccountId: string | undefined;

  constructor(snapshot: StoreSnapshot, bounds: AuditBounds) {
    this.snapshot = snapshot;
    this.bounds = bounds;
  }

  /** The first differences, in the order in which they were found. */
  get differences(): readonly Difference[] {
    return this.#differences;
  }

  get differencesCount(): number {
    return this.#differencesCount;
  }

  /** `account` is the id of the account that the row is about; null if the row is about none. */
  subjectAt<Name extends TableName>(
    table: Name,
    key: TableKeys[Name],
    account: string | null = null,
  ): AuditSubject {
    return { account, location: this.snapshot.locationOf(table, key) };
  }

  /** Adds a difference, or only counts it beyond DIFFERENCES_MAX. */
  addDifference(subject: AuditSubject, what: string, is: Compared, shouldBe: Compared): void {
    this.#differencesCount++;
    if (this.#differences.length >= DIFFERENCES_MAX) return;
    this.#differences.push({ ...subject, what, is: textOf(is), shouldBe: textOf(shouldBe) });
  }

  /** Adds a difference unless `is` equals `shouldBe`. */
  expect(subject: AuditSubject, what: string, is: Compared, shouldBe: Compared): void {
    if (is !== shouldBe) this.addDifference(subject, what, is, shouldBe);
  }

  /** Returns the record in `value`. If it is damaged, returns undefined and adds a difference. */
  readOrReport<Name extends TableName, Decoded>(
    reader: (stored: unknown, location: string) => Decoded,
    table: Name,
    key: TableKeys[Name],
    value: unknown,
    account: string | null = null,
  ): Decoded | undefined {
    const subject = this.subjectAt(table, key, account);
    try {
      return reader(value, subject.location);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.addDifference(subject, 'the row', 'damaged', 'a row of this format');
      return undefined;
    }
  }

  /**
   * Returns the record under `key`. Undefined if there is none or if it is damaged. Adds no difference for a
   * damaged record: the check that goes through its table calls `readOrReport`, which adds it.
   */
  readIfSound<Name extends TableName, Decoded>(
    reader: (stored: unknown, location: string) => Decoded,
    table: Name,
    key: TableKeys[Name],
  ): Decoded | undefined {
    const stored = this.snapshot.get(table, key);
    if (stored === undefined) return undefined;
    try {
      return reader(stored, '');
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      return undefined;
    }
  }

  /**
   * Checks that each row of `account_slots`, `group_slots`, `key_slots`, `account_names` and `group_names`
   * leads to a record that has that slot or name, and that each slot of `group_slots_free` and
   * `key_slots_free` has no owner. The row counts as right, so its key is `shouldBe`. `recordOf` returns the
   * record with an id, `accountOf` the id of its account. Several keys may have one name, and slots of
   * accounts are never free.
   */
  checkBackReferences<Row extends SlotRecord>(
    kind: 'account' | 'group' | 'key',
    recordOf: (id: string) => Row | undefined,
    accountOf: (record: Row | undefined) => string | null = () => null,
  ): void {
    const { snapshot } = this;
    const follow = <Name extends TableName>(
      table: Name,
      key: TableKeys[Name] & (number | string),
      id: unknown,
      field: 'slot' | 'name',
    ): void => {
      const record = typeof id === 'string' ? recordOf(id) : undefined;
      const subject = this.subjectAt(table, key, accountOf(record));
      const actual = field === 'slot' ? record?.index : record?.name;
      this.expect(subject, `the ${field} of ${kind} ${idIn(id)}`, actual, key);
    };
    for (const { key, value } of snapshot.rows(`${kind}_slots`)) follow(`${kind}_slots`, key, value, 'slot');
    if (kind !== 'key') {
      const names = `${kind}_names` as const;
      for (const { key, value } of snapshot.rows(names)) follow(names, key, value, 'name');
    }
    if (kind === 'account') return;
    for (const { key } of snapshot.rows(`${kind}_slots_free`)) {
      const [, slot] = key;
      const owner = idIn(snapshot.get(`${kind}_slots`, slot));
      const subject = this.subjectAt(`${kind}_slots_free`, key);
      this.expect(subject, `the owner of slot ${slot}, which is free`, owner, undefined);
    }
  }

  /**
   * Checks that the slot leads back to the record, and is below `max` and the number of slots ever used. For
   * accounts nobody counts that number (audit.ts checks their slots).
   */
  expectSlot(kind: 'group' | 'key', subject: AuditSubject, { id, index }: SlotRecord, max: number): void {
    const stored = this.snapshot.get('meta', `${kind}_slots_used`) ?? 0;
    // If the number is damaged, each key or group adds a difference.
    const slotsUsed = typeof stored === 'number' ? stored : 'damaged';
    if (index >= max) this.addDifference(subject, 'the slot', index, `below limits.${kind}s, ${max}`);
    if (slotsUsed === 'damaged' || !(index < slotsUsed))
      this.addDifference(subject, 'the slot', index, `below the number of slots used, ${slotsUsed}`);
    this.expect(subject, `the owner of slot ${index}`, idIn(this.snapshot.get(`${kind}_slots`, index)), id);
  }

  /** Id of the account that has the slot. Most checks ask in the order of slots, so the last id is kept. */
  accountIdOf(slot: number): string | undefined {
    if (slot !== this.#lastSlot) {
      const id = this.snapshot.get('account_slots', slot);
      this.#lastSlot = slot;
      this.#lastAccountId = typeof id === 'string' ? id : undefined;
    }
    return this.#lastAccountId;
  }
}

function textOf(compared: Compared): string {
  if (compared === undefined) return 'nothing';
  return typeof compared === 'bigint' ? decimalOf(compared) : String(compared);
}

/** `value`, which should be an id; the text `damaged` if it is no text. */
export function idIn(value: unknown): string | undefined {
  return typeof value === 'string' || value === undefined ? value : 'damaged';
}
