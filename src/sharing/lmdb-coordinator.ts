/**
 * The coordinator of the processes of one host, which gateway/shared-accounting.ts opens if there is no
 * `sharing`. The processes share a lease file (lease-file.ts), and each carries out its own asks in a
 * transaction of that file. Free money is what the store has as credited, less what it has as spent, less
 * what all nodes hold. Main thread of a gateway process.
 *
 * There is no server. An exchange is done when it returns. So no exchange is lost, delayed or seen twice, and
 * exchanges need no numbers. One transaction runs at a time, of whichever process; one with a single ask
 * takes tens of microseconds.
 *
 * Must hold: what a life held is free only when its process has ended, and what it used stays used. If the
 * row of a scope is damaged, nothing is granted of that scope, and others go on. A stock of a newer version,
 * which other processes may run during an upgrade, is no damage (scope-grants.ts).
 */
import { randomInt, randomUUID } from 'node:crypto';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { Calendar } from '../core/calendar.js';
import type { WallMs } from '../core/units.js';
import { schemaCheck } from '../core/schema-check.js';
import type { UsedScope } from '../registry/quota-use.js';
import { findScope, flushedUseOf } from '../registry/record-store.js';
import { identityOf, isRunning } from '../store/process-identity.js';
import type { Store } from '../store/store.js';
import { StoreError } from '../store/store-file.js';
import {
  type Coordinator,
  CoordinatorLost,
  DEBIT_SLOTS_FROM,
  EXCHANGE_ASKS_MAX,
  type ExchangeReply,
  type LeaseReply,
  type LeaseAsk,
  type NodeIdentity,
  periodAt,
  periodUsesOf,
  placeOf,
  type ScopeView,
  unknownNode,
} from './coordinator.js';
import type { Log } from '../telemetry/log.js';
import { DamagedScopes, UnexpectedErrors, unknownReply } from './coordinator-errors.js';
import type { LeaseFile } from './lease-file.js';
import {
  type AccountMoney,
  NO_MONEY,
  ScopeGrants,
  type ScopeState,
  type UsedBefore,
} from './scope-grants.js';

/** The number of a life is chosen at random from 1 to this one, so that no two lives have the same. */
const LIFE_NUMBER_MAX = 2 ** 47;

/** How often a coordinator checks which processes run, at 20 µs each. Then it frees leases of dead ones. */
const PROCESSES_PERIOD_MS = 200;

const NodeRow = Type.Object({
  life: Type.Integer({ minimum: 1 }),
  incarnation: Type.String(),
  /** The identity of the process, see store/process-identity.ts. */
  process: Type.String(),
});
const isNodeRow = schemaCheck('NodeRow', NodeRow);

type NodeRow = Readonly<Static<typeof NodeRow>>;

/**
 * The lives of nodes in the lease file. Each life has a number of its own, by which its grants are recorded:
 * so a grant tells whether its life has ended. Two lives with one number would hold each other's grants.
 */
class LeaseNodes {
  readonly #rows: LeaseFile['nodes'];
  readonly #living = new Set<string>(); // the lives that ran at the last `refresh`
  #processesReadMs = -Infinity;

  constructor(rows: LeaseFile['nodes']) {
    this.#rows = rows;
  }

  /** Records the life, unless it is recorded. Call it in a transaction, as `leave`. */
  join(node: NodeIdentity, process: string): void {
    if (this.lifeOf(node) !== undefined) return;
    const life = 1 + randomInt(LIFE_NUMBER_MAX);
    const row: NodeRow = { life, incarnation: node.incarnation, process };
    this.#rows.putSync(placeOf(node), row);
  }

  leave(node: NodeIdentity): void {
    this.#rows.removeSync(placeOf(node));
  }

  /** The number of the node's life; undefined if none or another life is recorded at its place. */
  lifeOf(node: NodeIdentity): number | undefined {
    const row = this.rowAt(placeOf(node));
    return row?.incarnation === node.incarnation ? row.life : undefined;
  }

  /** The life that is recorded at the place; undefined if there is none, or its row is damaged. */
  rowAt(place: string): NodeRow | undefined {
    const row = this.#rows.get(place);
    return isNodeRow(row) ? row : undefined;
  }

