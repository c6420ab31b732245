/**
 * The operators' change log: an append-only, tamper-evident table, whose rows form a hash chain. A row is
 * written in the transaction of the change itself, so it costs no fsync of its own, and no change is
 * made without it. store.ts makes OperatorChanges, which registry/registry.ts calls for the admin interface;
 * audit.ts checks the chain. Main thread.
 *
 *     operator_changes  number, from 1 without gaps  → the row's JSON, and SHA-256(hash before + JSON)
 *     meta              'operator_changes_head'      → number and hash of the newest row
 *                       'operator_changes_before'    → number and hash of the row before the oldest
 *
 * Processes of a host append one after the other, because LMDB has one writer. Hosts append in the order of
 * the log that they share: a row continues the head of this host's copy, and is made again if another host
 * appended first (sharing/registry-log.ts). So all hosts have one chain.
 *
 * Must hold: the hash is taken of the stored text, byte for byte. A row is never encoded again, or every
 * chain ever written breaks (test/unit/store/operator-changes.test.ts).
 */
import { hash as hashOf } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { invariant, throwIfLeft } from '../core/errors.js';
import { insideOfString, parsedJson } from '../core/json.js';
import { schemaCheck } from '../core/schema-check.js';
import type { WallMs } from '../core/units.js';
import {
  type Cause,
  type ChainLink,
  type ChainProblem,
  type ChainReport,
  type ChangeFilter,
  type ChangeDetails,
  type ChangePage,
  type ChangeStore,
  HASHED_CHANGE,
  type OperatorChange,
  type Recorded,
} from '../registry/operator-change.js';
import { spellingsOf } from '../registry/record-id.js';
import { boundedDetails, describeChange } from './change-description.js';
import {
  AFTER_ALL_NUMBERS,
  closedObject,
  Count,
  damaged,
  Digest,
  Format,
  FORMAT,
  locationOf,
} from './record-codec.js';
import type { WrittenRow } from './row-recorder.js';
import { CHANGES_BEFORE, CHANGES_HEAD, type Tables } from './tables.js';

/** Rows that are kept: some 450 MB. The oldest rows are removed; the hash of the last removed row stays. */
const ROWS_MAX = 1_000_000;
/** Rows that one page reads, matching or not: some 10 ms. */
const PAGE_ROWS_MAX = 3_000;
/** Rows that a verification reads in one turn of the event loop: some 10 ms. */
const SLICE_ROWS = 1_000;
/** How many problems a report lists, so that a chain with a million wrong rows fits in a response. */
const PROBLEMS_MAX = 20;

/** The link before the first row of a chain. */
const CHAIN_START: ChainLink = { number: 0, hash: '' };
/** Stands for the hash of a row that cannot be read. The hash of the next row is then not checked. */
const UNKNOWN_HASH = '?';

const StoredChange = closedObject({ format: Format, text: Type.String(), hash: Digest });
type StoredChange = Static<typeof StoredChange>;
const isStoredChange = schemaCheck('StoredChange', StoredChange);
const isHashedChange = schemaCheck('HashedChange', closedObject(HASHED_CHANGE));
/** The hash is empty in CHAIN_START. */
const StoredLink = Type.Object({ number: Count, hash: Type.String({ pattern: '^([0-9a-f]{64})?$' }) });
const isLink = schemaCheck('StoredLink', StoredLink);

/** Throws StoreError `damaged`; `location` names the record in the message. */
export function readChange(stored: unknown, location: string): OperatorChange {
  const change = decodedChange(stored);
  if (change === undefined) throw damaged(location);
  return change;
}

/** Undefined if the row is damaged. ChainCheck alone checks the hash. */
function decodedChange(stored: unknown): OperatorChange | undefined {
  if (!isStoredChange(stored)) return undefined;
  const change = parsedText(stored.text);
  return change && { ...change, hash: stored.hash };
}

function parsedText(text: string): Omit<OperatorChange, 'hash'> | undefined {
  const value = parsedJson(text);
  return isHashedChange(value) ? value : undefined;
}

/** Returns CHAIN_START for undefined: the chain has no row. Throws StoreError `damaged`. */
export function readLink(stored: unknown, location: string): ChainLink {
  if (stored === undefined) return CHAIN_START;
  if (!isLink(stored)) throw damaged(location);
  return stored;
}

/** The change that `runAs` runs. */
interface CurrentChange {
  readonly cause: Cause & { readonly atMs: WallMs };
  /** The row of the change; undefined until it is appended. */
  row: OperatorChange | undefined;
}

type ChangeTables = Pick<Tables, 'meta' | 'operatorChanges'>;

