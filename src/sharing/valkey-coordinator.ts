/**
 * The authority of hosts: a Valkey or Redis that carries out the asks of all of them, in one script call an exchange and
 * partition. Main thread of a gateway process.
 *
 * Where the server is another one than before, or knows nothing, it may have lost what it lent. Then nothing is lent for as long
 * as a permit of the minute can weigh, and until every node that anybody remembers has said anew what it holds and every host what
 * it has spent. What a silent host holds stays held: of its money nobody else knows how much was spent.
 *
 * The server wants Redis 7 or Valkey 7.2 and no eviction. One that fails over on its own must not go on alone on the other side
 * of a cut for longer than the quarantine lasts: min-replicas-to-write sees to that.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { asWallMs } from '../core/units.js';
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
} from './coordinator.js';
import type { AuthorityMemory } from './coordinator-memory.js';
import { HeldLeases } from './held-leases.js';
import type { ValkeyClient } from './valkey-client.js';
import { partitionOf } from './valkey-codec.js';
import { ValkeyPartition, type HostBooks, type PartitionAnswer } from './valkey-partition.js';

/** An estimate of the server's clock that is older is not used: clocks drift apart by up to half a thousandth. */
const CLOCK_ESTIMATE_MS_MAX = 60_000;

export interface ValkeyAuthorityOptions {
  /** Closed with the authority. */
  readonly client: ValkeyClient;
  readonly namespace: string;
  readonly partitions: number;
  readonly node: NodeIdentity;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly books: HostBooks;
  readonly memory: Pick<AuthorityMemory, 'of' | 'set'>;
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

/** What the server's clock showed at some moment between sending and the answer. */
interface ClockReading {
  readonly serverMs: number;
  readonly sentMs: number;
  readonly receivedMs: number;
}

export class ValkeyAuthority implements Authority {
  readonly #options: ValkeyAuthorityOptions;
  readonly #partitions: readonly ValkeyPartition[];
  readonly #held = new HeldLeases();
  readonly #readings = new Map<ValkeyPartition, ClockReading>();
  #sequence = 0;
  #closed = false;

  constructor(options: ValkeyAuthorityOptions) {
    const { client, namespace, partitions, node, books, memory, equalShares, nodeExpiryMs } = options;
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
          place: `${node.host}:${node.slot}`,
          incarnation: node.incarnation,
          books,
          isMine: (subject) => partitionOf(subject, partitions) === partition,
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

  async join(): Promise<JoinAnswer> {
    this.#assertOpen();
    const moments = await Promise.all(this.#partitions.map((partition) => partition.enter()));
    return { wallMs: asWallMs(Math.max(...moments)) };
  }

  async exchange(asks: readonly LeaseAsk[]): Promise<ExchangeAnswer> {
    this.#assertOpen();
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    // Before anything is sent: an answer that does not come has lent nothing that is used.
    for (const ask of asks) this.#held.note(ask, undefined);
    this.#sequence += 1;
    const sequence = this.#sequence;
    const parts = this.#partitions.map((): LeaseAsk[] => []);
    for (const ask of asks) parts[partitionOf(ask.subject, parts.length)]!.push(ask);
    const replies = await allOrFirstLoss(
      this.#partitions.map((partition, at) => this.#exchangeWith(partition, sequence, parts[at]!)),
    );
    const answers = new Map<LeaseAsk, LeaseAnswer>();
    replies.forEach((reply, at) =>
      parts[at]!.forEach((ask, index) => answers.set(ask, reply.answers[index]!)),
    );
    for (const [ask, answer] of answers) this.#held.note(ask, answer);
    return {
      wallMs: asWallMs(Math.max(...replies.map(({ nowMs }) => nowMs))),
      answers: asks.map((ask) => answers.get(ask)!),
    };
  }

  async look(subjects: readonly string[]): Promise<SubjectView[]> {
    this.#assertOpen();
    invariant(subjects.length <= EXCHANGE_ASKS_MAX, 'a look is within its bound');
    const views = await Promise.all(
      this.#partitions.map((partition, at) =>
        partition.look(subjects.filter((subject) => partitionOf(subject, this.#partitions.length) === at)),
      ),
    );
    const all = new Map(views.flatMap((view) => [...view]));
    return subjects.map((subject) => all.get(subject)!);
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
  ): Promise<PartitionAnswer> {
    const { clock } = this.#options;
    const sentMs = clock.monotonicMs();
    const reading = this.#readings.get(partition);
    const fresh = reading !== undefined && sentMs - reading.receivedMs < CLOCK_ESTIMATE_MS_MAX;
    const sentAtMs = fresh ? Math.floor(reading.serverMs + sentMs - reading.receivedMs) : 0;
    // An answer that was slow itself makes the server's clock seem behind, by as much as it took at the most.
    const wasSetForward = (serverMs: number): boolean => {
      this.#readings.delete(partition);
      if (reading === undefined) return false;
      const elapsedMs = clock.monotonicMs() - sentMs + reading.receivedMs - reading.sentMs;
      return serverMs - sentAtMs > elapsedMs + CLOCK_STEP_MS_MIN;
    };
    try {
      const answer = await partition.exchange(sequence, sentAtMs, asks, wasSetForward);
      this.#readings.set(partition, { serverMs: answer.nowMs, sentMs, receivedMs: clock.monotonicMs() });
      return answer;
    } catch (error) {
      // Where an answer came, its clock may be another one by now.
      if (!isSilent(error)) this.#readings.delete(partition);
      throw error;
    }
  }

  #assertOpen(): void {
    if (this.#closed) throw new AuthorityLost('closed', 'the authority was closed');
  }
}

function isSilent(error: unknown): boolean {
  return error instanceof AuthorityLost && (error.reason === 'unreachable' || error.reason === 'deadline');
}

/** Waits for all, so that one exchange is over before the next begins. */
async function allOrFirstLoss<Result>(calls: readonly Promise<Result>[]): Promise<Result[]> {
  const ends = await Promise.allSettled(calls);
  return ends.map((end) => {
    if (end.status === 'rejected') throw end.reason;
    return end.value;
  });
}
