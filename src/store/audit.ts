/**
 * The audit: checks that the accounting on disk balances at one moment, while a gateway runs or without one.
 * cli/audit-command.ts calls `audit` on the main thread of a command. The audit only reads, and repairs
 * nothing, because no rule says which of two numbers is true. It reports each difference with the row, and
 * with the row's account if that is known (AuditedRow).
 *
 * For each account: credited = the sum of its credits and debits; 0 ≤ spent ≤ credited (spent ≤ credited is
 * not checked if hosts share the registry); spent and uncovered = the sums of its usage. If a row refers to
 * another (slots, names, keys, accounts, stored responses), that row must exist and agree.
 *
 * Must hold: a check here or in audit-groups.ts reads each of AUDITED_TABLES; otherwise the audit misses
 * damage in that table (test/unit/store/audit.audited-tables.test.ts).
 */
import { decimalOf } from '../core/money.js';
import { asAccountIndex, asPicoUnits, type PicoUnits } from '../core/units.js';
import { CREDITED_PICO_UNITS_MAX, uncoveredAfter } from '../ledger/balance.js';
import type { AccountRecord } from '../registry/account-record.js';
import type { KeyRecord } from '../registry/key-record.js';
import type { ChainLink } from '../registry/operator-change.js';
import { type AuditBounds, AuditRun, type Difference, idIn, StoreSnapshot } from './audit-run.js';
import { auditGroupOf, auditGroups } from './audit-groups.js';
import { ACCOUNTING_VERSION, readFlush } from './flush-mark.js';
import { readKey, readKeyUse } from './key-rows.js';
import { readAccount, readCredit, readCreditRequest, readSpending } from './account-codec.js';
import { readUsage } from './usage-codec.js';
import { CHAIN_START, ChainCheck, readLink } from './change-chain.js';
import { readOperator } from './operator-rows.js';
import { CHANGES_BEFORE, CHANGES_HEAD } from './tables.js';
import { REGISTRY_PARTIAL, REGISTRY_POSITION } from './registry-copy.js';
import { StoreError } from './store-file.js';
import { readResponse, responseBytesOf } from './response-table.js';

export interface AuditReport {
  readonly path: string;
  readonly format: number;
  readonly accounts: number;
  readonly keys: number;
  readonly groups: number;
  /** Sums over all accounts. Holds of calls in flight are not on disk, so `available` still contains them. */
  readonly credited: PicoUnits;
  readonly available: PicoUnits;
  readonly spent: PicoUnits;
  readonly uncovered: PicoUnits;
  /** The first differences: at most DIFFERENCES_MAX of audit-run.ts. */
  readonly differences: readonly Difference[];
  readonly differencesCount: number;
}

/**
 * Throws StoreError if there is no store that can be read, or if its registry is being taken over from other
 * hosts. Blocks the thread: 100,000 accounts with 200,000 keys took 10 s.
 */
export async function audit(dataPath: string, bounds: AuditBounds): Promise<AuditReport> {
  const snapshot = new StoreSnapshot(dataPath);
  try {
    if (snapshot.get('meta', REGISTRY_PARTIAL) === true) throw takenOverError(snapshot.path);
    const run = new AuditRun(snapshot, bounds);
    const sums = auditAccounts(run);
    const keys = auditKeys(run);
    const groups = auditGroups(run);
    auditStoredResponses(run);
    auditFlushes(run);
    auditOperators(run);
    auditChanges(run);
    return {
      path: snapshot.path,
      format: snapshot.format,
      accounts: sums.accounts,
      keys,
      groups,
      credited: asPicoUnits(sums.credited),
      available: asPicoUnits(sums.credited - sums.spent),
      spent: asPicoUnits(sums.spent),
      uncovered: asPicoUnits(sums.uncovered),
      differences: run.differences,
      differencesCount: run.differencesCount,
    };
  } finally {
    await snapshot.close();
  }
}

/** While the rows of other hosts are copied, some rows refer to missing ones, so differences mean nothing. */
function takenOverError(path: string): StoreError {
  return new StoreError(
    'unreadable',
    `${path}: accounts and keys are being taken over from the hosts that share them. Audit again when the gateway serves.`,
  );
}

