/**
 * A whole registry from the server into this host's store, and the other way round. Main thread.
 */
import { randomUUID } from 'node:crypto';
import type { RegistryPosition, RegistryRow } from '../store/registry-copy.js';
import type { Store } from '../store/store.js';
import { Superseded } from './registry-fault.js';
import type { RegistryServer } from './registry-server.js';

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
