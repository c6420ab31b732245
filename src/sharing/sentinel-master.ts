/**
 * Asks Sentinels which server is the master, and keeps what they named for all clients of a process.
 * valkey-connection.ts asks with it, and checks at the named server that it is the master. valkey-client.ts
 * gives the clients of a process one KnownMaster. Main thread.
 *
 * Must hold: of two masters the one of the later epoch counts, or clients would go back to a master that has
 * been replaced. A Sentinel that does not reply delays the question by SENTINEL_PATIENCE_MS at most. Also
 * test/unit/sharing/valkey-client.test.ts (against servers).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ServerAddress, SharingAddress } from '../config/sharing-schema.js';

/** For so long the clients of a process use a master that one of them has found, without asking. */
const FOUND_MS = 1_000;
/** After so long without a reply of a Sentinel the next Sentinel is asked, too. */
const SENTINEL_PATIENCE_MS = 250;

/** `epoch`: the Sentinels' config-epoch, which grows with each failover. A Sentinel may have missed one. */
export interface NamedMaster extends ServerAddress {
  readonly epoch: number;
}

/** A client of one Sentinel. `connect` and `ask` reject if it cannot be reached or does not reply in time. */
export interface SentinelClient {
  connect(): Promise<unknown>;
  ask(args: readonly string[]): Promise<unknown>;
  destroy(): void;
}

/** The master that the Sentinels have named to the clients of a process. One client asks for all. */
export class KnownMaster {
  #asking: Promise<NamedMaster> | undefined; // the question to the Sentinels that is under way
  #last: NamedMaster | undefined; // the master that a client found last
  #foundMs = -Infinity; // when it was found; -Infinity after `forget`

  /** A master that a client has found within FOUND_MS, and that no client has lost since; or undefined. */
  get found(): NamedMaster | undefined {
    return performance.now() - this.#foundMs < FOUND_MS ? this.#last : undefined;
  }

  /** Asks the Sentinels by `askAll`, which gets the epoch of the last master; one question at a time. */
  ask(askAll: (epochLast: number) => Promise<NamedMaster>): Promise<NamedMaster> {
    this.#asking ??= askAll(this.#last?.epoch ?? 0).finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** A client has found that this server is the master. Ignored while `found` is a later master. */
  record(master: NamedMaster): void {
    if (this.found !== undefined && this.found.epoch > master.epoch) return;
    this.#last = master;
    this.#foundMs = performance.now();
  }

  /** Has the Sentinels asked again. */
  forget(): void {
    this.#foundMs = -Infinity;
  }
}

/**
 * Resolves with the master that a Sentinel names: the first reply with epoch `epochLast` or later counts. If
 * there is none, resolves with the master of the latest epoch. Rejects with an AggregateError if no Sentinel
 * replies. Asks the Sentinels in turn, from a random one on: each when the one before has replied, or has not
 * for SENTINEL_PATIENCE_MS. `open` makes the client of a Sentinel; each is destroyed.
 */
export async function masterNamedBy(
  { servers, master }: Pick<SharingAddress, 'servers' | 'master'>,
  open: (server: ServerAddress) => SentinelClient,
  epochLast: number,
): Promise<NamedMaster> {
  const outdated: NamedMaster[] = [];
  let isNamed = false;
  const ask = async (server: ServerAddress): Promise<NamedMaster> => {
    if (isNamed) throw new Error('another Sentinel has replied');
    const sentinel = open(server);
    try {
      await sentinel.connect();
      const [address, fields] = await Promise.all([
        sentinel.ask(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', master]),
        sentinel.ask(['SENTINEL', 'MASTER', master]),
      ]);
      if (!isList(address) || !isList(fields)) throw new Error(`a Sentinel knows no master "${master}"`);
      // 0 without the field: NaN is not earlier than any epoch, so a later one would never be taken.
      const epoch = Number(fields[fields.indexOf('config-epoch') + 1]) || 0;
      const named = { host: String(address[0]), port: Number(address[1]), epoch };
      if (epoch < epochLast) {
        outdated.push(named);
        throw new Error('a Sentinel has missed a failover');
      }
      isNamed = true;
      return named;
    } finally {
      sentinel.destroy();
    }
  };
  const firstIndex = Math.floor(Math.random() * servers.length);
  let mayAsk: Promise<unknown> = Promise.resolve();
  const replies = [...servers.slice(firstIndex), ...servers.slice(0, firstIndex)].map((server) => {
    const turn = mayAsk;
    const reply = turn.then(() => ask(server));
    mayAsk = Promise.race([
      reply.catch(() => undefined),
      turn.then(() => delay(SENTINEL_PATIENCE_MS, undefined, { ref: false })),
    ]);
    return reply;
  });
  return Promise.any(replies).catch((error: unknown) => {
    const [latest] = outdated.sort((first, second) => second.epoch - first.epoch);
    if (latest === undefined) throw error;
    return latest;
  });
}

function isList(reply: unknown): reply is unknown[] {
  return Array.isArray(reply);
}