/** ChangeStore (registry/operator-change.ts) says what the methods without a comment promise. */
export class OperatorChanges implements ChangeStore {
  readonly #tables: ChangeTables;
  readonly #nameOfGroup: (id: string) => string;
  readonly #rowsMax: number;
  #current: CurrentChange | undefined;

  constructor(tables: ChangeTables, nameOfGroup: (id: string) => string, rowsMax = ROWS_MAX) {
    this.#tables = tables;
    this.#nameOfGroup = nameOfGroup;
    this.#rowsMax = rowsMax;
  }

  runAs<Result>(cause: CurrentChange['cause'], work: () => Result): Recorded<Result> {
    invariant(this.#current === undefined, '`runAs` is not called within `runAs`');
    const current: CurrentChange = { cause, row: undefined };
    this.#current = current;
    try {
      return { result: work(), change: current.row };
    } finally {
      this.#current = undefined;
    }
  }

  record(details: ChangeDetails): void {
    invariant(this.#current !== undefined, '`record` is called within `runAs`');
    this.#appendRow(this.#current, details);
  }

  /**
   * Appends the change that wrote `rows`. store.ts calls it in their transaction. Does nothing outside of
   * `runAs`: then no operator has changed anything.
   */
  append(rows: readonly WrittenRow[]): void {
    if (this.#current === undefined) return;
    const details = describeChange(rows, this.#nameOfGroup);
    if (details !== undefined) this.#appendRow(this.#current, details);
  }

  /** Appends a row to the chain, and removes rows beyond `#rowsMax`. Call in a transaction. */
  #appendRow(current: CurrentChange, details: ChangeDetails): void {
    const { operatorChanges, meta } = this.#tables;
    const { actor, action, atMs } = current.cause;
    const head = this.head();
    const number = head.number + 1;
    const { who, role, from } = actor;
    const { target, changes } = boundedDetails(details);
    const row = { number, at_ms: atMs, who, role, from, action, target, changes: [...changes] };
    const text = JSON.stringify(row);
    const hash = chainedHash(head.hash, text);
    operatorChanges.putSync(number, { format: FORMAT, text, hash } satisfies StoredChange);
    meta.putSync(CHANGES_HEAD, { number, hash });
    const lastSurplus = number - this.#rowsMax;
    if (lastSurplus >= 1) this.#removeUpTo(lastSurplus);
    current.row = { ...row, hash };
  }

  /** Removes the rows up to the number `last`. */
  #removeUpTo(last: number): void {
    const { operatorChanges, meta } = this.#tables;
    const hash = decodedChange(operatorChanges.get(last))?.hash;
    // The row `last` was removed or altered by hand, so the hash with which `verify` would begin is unknown.
    // No row is removed now. The next change tries it with the row after `last`.
    if (hash === undefined) return;
    for (const key of Array.from(operatorChanges.getKeys({ end: last + 1 }))) operatorChanges.removeSync(key);
    meta.putSync(CHANGES_BEFORE, { number: last, hash });
  }

  /** Number and hash of the newest row. */
  head(): ChainLink {
    return this.#link(CHANGES_HEAD);
  }

  #link(name: string): ChainLink {
    const { meta } = this.#tables;
    return readLink(meta.get(name), locationOf(meta, name));
  }

  /**
   * Takes over the head of the chain, or the row before the oldest, from another host. Removes rows after the
   * head, or rows up to the one before the oldest. registry-copy.ts calls it in its transaction.
   */
  applyLink(name: typeof CHANGES_HEAD | typeof CHANGES_BEFORE, value: unknown): void {
    const { operatorChanges, meta } = this.#tables;
    const { number } = readLink(value, `the shared registry: record ${name} of table meta`);
    const range = name === CHANGES_HEAD ? { start: number + 1 } : { end: number + 1 };
    for (const key of Array.from(operatorChanges.getKeys(range))) operatorChanges.removeSync(key);
    meta.putSync(name, value);
  }

  page(filter: ChangeFilter, before: number | undefined, limit: number): ChangePage {
    const { operatorChanges } = this.#tables;
    const items: OperatorChange[] = [];
    let rowsRead = 0;
    // A row whose JSON lacks a text of the filter cannot match. A search takes less time than a parse.
    const { who, action, target } = filter;
    const searchTexts = [who, action].flatMap((text) => (text === undefined ? [] : [insideOfString(text)]));
    const targets = target === undefined ? undefined : Array.from(spellingsOf(target));
    const targetTexts = targets?.map(insideOfString);
    // lmdb excludes the end of a range and includes its start, also if the range is reverse.
    const range = operatorChanges.getRange({
      start: before === undefined ? AFTER_ALL_NUMBERS : before - 1,
      end: 0,
      reverse: true,
    });
    for (const { key, value } of range) {
      if (rowsRead === PAGE_ROWS_MAX || items.length === limit) return { items, next: key + 1 };
      rowsRead += 1;
      const mayMatch =
        isStoredChange(value) &&
        searchTexts.every((text) => value.text.includes(text)) &&
        (targetTexts === undefined || targetTexts.some((text) => value.text.includes(text)));
      const change = mayMatch ? decodedChange(value) : undefined;
      if (change !== undefined && matches(change, filter, targets)) items.push(change);
    }
    return { items, next: undefined };
  }

  async verify(clientLeft?: AbortSignal): Promise<ChainReport> {
    const chain = new ChainCheck(this.#link(CHANGES_BEFORE));
    const { operatorChanges } = this.#tables;
    for (let nextNumber = 0; ;) {
      throwIfLeft(clientLeft);
      const rows = Array.from(operatorChanges.getRange({ start: nextNumber, limit: SLICE_ROWS }));
      for (const { key, value } of rows) chain.add(key, value);
      // The head is read in the event-loop turn of the last slice, so that both are of one moment.
      if (rows.length < SLICE_ROWS) return chain.report(this.head());
      nextNumber = rows.at(-1)!.key + 1;
      await nextTurn();
    }
  }
}

function chainedHash(hashBefore: string, text: string): string {
  return hashOf('sha256', hashBefore + text);
}

/** `targets`: the spellings of the filter's target; undefined if it has none. */
function matches(
  change: OperatorChange,
  { who, action, fromMs, toMs }: ChangeFilter,
  targets: readonly string[] | undefined,
): boolean {
  if (who !== undefined && change.who !== who) return false;
  if (action !== undefined && change.action !== action && !change.action.startsWith(`${action}.`))
    return false;
  const { id, name } = change.target;
  if (targets !== undefined && ![id, name].some((text) => text != null && targets.includes(text)))
    return false;
  return (fromMs === undefined || change.at_ms >= fromMs) && (toMs === undefined || change.at_ms <= toMs);
}

/** Verifies the chain row by row, in the order of their numbers. `verify` and audit.ts use it. */
export class ChainCheck {
  readonly #before: ChainLink;
  readonly #problems: ChainProblem[] = [];
  /** The row that was added last; at first the row before the oldest. */
  #last: ChainLink;
  #rowCount = 0;

  /** `before`: the row before the oldest that is kept. */
  constructor(before: ChainLink) {
    this.#before = before;
    this.#last = before;
  }

  /** `number` is the row's key. Never throws because of a row. */
  add(number: number, stored: unknown): void {
    this.#rowCount++;
    const expected = this.#last.number + 1;
    if (number > expected) this.#addProblem(expected, missingText(expected, number - 1));
    if (number < expected) {
      // Nothing more of it: the next row follows the one before it.
      this.#addProblem(number, 'it was put before the oldest row that is kept');
      return;
    }
    const row = isStoredChange(stored) ? stored : undefined;
    const change = row && parsedText(row.text);
    if (row === undefined || change === undefined)
      this.#addProblem(number, 'it was altered: it cannot be read');
    else if (change.number !== number)
      this.#addProblem(number, `it was altered: it says that it is ${change.number}`);
    else if (
      number === expected &&
      this.#last.hash !== UNKNOWN_HASH &&
      chainedHash(this.#last.hash, row.text) !== row.hash
    )
      this.#addProblem(number, 'it was altered: its hash is not that of its text and the row before');
    this.#last = { number, hash: row?.hash ?? UNKNOWN_HASH };
  }

  /** Call after the last row, with the `head` of the moment at which that row was read. */
  report(head: ChainLink): ChainReport {
    const last = this.#last;
    const nextNumber = last.number + 1;
    if (last.number < head.number) this.#addProblem(nextNumber, missingText(nextNumber, head.number));
    else if (last.number > head.number)
      this.#addProblem(last.number, `it was put behind the newest row, which is ${head.number}`);
    else if (last.hash !== head.hash)
      this.#addProblem(
        last.number,
        'it was altered: its hash is not the one that was kept of the newest row',
      );
    return { rows: this.#rowCount, before: this.#before, head, problems: this.#problems };
  }

  #addProblem(number: number, problem: string): void {
    if (this.#problems.length < PROBLEMS_MAX) this.#problems.push({ number, problem });
  }
}

function missingText(first: number, last: number): string {
  return first === last ? 'it was removed' : `it and those up to ${last} were removed`;
}
