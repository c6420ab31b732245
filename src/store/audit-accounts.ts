/**
 * The audit of accounts and their money: journal of credits, what was spent, and the usage that it was spent on. Main
 * thread of a command.
 */
import { CREDITED_PICO_UNITS_MAX, uncoveredAfter } from '../ledger/balance.js';
import type { AccountRecord } from '../registry/account-record.js';
import type { AuditScope, AuditSubject } from './audit-scope.js';
import { readKey } from './key-rows.js';
import { readAccount, readCredit, readCreditRequest, readSpending, readUsage } from './record-codec.js';

export interface AccountSums {
  accounts: number;
  credited: bigint;
  spent: bigint;
  uncovered: bigint;
}

/** All accounts, and the rows that belong to none. Sums are those of the accounts' own figures. */
export function auditAccounts(scope: AuditScope): AccountSums {
  const sums: AccountSums = { accounts: 0, credited: 0n, spent: 0n, uncovered: 0n };
  for (const { key: id, value } of scope.snapshot.rows('accounts')) {
    sums.accounts++;
    const record = scope.read(readAccount, 'accounts', id, value, id);
    if (record === undefined) continue;
    auditIndexes(scope, id, record);
    auditMoney(scope, record, sums);
    auditCreditRequests(scope, record);
  }
  auditBackReferences(scope);
  auditOwners(scope);
  return sums;
}

function auditIndexes(scope: AuditScope, id: string, record: AccountRecord): void {
  const { snapshot, bounds } = scope;
  const subject: AuditSubject = { account: id, place: snapshot.place('accounts', id) };
  scope.expect(subject, 'the id', record.id, id);
  if (record.index >= bounds.accountsMax) {
    scope.differs(subject, 'the slot', record.index, `below limits.accounts, ${bounds.accountsMax}`);
  }
  scope.expect(subject, `the owner of slot ${record.index}`, scope.accountIdOf(record.index), id);
  scope.expect(
    subject,
    `the owner of the name ${record.name}`,
    textOf(snapshot.get('account_names', record.name)),
    id,
  );
}

/** credited = sum of the journal; 0 ≤ spent ≤ credited; spent and uncovered = sums of the usage. */
function auditMoney(scope: AuditScope, record: AccountRecord, sums: AccountSums): void {
  const { snapshot } = scope;
  const { id: account, index, credited } = record;
  const ofAccount: AuditSubject = { account, place: snapshot.place('accounts', account) };
  scope.expect(ofAccount, 'credited', credited, journalSum(scope, record));
  if (credited < 0n || credited > CREDITED_PICO_UNITS_MAX) {
    scope.differs(ofAccount, 'credited', credited, 'from 0 to 9000000');
  }

  const stored = snapshot.get('spending', index);
  const spending =
    stored === undefined ? undefined : scope.read(readSpending, 'spending', index, stored, account);
  const damaged = stored !== undefined && spending === undefined;
  const { spent, uncovered } = spending ?? { spent: 0n, uncovered: 0n };
  const ofSpending: AuditSubject = { account, place: snapshot.place('spending', index) };
  if (spent < 0n) scope.differs(ofSpending, 'spent', spent, 'not negative');
  if (spent > credited) scope.differs(ofSpending, 'spent', spent, `not more than was credited`);
  if (uncovered < 0n) scope.differs(ofSpending, 'uncovered', uncovered, 'not negative');
  const usage = usageSums(scope, record);
  if (!damaged) {
    scope.expect(ofSpending, 'spent', spent, usage.cost);
    scope.expect(ofSpending, 'uncovered', uncovered, usage.uncovered);
  }
  sums.credited += credited;
  sums.spent += spent;
  sums.uncovered += uncovered;
}

/** Damaged lines are left out, and have been told. */
function journalSum(scope: AuditScope, { id, index }: AccountRecord): bigint {
  let sum = 0n;
  for (const { key, value } of scope.snapshot.rows('credits', [index], [index + 1])) {
    sum += scope.read(readCredit, 'credits', key, value, id)?.amount ?? 0n;
  }
  return sum;
}

function auditCreditRequests(scope: AuditScope, { id, index }: AccountRecord): void {
  for (const { key, value } of scope.snapshot.rows('credit_requests', [index], [index + 1])) {
    scope.read(readCreditRequest, 'credit_requests', key, value, id);
  }
}

function usageSums(scope: AuditScope, { id, index }: AccountRecord): { cost: bigint; uncovered: bigint } {
  let cost = 0n;
  let uncovered = 0n;
  /** Whether the key may stand in this account's rows. */
  const keys = new Map<string, boolean>();
  for (const { key, value } of scope.snapshot.rows('usage', [index], [index + 1])) {
    const totals = scope.read(readUsage, 'usage', key, value, id);
    cost += totals?.cost ?? 0n;
    // Stops growing at the bound at which the account's own figure does.
    uncovered = uncoveredAfter(uncovered, totals?.uncovered ?? 0n);
    const keyId = key[2];
    let known = keys.get(keyId);
    if (known === undefined) {
      // A key that was deleted leaves its usage.
      const owner = scope.peek(readKey, 'keys', keyId)?.accountIndex;
      known = keyId.startsWith('key_') && (owner === undefined || owner === index);
      keys.set(keyId, known);
    }
    if (!known) {
      const subject: AuditSubject = { account: id, place: scope.snapshot.place('usage', key) };
      scope.differs(subject, 'the key', keyId, 'a key of the account');
    }
  }
  return { cost, uncovered };
}

/** From slots and names back to accounts. */
function auditBackReferences(scope: AuditScope): void {
  const { snapshot } = scope;
  for (const { key: slot, value } of snapshot.rows('account_slots')) {
    const record = typeof value === 'string' ? scope.peek(readAccount, 'accounts', value) : undefined;
    const subject: AuditSubject = {
      account: record?.id ?? null,
      place: snapshot.place('account_slots', slot),
    };
    scope.expect(subject, `the slot of account ${textOf(value)}`, record?.index, slot);
  }
  for (const { key: name, value } of snapshot.rows('account_names')) {
    const record = typeof value === 'string' ? scope.peek(readAccount, 'accounts', value) : undefined;
    const subject: AuditSubject = {
      account: record?.id ?? null,
      place: snapshot.place('account_names', name),
    };
    scope.expect(subject, `the name of account ${textOf(value)}`, record?.name, name);
  }
}

/** Rows of slots that no account has. */
function auditOwners(scope: AuditScope): void {
  const { snapshot } = scope;
  for (const name of ['credits', 'credit_requests', 'spending', 'usage'] as const) {
    for (const { key } of snapshot.rows(name)) {
      const slot = typeof key === 'number' ? key : key[0];
      if (scope.accountIdOf(slot) !== undefined) continue;
      const subject: AuditSubject = { account: null, place: snapshot.place(name, key) };
      scope.differs(subject, `the owner of slot ${slot}`, undefined, 'an account');
    }
  }
}

/** Of what should be an id. */
function textOf(value: unknown): string | undefined {
  return typeof value === 'string' || value === undefined ? value : 'damaged';
}
