/**
 * The operators' changes, an append-only table whose rows are chained by hash. A row is written in the
 * transaction of the change itself, so it costs no disk flush of its own, and no change is made without it.
 * The store owns it. Main thread.
 *
 *     operator_changes  number, from 1 without gaps  → the row's JSON, and SHA-256(hash before + JSON)
 *     meta              'operator_changes_head'      → number and hash of the newest row
 *                       'operator_changes_before'    → the same of the row before the oldest that is kept
 *
 * Processes of a host append in turn, under the lock of the writers. Hosts append in the order of the log
 * that they share: a row is made of the copy's head, and made again if another host was quicker
 * (sharing/registry-log.ts). So both have one chain.
 */
import { hash as hashOf } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Static, Type } from 'typebox';
import { Compile } from 'typebox/compile';
import { invariant } from '../core/errors.js';
import type { WallMs } from '../core/units.js';
import type { OperatorChange } from '../registry/operator-change.js';
import {
  type Cause,
  type ChainLink,
  type ChainProblem,
  type ChainReport,
  type ChangeFilter,
  type ChangeNote,
  type ChangePage,
  type ChangeStore,
  HASHED_CHANGE,
  type Recorded,
} from '../registry/operator-change.js';
import { boundedNote, describeChange } from './change-description.js';
import { Count, damaged, Digest, fast, Format, FORMAT } from './record-codec.js';
import type { WrittenRow } from './row-recorder.js';
import { CHANGES_BEFORE, CHANGES_HEAD, type Tables } from './tables.js';

/** Some 450 MB. The oldest rows go; the hash of the last of them stays. */
const ROWS_MAX = 1_000_000;
/** Rows that one page looks at: some 10 ms. */
const PAGE_ROWS_MAX = 3_000;
/** Rows that a verification reads in one turn of the event loop: some 10 ms. */
const SLICE_ROWS = 1_000;
const AFTER_ALL = Number.MAX_SAFE_INTEGER;
/** One cause makes many of them. */
const PROBLEMS_MAX = 20;

const START: ChainLink = { number: 0, hash: '' };

const StoredChange = Type.Object(
  { format: Format, text: Type.String(), hash: Digest },
  { additionalProperties: false },
);
type StoredChange = Static<typeof StoredChange>;
const storedChanges = fast(Compile(StoredChange));
const hashedChanges = fast(Compile(Type.Object(HASHED_CHANGE, { additionalProperties: false })));
const StoredLink = Type.Object({ number: Count, hash: Type.String({ pattern: '^([0-9a-f]{64})?$' }) });
const links = fast(Compile(StoredLink));

/** Throws StoreError `damaged`; `place` names the record in the message. */
export function readChange(stored: unknown, place: string): OperatorChange {
  const change = decoded(stored);
  if (change === undefined) throw damaged(place);
  return change;
}

function decoded(stored: unknown): OperatorChange | undefined {
  const change = storedChanges.Check(stored) ? parsed(stored.text) : undefined;
  return change && { ...change, hash: (stored as StoredChange).hash };
}

