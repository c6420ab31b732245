/**
 * Lets an operator take money out of accounts that several processes spend from. First the service leases the
 * money from the coordinator, then the registry is changed to say that less was credited, then the service
 * gives the lease back. In between the money counts as taken twice, so no call can spend it.
 * gateway/shared-accounting.ts makes the service, shared-registry.ts calls `during`. Main thread.
 *
 * The service is a node of its own at the coordinator, so that calls keep their leases if the service fails.
 * It joins when the gateway starts and leaves when it stops, as the calls' node does.
 *
 * Must hold: the money of a debit is leased until the change is written, so that calls cannot spend it too
 * (test/unit/sharing/shared-registry.test.ts). After that it is given back, whatever fails: else the account
 * has paid twice. `close` frees no money of a change that still runs.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { WrittenRow } from '../store/row-recorder.js';
import {
  CoordinatorLost,
  type Coordinator,
  EXCHANGE_ASKS_MAX,
  type LeaseAsk,
  type LeaseReply,
  type StockGrant,
} from './coordinator.js';
import { WAIT_FOR_OTHERS_MS } from './lease-terms.js';

/** What an operator takes out of one account; the amount is above 0. */
export interface Debit {
  readonly accountId: string;
  readonly amount: PicoUnits;
}

/** The pause between tries to join, and between tries to give back. */
const RETRY_MS = 1_000;
/** The pause before the debit asks again meanwhile. */
const TRY_AGAIN_MS = 100;

/** An expected error: the balance does not cover the debit. */
export class DebitNotCovered extends Error {
  /** What could have been taken. */
  readonly available: PicoUnits;
  /** Whether other processes hold more, which they may give back. */
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
  /** The join that is under way or has succeeded; undefined before the first, and after one that failed. */
  #joined: Promise<unknown> | undefined;
  readonly #closing = new AbortController();
  /** The end of the last change or return, which the next one waits for. Never rejects. */
  #lastWork: Promise<unknown> = Promise.resolve();
  /** Accounts of which money may be leased although their change is over. */
  readonly #toGiveBack = new Set<string>();
  #waitsToGiveBack = false; // whether the pause before the next try to give back runs
  #runningCount = 0; // how many changes with debits have begun or wait, and are not over

  /** `recall` makes this process give back the account's idle money. */
  constructor(coordinator: Coordinator, recall: (accountId: string) => void) {
    this.#coordinator = coordinator;
    this.#recall = recall;
  }

