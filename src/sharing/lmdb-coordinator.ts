/**
 * The coordinator of the processes of one host: they share a file of leases (lease-file.ts), and each carries out its own
 * asks in a transaction of it. Money that is free is what the store has as credited, less what it has as spent, less what all
 * nodes hold. Main thread of a gateway process.
 *
 * There is no server: an exchange is done when it returns, so none is lost, delayed or seen twice, and sequence numbers have
 * nothing to refuse. Transactions of all processes follow one another; one of a single ask takes tens of microseconds.
 */
import { type Static, Type } from 'typebox';
import { Check } from 'typebox/value';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { asPicoUnits } from '../core/units.js';
import { identityOf, isRunning } from '../store/process-identity.js';
import type { Store } from '../store/store.js';
import {
  type Coordinator,
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type ExchangeReply,
  type JoinReply,
  type LeaseReply,
  type LeaseAsk,
  type NodeIdentity,
  type ScopeView,
} from './coordinator.js';
import type { LeaseFile } from './lease-file.js';
import { ScopeGrants, type ScopeState, usedBefore } from './scope-grants.js';

/*
 * Which lives of nodes the lease file knows: each has a number, which no other life gets, so that what an ended one held
 * is told from what the living hold without looking for it. Main thread.
 */

const LIVES = 'lives';

/** A look at a process costs some 20 µs; a dead one's leases are free this long after its end. */
const LOOK_PERIOD_MS = 200;

const NodeRow = Type.Object({
  life: Type.Integer({ minimum: 1 }),
  incarnation: Type.String(),
  /** Of the process, see store/process-identity.ts. */
  process: Type.String(),
});

type NodeRow = Readonly<Static<typeof NodeRow>>;

export class LeaseNodes {
  readonly #file: Pick<LeaseFile, 'nodes' | 'meta'>;
  /** Lives that are known; as of the last `look`. */
  readonly #living = new Set<string>();
  #processesLookedAtMs = -Infinity;

  constructor(file: Pick<LeaseFile, 'nodes' | 'meta'>) {
    this.#file = file;
  }

  /** In a transaction: the life takes its place, where it has not got it yet; returns its number. */
  join(node: NodeIdentity, process: string): number {
    const known = this.lifeOf(node);
    if (known !== undefined) return known;
    const lives = this.#file.meta.get(LIVES);
    const life = (typeof lives === 'number' ? lives : 0) + 1;
    this.#file.meta.putSync(LIVES, life);
    const row: NodeRow = { life, incarnation: node.incarnation, process };
    this.#file.nodes.putSync(placeOf(node), row);
    return life;
  }

  /** In a transaction. */
  leave(node: NodeIdentity): void {
    this.#file.nodes.removeSync(placeOf(node));
  }

  /** The number of the node's life; undefined where it is not the one that is known. */
  lifeOf(node: NodeIdentity): number | undefined {
    const row = this.#file.nodes.get(placeOf(node));
    return Check(NodeRow, row) && row.incarnation === node.incarnation ? row.life : undefined;
  }

  /** In a transaction: who lives now; now and then without those whose process has ended. */
  look(nowMs: number): void {
    const looksAtProcesses = nowMs - this.#processesLookedAtMs >= LOOK_PERIOD_MS;
    if (looksAtProcesses) this.#processesLookedAtMs = nowMs;
    this.#living.clear();
    for (const { key: place, value: row } of Array.from(this.#file.nodes.getRange())) {
      if (Check(NodeRow, row) && (!looksAtProcesses || isRunning(row.process)))
        this.#living.add(String(row.life));
      else this.#file.nodes.removeSync(place);
    }
  }

  /** As of the last `look`. */
  isAlive(life: string): boolean {
    return this.#living.has(life);
  }
}

function placeOf({ host, slot }: NodeIdentity): string {
  return `${host}:${slot}`;
}

export interface LmdbCoordinatorOptions {
  readonly node: NodeIdentity;
  /** Stays open at `close`. */
  readonly file: LeaseFile;
  /** Of the same data directory. */
  readonly store: Pick<Store, 'refresh' | 'findAccount' | 'findSpending' | 'keys'>;
  /** Its monotonic time is the host's: all processes read the same. */
  readonly clock: Clock;
}

export class LmdbCoordinator implements Coordinator {
  readonly #options: LmdbCoordinatorOptions;
  readonly #nodes: LeaseNodes;
  readonly #process: string;
  #closed = false;