function parsed(text: string): Omit<OperatorChange, 'hash'> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return hashedChanges.Check(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Undefined stands for no link at all. Throws StoreError `damaged`. */
export function readLink(stored: unknown, place: string): ChainLink {
  if (stored === undefined) return START;
  if (!links.Check(stored)) throw damaged(place);
  return stored;
}

interface ChangeInWork {
  readonly cause: Cause & { readonly atMs: WallMs };
  made: OperatorChange | undefined;
}

type ChangeTables = Pick<Tables, 'path' | 'meta' | 'operatorChanges'>;

export class OperatorChanges implements ChangeStore {
  readonly #tables: ChangeTables;
  readonly #nameOfGroup: (id: string) => string;
  readonly #rowsMax: number;
  #inWork: ChangeInWork | undefined;

  constructor(tables: ChangeTables, nameOfGroup: (id: string) => string, rowsMax = ROWS_MAX) {
    this.#tables = tables;
    this.#nameOfGroup = nameOfGroup;
    this.#rowsMax = rowsMax;
  }

  during<Result>(cause: ChangeInWork['cause'], work: () => Result): Recorded<Result> {
    invariant(this.#inWork === undefined, 'a change is made within no other change');
    const inWork: ChangeInWork = { cause, made: undefined };
    this.#inWork = inWork;
    try {
      return { result: work(), change: inWork.made };
    } finally {
      this.#inWork = undefined;
    }
  }

  note(note: ChangeNote): void {
    invariant(this.#inWork !== undefined, 'somebody changes something');
    this.#put(this.#inWork, note);
  }

  /** Called inside the transaction that wrote the rows. */
  append(rows: readonly WrittenRow[]): void {
    if (this.#inWork === undefined) return;
    const note = describeChange(rows, this.#nameOfGroup);
    if (note !== undefined) this.#put(this.#inWork, note);
  }

  #put(inWork: ChangeInWork, note: ChangeNote): void {
    const { operatorChanges, meta } = this.#tables;
    const { actor, action, atMs } = inWork.cause;
    const head = this.head();
    const number = head.number + 1;
    const { who, role, from } = actor;
    const { target, changes } = boundedNote(note);
    const row = { number, at_ms: atMs, who, role, from, action, target, changes: [...changes] };
    const text = JSON.stringify(row);
    const hash = chained(head.hash, text);
    operatorChanges.putSync(number, { format: FORMAT, text, hash } satisfies StoredChange);
    meta.putSync(CHANGES_HEAD, { number, hash });
    const last = number - this.#rowsMax;
    if (last >= 1) this.#forgetTo(last);
    inWork.made = { ...row, hash };
  }

  /** The rows up to `last` are kept no longer. */
  #forgetTo(last: number): void {
    const { operatorChanges, meta } = this.#tables;
    const hash = decoded(operatorChanges.get(last))?.hash;
    // Somebody has removed or altered it: the next one goes with it.
    if (hash === undefined) return;
    for (const key of Array.from(operatorChanges.getKeys({ end: last + 1 }))) operatorChanges.removeSync(key);
    meta.putSync(CHANGES_BEFORE, { number: last, hash });
  }

  /** The newest row. */
  head(): ChainLink {
    return this.#link(CHANGES_HEAD);
  }

  #link(name: string): ChainLink {
    return readLink(this.#tables.meta.get(name), `${this.#tables.path}: record ${name} of table meta`);
  }

  /**
   * Takes over what another host has made the head of the chain, or the row before the oldest. What this copy
   * has beyond it is no part of the chain. Called inside a transaction.
   */
  takeLink(name: typeof CHANGES_HEAD | typeof CHANGES_BEFORE, value: unknown): void {
    const { operatorChanges, meta } = this.#tables;
    const { number } = readLink(value, `the shared registry: record ${name} of table meta`);
    const range = name === CHANGES_HEAD ? { start: number + 1 } : { end: number + 1 };
    for (const key of Array.from(operatorChanges.getKeys(range))) operatorChanges.removeSync(key);
    meta.putSync(name, value);
  }

  page(filter: ChangeFilter, before: number | undefined, limit: number): ChangePage {
    const { operatorChanges } = this.#tables;
    const items: OperatorChange[] = [];
    let looked = 0;
    // A row without these texts is none of those wanted, which is told sooner than by parsing it.
    const { who, action, target } = filter;
    const wanted = [who, action, target].flatMap((text) =>
      text === undefined ? [] : [JSON.stringify(text).slice(1, -1)],
    );
    // lmdb excludes the end of a range and includes its start, also of a reverse one.
    const range = operatorChanges.getRange({
      start: before === undefined ? AFTER_ALL : before - 1,
      end: 0,
      reverse: true,
    });
    for (const { key, value } of range) {
      if (looked === PAGE_ROWS_MAX || items.length === limit) return { items, next: key + 1 };
      looked += 1;
      const mayMatch = storedChanges.Check(value) && wanted.every((part) => value.text.includes(part));
      const change = mayMatch ? decoded(value) : undefined;
      if (change !== undefined && matches(change, filter)) items.push(change);
    }
    return { items, next: undefined };
  }

  async verify(): Promise<ChainReport> {
    const chain = new ChainCheck(this.#link(CHANGES_BEFORE));
    const { operatorChanges } = this.#tables;
    for (let next = 0; ;) {
      const rows = Array.from(operatorChanges.getRange({ start: next, limit: SLICE_ROWS }));
      for (const { key, value } of rows) chain.add(key, value);
      // Read in the turn of the last slice: both are of one moment.
      if (rows.length < SLICE_ROWS) return chain.report(this.head());
      next = rows.at(-1)!.key + 1;
      await nextTurn();
    }
  }
}

function chained(before: string, text: string): string {
  return hashOf('sha256', before + text);
}

function matches(change: OperatorChange, { who, action, target, fromMs, toMs }: ChangeFilter): boolean {
  if (who !== undefined && change.who !== who) return false;
  if (action !== undefined && change.action !== action && !change.action.startsWith(`${action}.`))
    return false;
  if (target !== undefined && change.target.id !== target && change.target.name !== target) return false;
  return (fromMs === undefined || change.at_ms >= fromMs) && (toMs === undefined || change.at_ms <= toMs);
}

/** Follows the chain row by row, in the order of their numbers. The audit uses it too. */
export class ChainCheck {
  readonly #before: ChainLink;
  readonly #problems: ChainProblem[] = [];
  #last: ChainLink;
  #rows = 0;

  constructor(before: ChainLink) {
    this.#before = before;
    this.#last = before;
  }

  add(number: number, stored: unknown): void {
    this.#rows++;
    const expected = this.#last.number + 1;
    if (number > expected) this.#add(expected, missingText(expected, number - 1));
    if (number < expected) this.#add(number, 'it was put before the oldest row that is kept');
    const row = storedChanges.Check(stored) ? stored : undefined;
    const change = row && parsed(row.text);
    if (row === undefined || change === undefined) this.#add(number, 'it was altered: it cannot be read');
    else if (change.number !== number)
      this.#add(number, `it was altered: it says that it is ${change.number}`);
    else if (
      number === expected &&
      this.#last.hash !== UNKNOWN &&
      chained(this.#last.hash, row.text) !== row.hash
    )
      this.#add(number, 'it was altered: its hash is not that of its text and the row before');
    this.#last = { number, hash: row?.hash ?? UNKNOWN };
  }

  /** `head` as it was when the last row was read. */
  report(head: ChainLink): ChainReport {
    const last = this.#last;
    const next = last.number + 1;
    if (last.number < head.number) this.#add(next, missingText(next, head.number));
    else if (last.number > head.number)
      this.#add(last.number, `it was put behind the newest row, which is ${head.number}`);
    else if (last.hash !== head.hash)
      this.#add(last.number, 'it was altered: its hash is not the one that was kept of the newest row');
    return { rows: this.#rows, before: this.#before, head, problems: this.#problems };
  }

  #add(number: number, problem: string): void {
    if (this.#problems.length < PROBLEMS_MAX) this.#problems.push({ number, problem });
  }
}

/** Of a row that cannot be read: its neighbour is judged by itself. */
const UNKNOWN = '?';

function missingText(first: number, last: number): string {
  return first === last ? 'it was removed' : `it and those up to ${last} were removed`;
}
