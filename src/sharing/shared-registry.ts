/**
 * The registry of a process that shares it with other processes, as the admin interface uses it.
 * gateway/shared-accounting.ts makes it. Main thread of a gateway process. Statements show what all processes
 * use. Before a debit is made, its money is leased from the coordinator. A change is in force in this process
 * when it is acknowledged, and in all others soon.
 *
 * The _work_ of a change is one transaction, which cannot wait for other processes. So it first runs without
 * preparation. If it shows the use of an account, or takes money out of one, the run ends before it writes
 * (Unprepared). Then SharedRegistry prepares the next run: it asks for the uses that the run _missed_, and
 * has the money of its debits leased. Work that needs neither, such as disabling a key, runs once.
 *
 * Must hold: a run that was not prepared for all that it needs writes nothing, and a debit takes only what no
 * other process holds. `overloaded` says that nothing was changed, so no error after a commit becomes one.
 * DebitService throws CoordinatorLost and DebitNotCovered only before it begins the change, whatever becomes
 * of the lease afterwards (test/unit/sharing/debits.test.ts).
 */
import { isDeepStrictEqual } from 'node:util';
import { ProxyError } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import { notCovered } from '../registry/credits.js';
import { invalid } from '../registry/record-id.js';
import type { SharedUse, KnownUses } from '../registry/account-statement.js';
import type { SharedUses } from '../registry/shared-uses.js';
import type { Cause, OperatorChange } from '../registry/operator-change.js';
import type { Registry, RegistryService } from '../registry/registry.js';
import type { WrittenRow } from '../store/row-recorder.js';
import type { Store } from '../store/store.js';
import { CoordinatorLost, EXCHANGE_ASKS_MAX, type Coordinator } from './coordinator.js';
import { groupByScope, useOf, type CallsUse } from './sharing-stats.js';
import { GIVEN_BACK_MS_MAX } from './lease-terms.js';
import { DebitNotCovered, debitsOf, type Debit, type DebitService } from './debits.js';

/** How often a change runs at most. A debit needs two runs, and one more whenever others changed the same. */
const TRIES_MAX = 20;

const IDLE_SECONDS_MAX = GIVEN_BACK_MS_MAX / 1_000;

interface SharedRegistryOptions {
  readonly store: Pick<Store, 'shared'>;
  /** Must have been made with these `uses`. */
  readonly registry: Registry;
  /** `show` runs work with the uses that are known, and returns the ids of accounts whose use it missed. */
  readonly uses: SharedUses;
  readonly coordinator: Pick<Coordinator, 'view'>;
  readonly debits: DebitService;
  readonly commit: CommitChange;
  /**
   * Waits until every process of this host has applied the change of that number in the store's change feed,
   * but not for long. Resolves with how many have not. Must not reject, because the change is durable.
   */
  readonly confirm: (change: number) => Promise<number>;
  /** Resolves when the store has all that the processes of this host had settled before the call. */
  readonly flushAll: () => Promise<unknown>;
  /** Called with the operator's row of each change once it is durable. Must not throw. */
  readonly onChange: (change: OperatorChange) => void;
  /** What calls use of these accounts now, as each process of this host reports it. */
  readonly callsUses: (accounts: readonly string[]) => Promise<readonly CallsUse[]>;
}

/**
 * Makes a change for all who share the registry; resolves when it is durable and in force in this process.
 * `check` gets the rows that are about to be written, none if `work` writes nothing, and throws to prevent
 * the change. `work` is synchronous and may be run several times. With other hosts it is RegistryLog.commit.
 */
export type CommitChange = <Result>(
  work: () => Result,
  check: (rows: readonly WrittenRow[]) => void,
) => Promise<Result>;

/** The CommitChange of processes that share a store. `onCommitted` applies the change in this process. */
export function commitHere(store: Pick<Store, 'shared'>, onCommitted: () => void): CommitChange {
  return async (work, check) => {
    await Promise.resolve();
    const result = store.shared.commit(work, check);
    onCommitted();
    return result;
  };
}

export class SharedRegistry implements RegistryService {
  readonly #options: SharedRegistryOptions;

  constructor(options: SharedRegistryOptions) {
    this.#options = options;
  }

  /**
   * Resolves with what `work` returns. If it missed uses, it runs again with them. All processes flush before
   * that, because coordinators count as spent only what a host's store has. `change` does not flush, which
   * takes seconds if a process does not reply, so an account in its result may lack what calls have spent
   * since. No change goes by that: debits lease the money, and what keys inherit is counted without a flush,
   * unless the coordinator is lost.
   */
  async read<Result>(work: (registry: Registry) => Result): Promise<Result> {
    const { registry, uses, flushAll } = this.#options;
    const { result, missed } = uses.show(new Map(), () => work(registry));
    if (missed.size === 0) return result;
    await flushAll();
    const knownUses = await this.#usesOf(missed);
    return uses.show(knownUses, () => work(registry)).result;
  }

