/**
 * The audit: whether the books on disk balance, at this moment, beside a running gateway or without one. Main thread of a
 * command. It only reads; what differs is not mended, because no rule says which of two figures is the true one.
 *
 * The law, for each account: credited = the sum of its journal; 0 ≤ spent ≤ credited; spent and uncovered = the sums of its
 * usage. And what names something names it both ways: slots, names, keys, accounts, stored responses.
 */
import { asAccountIndex, asPicoUnits, type PicoUnits } from '../core/units.js';
import type { KeyRecord } from '../registry/key-record.js';
import { auditAccounts } from './audit-accounts.js';
import { type AuditBounds, AuditScope, type Difference, type AuditSubject } from './audit-scope.js';
import { readFlush } from './flush-mark.js';
import { readKey, readKeyUse } from './key-rows.js';
import { readResponse } from './record-codec.js';
import { StoreSnapshot } from './store-snapshot.js';
import { responseBytesOf } from './stored-responses.js';

/*
 * The audit of the marks that flushes of a group's gateways have left: none is newer than their number. Main thread of a
 * command.
 */

export function auditFlushes(scope: AuditScope): void {
  const { snapshot } = scope;
  const stored = snapshot.get('meta', 'books_version') ?? 0;
  const version = typeof stored === 'number' ? stored : 0;
  const ofVersion: AuditSubject = { account: null, place: snapshot.place('meta', 'books_version') };
  if (typeof stored !== 'number') scope.differs(ofVersion, 'the number of flushes', 'damaged', 'a number');
  for (const { key: slot, value } of snapshot.rows('flushes')) {
    const flush = scope.read(readFlush, 'flushes', slot, value);
    if (flush === undefined || flush.sequence <= version) continue;
    const subject: AuditSubject = { account: null, place: snapshot.place('flushes', slot) };
    scope.differs(subject, 'the number of the flush', flush.sequence, `at most that of all, ${version}`);
  }
}

/*
 * The audit of stored responses: each has its age, each age its response, and together they are the bytes that are counted. Main
 * thread of a command.
 */

type Age = [endedMs: number, account: number, key: string];

export function auditStoredResponses(scope: AuditScope): void {
  const { snapshot } = scope;
  let answers = 0;
  for (const { key: place, value } of snapshot.rows('answers')) {
    answers++;
    const [account, key] = place;
    const owner = scope.accountIdOf(account) ?? null;
    const read = (stored: unknown, named: string) =>
      readResponse(stored, { account: asAccountIndex(account), key }, named);
    const record = scope.read(read, 'answers', place, value, owner);
    if (record === undefined) continue;
    const subject: AuditSubject = { account: owner, place: snapshot.place('answers', place) };
    if (owner === null)
      scope.differs(subject, `the owner of account slot ${account}`, undefined, 'an account');
    const bytes = snapshot.get('answer_ages', [record.endedMs, account, key]);
    scope.expect(subject, 'the bytes under its age', figureOf(bytes), responseBytesOf(record));
  }
  auditAges(scope, answers);
}

function auditAges(scope: AuditScope, answers: number): void {
  const { snapshot } = scope;
  let [ages, sum] = [0, 0];
  for (const { key, value } of snapshot.rows('answer_ages')) {
    ages++;
    sum += Number(value);
    const [, account, text]: Age = key;
    if (snapshot.get('answers', [account, text]) === undefined) {
      const subject: AuditSubject = { account: null, place: snapshot.place('answer_ages', key) };
      scope.differs(subject, 'the answer of this age', undefined, 'an answer');
    }
  }
  const subject: AuditSubject = { account: null, place: snapshot.place('meta', 'answer_bytes') };
  scope.expect(subject, 'the number of ages', ages, answers);
  scope.expect(subject, 'the bytes of all answers', figureOf(snapshot.get('meta', 'answer_bytes') ?? 0), sum);
}

/** Of what should be a number. */
function figureOf(value: unknown): number | string | undefined {
  return typeof value === 'number' || value === undefined ? value : 'damaged';
}

/*
 * The audit of keys: their records, their slots, and the tables by which they are found. Main thread of a command.
 */

/** How many keys there are. */
export function auditKeys(scope: AuditScope): number {
  const { snapshot } = scope;
  const used = snapshot.get('meta', 'key_slots_used') ?? 0;
  let keys = 0;
  for (const { key: id, value } of snapshot.rows('keys')) {
    keys++;
    const record = scope.read(readKey, 'keys', id, value);
    if (record !== undefined) auditKey(scope, id, record, Number(used));
  }
  auditBackReferences(scope);
  return keys;
}

