/**
 * Brings a host's copy of the registry (accounts, keys, groups) and the sharing server's into agreement.
 * RegistryLog calls it on the main thread of a gateway process, whenever it finds that they differ.
 *
 * A copy's position is its epoch and its version. An epoch is a registry that was put on a server at once;
 * the version counts the changes since. `history` lists the epochs before, each with the version at which the
 * next one began.
 *
 *     the server has          what the host does (`wayTo`)
 *     the same                nothing                                              equal
 *     more of this epoch      applies the changes that it lacks                    behind
 *     a later epoch           downloads all of the registry                        older
 *     nothing, or less        takes part in choosing the copy that is put there    reseed
 *     something unrelated     stops with RegistryDiverged: an operator decides
 *
 * A server has less if it was started empty, or if it is a replica that had missed the last changes. Then
 * each host reports how new its copy is, and after some seconds the newest copy becomes the server's, as a
 * new epoch. What only an absent host had is lost to the others; that host stops with RegistryDiverged when
 * it comes back, and mixes nothing.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { deletableRow, type RegistryPosition, type RegistryRow } from '../store/registry-copy.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import { RegistryDiverged, Superseded } from './registry-contact.js';
import type { RegistryServer } from './registry-server.js';

/** Rows of one message and of one transaction: some 500 KB, and some 20 ms of the main thread. */
const BATCH_ROWS = 1_000;
/** Ancestors of an epoch that are remembered. Each is a server that lost its memory. */
const HISTORY_MAX = 16;

/**
 * Writes the server's whole registry to the store. The store then is at `target`, or further if the server
 * went on meanwhile: the changes after `target` must be applied again. Rejects with Superseded, ValkeyError,
 * StoreError.
 */
export async function download(
  store: Pick<Store, 'shared' | 'copy'>,
  server: RegistryServer,
  target: RegistryPosition,
): Promise<void> {
  const { shared, copy } = store;
  const before = copy.position();
  const guarded = (work: () => void): void =>
    shared.take(() => {
      const now = copy.position();
      if (now?.epoch !== before?.epoch || now?.version !== before?.version) throw new Superseded();
      work();
    });
  const deletable = new Set<string>();
  for await (const rows of server.rows(target.epoch, BATCH_ROWS)) {
    for (const row of rows) {
      const name = deletableRow(row);
      if (name !== undefined) deletable.add(name);
    }
    guarded(() => {
      copy.setPartial();
      for (const row of rows) copy.take(row);
    });
  }
  guarded(() => {
    copy.retain(deletable);
    copy.setPosition(target);
  });
}

/**
 * Puts this host's registry on the server, which has `before`, under a new epoch. Returns false if another
 * host was quicker. The caller has the server's permission to seed (`claim` with true), and nobody changes
 * the store meanwhile. After each batch the permission is asked for again, so that a host that stalls loses
 * it. Rejects with ValkeyError, StoreError.
 */
export async function seed(
  store: Pick<Store, 'shared' | 'copy'>,
  server: RegistryServer,
  host: string,
  rank: string,
  before: RegistryPosition | undefined,
): Promise<boolean> {
  const { shared, copy } = store;
  const position = copy.position();
  const next: RegistryPosition = {
    epoch: randomUUID(),
    version: position?.version ?? 0,
    lastId: position?.lastId ?? '',
    history:
      position === undefined
        ? []
        : [...position.history, [position.epoch, position.version] as [string, number]].slice(-HISTORY_MAX),
  };
  let batch: RegistryRow[] = [];
  const send = async (): Promise<boolean> => {
    if (batch.length > 0) await server.putRows(next.epoch, batch);
    batch = [];
    return (await server.claim(host, rank, true)).may;
  };
  for (const row of copy.rows()) {
    batch.push(row);
    if (batch.length === BATCH_ROWS && !(await send())) return false;
  }
  if (!(await send()) || !(await server.finishSeed(host, before, next))) {
    await server.dropEpoch(next.epoch);
    return false;
  }
  shared.take(() => copy.setPosition(next));
  if (before !== undefined) await server.dropEpoch(before.epoch);
  return true;
}

/**
 * Running hosts notice within a second that the server has lost its memory; restarting ones take some
 * seconds.
 */
