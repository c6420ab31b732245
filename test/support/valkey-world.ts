/**
 * Nodes of the coordinator over hosts on one real server, with books in memory and a time that can be moved.
 */
import { SystemClock } from '#src/core/clock.js';
import { Calendar } from '#src/core/calendar.js';
import { asMonotonicMs, asPicoUnits, type PicoUnits } from '#src/core/units.js';
import type { InheritedUse } from '#src/registry/key-record.js';
import type { VersionedTotal, NodeIdentity } from '#src/sharing/coordinator.js';
import { ValkeyCoordinator, type ValkeyCoordinatorOptions } from '#src/sharing/valkey-coordinator.js';
import { ValkeyClient } from '#src/sharing/valkey-client.js';
import type { PromisedTerm, Remembered } from '#src/sharing/sharing-memory.js';
import { FakeLog } from '../fixtures/upstream-server.js';
import { eventually } from './gateway.js';

export const NAMESPACE = 'test';
const CLOCK = new SystemClock();
const NOTHING: VersionedTotal = { totalPicoUnits: asPicoUnits(0n), version: 0 };

/** A host: what its disk would have. Outlives its nodes. */
export class TestHost {
  readonly #spent = new Map<string, VersionedTotal>();
  readonly #remembered = new Map<number, Remembered>();
  readonly #promised = new Map<string, PromisedTerm>();
  #version = 0;

  readonly memory = {
    of: (partition: number): Remembered => this.#remembered.get(partition) ?? { epoch: '', places: [] },
    set: (partition: number, remembered: Remembered): void => {
      this.#remembered.set(partition, remembered);
    },
    promisedBy: (place: string, partition: number): PromisedTerm =>
      this.#promised.get(`${place}/${partition}`) ?? { term: 0, server: '' },
    promiseTerm: (place: string, partition: number, promised: PromisedTerm): PromisedTerm => {
      this.#promised.set(`${place}/${partition}`, promised);
      return promised;
    },
  };

  /** By key: what it began with. */
  readonly inherited = new Map<string, InheritedUse>();

  readonly books = {
    inheritedOf: (subject: string): InheritedUse | undefined => this.inherited.get(subject),
    spentOf: (subject: string): VersionedTotal | undefined => this.#spent.get(subject),
    accounts: (): Iterable<string> => [...this.#spent.keys()],
  };

  /** A flush: so much more is on its disk as spent. */
  spend(subject: string, amount: bigint): void {
    this.#version += 1;
    const before = this.#spent.get(subject)?.totalPicoUnits ?? 0n;
    this.setSpent(subject, { totalPicoUnits: asPicoUnits(before + amount), version: this.#version });
  }

  /** What its processes report from now on, in whatever order of versions. */
  setSpent(subject: string, spent: VersionedTotal): void {
    this.#spent.set(subject, spent);
  }

  forgetSpent(): void {
    this.#spent.clear();
  }
}

export class ValkeyWorld {
  readonly partitions: number;
  readonly #clients: ValkeyClient[] = [];
  readonly #urlOf: () => string;
  readonly #credited = new Map<string, VersionedTotal>();
  readonly #more: Partial<ValkeyCoordinatorOptions>;
  readonly log = new FakeLog();
  /** The server's time. */
  nowMs: number = CLOCK.wallMs();

  /** `urlOf` is asked at each connect. */
  constructor(urlOf: () => string, partitions = 1, more: Partial<ValkeyCoordinatorOptions> = {}) {
    this.partitions = partitions;
    this.#urlOf = urlOf;
    this.#more = more;
  }

  client(url = this.#urlOf(), deadlineMs = 5_000): ValkeyClient {
    const client = new ValkeyClient({ url, name: 'test', deadlineMs });
    this.#clients.push(client);
    return client;
  }

  /** Connected and not yet joined. */
  async connect(
    node: NodeIdentity,
    host = new TestHost(),
    more: Partial<ValkeyCoordinatorOptions> = {},
  ): Promise<ValkeyCoordinator> {
    const { nodeExpiryMs = 900_000 } = { ...this.#more, ...more };
    const client = more.client ?? this.client();
    await eventually('a connection', () => client.command(undefined, ['PING']));
    return new ValkeyCoordinator({
      client,
      namespace: NAMESPACE,
      partitions: this.partitions,
      node,
      clock: { monotonicMs: () => asMonotonicMs(this.nowMs) },
      calendar: new Calendar(),
      accounting: { ...host.books, creditedOf: (subject) => this.#credited.get(subject) },
      memory: host.memory,
      equalShares: 0,
      hasShare: true,
      nodeExpiryMs,
      endedAfterMs: () => 2 * nodeExpiryMs,
      timeInsteadMs: () => this.nowMs,
      log: this.log,
      ...this.#more,
      ...more,
    });
  }

  /** As the registry does, whose copies all hosts have at once. */
  credit(subject: string, amount: PicoUnits): Promise<void> {
    const { totalPicoUnits, version } = this.#credited.get(subject) ?? NOTHING;
    this.#credited.set(subject, {
      totalPicoUnits: asPicoUnits(totalPicoUnits + amount),
      version: version + 1,
    });
    return Promise.resolve();
  }

  close(): void {
    for (const client of this.#clients) client.close();
  }
}