  constructor(options: LmdbCoordinatorOptions) {
    const process = identityOf(globalThis.process.pid);
    invariant(process !== undefined, '/proc tells who this process is');
    this.#options = options;
    this.#nodes = new LeaseNodes(options.file);
    this.#process = process;
  }

  join(): Promise<JoinReply> {
    return this.#inTransaction(() => {
      this.#nodes.join(this.#options.node, this.#process);
      return { wallMs: this.#options.clock.wallMs() };
    });
  }

  /** Costs 40 µs, and 15 to 30 for each ask; all other processes wait so long. */
  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply> {
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    return this.#inTransaction(() => {
      const { clock } = this.#options;
      const life = this.#known();
      // The first look in this transaction: what others have flushed by now is on disk.
      this.#options.store.refresh();
      const nowMs = clock.monotonicMs();
      this.#nodes.look(nowMs);
      const replies = asks.map((ask) => this.#carryOut(ask, String(life), nowMs));
      return { wallMs: clock.wallMs(), answers: replies };
    });
  }

  look(scopes: readonly string[]): Promise<ScopeView[]> {
    return this.#inTransaction(() => {
      const nowMs = this.#options.clock.monotonicMs();
      this.#options.store.refresh();
      this.#nodes.look(nowMs);
      return scopes.map((scope) => {
        const leases = this.#leasesOf(scope, nowMs);
        this.#readMoney(scope, leases);
        return leases.view(scope, nowMs);
      });
    });
  }

  leave(): Promise<void> {
    return this.#inTransaction(() => {
      this.#known();
      this.#nodes.leave(this.#options.node);
    });
  }

  close(): Promise<void> {
    this.#closed = true;
    return Promise.resolve();
  }

  #carryOut(ask: LeaseAsk, life: string, nowMs: number): LeaseReply {
    const { node, file, clock } = this.#options;
    const leases = this.#leasesOf(ask.scope, nowMs);
    if (ask.money !== undefined) this.#readMoney(ask.scope, leases);
    const reply = leases.answer(life, node.host, ask, nowMs, clock.wallMs());
    file.subjects.putSync(ask.scope, leases.state(nowMs));
    return reply;
  }

  #leasesOf(scope: string, nowMs: number): ScopeGrants {
    const { file, store, clock } = this.#options;
    const state = file.subjects.get(scope);
    // Rows are this program's own, of this boot, and hold nothing that outlives it.
    if (state === undefined) return ScopeGrants.after(usedBefore(store, scope, clock.wallMs()), nowMs);
    const leases = ScopeGrants.of(state as ScopeState);
    leases.keepOnly((life) => this.#nodes.isAlive(life));
    return leases;
  }

  #readMoney(scope: string, leases: ScopeGrants): void {
    const account = this.#options.store.findAccount(scope);
    if (account === undefined) return;
    leases.credited = account.credited;
    leases.spent = this.#options.store.findSpending(account.index)?.spent ?? asPicoUnits(0n);
  }

  #known(): number {
    const life = this.#nodes.lifeOf(this.#options.node);
    if (life === undefined) throw new CoordinatorLost('unknown_node', 'this life of the node is not known');
    return life;
  }

  async #inTransaction<Result>(work: () => Result): Promise<Result> {
    await Promise.resolve();
    if (this.#closed) throw new CoordinatorLost('closed', 'the authority was closed');
    try {
      return this.#options.file.environment.write(work);
    } catch (error) {
      if (error instanceof CoordinatorLost) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new CoordinatorLost('failing', `leases cannot be had: ${reason}`, { cause: error });
    }
  }
}
