/**
 * Credits and debits: lines of an account's journal, and the money in the ledger. registry.ts makes the
 * object for the admin interface and the commands. Main thread of a gateway process, or a command. (The ring
 * of a listener, the journal of calls, is something else.)
 *
 * Must hold: a debit is taken from the ledger before it is on disk, and given back only if it is not on disk;
 * a credit is on disk before the ledger has it. Otherwise a call spends money that is taken
 * (test/unit/registry/registry-money.test.ts). A request repeated with its idempotency key changes nothing
 * (test/unit/registry/credits-once.test.ts).
 *
 * Of the three live states (registry-context.ts) only that of a gateway alone on its store has the ledger's
 * money. For a command, and for gateways that share their accounts, `live.credit` does nothing and returns
 * true: no call runs beside a command, and sharing/debits.ts sets the money of a debit aside.
 */
import type { ProxyError } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import { UNPRINTABLE } from '../core/wrong-input.js';
import { CREDITED_PICO_UNITS_MAX } from '../ledger/balance.js';
import type { AccountRecord, CreditRecord } from './account-record.js';
import { type AccountStatement, restOf } from './account-statement.js';
import type { Accounts } from './accounts.js';
import { assertIdempotencyKey, invalid, LINE_PATTERN } from './record-id.js';
import { commitAndApply, ifReadable, type Page } from './record-store.js';
import { recordMomentMs, type RegistryContext } from './registry-context.js';

/** Length of a journal line's note: enough for a sentence and a document's number. */
const NOTE_CHARS_MAX = 500;

/** A credit, or with a negative amount a debit. */
interface CreditOrDebit {
  /** Id or name. */
  readonly account: string;
  readonly amount: PicoUnits;
  readonly note: string;
}

interface CreditOrDebitOnce extends CreditOrDebit {
  readonly idempotencyKey: string;
}

/**
 * Steps within the transaction of a credit or debit, before and after its rows are put; a throw undoes it
 * all. `before` must only read, because it is called without a transaction for a debit that the ledger does
 * not cover.
 */
interface Hooks {
  readonly before: (account: AccountRecord) => void;
  readonly after: (statement: AccountStatement) => void;
}

const NO_HOOKS: Hooks = { before: () => undefined, after: () => undefined };

export class Credits {
  readonly #context: RegistryContext;
  readonly #accounts: Accounts;

  constructor(context: RegistryContext, accounts: Accounts) {
    this.#context = context;
    this.#accounts = accounts;
  }

  /**
   * A negative amount is a debit, which is rejected if the balance does not cover it. The amount is on disk
   * and in the live state on return. Throws `invalid_parameters` and `not_found`.
   */
  add(account: string, amount: PicoUnits, note: string): AccountStatement {
    return this.#change({ account, amount, note }, NO_HOOKS);
  }

