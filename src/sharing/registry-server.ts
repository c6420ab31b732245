/**
 * The registry at the server that hosts share, as calls with types. Every one may reject with ValkeyError. Main thread.
 */
import type { RegistryPosition, RegistryRow } from '../store/registry-copy.js';
import { APPEND, CLAIM, FINISH_SEED, PULL } from './registry-scripts.js';
import { changeOf, listOf, rowOf, textOf, unexpected, wordsOf, type ServerChange } from './registry-words.js';
import type { ValkeyClient } from './valkey-client.js';
import { registryKeys, type RegistryKeys } from './valkey-keys.js';

export interface ServerRegistry {
  /** Where it stands. */
  readonly position: RegistryPosition;
  /** The first of those that came after the asker's version, oldest first; empty where it has another epoch. */
  readonly changes: readonly ServerChange[];
}

/** How new a host's copy is, as it said itself. */
export interface CopyClaim {
  readonly host: string;
  readonly rank: string;
  readonly ageMs: number;
}

/** A change with thousands of rows takes the server some 100 ms. */
const APPEND_DEADLINE_MS = 5_000;
/** A reply may have some MB. */
const PULL_DEADLINE_MS = 5_000;
/** The longest that a wait for changes lasts: then the state is looked at, which a restart of the server may have changed. */
const WAIT_MS = 800;
const WAIT_DEADLINE_MS = 3_000;
/** Claims are repeated each half second, so an older one is of a host that has ended. */
const CLAIMS_KEPT_MS = 60_000;
/** Who seeds says after each batch that it goes on. */
const SEED_BATCH_MS_MAX = 30_000;

export interface RegistryServerOptions {
  readonly client: ValkeyClient;
  /** A connection of its own: what is sent behind a wait would wait too. */
  readonly waiter: ValkeyClient;
  readonly namespace: string;
}

export class RegistryServer {
  readonly #options: RegistryServerOptions;
  readonly #client: ValkeyClient;
  readonly #keys: RegistryKeys;

  constructor(options: RegistryServerOptions) {
    this.#options = options;
    this.#client = options.client;
    this.#keys = registryKeys(options.namespace);
  }

  /** Undefined where the server has no registry. `from` is where the asker stands. */
  async pull(from: RegistryPosition | undefined): Promise<ServerRegistry | undefined> {
    const { state, logOf } = this.#keys;
    const epoch = from?.epoch ?? '';
    const reply = await this.#client.run(PULL, [state, logOf(epoch)], [epoch, String(from?.version ?? 0)], {
      deadlineMs: PULL_DEADLINE_MS,
    });
    const [found, version, lastId, history, changes] = listOf(reply);
    if (found === undefined) return undefined;
    return {
      position: {
        epoch: textOf(found),
        version: Number(version),
        lastId: textOf(lastId),
        history: JSON.parse(textOf(history)) as RegistryPosition['history'],
      },
      changes: listOf(changes).map(changeOf),
    };
  }

  /** Resolves when there may be something after `from`, or after some 800 ms. */
  async wait({ epoch, version }: RegistryPosition): Promise<void> {
    const key = this.#keys.logOf(epoch);
    await this.#options.waiter.command(
      key,
      ['XREAD', 'COUNT', '1', 'BLOCK', String(WAIT_MS), 'STREAMS', key, `${version}-0`],
      { deadlineMs: WAIT_DEADLINE_MS },
    );
  }

  /** `behind`: another change came first. `other`: the server has another registry, or none. */
  async append(
    from: RegistryPosition,
    id: string,
    rows: readonly RegistryRow[],
  ): Promise<'done' | 'behind' | 'other'> {
    const { state, logOf, rowsOf } = this.#keys;
    const reply = await this.#client.run(
      APPEND,
      [state, logOf(from.epoch), rowsOf(from.epoch)],
      [from.epoch, String(from.version), from.lastId, id, JSON.stringify(rows.map(wordsOf))],
      { deadlineMs: APPEND_DEADLINE_MS },
    );
    if (reply === 'done' || reply === 'behind' || reply === 'other') return reply;
    throw unexpected(reply);
  }

  /** Says how new this host's copy is, and asks to seed where `seeds`. */
  async claim(
    host: string,
    rank: string,
    seeds: boolean,
  ): Promise<{ readonly may: boolean; readonly claims: readonly CopyClaim[] }> {
    const { claims, seeder } = this.#keys;
    const reply = await this.#client.run(
      CLAIM,
      [claims, seeder],
      [host, rank, String(CLAIMS_KEPT_MS), seeds ? '1' : '0', String(SEED_BATCH_MS_MAX)],
    );
    const [nowMs, may, all] = listOf(reply);
    const words = listOf(all).map(textOf);
    return {
      may: may === 'yes',
      claims: words.flatMap((name, at) => {
        if (at % 2 === 1) return [];
        const [claimed = '', atMs = '0'] = words[at + 1]!.split(' ');
        return [{ host: name, rank: claimed, ageMs: Number(nowMs) - Number(atMs) }];
      }),
    };
  }

  /** Puts rows of an epoch that does not count yet. */
  async putRows(epoch: string, rows: readonly RegistryRow[]): Promise<void> {
    const key = this.#keys.rowsOf(epoch);
    const words = rows.map(wordsOf).flatMap(([row, value]) => [row, String(value)]);
    await this.#client.command(key, ['HSET', key, ...words], { deadlineMs: APPEND_DEADLINE_MS });
  }

  /** From then on `next` is the server's registry; false where the server has meanwhile another than `before`, or another seeds. */
  async finishSeed(
    host: string,
    before: RegistryPosition | undefined,
    next: RegistryPosition,
  ): Promise<boolean> {
    const { state, seeder, claims } = this.#keys;
    const reply = await this.#client.run(
      FINISH_SEED,
      [state, seeder, claims],
      [
        host,
        before?.epoch ?? '',
        before === undefined ? '' : String(before.version),
        next.epoch,
        String(next.version),
        next.lastId,
        JSON.stringify(next.history),
      ],
    );
    return reply === 'done';
  }

  /** Forgets an epoch that does not count, or not any more. */
  async dropEpoch(epoch: string): Promise<void> {
    const { logOf, rowsOf } = this.#keys;
    await this.#client.command(logOf(epoch), ['UNLINK', logOf(epoch), rowsOf(epoch)]);
  }

  /** All rows in batches of some `count`, some of them twice, or as they became meanwhile. */
  async *rows(epoch: string, count: number): AsyncGenerator<RegistryRow[]> {
    const key = this.#keys.rowsOf(epoch);
    let cursor = '0';
    do {
      const reply = await this.#client.command(key, ['HSCAN', key, cursor, 'COUNT', String(count)], {
        deadlineMs: PULL_DEADLINE_MS,
      });
      const [next, found] = listOf(reply);
      const words = listOf(found).map(textOf);
      yield words.flatMap((row, at) => (at % 2 === 0 ? [rowOf([row, words[at + 1]!])] : []));
      cursor = textOf(next);
    } while (cursor !== '0');
  }
}
