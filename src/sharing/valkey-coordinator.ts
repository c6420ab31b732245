/**
 * The coordinator of hosts: a Valkey or Redis that carries out the asks of all of them, in one script call an
 * exchange and partition. Main thread of a gateway process.
 *
 * Where the server is another one than before, or knows nothing, it may have lost what it granted. Then
 * nothing is granted for as long as a permit of the minute can weigh, and until every node that anybody
 * remembers has said anew what it holds and every host what it has spent. What a silent host holds stays
 * held: of its money nobody else knows how much was spent.
 *
 * The server wants Redis 7 or Valkey 7.2 and no eviction. One that fails over on its own must not go on alone
 * on the other side of a cut for longer than the quarantine lasts: min-replicas-to-write sees to that.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { asWallMs } from '../core/units.js';
import {
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type Coordinator,
  type ExchangeReply,
  type JoinReply,
  type LeaseReply,
  type LeaseAsk,
  type NodeIdentity,
  placeOf,
  type ScopeView,
} from './coordinator.js';
import type { CoordinatorMemory } from './coordinator-memory.js';
import { HeldLeases } from './held-leases.js';
import type { ValkeyClient } from './valkey-client.js';
import { partitionOf } from './valkey-codec.js';
import { ValkeyPartition, type HostAccounting, type PartitionReply } from './valkey-partition.js';

/**
 * An estimate of the server's clock that is older is not used: clocks drift apart by up to half a thousandth.
 */
const CLOCK_ESTIMATE_MS_MAX = 60_000;

export interface ValkeyCoordinatorOptions {
  /** Closed with the coordinator. */
  readonly client: ValkeyClient;
  readonly namespace: string;
  readonly partitions: number;
  readonly node: NodeIdentity;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly books: HostAccounting;
  readonly memory: Pick<CoordinatorMemory, 'of' | 'set'>;
  /** Nodes among which a limit is divided while the server is away; 0 where none is. */
  readonly equalShares: number;
  /** Whether this node is one of them. Default: yes, where there are any. */
  readonly hasShare?: boolean;
  readonly nodeExpiryMs: number;
  /** Counts in place of the server's time where it is not 0. For tests. */
  readonly timeInsteadMs?: (() => number) | undefined;
}

/** Beyond what a slow answer explains: two clocks drift apart by less within the age of an estimate. */
const CLOCK_STEP_MS_MIN = 100;

/** What the server's clock showed at some moment between sending and the response. */
interface ClockSnapshot {
  readonly serverMs: number;
  readonly sentMs: number;
  readonly receivedMs: number;
}

export class ValkeyCoordinator implements Coordinator {
  readonly #options: ValkeyCoordinatorOptions;
  readonly #partitions: readonly ValkeyPartition[];
  readonly #held = new HeldLeases();
  readonly #snapshots = new Map<ValkeyPartition, ClockSnapshot>();
  #sequence = 0;
  #closed = false;