interface AccountSums {
  accounts: number;
  credited: bigint;
  spent: bigint;
  uncovered: bigint;
}

/** Checks all accounts, and rows of slots that no account has. Returns sums of the accounts' own records. */
function auditAccounts(run: AuditRun): AccountSums {
  const sums: AccountSums = { accounts: 0, credited: 0n, spent: 0n, uncovered: 0n };
  for (const { key: id, value } of run.rows('accounts')) {
    sums.accounts++;
    const record = run.readOrReport(readAccount, 'accounts', id, value, id);
    if (record === undefined) continue;
    const row = run.rowAt('accounts', id, id);
    run.expect(row, 'the id', record.id, id);
    run.expectIndexes('account', row, { ...record, id }, run.bounds.accountsMax);
    auditGroupOf(run, record);
    auditMoney(run, record, sums);
    auditCreditRequests(run, record);
  }
  const recordOf = (id: string): AccountRecord | undefined => run.readIfSound(readAccount, 'accounts', id);
  run.checkBackReferences('account', recordOf, (record) => record?.id ?? null);
  auditOwners(run);
  return sums;
}

/** Checks the amounts of one account, as the header says. Adds them to `sums`. */
function auditMoney(run: AuditRun, record: AccountRecord, sums: AccountSums): void {
  const { snapshot } = run;
  const { id: account, index, credited } = record;
  const accountRow = run.rowAt('accounts', account, account);
  run.expect(accountRow, 'credited', credited, creditSum(run, record));
  if (credited < 0n || credited > CREDITED_PICO_UNITS_MAX) {
    run.addDifference(accountRow, 'credited', credited, `from 0 to ${decimalOf(CREDITED_PICO_UNITS_MAX)}`);
  }

  const stored = snapshot.get('spending', index);
  const spending =
    stored === undefined ? undefined : run.readOrReport(readSpending, 'spending', index, stored, account);
  const isDamaged = stored !== undefined && spending === undefined;
  const { spent, uncovered } = spending ?? { spent: 0n, uncovered: 0n };
  const spendingRow = run.rowAt('spending', index, account);
  if (spent < 0n) run.addDifference(spendingRow, 'spent', spent, 'not negative');
  // If hosts share the registry, a credit may be spent here before this host has copied it.
  const isCopy = snapshot.get('meta', REGISTRY_POSITION) !== undefined;
  if (spent > credited && !isCopy)
    run.addDifference(spendingRow, 'spent', spent, `not more than was credited`);
  if (uncovered < 0n) run.addDifference(spendingRow, 'uncovered', uncovered, 'not negative');
  const usage = usageSums(run, record);
  // For a damaged row `readOrReport` has added a difference already.
  if (!isDamaged) {
    run.expect(spendingRow, 'spent', spent, usage.cost);
    run.expect(spendingRow, 'uncovered', uncovered, usage.uncovered);
  }
  sums.credited += credited;
  sums.spent += spent;
  sums.uncovered += uncovered;
}

/** Sum of the account's credits and debits. Damaged rows are reported and left out. */
function creditSum(run: AuditRun, { id, index }: AccountRecord): bigint {
  let credited = 0n;
  for (const { key, value } of run.rowsOfSlot('credits', index)) {
    credited += run.readOrReport(readCredit, 'credits', key, value, id)?.amount ?? 0n;
  }
  return credited;
}

function auditCreditRequests(run: AuditRun, { id, index }: AccountRecord): void {
  for (const { key, value } of run.rowsOfSlot('credit_requests', index)) {
    run.readOrReport(readCreditRequest, 'credit_requests', key, value, id);
  }
}

