/**
 * The audit of keys: their records, their slots, and the tables by which they are found. Main thread of a command.
 */
import type { KeyRecord } from '../registry/key-record.js';
import type { AuditScope, Subject } from './audit-scope.js';
import { readKey, readKeyUse } from './key-codec.js';

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
  const subject: Subject = { account: accountId, place: snapshot.place('keys', id) };
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
    const subject: Subject = { account: null, place: snapshot.place('key_uses', slot) };
    scope.differs(subject, `the owner of slot ${slot}`, undefined, 'a key');
  }
  for (const { key } of snapshot.rows('key_slots_free')) {
    const owner = textOf(snapshot.get('key_slots', key[1]));
    const subject: Subject = { account: null, place: snapshot.place('key_slots_free', key) };
    scope.expect(subject, `the owner of slot ${key[1]}, which is free`, owner, undefined);
  }
}

function keyOf(scope: AuditScope, id: unknown): KeyRecord | undefined {
  return typeof id === 'string' ? scope.peek(readKey, 'keys', id) : undefined;
}

function subjectOf(record: KeyRecord | undefined, place: string): Subject {
  return { account: record?.accountId ?? null, place };
}

/** Of what should be an id. */
function textOf(value: unknown): string | undefined {
  return typeof value === 'string' || value === undefined ? value : 'damaged';
}