function auditKey(scope: AuditScope, id: string, record: KeyRecord, used: number): void {
  const { snapshot, bounds } = scope;
  const { index, accountIndex, accountId, name } = record;
  const subject: AuditSubject = { account: accountId, place: snapshot.place('keys', id) };
  scope.expect(subject, 'the id', record.id, id);
  scope.expect(
    subject,
    `the owner of account slot ${accountIndex}`,
    scope.accountIdOf(accountIndex),
    accountId,
  );
  if (index >= bounds.keysMax) {
    scope.differs(subject, 'the slot', index, `below limits.keys, ${bounds.keysMax}`);
  }
  if (!(index < used)) scope.differs(subject, 'the slot', index, `below the number of slots used, ${used}`);
  scope.expect(subject, `the owner of slot ${index}`, textOf(snapshot.get('key_slots', index)), id);
  scope.expect(subject, `the last owner of slot ${index}`, textOf(snapshot.get('key_ids', index)), id);
  const { replacedById } = record;
  if (replacedById !== undefined && !replacedById.startsWith('key_')) {
    scope.differs(subject, 'the key in its place', replacedById, 'the id of a key');
  }
  const ofAccount = snapshot.get('keys_of_account', [accountIndex, index]);
  scope.expect(subject, 'the key in the list of its account', textOf(ofAccount), id);
  if (snapshot.get('key_names', [name, id]) !== true) {
    scope.differs(subject, `the key under the name ${name}`, undefined, id);
  }
}

/** From slots, accounts and names back to keys. */
function auditBackReferences(scope: AuditScope): void {
  const { snapshot } = scope;
  for (const { key: slot, value } of snapshot.rows('key_slots')) {
    const record = keyOf(scope, value);
    const place = snapshot.place('key_slots', slot);
    scope.expect(subjectOf(record, place), `the slot of key ${textOf(value)}`, record?.index, slot);
  }
  for (const { key, value } of snapshot.rows('keys_of_account')) {
    const record = keyOf(scope, value);
    const place = snapshot.place('keys_of_account', key);
    const is = record === undefined ? undefined : `${record.accountIndex}/${record.index}`;
    scope.expect(subjectOf(record, place), `account and slot of key ${textOf(value)}`, is, key.join('/'));
  }
  for (const { key } of snapshot.rows('key_names')) {
    const [name, id] = key;
    const record = keyOf(scope, id);
    const place = snapshot.place('key_names', key);
    scope.expect(subjectOf(record, place), `the name of key ${id}`, record?.name, name);
  }
  for (const { key: slot, value } of snapshot.rows('key_uses')) {
    scope.read(readKeyUse, 'key_uses', slot, value);
    if (snapshot.get('key_slots', slot) !== undefined) continue;
    const subject: AuditSubject = { account: null, place: snapshot.place('key_uses', slot) };
    scope.differs(subject, `the owner of slot ${slot}`, undefined, 'a key');
  }
  for (const { key } of snapshot.rows('key_slots_free')) {
    const owner = textOf(snapshot.get('key_slots', key[1]));
    const subject: AuditSubject = { account: null, place: snapshot.place('key_slots_free', key) };
    scope.expect(subject, `the owner of slot ${key[1]}, which is free`, owner, undefined);
  }
}

function keyOf(scope: AuditScope, id: unknown): KeyRecord | undefined {
  return typeof id === 'string' ? scope.peek(readKey, 'keys', id) : undefined;
}

function subjectOf(record: KeyRecord | undefined, place: string): AuditSubject {
  return { account: record?.accountId ?? null, place };
}

/** Of what should be an id. */
function textOf(value: unknown): string | undefined {
  return typeof value === 'string' || value === undefined ? value : 'damaged';
}

export interface AuditReport {
  readonly path: string;
  readonly format: number;
  readonly accounts: number;
  readonly keys: number;
  /** Sums over all accounts; what is held by calls in flight is still in `available` here. */
  readonly credited: PicoUnits;
  readonly available: PicoUnits;
  readonly spent: PicoUnits;
  readonly uncovered: PicoUnits;
  /** At most the first thousand of `differencesCount`. */
  readonly differences: readonly Difference[];
  readonly differencesCount: number;
}

/** Throws `StoreFault` where there is no store that can be read. 100,000 accounts with 200,000 keys took 10 s. */
export async function audit(dataPath: string, bounds: AuditBounds): Promise<AuditReport> {
  const snapshot = new StoreSnapshot(dataPath);
  try {
    const scope = new AuditScope(snapshot, bounds);
    const sums = auditAccounts(scope);
    const keys = auditKeys(scope);
    auditStoredResponses(scope);
    auditFlushes(scope);
    return {
      path: snapshot.path,
      format: snapshot.format,
      accounts: sums.accounts,
      keys,
      credited: asPicoUnits(sums.credited),
      available: asPicoUnits(sums.credited - sums.spent),
      spent: asPicoUnits(sums.spent),
      uncovered: asPicoUnits(sums.uncovered),
      differences: scope.differences,
      differencesCount: scope.differencesCount,
    };
  } finally {
    await snapshot.close();
  }
}
