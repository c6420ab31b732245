/**
 * The coordinator of hosts: a Valkey or Redis carries out the asks of all nodes, with one script call for
 * each exchange and partition (valkey-partition.ts). open-hosts.ts makes it, equal-share.ts wraps it. Main
 * thread of a gateway process.
 *
 * If the server is another one than before, or has an earlier state, the marks of all nodes tell whether it
 * has lost anything (valkey-marks.ts). If it has, or is empty, it grants nothing for as long as a permit can
 * weigh, and until every known node has reported what it holds and every host what it has spent. What a
 * silent host holds stays held, because only that host knows how much it has spent.
 *
 * Must hold: each call is over only when its calls of all partitions are. Otherwise the next would overlap
 * them, because equal-share.ts waits for the end of a join, an exchange or a leave before the next
 * (test/unit/sharing/valkey-coordinator.partitions.test.ts). A server that may have lost data grants
 * nothing until no limit can be exceeded by that. The server must be Redis 7 or Valkey 7.2 or newer, and must
 * not evict keys. Also test/unit/sharing/valkey-loss.test.ts, valkey-blink.test.ts.
 */
import { invariant } from '../core/errors.js';
import type { Calendar } from '../core/calendar.js';
import { asWallMs, type WallMs } from '../core/units.js';
import type { Log } from '../telemetry/log.js';
import {
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type Coordinator,
  type ExchangeReply,
  type LeaseAsk,
  type NodeIdentity,
  placeOf,
  type ScopeView,
} from './coordinator.js';
import { DamagedScopes, UnexpectedErrors } from './coordinator-errors.js';
import { partitionOf } from './valkey-codec.js';
import { ValkeyPartition, type PartitionOptions } from './valkey-partition.js';
import type { CalendarHead } from './valkey-stocks.js';

type OptionsOfPartition = Omit<
  PartitionOptions,
  'partition' | 'host' | 'place' | 'incarnation' | 'isMine' | 'damage' | 'storeDamage' | 'calendar'
>;

/** `close` closes `client`. */
export interface ValkeyCoordinatorOptions extends OptionsOfPartition {
  readonly partitions: number;
  readonly node: NodeIdentity;
  /** For all days and months but those of calls a day. */
  readonly calendar: Calendar;
  readonly log: Pick<Log, 'error'>;
}

const DAY_MS = 86_400_000;

export class ValkeyCoordinator implements Coordinator {
  readonly #options: ValkeyCoordinatorOptions;
  readonly #partitions: readonly ValkeyPartition[];
  readonly #unexpected: UnexpectedErrors;
  /** The time of each partition's server at its last reply, by the partition's number; 0 before the first. */
  #serverTimesMs: readonly number[];
  #sequence = 0; // the number of the last exchange, the same for all partitions
  #isClosed = false;

  constructor(options: ValkeyCoordinatorOptions) {
    const { partitions, node, log } = options;
    this.#options = options;
    const damage = new DamagedScopes(
      log,
      'a record at the server of sharing is damaged, and its scope gets no leases; docs/sharing.md says how ' +
        'to free it',
    );
    const storeDamage = new DamagedScopes(log, 'a record is damaged, and its scope gets no leases');
    this.#unexpected = new UnexpectedErrors(log);
    this.#serverTimesMs = new Array<number>(partitions).fill(0);
    this.#partitions = Array.from(
      { length: partitions },
      (_, partition) =>
        new ValkeyPartition({
          ...options,
          partition,
          host: node.host,
          place: placeOf(node),
          incarnation: node.incarnation,
          isMine: (scope) => partitionOf(scope, partitions) === partition,
          damage,
          storeDamage,
          calendar: () => this.#calendarOf(partition),
        }),
    );
  }

  async join(): Promise<WallMs> {
    this.#assertOpen();
    return this.#recordTimes(await this.#ofEach((partition) => partition.enter()));
  }

  async exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply> {
    this.#assertOpen();
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    this.#sequence += 1;
    const sequence = this.#sequence;
    const numbers = asks.map(({ scope }) => partitionOf(scope, this.#partitions.length));
    const asksByPartition = this.#partitions.map((): LeaseAsk[] => []);
    asks.forEach((ask, index) => asksByPartition[numbers[index]!]!.push(ask));
    // Partitions without an ask get an exchange too, as a sign of life.
    const exchanges = await this.#ofEach((partition, number) =>
      partition.exchange(sequence, asksByPartition[number]!),
    );
    const wallMs = this.#recordTimes(exchanges.map(({ nowMs }) => nowMs));
    // Each partition has replied to each of its asks, in their order (`exchange` of valkey-partition.ts).
    const repliesOf = exchanges.map(({ replies }) => replies.values());
    return { wallMs, replies: numbers.map((number) => repliesOf[number]!.next().value!) };
  }

  async view(scopes: readonly string[], slots: readonly number[] = []): Promise<ScopeView[]> {
    this.#assertOpen();
    invariant(scopes.length <= EXCHANGE_ASKS_MAX, 'a view is within its bound');
    const views = await this.#ofEach((partition, number) => {
      const scopesThere = scopes.filter((scope) => partitionOf(scope, this.#partitions.length) === number);
      return partition.view(scopesThere, slots);
    });
    const viewOf = new Map(views.flatMap((view) => [...view]));
    return scopes.flatMap((scope) => viewOf.get(scope) ?? []);
  }

  async leave(): Promise<void> {
    this.#assertOpen();
    await this.#ofEach((partition) => partition.leave());
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#options.client.close();
    return Promise.resolve();
  }

  /** Records the times of all servers. Returns the latest, which for all nodes is the coordinator's. */
  #recordTimes(timesMs: readonly number[]): WallMs {
    this.#serverTimesMs = timesMs;
    return asWallMs(Math.max(...timesMs));
  }

  #calendarOf(partition: number): CalendarHead {
    const wallMs = Math.max(...this.#serverTimesMs);
    const { number, startMs } = this.#options.calendar.dayAt(wallMs);
    return { aheadMs: wallMs - this.#serverTimesMs[partition]!, zoneMs: number * DAY_MS - startMs };
  }

  /**
   * Makes a call of each partition, and waits for all of them, so that none overlaps the next call. Then
   * rejects with the first loss. Any error of a partition becomes a CoordinatorLost, because none may end the
   * process. (Methods of a partition are async: none throws before all are called.)
   */
  async #ofEach<Result>(
    call: (partition: ValkeyPartition, number: number) => Promise<Result>,
  ): Promise<Result[]> {
    const ends = await Promise.allSettled(this.#partitions.map(call));
    const results: Result[] = [];
    let lost: CoordinatorLost | undefined;
    for (const end of ends) {
      if (end.status === 'fulfilled') results.push(end.value);
      else {
        // Of each partition, because it logs a bug, which would hide behind a lost connection of another.
        const lostHere = this.#unexpected.asLost(end.reason);
        lost ??= lostHere;
      }
    }
    if (lost !== undefined) throw lost;
    return results;
  }

  #assertOpen(): void {
    if (this.#isClosed) throw new CoordinatorLost('closed', 'the coordinator was closed');
  }
}
