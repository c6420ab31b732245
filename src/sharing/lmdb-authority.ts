/**
 * The authority of the processes of one host: they share a file of leases (lease-file.ts), and each carries out its own
 * asks in a transaction of it. Money that is free is what the store has as credited, less what it has as spent, less what all
 * nodes hold. Main thread of a gateway process.
 *
 * There is no server: an exchange is done when it returns, so none is lost, delayed or seen twice, and sequence numbers have
 * nothing to refuse. Transactions of all processes follow one another; one of a single ask takes tens of microseconds.
 */
import { type Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { asPicoUnits } from '../core/units.js';
import { identityOf } from '../store/process-identity.js';
import type { Store } from '../store/store.js';
import {
  AuthorityLost,
  EXCHANGE_ASKS_MAX,
  type Authority,
  type ExchangeAnswer,
  type JoinAnswer,
  type LeaseAnswer,
  type LeaseAsk,
  type NodeIdentity,
  type SubjectView,
} from './authority.js';
import type { LeaseFile } from './lease-file.js';
import { LeaseNodes } from './lease-nodes.js';
import { SubjectLeases, type SubjectState } from './subject-leases.js';
import { usedBefore } from './used-before.js';

export interface LmdbAuthorityOptions {
  readonly node: NodeIdentity;
  /** Stays open at `close`. */
  readonly file: LeaseFile;
  /** Of the same data directory. */
  readonly store: Pick<Store, 'refresh' | 'findAccount' | 'findSpending' | 'keys'>;
  /** Its monotonic time is the host's: all processes read the same. */
  readonly clock: Clock;
}

export class LmdbAuthority implements Authority {
  readonly #options: LmdbAuthorityOptions;
  readonly #nodes: LeaseNodes;
  readonly #process: string;
  #closed = false;

  constructor(options: LmdbAuthorityOptions) {
    const process = identityOf(globalThis.process.pid);
    invariant(process !== undefined, '/proc tells who this process is');
    this.#options = options;
    this.#nodes = new LeaseNodes(options.file);
    this.#process = process;
  }

  join(): Promise<JoinAnswer> {
    return this.#inTransaction(() => {
      this.#nodes.join(this.#options.node, this.#process);
      return { wallMs: this.#options.clock.wallMs() };
    });
  }

  /** Costs 40 µs, and 15 to 30 for each ask; all other processes wait so long. */
  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeAnswer> {
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    return this.#inTransaction(() => {
      const { clock } = this.#options;
      const life = this.#known();
      // The first look in this transaction: what others have flushed by now is on disk.
      this.#options.store.refresh();
      const nowMs = clock.monotonicMs();
      this.#nodes.look(nowMs);
      const answers = asks.map((ask) => this.#carryOut(ask, String(life), nowMs));
      return { wallMs: clock.wallMs(), answers };
    });
  }

  look(subjects: readonly string[]): Promise<SubjectView[]> {
    return this.#inTransaction(() => {
      const nowMs = this.#options.clock.monotonicMs();
      this.#options.store.refresh();
      this.#nodes.look(nowMs);
      return subjects.map((subject) => {
        const leases = this.#leasesOf(subject, nowMs);
        this.#readMoney(subject, leases);
        return leases.view(subject, nowMs);
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

  #carryOut(ask: LeaseAsk, life: string, nowMs: number): LeaseAnswer {
    const { node, file, clock } = this.#options;
    const leases = this.#leasesOf(ask.subject, nowMs);
    if (ask.money !== undefined) this.#readMoney(ask.subject, leases);
    const answer = leases.answer(life, node.host, ask, nowMs, clock.wallMs());
    file.subjects.putSync(ask.subject, leases.state(nowMs));
    return answer;
  }

  #leasesOf(subject: string, nowMs: number): SubjectLeases {
    const { file, store, clock } = this.#options;
    const state = file.subjects.get(subject);
    // Rows are this program's own, of this boot, and hold nothing that outlives it.
    if (state === undefined) return SubjectLeases.after(usedBefore(store, subject, clock.wallMs()), nowMs);
    const leases = SubjectLeases.of(state as SubjectState);
    leases.keepOnly((life) => this.#nodes.isAlive(life));
    return leases;
  }

  #readMoney(subject: string, leases: SubjectLeases): void {
    const account = this.#options.store.findAccount(subject);
    if (account === undefined) return;
    leases.credited = account.credited;
    leases.spent = this.#options.store.findSpending(account.index)?.spent ?? asPicoUnits(0n);
  }

  #known(): number {
    const life = this.#nodes.lifeOf(this.#options.node);
    if (life === undefined) throw new AuthorityLost('unknown_node', 'this life of the node is not known');
    return life;
  }

  async #inTransaction<Result>(work: () => Result): Promise<Result> {
    await Promise.resolve();
    if (this.#closed) throw new AuthorityLost('closed', 'the authority was closed');
    try {
      return this.#options.file.environment.write(work);
    } catch (error) {
      if (error instanceof AuthorityLost) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new AuthorityLost('failing', `leases cannot be had: ${reason}`, { cause: error });
    }
  }
}