function usageSums(run: AuditRun, { id, index }: AccountRecord): { cost: bigint; uncovered: bigint } {
  let cost = 0n;
  let uncovered = 0n;
  /** By key id: whether rows of this account may name the key. Kept, because a key has rows of many hours. */
  const isAllowedByKey = new Map<string, boolean>();
  for (const { key, value } of run.rowsOfSlot('usage', index)) {
    const totals = run.readOrReport(readUsage, 'usage', key, value, id);
    cost += totals?.cost ?? 0n;
    // Stops at the same bound as the sum in the account's row of `spending`.
    uncovered = uncoveredAfter(uncovered, totals?.uncovered ?? 0n);
    const keyId = key[2];
    let isAllowed = isAllowedByKey.get(keyId);
    if (isAllowed === undefined) {
      // Usage stays when its key is deleted, so a key without a record is taken for a deleted key.
      const owner = run.readIfSound(readKey, 'keys', keyId)?.accountIndex;
      isAllowed = keyId.startsWith('key_') && (owner === undefined || owner === index);
      isAllowedByKey.set(keyId, isAllowed);
    }
    if (!isAllowed) {
      const row = run.rowAt('usage', key, id);
      run.addDifference(row, 'the key', keyId, 'a key of the account');
    }
  }
  return { cost, uncovered };
}

/** Reports rows of slots that no account has. */
function auditOwners(run: AuditRun): void {
  for (const name of ['credits', 'credit_requests', 'spending', 'usage'] as const) {
    for (const { key } of run.rows(name)) {
      const slot = typeof key === 'number' ? key : key[0];
      if (run.accountIdOf(slot) !== undefined) continue;
      const row = run.rowAt(name, key);
      run.addDifference(row, `the owner of slot ${slot}`, undefined, 'an account');
    }
  }
}

/** The number in each gateway's flush mark is at most the accounting version (flush-mark.ts). */
function auditFlushes(run: AuditRun): void {
  const { snapshot } = run;
  const stored = snapshot.get('meta', ACCOUNTING_VERSION) ?? 0;
  const version = typeof stored === 'number' ? stored : 0;
  const versionRow = run.rowAt('meta', ACCOUNTING_VERSION);
  if (typeof stored !== 'number')
    run.addDifference(versionRow, 'the number of flushes', 'damaged', 'a number');
  for (const { key: slot, value } of run.rows('flushes')) {
    const flush = run.readOrReport(readFlush, 'flushes', slot, value);
    if (flush === undefined || flush.sequence <= version) continue;
    const row = run.rowAt('flushes', slot);
    run.addDifference(row, 'the number of the flush', flush.sequence, `at most that of all, ${version}`);
  }
}

type Age = [endedMs: number, account: number, key: string];

/**
 * Each stored response, which the tables call an answer, has a row of `answer_ages`, and each row has a
 * response. The bytes of these rows add up to the sum in `meta`.
 */
function auditStoredResponses(run: AuditRun): void {
  const { snapshot } = run;
  let responseCount = 0;
  for (const { key: responseKey, value } of run.rows('answers')) {
    responseCount++;
    const [account, key] = responseKey;
    const owner = run.accountIdOf(account) ?? null;
    const read = (stored: unknown, location: string) =>
      readResponse(stored, { account: asAccountIndex(account), key }, location);
    const record = run.readOrReport(read, 'answers', responseKey, value, owner);
    if (record === undefined) continue;
    const row = run.rowAt('answers', responseKey, owner);
    if (owner === null)
      run.addDifference(row, `the owner of account slot ${account}`, undefined, 'an account');
    const bytes = snapshot.get('answer_ages', [record.endedMs, account, key]);
    run.expect(row, 'the bytes under its age', numberIn(bytes), responseBytesOf(record));
  }
  auditAges(run, responseCount);
}

/** Checks the rows of `answer_ages`, and the sum `answer_bytes` that response-table.ts keeps of them. */
function auditAges(run: AuditRun, responseCount: number): void {
  const { snapshot } = run;
  let ageCount = 0;
  let countedBytes = 0;
  for (const { key, value } of run.rows('answer_ages')) {
    ageCount++;
    // A damaged row is found with its response, or below, because its bytes are missing in the sum.
    if (typeof value === 'number') countedBytes += value;
    const [, account, responseKey]: Age = key;
    if (snapshot.get('answers', [account, responseKey]) === undefined) {
      const row = run.rowAt('answer_ages', key);
      run.addDifference(row, 'the answer of this age', undefined, 'an answer');
    }
  }
  const row = run.rowAt('meta', 'answer_bytes');
  run.expect(row, 'the number of ages', ageCount, responseCount);
  const storedBytes = numberIn(snapshot.get('meta', 'answer_bytes') ?? 0);
  run.expect(row, 'the bytes of all answers', storedBytes, countedBytes);
}

