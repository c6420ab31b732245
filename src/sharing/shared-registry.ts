/**
 * The service of a process that shares its registry with others: statements show what all of them use, debits take the money from
 * where it is granted out, and a change is in force everywhere soon, here at once. Main thread.
 *
 * Work is run as a draft first, which is undone: so it is known whose use it shows and which money it takes, and that is asked
 * for before the transaction, which cannot wait.
 */
import { ProxyError } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import { notCovered } from '../registry/credits.js';
import { invalid } from '../registry/record-id.js';
import type { AccountUse, AccountUses, KnownUses } from '../registry/account-uses.js';
import type { RegistryService } from '../registry/registry-service.js';
import type { Registry } from '../registry/registry.js';
import type { WrittenRow } from '../store/row-recorder.js';
import type { Recorded } from '../store/change-feed.js';
import type { Store } from '../store/store.js';
import { CoordinatorLost, EXCHANGE_ASKS_MAX, type Coordinator } from './coordinator.js';
import { byAccount, useOf, type CallsUse } from './calls-use.js';
import { IDLE_MS_PLENTIFUL } from './lease-terms.js';
import { DebitNotCovered, areSameDebits, debitsOf, type Debit, type DebitService } from './debits.js';

/** A change is drafted again where another process has changed the same meanwhile: so often in a row is no chance. */
const TRIES_MAX = 20;

const IDLE_SECONDS_MAX = IDLE_MS_PLENTIFUL / 1_000;

export interface SharedRegistryOptions {
  readonly store: Pick<Store, 'shared' | 'findAccount' | 'keys'>;
  /** Made with `followed` and these `uses`, without live buffers. */
  readonly registry: Registry;
  readonly uses: AccountUses;
  readonly coordinator: Pick<Coordinator, 'look'>;
  readonly debits: DebitService;
  /** Brings what was committed to this process's buffers. */
  readonly follow: () => void;
  readonly commit: CommitChange;
  /** Resolves when every process of this host serves by the changes up to that, with how many do not after a bounded wait. */
  readonly confirm: (change: number) => Promise<number>;
  /** Resolves when what these had settled is in the store. */
  readonly flushAll: () => Promise<unknown>;
  /** What calls use of these accounts now, as each process of this host tells it. */
  readonly callsUses: (accounts: readonly string[]) => Promise<readonly CallsUse[]>;
}

/**
 * Makes a change where all who share the registry have it; resolves when it is durable. `check` looks at what is about to be
 * written, and throws where it must not be. Synchronous `work` may be run several times.
 */
export type CommitChange = <Result>(
  work: () => Result,
  check: (rows: readonly WrittenRow[]) => void,
) => Promise<Result>;

/** Between processes of one host: the store itself is where all have it. */
export function commitHere(store: Pick<Store, 'shared'>): CommitChange {
  return async (work, check) => {
    await Promise.resolve();
    return store.shared.commit(work, check);
  };
}

export class SharedRegistry implements RegistryService {
  readonly #options: SharedRegistryOptions;

  constructor(options: SharedRegistryOptions) {
    this.#options = options;
  }

  async read<Result>(work: (registry: Registry) => Result): Promise<Result> {
    const { registry, uses, flushAll } = this.#options;
    const { result, missed } = uses.show(new Map(), () => work(registry));
    if (missed.size === 0) return result;
    await flushAll();
    const known = await this.#look(missed);
    return uses.show(known, () => work(registry)).result;
  }

  /** Throws `overloaded` where those who share cannot be reached, beside what `work` throws. */
  async change<Result>(
    work: (registry: Registry) => Result,
    onBehind?: (processes: number) => void,
  ): Promise<Result> {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const { known, result, rows } = await this.#draft(work);
      if (rows.length === 0) return result;
      try {
        const made = await this.#make(work, known, debitsOf(rows));
        const { store, confirm } = this.#options;
        const behind = await confirm(store.shared.feed.newest());
        if (behind > 0) onBehind?.(behind);
        return made;
      } catch (error) {
        if (!(error instanceof OtherDebits)) throw error;
      }
    }
    throw new ProxyError('overloaded', 'gateway', 'Others change the same without end: try again.', 1);
  }

  async #draft<Result>(
    work: (registry: Registry) => Result,
  ): Promise<Recorded<Result> & { readonly known: KnownUses }> {
    const { store, registry, uses } = this.#options;
    const draft = (known: KnownUses) => store.shared.draft(() => uses.show(known, () => work(registry)));
    const first = draft(new Map());
    // What the draft itself has made is used by nobody.
    const missed = [...first.result.missed].filter(
      (id) => store.findAccount(id) !== undefined || store.keys.find(id) !== undefined,
    );
    if (missed.length === 0) return { known: new Map(), rows: first.rows, result: first.result.result };
    const known = await this.#look(missed);
    const { rows, result } = draft(known);
    return { known, rows, result: result.result };
  }

  async #make<Result>(
    work: (registry: Registry) => Result,
    known: KnownUses,
    debits: readonly Debit[],
  ): Promise<Result> {
    const { registry, uses, follow, commit } = this.#options;
    try {
      return await this.#options.debits.during(debits, async () => {
        const made = await commit(
          () => uses.show(known, () => work(registry)).result,
          (rows) => {
            if (!areSameDebits(debitsOf(rows), debits)) throw new OtherDebits();
          },
        );
        follow();
        return made;
      });
    } catch (error) {
      if (error instanceof DebitNotCovered) {
        // Who was quicker may have taken it for the same request.
        const { rows } = await this.#draft(work);
        throw areSameDebits(debitsOf(rows), debits) ? rejectionOf(error) : new OtherDebits();
      }
      if (error instanceof CoordinatorLost) throw unreachable(error);
      throw error;
    }
  }

  /** Empty where the coordinator is lost: then statements show what the store has. */
  async #look(ids: Iterable<string>): Promise<Map<string, AccountUse>> {
    const all = [...ids];
    const uses = new Map<string, AccountUse>();
    try {
      for (let first = 0; first < all.length; first += EXCHANGE_ASKS_MAX) {
        const page = all.slice(first, first + EXCHANGE_ASKS_MAX);
        // Before what is spent: a charge that is written meanwhile is counted twice for a moment, never not at all.
        const calls = byAccount(await this.#options.callsUses(page));
        const views = await this.#options.coordinator.look(page);
        for (const view of views) uses.set(view.scope, useOf(view, calls.get(view.scope)));
      }
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
    }
    return uses;
  }
}

/** Another process has changed what is to be taken out, between draft and transaction. */
class OtherDebits extends Error {}

function rejectionOf({ available, heldByOthers: elsewhere }: DebitNotCovered): ProxyError {
  if (!elsewhere) return notCovered(available);
  const balance = decimalOf(available);
  return invalid(
    `amount must not take more than the balance of ${balance}: the rest is held by calls in flight and by processes that serve ` +
      `the account, which give back what lies idle within ${IDLE_SECONDS_MAX} s; try again then`,
  );
}

function unreachable(error: CoordinatorLost): ProxyError {
  const message = `Nothing was changed: the authority that lends the money cannot be asked (${error.message}). Try again.`;
  return new ProxyError('overloaded', 'gateway', message, 1);
}