  /**
   * Reads the recorded lives, and once in PROCESSES_PERIOD_MS removes those of dead processes. Call it in a
   * transaction, before `isAlive`.
   */
  refresh(nowMs: number): void {
    const readsProcesses = nowMs - this.#processesReadMs >= PROCESSES_PERIOD_MS;
    if (readsProcesses) this.#processesReadMs = nowMs;
    this.#living.clear();
    for (const { key: place, value: row } of Array.from(this.#rows.getRange())) {
      if (isNodeRow(row) && (!readsProcesses || isRunning(row.process))) this.#living.add(String(row.life));
      else this.#rows.removeSync(place);
    }
  }

  isAlive(life: string): boolean {
    return this.#living.has(life);
  }
}

interface LmdbCoordinatorOptions {
  readonly node: NodeIdentity;
  /** `close` leaves the file open. */
  readonly file: LeaseFile;
  /** The store of the same data directory. */
  readonly store: UseStore & Pick<Store, 'refresh'>;
  /** All processes of a host read the same monotonic time. */
  readonly clock: Clock;
  /** For all days and months but those of calls a day. */
  readonly calendar: Calendar;
  readonly log: Pick<Log, 'error'>;
}

export class LmdbCoordinator implements Coordinator {
  readonly #options: LmdbCoordinatorOptions;
  readonly #nodes: LeaseNodes;
  readonly #process: string; // identity of this process, see store/process-identity.ts
  readonly #damage: DamagedScopes;
  readonly #unexpected: UnexpectedErrors;
  #isClosed = false;

  constructor(options: LmdbCoordinatorOptions) {
    const process = identityOf(globalThis.process.pid);
    invariant(process !== undefined, '/proc tells who this process is');
    this.#options = options;
    this.#nodes = new LeaseNodes(options.file.nodes);
    this.#damage = new DamagedScopes(options.log, 'a record is damaged, and its scope gets no leases');
    this.#unexpected = new UnexpectedErrors(options.log);
    this.#process = process;
  }

  join(): Promise<WallMs> {
    return this.#inTransaction(() => {
      this.#nodes.join(this.#options.node, this.#process);
      return this.#options.clock.wallMs();
    });
  }

  /** Costs 40 µs, and 15 to 30 µs for each ask; all other processes wait for so long. */
  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply> {
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    return this.#inTransaction(() => {
      const { clock } = this.#options;
      const life = this.#ownLife();
      // Called before any other read of the store, so that all reads see what other processes have flushed.
      this.#options.store.refresh();
      const nowMs = clock.monotonicMs();
      this.#nodes.refresh(nowMs);
      const replies = asks.map((ask) => this.#carryOut(ask, String(life), nowMs));
      return { wallMs: clock.wallMs(), replies };
    });
  }

  view(scopes: readonly string[], slots: readonly number[] = []): Promise<ScopeView[]> {
    return this.#inTransaction(() => {
      const nowMs = this.#options.clock.monotonicMs();
      this.#options.store.refresh();
      this.#nodes.refresh(nowMs);
      const { host } = this.#options.node;
      const processes = slots.flatMap((slot) => {
        const row = this.#nodes.rowAt(placeOf({ host, slot }));
        return row === undefined ? [] : [[slot, String(row.life)] as const];
      });
      return scopes.flatMap(
        (scope) =>
          this.#damage.read(scope, () => this.#grantsOf(scope, nowMs).view(scope, processes, nowMs)) ?? [],
      );
    });
  }

  leave(): Promise<void> {
    return this.#inTransaction(() => {
      this.#ownLife();
      this.#nodes.leave(this.#options.node);
    });
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return Promise.resolve();
  }

  #carryOut(ask: LeaseAsk, life: string, nowMs: number): LeaseReply {
    const { file, clock, calendar } = this.#options;
    const reply = this.#damage.read(ask.scope, () => {
      const grants = this.#grantsOf(ask.scope, nowMs);
      const made = grants.reply(life, ask, nowMs, (name) => periodAt(name, calendar, clock.wallMs()));
      file.scopes.putSync(ask.scope, grants.state(nowMs));
      return made;
    });
    return reply ?? unknownReply(ask, nowMs);
  }

  /**
   * What is on record of the scope. Throws StoreError if a row of it is damaged, in the lease file or in the
   * store. A damaged row is not replaced, because it is not known who holds what, or what was used.
   */
  #grantsOf(scope: string, nowMs: number): ScopeGrants {
    const { file, store, clock } = this.#options;
    const readMoney = (): AccountMoney => this.#moneyOf(scope);
    const state = file.scopes.get(scope);
    if (state === undefined)
      return ScopeGrants.fromUse(usedBefore(store, scope, clock.wallMs()), nowMs, readMoney);
    try {
      // No schema check: only Tollgate has written the file since the machine was started, and the first
      // gateway has removed what other versions wrote otherwise (clearLeaseFiles).
      const grants = ScopeGrants.fromState(state as ScopeState, readMoney);
      grants.keepOnly((life) => this.#nodes.isAlive(life), nowMs);
      return grants;
    } catch (error) {
      throw new StoreError(
        'damaged',
        `record ${scope} of leases.*.lmdb is damaged (${String(error)}). Stop all gateways of the data ` +
          'directory and start them: the first one removes it.',
      );
    }
  }

  /** The account's money by the store; none if the scope is no account. */
  #moneyOf(scope: string): AccountMoney {
    const { store } = this.#options;
    const account = store.findAccount(scope);
    if (account === undefined) return NO_MONEY;
    const spending = store.findSpending(account.index);
    return { credited: account.credited, spent: spending?.spent ?? NO_MONEY.spent };
  }

  #ownLife(): number {
    const life = this.#nodes.lifeOf(this.#options.node);
    if (life === undefined) throw unknownNode();
    return life;
  }

  /** Runs `work` in a transaction of the lease file. Rejects with CoordinatorLost. */
  async #inTransaction<Result>(work: () => Result): Promise<Result> {
    // The caller goes on first, as with a coordinator that is a server.
    await Promise.resolve();
    if (this.#isClosed) throw new CoordinatorLost('closed', 'the coordinator was closed');
    try {
      return this.#options.file.environment.write(work);
    } catch (error) {
      throw this.#unexpected.asLost(error);
    }
  }
}