  constructor(options: ValkeyCoordinatorOptions) {
    const {
      client,
      namespace,
      partitions,
      node,
      books: accounting,
      memory,
      equalShares,
      nodeExpiryMs,
    } = options;
    const { hasShare = true } = options;
    this.#options = options;
    this.#partitions = Array.from(
      { length: partitions },
      (_, partition) =>
        new ValkeyPartition({
          client,
          namespace,
          partition,
          host: node.host,
          place: placeOf(node),
          incarnation: node.incarnation,
          books: accounting,
          isMine: (scope) => partitionOf(scope, partitions) === partition,
          held: this.#held,
          remembered: memory.of(partition),
          remember: (remembered) => {
            memory.set(partition, remembered);
          },
          equalShares,
          hasShare,
          nodeExpiryMs,
          timeInsteadMs: options.timeInsteadMs ?? (() => 0),
        }),
    );
  }

  async join(): Promise<JoinReply> {
    this.#assertOpen();
    const moments = await Promise.all(this.#partitions.map((partition) => partition.enter()));
    return { wallMs: asWallMs(Math.max(...moments)) };
  }

  async exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply> {
    this.#assertOpen();
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    // Before anything is sent: a response that does not come has granted nothing that is used.
    for (const ask of asks) this.#held.record(ask, undefined);
    this.#sequence += 1;
    const sequence = this.#sequence;
    const parts = this.#partitions.map((): LeaseAsk[] => []);
    for (const ask of asks) parts[partitionOf(ask.scope, parts.length)]!.push(ask);
    const replies = await allOrFirstLoss(
      this.#partitions.map((partition, at) => this.#exchangeWith(partition, sequence, parts[at]!)),
    );
    const answers = new Map<LeaseAsk, LeaseReply>();
    replies.forEach((reply, at) =>
      parts[at]!.forEach((ask, index) => answers.set(ask, reply.answers[index]!)),
    );
    for (const [ask, answer] of answers) this.#held.record(ask, answer);
    return {
      wallMs: asWallMs(Math.max(...replies.map(({ nowMs }) => nowMs))),
      answers: asks.map((ask) => answers.get(ask)!),
    };
  }

  async look(scopes: readonly string[]): Promise<ScopeView[]> {
    this.#assertOpen();
    invariant(scopes.length <= EXCHANGE_ASKS_MAX, 'a look is within its bound');
    const views = await Promise.all(
      this.#partitions.map((partition, at) =>
        partition.look(scopes.filter((scope) => partitionOf(scope, this.#partitions.length) === at)),
      ),
    );
    const all = new Map(views.flatMap((view) => [...view]));
    return scopes.map((scope) => all.get(scope)!);
  }

  async leave(): Promise<void> {
    this.#assertOpen();
    await allOrFirstLoss(this.#partitions.map((partition) => partition.leave()));
  }

  close(): Promise<void> {
    this.#closed = true;
    this.#options.client.close();
    return Promise.resolve();
  }

  async #exchangeWith(
    partition: ValkeyPartition,
    sequence: number,
    asks: readonly LeaseAsk[],
  ): Promise<PartitionReply> {
    const { clock } = this.#options;
    const sentMs = clock.monotonicMs();
    const snapshot = this.#snapshots.get(partition);
    const fresh = snapshot !== undefined && sentMs - snapshot.receivedMs < CLOCK_ESTIMATE_MS_MAX;
    const sentAtMs = fresh ? Math.floor(snapshot.serverMs + sentMs - snapshot.receivedMs) : 0;
    // A response that was slow itself makes the server's clock seem behind, by as much as it took at the
    // most.
    const wasSetForward = (serverMs: number): boolean => {
      this.#snapshots.delete(partition);
      if (snapshot === undefined) return false;
      const elapsedMs = clock.monotonicMs() - sentMs + snapshot.receivedMs - snapshot.sentMs;
      return serverMs - sentAtMs > elapsedMs + CLOCK_STEP_MS_MIN;
    };
    try {
      const reply = await partition.exchange(sequence, sentAtMs, asks, wasSetForward);
      this.#snapshots.set(partition, { serverMs: reply.nowMs, sentMs, receivedMs: clock.monotonicMs() });
      return reply;
    } catch (error) {
      // Where a response came, its clock may be another one by now.
      if (!isSilent(error)) this.#snapshots.delete(partition);
      throw error;
    }
  }

  #assertOpen(): void {
    if (this.#closed) throw new CoordinatorLost('closed', 'the authority was closed');
  }
}

function isSilent(error: unknown): boolean {
  return error instanceof CoordinatorLost && (error.reason === 'unreachable' || error.reason === 'deadline');
}

/** Waits for all, so that one exchange is over before the next begins. */
async function allOrFirstLoss<Result>(calls: readonly Promise<Result>[]): Promise<Result[]> {
  const ends = await Promise.allSettled(calls);
  return ends.map((end) => {
    if (end.status === 'rejected') throw end.reason;
    return end.value;
  });
}
