/**
 * Lets an operator take money out of accounts that several processes spend from. The money is leased from the
 * coordinator first, then the registry says that less was credited, then the lease is given back. In between
 * the money counts twice, so nobody can spend it. `SharedRegistry` calls it. Main thread.
 *
 * The service is a node of its own at the coordinator, so the calls keep their leases if it fails. It joins
 * at the start and leaves in the end, as the calls' node does.
 *
 * Must hold: the money of a debit is leased here until the change is written, so at no moment can calls spend
 * it, too. Tests: test/unit/sharing/shared-registry.test.ts (while a debit is committed nobody else is lent
 * the money), test/unit/sharing/debits.test.ts (it joins at the start and leaves in the end, which frees
 * nothing of a change that runs).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { WrittenRow } from '../store/row-recorder.js';
import {
  CoordinatorLost,
  type Coordinator,
  type LeaseAsk,
  type LeaseReply,
  type StockGrant,
} from './coordinator.js';

/** What an operator takes out of one account; the amount is above 0. */
export interface Debit {
  readonly accountId: string;
  readonly amount: PicoUnits;
}

/** How often a start tries to join. */
const JOIN_PERIOD_MS = 1_000;
/** How long a debit waits for others. They give back idle money within 750 ms, or IDLE_MS_PLENTIFUL. */
const WAIT_FOR_OTHERS_MS = 1_500;
const TRY_AGAIN_MS = 100;

/** An expected error: the balance does not cover the debit. */
export class DebitNotCovered extends Error {
  /** What could have been taken. */
  readonly available: PicoUnits;
  /** Other processes hold more, which they may give back. */
  readonly heldByOthers: boolean;

  constructor({ remaining, heldByOthers }: StockGrant) {
    super('the balance does not cover the debit');
    this.available = asPicoUnits(remaining);
    this.heldByOthers = heldByOthers;
  }
}

export class DebitService {
  readonly #coordinator: Coordinator;
  readonly #recall: (accountId: string) => void;
  #joined = false;
  #joining: Promise<void> | undefined;
  readonly #closing = new AbortController();
  /** The change before, which the next one waits for. */
  #last: Promise<unknown> = Promise.resolve();
  /** Changes with debits that are not over. */
  #running = 0;

  /** `recall` makes this process give back the account's idle money. */
  constructor(coordinator: Coordinator, recall: (accountId: string) => void) {
    this.#coordinator = coordinator;
    this.#recall = recall;
  }

  /**
   * Joins, and tries again until it works. So this life takes the place of the one before, which a server
   * that has lost data, or may have, waits for. Call it after the calls' node has tried to join: at a server
   * without nodes only the first one is granted something at once.
   */
  async start(): Promise<void> {
    const { signal } = this.#closing;
    while (!this.#joined && !signal.aborted) {
      try {
        await this.#join();
      } catch (error) {
        if (!(error instanceof CoordinatorLost)) throw error;
        await pause(JOIN_PERIOD_MS, undefined, { signal }).catch(() => undefined);
      }
    }
  }

  /**
   * Leases the money, runs `work`, gives the money back; one `work` at a time. Without debits it just runs
   * `work`. Rejects with DebitNotCovered or CoordinatorLost before `work` has begun.
   */
  during<Result>(debits: readonly Debit[], work: () => Promise<Result>): Promise<Result> {
    if (debits.length === 0) return work();
    this.#running += 1;
    const done = this.#last.then(() => this.#during(debits, work)).finally(() => (this.#running -= 1));
    this.#last = done.catch(() => undefined);
    return done;
  }

  /**
   * Leaves the coordinator, which would wait for this node after its next loss of data; not while a change
   * with debits runs. Does not reject.
   */
  async close(): Promise<void> {
    this.#closing.abort();
    try {
      await this.#joining;
      // The money of a change that still runs stays leased, because it may be written after this: the next
      // life of the node frees it.
      if (this.#joined && this.#running === 0) await this.#coordinator.leave();
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
    }
    await this.#coordinator.close();
  }

  #join(): Promise<void> {
    this.#joining ??= this.#coordinator
      .join()
      .then(() => {
        this.#joined = true;
      })
      .finally(() => {
        this.#joining = undefined;
      });
    return this.#joining;
  }

  async #during<Result>(debits: readonly Debit[], work: () => Promise<Result>): Promise<Result> {
    await this.#lease(debits);
    try {
      return await work();
    } finally {
      // If this fails, the money is free again after the account's next debit, or when this node ends.
      await this.#exchange(debits.map(({ accountId }) => askOf(accountId, 0n))).catch(() => undefined);
    }
  }

  /** Rejects as `during` does; then nothing is leased. */
  async #lease(debits: readonly Debit[]): Promise<void> {
    const asks = debits.map(({ accountId, amount }) => askOf(accountId, amount));
    for (let waitedMs = 0; ; waitedMs += TRY_AGAIN_MS) {
      const replies = await this.#exchange(asks);
      const grants = replies.map(({ stocks }) => stocks!.balance!);
      const isUnknown = replies.some((reply) => reply.isUnknown === true);
      const rejected = grants.find(({ granted }) => granted === 0n);
      if (rejected === undefined) return;
      const mayCome = !isUnknown && grants.every(({ granted, heldByOthers }) => granted > 0n || heldByOthers);
      if (mayCome) for (const { accountId } of debits) this.#recall(accountId);
      if (mayCome && waitedMs < WAIT_FOR_OTHERS_MS) {
        await pause(TRY_AGAIN_MS);
        continue;
      }
      await this.#exchange(debits.map(({ accountId }) => askOf(accountId, 0n)));
      if (isUnknown) throw new CoordinatorLost('failing', 'a record of leases is damaged');
      throw new DebitNotCovered(rejected);
    }
  }

  /** Joins again if the coordinator has forgotten this node: nothing is held then, so nothing was lost. */
  async #exchange(asks: readonly LeaseAsk[]): Promise<readonly LeaseReply[]> {
    if (!this.#joined) await this.#join();
    const exchange = async (): Promise<readonly LeaseReply[]> =>
      (await this.#coordinator.exchange(asks)).answers;
    try {
      return await exchange();
    } catch (error) {
      if (!(error instanceof CoordinatorLost) || error.reason !== 'unknown_node') throw error;
      await this.#coordinator.join();
      return exchange();
    }
  }
}

/** The accounts to which these rows credit less than before. */
export function debitsOf(rows: readonly WrittenRow[]): Debit[] {
  const added = new Map<string, bigint>();
  for (const { table, key, value, former } of rows) {
    if (table !== 'accounts' || former === undefined) continue;
    const id = String(key);
    added.set(id, (added.get(id) ?? 0n) + creditedIn(value) - creditedIn(former));
  }
  return [...added].flatMap(([accountId, amount]) =>
    amount < 0n ? [{ accountId, amount: asPicoUnits(-amount) }] : [],
  );
}

/** Nothing is held of the account yet; an `amount` of 0 gives back what was leased. */
function askOf(scope: string, amount: bigint): LeaseAsk {
  const balance = { limit: 0n, period: 0, used: 0n, unused: 0n, least: amount, most: amount };
  return { scope, stocks: { balance } };
}

/** Reads the packed record of an account, see store/record-codec.ts. */
function creditedIn(row: unknown): bigint {
  return BigInt((row as { readonly creditedPicoUnits: string }).creditedPicoUnits);
}