  /**
   * Joins, and tries again until it works or `close` is called. By that this life replaces the life before,
   * for which a server that may have lost data waits. Call it after the calls' node has tried to join: at a
   * server without nodes only the first node is granted something at once.
   */
  async start(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        await this.#join();
        return;
      } catch (error) {
        if (!(error instanceof CoordinatorLost)) throw error;
        await pause(RETRY_MS, undefined, { signal }).catch(() => undefined);
      }
    }
  }

  /**
   * Leases the money, runs `change`, gives the money back; one change at a time. Without debits it just runs
   * `change`. Rejects with DebitNotCovered or CoordinatorLost if the change did not begin, else as `change`.
   */
  during<Result>(debits: readonly Debit[], change: () => Promise<Result>): Promise<Result> {
    if (debits.length === 0) return change();
    this.#runningCount += 1;
    const ended = this.#lastWork
      .then(() => this.#leaseDuring(debits, change))
      .finally(() => (this.#runningCount -= 1));
    this.#lastWork = ended.catch(() => undefined);
    return ended;
  }

  /**
   * Leaves the coordinator, which otherwise would wait for this node after a loss of data. Does not leave
   * while a change with debits runs. Rejects only by a bug.
   */
  async close(): Promise<void> {
    this.#closing.abort();
    try {
      const hasJoined = this.#joined !== undefined;
      await this.#joined;
      // The money of a change that still runs stays leased, because the change may be written after this. The
      // next life of the node frees the money.
      if (hasJoined && this.#runningCount === 0) await this.#coordinator.leave();
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
    }
    await this.#coordinator.close();
  }

  /** Joins once, also if several calls need it at the same time. */
  #join(): Promise<unknown> {
    this.#joined ??= this.#coordinator.join().catch((error: unknown) => {
      this.#joined = undefined;
      throw error;
    });
    return this.#joined;
  }

  async #leaseDuring<Result>(debits: readonly Debit[], change: () => Promise<Result>): Promise<Result> {
    try {
      await this.#lease(debits);
      return await change();
    } finally {
      // Also if `#lease` has failed: an ask whose reply was lost may have leased some.
      for (const { accountId } of debits) this.#toGiveBack.add(accountId);
      await this.#giveBack();
    }
  }

  /** Gives back what is leased. If that fails, tries again later, between changes. Never rejects. */
  async #giveBack(): Promise<void> {
    const accountIds = [...this.#toGiveBack].slice(0, EXCHANGE_ASKS_MAX);
    try {
      await this.#exchange(accountIds.map((accountId) => askOf(accountId, 0n)));
      for (const accountId of accountIds) this.#toGiveBack.delete(accountId);
    } catch {
      // The change has its own error, or none. The coordinator's contact tells of the loss.
    }
    if (this.#toGiveBack.size === 0 || this.#waitsToGiveBack) return;
    this.#waitsToGiveBack = true;
    pause(RETRY_MS, undefined, { signal: this.#closing.signal, ref: false }).then(
      () => {
        this.#waitsToGiveBack = false;
        this.#lastWork = this.#lastWork.then(() => this.#giveBack());
      },
      // `close` was called: the end of this node's life frees the money.
      () => undefined,
    );
  }

  /**
   * Resolves when all is leased. Rejects as `during` does; then some may be leased. If much of the account
   * remains, others may keep what lies idle for longer than this waits (IDLE_MS_PLENTIFUL).
   */
  async #lease(debits: readonly Debit[]): Promise<void> {
    const asks = debits.map(({ accountId, amount }) => askOf(accountId, amount));
    for (let waitedMs = 0; ; waitedMs += TRY_AGAIN_MS) {
      const replies = await this.#exchange(asks);
      // Each `!` is safe: each ask names a balance, so each reply has one.
      const grants = replies.map(({ stocks }) => stocks!.balance!);
      const isUnknown = replies.some((reply) => reply.isUnknown === true);
      const rejected = grants.find(({ granted }) => granted === 0n);
      if (rejected === undefined) return;
      const mayCome = !isUnknown && grants.every(({ granted, heldByOthers }) => granted > 0n || heldByOthers);
      if (mayCome) for (const { accountId } of debits) this.#recall(accountId);
      if (mayCome && waitedMs < WAIT_FOR_OTHERS_MS) {
        // The next asks report `unused: 0n`, so they free what was granted now.
        await pause(TRY_AGAIN_MS);
        continue;
      }
      if (isUnknown) throw new CoordinatorLost('failing', 'a record of leases is damaged');
      throw new DebitNotCovered(rejected);
    }
  }

  /** If the coordinator has forgotten this node, joins again and repeats the asks: it holds nothing then. */
  async #exchange(asks: readonly LeaseAsk[]): Promise<readonly LeaseReply[]> {
    await this.#join();
    const exchange = async (): Promise<readonly LeaseReply[]> =>
      (await this.#coordinator.exchange(asks)).replies;
    try {
      return await exchange();
    } catch (error) {
      const isForgotten = error instanceof CoordinatorLost && error.reason === 'unknown_node';
      if (!isForgotten || this.#closing.signal.aborted) throw error;
      await this.#coordinator.join();
      return exchange();
    }
  }
}

/** The debits in these rows: what they take out of accounts. A row without `former` is of a new account. */
export function debitsOf(rows: readonly WrittenRow[]): Debit[] {
  const addedById = new Map<string, bigint>();
  for (const { table, key, value, former } of rows) {
    if (table !== 'accounts' || former === undefined) continue;
    const id = String(key);
    addedById.set(id, (addedById.get(id) ?? 0n) + creditedIn(value) - creditedIn(former));
  }
  return [...addedById].flatMap(([accountId, amount]) =>
    amount < 0n ? [{ accountId, amount: asPicoUnits(-amount) }] : [],
  );
}

/** Asks for `amount`. It reports that nothing is held, so an `amount` of 0 gives back what was leased. */
function askOf(scope: string, amount: bigint): LeaseAsk {
  const balance = { limit: 0n, period: 0, used: 0n, unused: 0n, least: amount, most: amount };
  return { scope, stocks: { balance } };
}

/** What is credited in the packed record of an account, as store/account-codec.ts writes it. */
function creditedIn(row: unknown): bigint {
  return BigInt((row as { readonly creditedPicoUnits: string }).creditedPicoUnits);
}