  /**
   * Rejects with `overloaded` if a debit's money cannot be leased because the coordinator is lost, or after
   * TRIES_MAX runs; and with what `work` throws. `onUnconfirmed`: as RegistryService has it.
   */
  async change<Result>(
    cause: Cause,
    work: (registry: Registry) => Result,
    onUnconfirmed?: (processes: number) => void,
  ): Promise<Result> {
    const { store, confirm, debits: debitService, onChange } = this.#options;
    let prepared: Preparation = { knownUses: new Map(), asked: new Set(), debits: [] };
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      let made: Made<Result>;
      try {
        const debits = prepared.notLeased === undefined ? prepared.debits : [];
        made = await debitService.during(debits, () => this.#commit(cause, work, prepared));
      } catch (error) {
        if (error instanceof CoordinatorLost) throw unreachable(error);
        if (error instanceof DebitNotCovered) {
          // A quicker operator may have made the same debit. The next run, without a lease, shows whether
          // `work` still wants the money; if so, `#commit` rejects the debit.
          prepared = { ...prepared, notLeased: error };
        } else if (error instanceof Unprepared) {
          const asked = new Set([...prepared.asked, ...error.missed]);
          prepared = { knownUses: await this.#usesOf(asked), asked, debits: error.debits };
        } else throw error;
        continue;
      }
      // Outside of the `try`: the change is durable, so no error from here on may make it run again.
      const { result, writes, change } = made;
      if (change !== undefined) onChange(change);
      const countBehind = writes ? await confirm(store.shared.feed.newest()) : 0;
      if (countBehind > 0) onUnconfirmed?.(countBehind);
      return result;
    }
    throw new ProxyError('overloaded', 'gateway', 'Others change the same without end: try again.', 1);
  }

  /** Rejects with Unprepared, before anything is written, if the change needs another preparation. */
  async #commit<Result>(
    cause: Cause,
    work: (registry: Registry) => Result,
    { knownUses, asked, debits, notLeased }: Preparation,
  ): Promise<Made<Result>> {
    const { registry, uses, commit } = this.#options;
    let writes = false;
    let missed: ReadonlySet<string> = new Set();
    let change: OperatorChange | undefined;
    // Each run makes the record of the operator's change anew: another host's change may have come before it
    // in the chain.
    const run = (): Result => {
      const runEnd = registry.runAs(cause, () => uses.show(knownUses, () => work(registry)));
      ({ change } = runEnd);
      missed = runEnd.result.missed;
      return runEnd.result.result;
    };
    const result = await commit(run, (rows) => {
      const debitsOfRun = debitsOf(rows);
      const areSame = isDeepStrictEqual(debitsOfRun, debits);
      if (areSame && notLeased !== undefined) throw rejectionOf(notLeased);
      // No process uses an account that the change itself creates. (Ids of other new rows do no harm.)
      const created = new Set(rows.flatMap(({ former, key }) => (former === undefined ? [key] : [])));
      const unasked = [...missed].filter((id) => !asked.has(id) && !created.has(id));
      if (unasked.length > 0 || !areSame) throw new Unprepared(unasked, debitsOfRun);
      writes = rows.length > 0;
    });
    return { result, writes, change };
  }

  /** The uses of these accounts. Lacks some if the coordinator is lost: then the store's are shown. */
  async #usesOf(ids: Iterable<string>): Promise<Map<string, SharedUse>> {
    const accountIds = [...ids];
    const uses = new Map<string, SharedUse>();
    try {
      for (let first = 0; first < accountIds.length; first += EXCHANGE_ASKS_MAX) {
        const page = accountIds.slice(first, first + EXCHANGE_ASKS_MAX);
        // Processes are asked before the coordinator: a charge that a flush writes in between is counted
        // twice for a moment, never left out.
        const calls = await this.#options.callsUses(page);
        const processSlots = [...new Set(calls.map(({ slot }) => slot))];
        const views = await this.#options.coordinator.view(page, processSlots);
        const callsByScope = groupByScope(calls);
        for (const view of views) uses.set(view.scope, useOf(view, callsByScope.get(view.scope)));
      }
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
    }
    return uses;
  }
}

/** A change that is durable. */
interface Made<Result> {
  readonly result: Result;
  /** Whether it has written rows, which other processes have to apply. */
  readonly writes: boolean;
  readonly change: OperatorChange | undefined;
}

/** What is found out, and what is leased, before work runs again. */
interface Preparation {
  readonly knownUses: KnownUses;
  /** The accounts whose use was asked for. `knownUses` lacks it all the same if the coordinator was lost. */
  readonly asked: ReadonlySet<string>;
  /** The debits of the last run, which are leased while the change runs, unless `notLeased` is set. */
  readonly debits: readonly Debit[];
  /** Set if the money of the debits could not be leased. */
  readonly notLeased?: DebitNotCovered;
}

/** Undoes a run that was not prepared for what it needs: the uses of `missed`, and `debits` leased. */
class Unprepared extends Error {
  readonly missed: readonly string[];
  readonly debits: readonly Debit[];

  constructor(missed: readonly string[], debits: readonly Debit[]) {
    super('the change needs more than was prepared');
    this.missed = missed;
    this.debits = debits;
  }
}

function rejectionOf({ available, heldByOthers }: DebitNotCovered): ProxyError {
  if (!heldByOthers) return notCovered(available);
  const balance = decimalOf(available);
  return invalid(
    `amount must not take more than the balance of ${balance}: the rest is held by calls in flight and by ` +
      `processes that serve the account, which give back what lies idle within ${IDLE_SECONDS_MAX} s; ` +
      'try again then',
  );
}

function unreachable(error: CoordinatorLost): ProxyError {
  const message = `Nothing was changed: the coordinator cannot be asked (${error.message}). Try again.`;
  return new ProxyError('overloaded', 'gateway', message, 1);
}
