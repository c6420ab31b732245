/**
 * The hash chain of the operators' changes: the codec of its rows and of the links to its ends, and its
 * check. Each row has SHA-256(hash of the row before + its own JSON). operator-changes.ts writes the rows;
 * it, audit.ts and registry-copy.ts read and check them. Main thread, or a command.
 *
 * Must hold: the hash is of the stored text, byte for byte. A row is never encoded again, or every chain ever
 * written breaks. HASHED_CHANGE (registry/operator-change.ts) says how its fields may change. Test:
 * test/unit/store/operator-changes.test.ts.
 */
import { hash as hashOf } from 'node:crypto';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { invariant } from '../core/errors.js';
import { parsedJson } from '../core/json.js';
import { schemaCheck } from '../core/schema-check.js';
import {
  type ChainLink,
  type ChainProblem,
  type ChainReport,
  HASHED_CHANGE,
  type OperatorChange,
} from '../registry/operator-change.js';
import { closedObject, Count, damaged, Digest, Format, FORMAT, rowErrorOf } from './record-codec.js';

/** How many problems a report lists, so that a chain with a million wrong rows fits in a response. */
const PROBLEMS_MAX = 20;

/** The link before the first row of a chain. */
export const CHAIN_START: ChainLink = { number: 0, hash: '' };
/** Stands for the hash of a row that cannot be read. The hash of the next row is then not checked. */
const UNKNOWN_HASH = '?';

const StoredChange = closedObject({ format: Format, text: Type.String(), hash: Digest });
export type StoredChange = Static<typeof StoredChange>;
export const isStoredChange = schemaCheck('StoredChange', StoredChange);
const isHashedChange = schemaCheck('HashedChange', closedObject(HASHED_CHANGE));
/** The hash is empty in CHAIN_START. */
const StoredLink = Type.Object({ number: Count, hash: Type.String({ pattern: '^([0-9a-f]{64})?$' }) });
const isLink = schemaCheck('StoredLink', StoredLink);

/**
 * Packs the row that follows the row with `hashBefore`. Throws an Error, before anything is written, if the
 * row could not be read again: a number that JSON does not have, a value that is undefined.
 */
export function packChange(
  { number, at_ms, who, role, from, action, target, changes }: Omit<OperatorChange, 'hash'>,
  hashBefore: string,
): StoredChange {
  const text = JSON.stringify({ number, at_ms, who, role, from, action, target, changes });
  invariant(parsedText(text) !== undefined, `a row of ${action} can be read again`);
  return { format: FORMAT, text, hash: chainedHash(hashBefore, text) };
}

/** Throws as a RowReader. */
export function readChange(stored: unknown, location: string): OperatorChange {
  const change = decodedChange(stored);
  if (change === undefined) throw rowErrorOf(stored, location);
  return change;
}

/** Undefined if the row is damaged. ChainCheck alone checks the hash. */
export function decodedChange(stored: unknown): OperatorChange | undefined {
  if (!isStoredChange(stored)) return undefined;
  const change = parsedText(stored.text);
  return change && { ...change, hash: stored.hash };
}

function parsedText(text: string): Omit<OperatorChange, 'hash'> | undefined {
  const value = parsedJson(text);
  return isHashedChange(value) ? value : undefined;
}

/** Throws StoreError `damaged`. */
export function readLink(stored: unknown, location: string): ChainLink {
  if (!isLink(stored)) throw damaged(location);
  return stored;
}

function chainedHash(hashBefore: string, text: string): string {
  return hashOf('sha256', hashBefore + text);
}

/** Verifies the chain row by row, in the order of their numbers. operator-changes.ts and audit.ts use it. */
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