/** Each operator is found by the digest of its token. */
function auditOperators(run: AuditRun): void {
  for (const { key: digest, value } of run.rows('operators')) {
    const record = run.readOrReport(readOperator, 'operators', digest, value);
    if (record === undefined) continue;
    const row = run.rowAt('operators', digest);
    run.expect(row, 'the digest', record.digest, digest);
  }
}

/** The hash chain of the operators' changes: each row has the hash of itself and of the row before. */
function auditChanges(run: AuditRun): void {
  const { snapshot } = run;
  const linkOf = (name: string): ChainLink => {
    const stored = snapshot.get('meta', name);
    const link = stored === undefined ? undefined : run.readOrReport(readLink, 'meta', name, stored);
    return link ?? CHAIN_START;
  };
  const chain = new ChainCheck(linkOf(CHANGES_BEFORE));
  for (const { key, value } of run.rows('operator_changes')) chain.add(key, value);
  for (const { number, problem } of chain.report(linkOf(CHANGES_HEAD)).problems) {
    const row = run.rowAt('operator_changes', number);
    run.addDifference(row, 'the row', problem, 'as it was written');
  }
}

/** `value`, which should be a number; the text `damaged` if it is none. */
function numberIn(value: unknown): number | string | undefined {
  return typeof value === 'number' || value === undefined ? value : 'damaged';
}

/** Returns how many keys there are. */
function auditKeys(run: AuditRun): number {
  let keys = 0;
  for (const { key: id, value } of run.rows('keys')) {
    keys++;
    const record = run.readOrReport(readKey, 'keys', id, value);
    if (record !== undefined) auditKey(run, id, record);
  }
  auditKeyReferences(run);
  return keys;
}

function auditKey(run: AuditRun, id: string, record: KeyRecord): void {
  const { snapshot, bounds } = run;
  const { index, accountIndex, accountId, name } = record;
  const row = run.rowAt('keys', id, accountId);
  run.expect(row, 'the id', record.id, id);
  run.expect(row, `the owner of account slot ${accountIndex}`, run.accountIdOf(accountIndex), accountId);
  run.expectIndexes('key', row, { id, index, name }, bounds.keysMax);
  run.expect(row, `the last owner of slot ${index}`, idIn(snapshot.get('key_ids', index)), id);
  const { replacedById } = record;
  if (replacedById !== undefined && !replacedById.startsWith('key_')) {
    run.addDifference(row, 'the key in its place', replacedById, 'the id of a key');
  }
  const listedId = snapshot.get('keys_of_account', [accountIndex, index]);
  run.expect(row, 'the key in the list of its account', idIn(listedId), id);
  if (snapshot.get('key_names', [name, id]) !== true) {
    run.addDifference(row, `the key under the name ${name}`, undefined, id);
  }
}

/** Checks that the rows of slots, accounts, names and uses refer to keys that exist. */
function auditKeyReferences(run: AuditRun): void {
  const { snapshot } = run;
  run.checkBackReferences(
    'key',
    (id) => keyOf(run, id),
    (record) => record?.accountId ?? null,
  );
  for (const { key, value } of run.rows('keys_of_account')) {
    const record = keyOf(run, value);
    const row = run.rowAt('keys_of_account', key, record?.accountId);
    const actual = record === undefined ? undefined : `${record.accountIndex}/${record.index}`;
    run.expect(row, `account and slot of key ${idIn(value)}`, actual, key.join('/'));
  }
  for (const { key } of run.rows('key_names')) {
    const [name, id] = key;
    const record = keyOf(run, id);
    const row = run.rowAt('key_names', key, record?.accountId);
    run.expect(row, `the name of key ${id}`, record?.name, name);
  }
  for (const { key: slot, value } of run.rows('key_uses')) {
    run.readOrReport(readKeyUse, 'key_uses', slot, value);
    if (snapshot.get('key_slots', slot) !== undefined) continue;
    const row = run.rowAt('key_uses', slot);
    run.addDifference(row, `the owner of slot ${slot}`, undefined, 'a key');
  }
}

function keyOf(run: AuditRun, id: unknown): KeyRecord | undefined {
  return typeof id === 'string' ? run.readIfSound(readKey, 'keys', id) : undefined;
}
