/**
 * The operators' change log: an append-only, tamper-evident table, whose rows form a hash chain. A row is
 * written in the transaction of the change itself, so it costs no fsync of its own, and no change is
 * made without it. store.ts makes OperatorChanges, which registry/registry.ts calls for the admin interface.
 * change-chain.ts has the codec of the rows, and their check. Main thread.
 *
 *     operator_changes  number, from 1 without gaps  → the row's JSON, and SHA-256(hash before + JSON)
 *     meta              'operator_changes_head'      → number and hash of the newest row
 *                       'operator_changes_before'    → number and hash of the row before the oldest
 *
 * Processes of a host append one after the other, because LMDB has one writer. Hosts append in the order of
 * the log that they share: a row continues the head of this host's copy, and is made again if another host
 * appended first (sharing/registry-log.ts). So all hosts have one chain.
 *
 * Must hold: rows have the numbers from 1 on without gaps. The head is the newest row and is written with it.
 * The link before the oldest row is the last that was removed (test/unit/store/operator-changes.test.ts).
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { invariant, throwIfLeft } from '../core/errors.js';
import { insideOfString } from '../core/json.js';
import type { WallMs } from '../core/units.js';
import type {
  Cause,
  ChainLink,
  ChainReport,
  ChangeDetails,
  ChangeFilter,
  ChangePage,
  ChangeStore,
  OperatorChange,
  Recorded,
} from '../registry/operator-change.js';
import { spellingsOf } from '../registry/record-id.js';
import {
  CHAIN_START,
  ChainCheck,
  decodedChange,
  isStoredChange,
  packChange,
  readLink,
} from './change-chain.js';
import { boundedDetails, describeChange } from './change-description.js';
import { AFTER_ALL_NUMBERS, locationOf } from './record-codec.js';
import type { WrittenRow } from './row-recorder.js';
import { CHANGES_BEFORE, CHANGES_HEAD, type Tables } from './tables.js';

/** Rows that are kept: some 450 MB. The oldest rows are removed; the hash of the last removed row stays. */
const ROWS_MAX = 1_000_000;
/** Rows that one page reads, matching or not: some 10 ms. */
const PAGE_ROWS_MAX = 3_000;
/** Rows that a verification reads in one turn of the event loop: some 10 ms. */
const SLICE_ROWS = 1_000;

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
      const result = work();
      // What is written after this call would belong to no change, or to another operator's.
      invariant(!(result instanceof Promise), '`work` of `runAs` is synchronous');
      return { result, change: current.row };
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
    const stored = packChange(row, head.hash);
    const { hash } = stored;
    operatorChanges.putSync(number, stored);
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
    const stored = meta.get(name);
    return stored === undefined ? CHAIN_START : readLink(stored, locationOf(meta, name));
  }

  /**
   * Takes over the head of the chain, or the row before the oldest, from another host. Removes rows after the
   * head, or rows up to the one before the oldest. registry-copy.ts calls it in its transaction. Throws
   * StoreError `damaged`, and removes nothing, if `value` is no link.
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