const CLAIMS_WAIT_MS = 3_000;
const CLAIM_PERIOD_MS = 500;
/** A claim that was not repeated for so long is of a host that has ended. */
const CLAIM_AGE_MS_MAX = 2_000;

export interface RegistryReseedOptions {
  readonly store: Pick<Store, 'copy' | 'shared'>;
  readonly server: RegistryServer;
  readonly host: string;
  readonly log: Log;
  /**
   * How long claims are gathered before the newest copy is chosen. Default 3,000, in which hosts notice and
   * come back.
   */
  readonly claimsWaitMs?: number | undefined;
}

/**
 * `behind`: the copy is an older state of the server's epoch. `older`: it is of an earlier epoch, or empty.
 * `reseed`: the server must be seeded.
 */
export type Way = 'equal' | 'behind' | 'older' | 'reseed';

export class RegistryReseed {
  readonly #options: RegistryReseedOptions;

  constructor(options: RegistryReseedOptions) {
    this.#options = options;
  }

  /** Says how the copy gets to what the server has. Throws RegistryDiverged if there is no way. */
  wayTo(found: RegistryPosition | undefined, position: RegistryPosition | undefined): Way {
    if (found === undefined) return 'reseed';
    if (position === undefined) {
      const { copy } = this.#options.store;
      if (copy.isEmpty() || copy.isPartial()) return 'older';
      throw new RegistryDiverged(
        'This host has accounts of its own, and the hosts that it is to share with have others.',
      );
    }
    if (found.epoch === position.epoch) {
      if (found.version > position.version) return 'behind';
      if (found.version < position.version) return 'reseed';
      if (found.lastId === position.lastId) return 'equal';
      throw lostChanges(position.version);
    }
    const parent = found.history.find(([epoch]) => epoch === position.epoch);
    if (parent !== undefined) {
      if (position.version <= parent[1]) return 'older';
      throw lostChanges(position.version);
    }
    // The server is a replica that is older than the newest epoch.
    const ancestor = position.history.find(([epoch]) => epoch === found.epoch);
    if (ancestor !== undefined && found.version <= ancestor[1]) return 'reseed';
    throw new RegistryDiverged(
      'The sharing server has accounts and keys of other hosts, with another history.',
    );
  }

  /**
   * Takes part in choosing the newest copy, until this host has seeded, or some seconds are over. Then the
   * caller looks at the server again.
   */
  async offer(found: RegistryPosition | undefined, signal: AbortSignal): Promise<void> {
    const { store, server, host, log } = this.#options;
    const rank = rankOf(store.copy.position(), store.copy.isEmpty());
    const { claimsWaitMs = CLAIMS_WAIT_MS } = this.#options;
    for (let waitedMs = 0; waitedMs < claimsWaitMs; waitedMs += CLAIM_PERIOD_MS) {
      await server.claim(host, rank, false);
      await pause(CLAIM_PERIOD_MS, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
    }
    const { claims } = await server.claim(host, rank, false);
    const best = claims
      .filter(({ ageMs }) => ageMs < CLAIM_AGE_MS_MAX)
      .sort((one, other) => compare(other.rank, one.rank) || compare(one.host, other.host))[0];
    if (best?.host !== host || !(await server.claim(host, rank, true)).may) return;
    if (await seed(store, server, host, rank, found)) {
      log.info('the accounts and keys of this host are the shared ones now', {
        reason:
          found === undefined ? 'the sharing server had none' : 'those at the sharing server were older',
      });
    }
  }
}

const RANK_DIGITS = 16;

/**
 * Returns text that is the greater the newer a copy is: by the number of its epochs, then its version. A copy
 * that was never shared ranks lowest, and among those one with accounts above one without. The server
 * compares ranks as text, so numbers are padded with zeros.
 */
function rankOf(position: RegistryPosition | undefined, isEmpty: boolean): string {
  const generation = position === undefined ? (isEmpty ? 0 : 1) : 2 + position.history.length;
  const digits = (count: number): string => String(count).padStart(RANK_DIGITS, '0');
  return `${digits(generation)}.${digits(position?.version ?? 0)}`;
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

function lostChanges(version: number): RegistryDiverged {
  return new RegistryDiverged(
    `The sharing server has lost changes of accounts and keys that this host has, up to number ${version}, and others were made since.`,
  );
}