  /**
   * As `add`, but once for each idempotency key of an account. A repeated request, also at the same time or
   * after a restart, changes nothing and gets the first response, which `responseOf` made from the statement.
   * Throws `invalid_parameters` if the key was used before with another amount or note.
   */
  addOnce(request: CreditOrDebitOnce, responseOf: (statement: AccountStatement) => string): string {
    const { store } = this.#context;
    const { idempotencyKey, amount, note } = request;
    assertIdempotencyKey(idempotencyKey);
    let earlierResponse: string | undefined;
    const assertFirst = ({ index }: AccountRecord): void => {
      const earlier = store.findCreditRequest(index, idempotencyKey);
      if (earlier === undefined) return;
      if (earlier.amount !== amount || earlier.note !== note) throw usedWithOtherContent(idempotencyKey);
      earlierResponse = earlier.response;
      throw new Replayed();
    };
    try {
      // Before the balance is checked: the first request may have taken all of it.
      assertFirst(this.#accounts.recordOf(request.account));
      let response = '';
      this.#change(request, {
        // Again, in case another process has made the same request meanwhile.
        before: assertFirst,
        after: (statement) => {
          response = responseOf(statement);
          store.putCreditRequest(statement.record.index, idempotencyKey, { amount, note, response });
        },
      });
      return response;
    } catch (error) {
      if (error instanceof Replayed && earlierResponse !== undefined) return earlierResponse;
      throw error;
    }
  }

  /** Returns an account's journal from line `from` on, oldest first. */
  list(account: string, from: number, limit: number): Page<CreditRecord> {
    return this.#context.store.listCredits(this.#accounts.recordOf(account).index, from, limit);
  }

  #change(wanted: CreditOrDebit, hooks: Hooks): AccountStatement {
    const { amount, note } = wanted;
    if (amount === 0n) throw invalid('amount must not be zero');
    assertNote(note);
    return amount > 0n ? this.#credit(wanted, hooks) : this.#debit(wanted, hooks);
  }

  #credit(credit: CreditOrDebit, hooks: Hooks): AccountStatement {
    const { store, live } = this.#context;
    const work = (): AccountStatement => {
      const record = this.#putRows(credit, hooks);
      const former = this.#accounts.statementOf(record);
      // `former` lacks the credit, which the ledger gets after the disk. By the law of the balance:
      const available = restOf(record.credited, former.spent, former.held);
      const statement = { ...former, available };
      hooks.after(statement);
      return statement;
    };
    return commitAndApply(
      store,
      work,
      // If the commit threw: the ledger gets the credit only if the disk has it.
      (statement) => (this.#hasCredited(statement.record) ? statement : undefined),
      ({ record }) => live.credit(record.index, credit.amount),
    );
  }

  /**
   * Takes the money from the ledger first, so that no call can spend it before the disk has the debit. The
   * ledger's balance is lower than the disk's by the charges that are not flushed yet, so what the ledger
   * covers the disk covers too. Without a ledger the disk decides, inside the transaction, so that two debits
   * cannot take the same money.
   */
  #debit(debit: CreditOrDebit, hooks: Hooks): AccountStatement {
    const { store, live } = this.#context;
    const account = this.#accounts.recordOf(debit.account);
    if (!live.credit(account.index, debit.amount)) {
      // If another process has made the same request meanwhile, and so taken the money, this throws Replayed.
      hooks.before(account);
      throw notCovered(this.#accounts.statementOf(account).available);
    }
    // An object, because the compiler would take a plain variable for false in `catch`.
    const written = { isWhole: false };
    try {
      return store.commit(() => {
        const statement = this.#accounts.statementOf(this.#putRows(debit, hooks));
        // `held` is not subtracted: the ledger, or DebitService (sharing/debits.ts) if processes share the
        // balance, has set the debit's money aside, so no call holds it.
        const unspent = asPicoUnits(statement.record.credited - statement.spent);
        // The debit's amount is negative: without the debit, `unspent` would be larger by it.
        if (unspent < 0n) throw notCovered(asPicoUnits(unspent - debit.amount));
        hooks.after(statement);
        written.isWhole = true;
        return statement;
      });
    } catch (error) {
      if (!written.isWhole || this.#isUnchanged(account))
        live.credit(account.index, asPicoUnits(0n - debit.amount));
      throw error;
    }
  }

  /**
   * Whether the disk has the account as before a debit whose commit threw. False if it cannot be read: the
   * ledger then has too little of it until a restart.
   */
  #isUnchanged(account: AccountRecord): boolean {
    const isUnchanged = ifReadable(() => {
      this.#context.store.refresh();
      return this.#hasCredited(account);
    });
    return isUnchanged ?? false;
  }

  /** Whether the account on disk has this `credited`, which each credit and debit changes. */
  #hasCredited({ id, credited }: AccountRecord): boolean {
    return this.#context.store.findAccount(id)?.credited === credited;
  }

  /** Writes the account and the line of its journal. Called in a transaction. */
  #putRows({ account: idOrName, amount, note }: CreditOrDebit, hooks: Hooks): AccountRecord {
    const { store, clock } = this.#context;
    const account = this.#accounts.recordOf(idOrName);
    hooks.before(account);
    const credited = asPicoUnits(account.credited + amount);
    if (credited > CREDITED_PICO_UNITS_MAX) {
      throw invalid(
        `amount must leave the sum of all credits at or below ${decimalOf(CREDITED_PICO_UNITS_MAX)}, ` +
          `and it is ${decimalOf(account.credited)} already`,
      );
    }
    const record = { ...account, credited };
    store.putAccount(record);
    store.addCredit(record.index, { amount, note, createdMs: recordMomentMs(clock) });
    return record;
  }
}

/** Rolls back the transaction of a repeated request; never leaves `addOnce`. */
class Replayed extends Error {}

function usedWithOtherContent(idempotencyKey: string): ProxyError {
  return invalid(
    `idempotency_key ${JSON.stringify(idempotencyKey)} was given before with another amount or note: ` +
      'repeat the same request, or give a new key',
  );
}

/** `available`: what a debit could take. sharing/shared-registry.ts makes this error too. */
export function notCovered(available: PicoUnits): ProxyError {
  return invalid(`amount must not take more than the balance of ${decimalOf(available)}`);
}

/** The rule of `assertNote` as JSON Schema (test/unit/admin/openapi.test.ts compares the two). */
export const NOTE_RULE = { maxLength: NOTE_CHARS_MAX, pattern: LINE_PATTERN };

function assertNote(note: string): void {
  const chars = Array.from(note).length;
  if (chars > NOTE_CHARS_MAX) {
    throw invalid(`note must have at most ${NOTE_CHARS_MAX} characters, got ${chars}`);
  }
  if (UNPRINTABLE.test(note)) throw invalid('note must be one line without control characters');
}
