/**
 * How a host's copy and what the server has belong together, and what becomes of a server that has nothing, or less than a host:
 * it was started empty, or a replica took its place that had not heard of the last changes. Then hosts tell how new their copies
 * are, and after some seconds the newest one is put there, as a new epoch. Main thread.
 *
 * What only a host had that was absent meanwhile is lost to the others; that host says so when it comes back, and mixes nothing.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { RegistryPosition, RegistryRow } from '../store/registry-copy.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import { RegistryDiverged, Superseded } from './registry-contact.js';
import type { RegistryServer } from './registry-server.js';

/*
 * A whole registry from the server into this host's store, and the other way round. Main thread.
 */

/** Rows of one message and of one transaction: some 500 KB, and some 20 ms of the main thread. */
const BATCH_ROWS = 1_000;
/** Of an epoch's ancestors: each is a server that lost its memory. */
const HISTORY_MAX = 16;

/**
 * Takes over what the server has; the store then is at `target`, or further where the server went on meanwhile: the changes
 * after `target` are to be applied again. Rejects with Superseded, ValkeyError, StoreFault.
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
  const keyIds = new Set<string>();
  const freeSlots = new Set<string>();
  for await (const rows of server.rows(target.epoch, BATCH_ROWS)) {
    for (const { table, key } of rows) {
      if (table === 'keys') keyIds.add(String(key));
      if (table === 'key_slots_free') freeSlots.add(String(key));
    }
    guarded(() => {
      copy.setPartial();
      for (const row of rows) copy.take(row);
    });
  }
  guarded(() => {
    copy.retain(keyIds, freeSlots);
    copy.setPosition(target);
  });
}

/**
 * Makes this host's registry the server's, which has `before`; false where another host was quicker. The caller has the
 * server's leave to seed, and nobody changes the store meanwhile.
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

/** Running hosts notice within a second that the server has lost its memory, and restarting ones come back within some. */
const CLAIMS_WAIT_MS = 3_000;
const CLAIM_PERIOD_MS = 500;
/** Of a claim that was not repeated: that host has ended. */
const CLAIM_AGE_MS_MAX = 2_000;

export interface RegistryReseedOptions {
  readonly store: Pick<Store, 'copy' | 'shared'>;
  readonly server: RegistryServer;
  readonly host: string;
  readonly log: Log;
  /** How long copies are gathered before the newest is taken. Default 3,000, which leaves hosts time to notice and to come back. */
  readonly claimsWaitMs?: number | undefined;
}

/** `behind`: an older state of the server's epoch; `older`: of one before it, or nothing yet. */
export type Way = 'equal' | 'behind' | 'older' | 'rescue';

export class RegistryReseed {
  readonly #options: RegistryReseedOptions;

  constructor(options: RegistryReseedOptions) {
    this.#options = options;
  }

  /** From a copy to what the server has. Throws RegistryDiverged where there is none. */
  wayTo(found: RegistryPosition | undefined, position: RegistryPosition | undefined): Way {
    if (found === undefined) return 'rescue';
    if (position === undefined) {
      const { copy } = this.#options.store;
      if (copy.isEmpty() || copy.isPartial()) return 'older';
      throw new RegistryDiverged(
        'This host has accounts of its own, and the hosts that it is to share with have others.',
      );
    }
    if (found.epoch === position.epoch) {
      if (found.version > position.version) return 'behind';
      if (found.version < position.version) return 'rescue';
      if (found.lastId === position.lastId) return 'equal';
      throw lostChanges(position.version);
    }
    const parent = found.history.find(([epoch]) => epoch === position.epoch);
    if (parent !== undefined) {
      if (position.version <= parent[1]) return 'older';
      throw lostChanges(position.version);
    }
    // A replica that is older than the newest epoch.
    const ancestor = position.history.find(([epoch]) => epoch === found.epoch);
    if (ancestor !== undefined && found.version <= ancestor[1]) return 'rescue';
    throw new RegistryDiverged(
      'The sharing server has accounts and keys of other hosts, with another history.',
    );
  }

  /** Takes part until this host has seeded or another one has, or some seconds are over; then look at the server again. */
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

/** Text that is the greater the newer a copy is: its epoch's age, then its version; then accounts of its own, then none. */
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