/** The host of all nodes in a lease file: a data directory has one host. */
const THIS_HOST = 'this';

export interface Coordinators {
  readonly calls: Coordinator;
  readonly debits: Coordinator;
}

/** Both coordinators of the process with that slot in its group; neither has joined yet. */
export function openCoordinators({
  slot,
  ...options
}: Omit<LmdbCoordinatorOptions, 'node'> & { readonly slot: number }): Coordinators {
  const open = (nodeSlot: number): Coordinator => {
    const node = { host: THIS_HOST, slot: nodeSlot, incarnation: randomUUID() };
    return new LmdbCoordinator({ ...options, node });
  };
  return { calls: open(slot), debits: open(DEBIT_SLOTS_FROM + slot) };
}

type UseStore = Pick<Store, 'findAccount' | 'findSpending' | 'keys' | 'groups' | 'quotaUses'>;

/**
 * The use of a scope according to the store, for a scope of which nothing is granted yet: use by gateways
 * that shared nothing, or before the machine was started again. This use goes on to count when limits begin
 * to be shared. Of a rotated key, its record has the minute that it inherited: a flush of a process that
 * served no call of the new key, such as a list of models, writes a minute of 0 over that of the row. Throws
 * StoreError if a row is damaged. Five reads at most, some microseconds.
 */
function usedBefore(store: UseStore, scopeId: string, nowMs: WallMs): UsedBefore {
  const scope = scopeNamed(store, scopeId);
  if (scope === undefined) return { minuteUsed: 0, ageMs: 0, stocks: {} };
  const { counts, quotas } = flushedUseOf(store, scope);
  const { minuteUsed = 0, dayNumber = 0, dayCalls = 0 } = counts ?? {};
  const flushed = { minuteUsed, takenMs: Math.max(counts?.takenMs ?? 0, quotas?.takenMs ?? 0) };
  const inherited = scope.kind === 'key' ? store.keys.find(scopeId)?.inherited : undefined;
  const minute = inherited !== undefined && inherited.minuteUsed > minuteUsed ? inherited : flushed;
  return {
    minuteUsed: minute.minuteUsed,
    ageMs: nowMs - minute.takenMs,
    stocks: {
      ...periodUsesOf({ dayNumber, dayCalls }, quotas),
      ...(quotas && { tokens_per_minute: { period: 0, used: quotas.minuteTokens } }),
    },
  };
}

/** The scope of that name (LeaseAsk.scope); undefined for an upstream, of which the store counts nothing. */
function scopeNamed(store: UseStore, scopeId: string): UsedScope | undefined {
  const slash = scopeId.indexOf('/');
  if (slash <= 0) return findScope(store, scopeId);
  // An account's rule for a model: see `modelScope`.
  const account = store.findAccount(scopeId.slice(0, slash));
  return account && { kind: 'model', index: account.index, modelId: scopeId.slice(slash + 1) };
}
