/**
 * Makes a host's copy of the registry (accounts, keys, groups) equal to the sharing server's registry, or the
 * other way round. registry-log.ts calls it whenever the two differ. Main thread of a gateway process.
 *
 * A copy's position is its epoch and its version. A new epoch of the registry begins whenever a host puts its
 * whole copy on a server that has lost data. The version counts the changes since the very first, and goes on
 * over epochs. (Once `history` is full, it leaps at each new epoch: VERSIONS_SKIPPED.) `lastId` is the id of
 * the last change: it tells apart two histories with equally many changes. `history` lists the epochs before,
 * each with the version that its copy had when the next epoch began.
 *
 *     the server has          what the host does (`wayTo`)
 *     the same                nothing                                              equal
 *     more of this epoch      applies the changes that it lacks                    behind
 *     a later epoch           downloads all of the registry                        older
 *     nothing, or less        takes part in choosing the copy that is put there    reseed
 *     something unrelated     stops with RegistryDiverged: an operator decides
 *
 * A server has less if it was started empty, or if it is a replica that had missed the last changes. Then
 * each host is a _candidate_, and reports how new its copy is. After some seconds the host of the newest copy
 * asks for the permission to seed, which one host has at a time, and puts its copy on the server. Changes
 * that only an absent host had are lost to the others. When that host comes back it stops with
 * RegistryDiverged, and mixes nothing.
 *
 * Must hold: a copy has the position of the server's registry only if it has all rows of the registry; while
 * it applies the rows, no row is there before its group; rows of an epoch that never counted do not stay at
 * the server; no two registries are mixed (also test/unit/sharing/registry-log.test.ts).
 */
import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';
import { GROUP_DEPTH_MAX } from '../core/limits.js';
import { deletableRow, type RegistryPosition, type RegistryRow } from '../store/registry-copy.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import { RegistryDiverged, Superseded } from './registry-contact.js';
import type { RegistryServer } from './registry-server.js';

/** Rows of one message and of one transaction: some 500 KB, and some 20 ms of the main thread. */
const BATCH_ROWS = 1_000;
/**
 * How many earlier epochs a position lists; each ended by a loss of data. A host that was away for more
 * epochs stops with RegistryDiverged. host-accounting.ts asserts that its `versionOf` is exact with so many.
 */
export const HISTORY_MAX = 16;
/**
 * What a new epoch adds to the version once the history is full: more than the changes that a server can have
 * lost. Hosts report credited amounts with the version (`versionOf` in host-accounting.ts), and an amount
 * that includes a lost change must count as older than one of the new epoch.
 */
const VERSIONS_SKIPPED = 2 ** 20;

/**
 * Writes the server's whole registry to the store, which then is at `target`. Writes groups first, and
 * parents before their children: the server has no order, and processes that follow the store open a group
 * under its parent, and an account in its group, only if parent and group are there. If the server went on
 * meanwhile some rows are newer than `target`, and the changes after `target` must be applied again. Rejects
 * with ValkeyError, StoreError, and with Superseded if another process of this host moved the store
 * meanwhile, or another host began a new epoch.
 */
export async function download(
  store: Pick<Store, 'shared' | 'copy'>,
  server: RegistryServer,
  target: RegistryPosition,
): Promise<void> {
  const { shared, copy } = store;
  const positionBefore = copy.position();
  /** Runs `work` in a transaction of the store, unless another process has moved the copy. */
  const unlessMoved = (work: () => void): void =>
    shared.commitAgreed(() => {
      const position = copy.position();
      if (position?.epoch !== positionBefore?.epoch || position?.version !== positionBefore?.version)
        throw new Superseded();
      work();
    });
  /** The names of the server's rows that a change could delete. In the end the copy loses other such rows. */
  const deletable = new Set<string>();
  const applyAll = (rows: readonly RegistryRow[]): void => {
    for (const row of rows) {
      const name = deletableRow(row);
      if (name !== undefined) deletable.add(name);
    }
    unlessMoved(() => {
      copy.setPartial();
      for (const row of rows) copy.apply(row);
    });
  };
  const groups: RegistryRow[] = [];
  for await (const rows of server.rows(target.epoch, BATCH_ROWS, 'groups')) groups.push(...rows);
  const ordered = parentsFirst(groups);
  for (let first = 0; first < ordered.length; first += BATCH_ROWS) {
    applyAll(ordered.slice(first, first + BATCH_ROWS));
    await nextTurn();
  }
  for await (const rows of server.rows(target.epoch, BATCH_ROWS)) {
    // A group that is newer than `target` comes with the changes after `target`, and so do its accounts.
    applyAll(rows.filter(({ table }) => table !== 'groups'));
  }
  // If the epoch has ended meanwhile its rows were removed, perhaps before all of them were read.
  if ((await server.pull(target))?.position.epoch !== target.epoch) throw new Superseded();
  unlessMoved(() => {
    copy.retain(deletable);
    copy.setPosition(target);
  });
}

/** The rows of groups, parents before their children. */
function parentsFirst(groups: readonly RegistryRow[]): RegistryRow[] {
  const rows = new Map(groups.map((row) => [String(row.key), row]));
  const parentOf = ({ value }: RegistryRow): RegistryRow | undefined =>
    rows.get((value as { parentId?: string } | null)?.parentId ?? '');
  const levels: RegistryRow[][] = [];
  for (const row of groups) {
    let depth = 0;
    // The bound ends the loop also if damaged rows are parents of each other.
    for (
      let ancestor = parentOf(row);
      ancestor !== undefined && depth < GROUP_DEPTH_MAX;
      ancestor = parentOf(ancestor)
    )
      depth++;
    (levels[depth] ??= []).push(row);
  }
  return levels.flat();
}

/**
 * Puts this host's registry on the server, which is at `found`, under a new epoch. Returns false if another
 * host was quicker, or the server has lost rows meanwhile. The caller must have the permission to seed: one
 * host has it, until it has sent no batch for some time. No process changes the store meanwhile, because
 * changes are made at the server first. Rejects with ValkeyError, StoreError.
 *
 * Whichever way the seeding ends, no rows stay at the server that do not count: `seed` drops them, or, if it
 * cannot, they expire with the permission.
 */
export async function seed(
  store: Pick<Store, 'shared' | 'copy'>,
  server: RegistryServer,
  host: string,
  found: RegistryPosition | undefined,
): Promise<boolean> {
  const { shared, copy } = store;
  const position = copy.position();
  const newPosition: RegistryPosition = {
    epoch: randomUUID(),
    version: (position?.version ?? 0) + (position?.history.length === HISTORY_MAX ? VERSIONS_SKIPPED : 0),
    lastId: position?.lastId ?? '',
    history:
      position === undefined
        ? []
        : [...position.history, [position.epoch, position.version] as [string, number]].slice(-HISTORY_MAX),
  };
  const rowCount = await putAll(copy.rows(), (rows) => server.putRows(host, newPosition.epoch, rows));
  // A host with accounts but no position takes shared accounts for those of others, and stops (`wayTo`). So
  // the position is stored before `finishSeed`, whose reply may be lost.
  const isFirst = position === undefined && !copy.isEmpty();
  if (isFirst && rowCount !== undefined) shared.commitAgreed(() => copy.setPosition(newPosition));
  if (rowCount === undefined || !(await server.finishSeed(host, found, newPosition, rowCount))) {
    if (isFirst) shared.commitAgreed(() => copy.detach());
    await server.dropEpoch(newPosition.epoch);
    return false;
  }
  if (!isFirst) shared.commitAgreed(() => copy.setPosition(newPosition));
  return true;
}

/** Returns how many rows were put; undefined if `put` refused some. */
async function putAll(
  rows: Iterable<RegistryRow>,
  put: (rows: readonly RegistryRow[]) => Promise<boolean>,
): Promise<number | undefined> {
  let count = 0;
  let batch: RegistryRow[] = [];
  for (const row of rows) {
    count++;
    batch.push(row);
    if (batch.length < BATCH_ROWS) continue;
    if (!(await put(batch))) return undefined;
    batch = [];
  }
  return batch.length === 0 || (await put(batch)) ? count : undefined;
}

/**
 * How long candidates are gathered. Running hosts notice a loss of the data within a second, and hosts that
 * restart mostly in this time.
 */
const CANDIDATES_WAIT_MS = 3_000;
const REPORT_PERIOD_MS = 500;
/** A candidate that has not reported for so long has ended. */
const CANDIDATE_AGE_MS_MAX = 2_000;

export interface RegistryReseedOptions {
  readonly store: Pick<Store, 'copy' | 'shared'>;
  readonly server: RegistryServer;
  readonly host: string;
  readonly log: Log;
  /** How long candidates are gathered before the newest copy is chosen. Default CANDIDATES_WAIT_MS. */
  readonly candidatesWaitMs?: number | undefined;
}

/**
 * `behind`: the copy is an older state of the server's epoch. `older`: the copy is of an earlier epoch, or
 * empty. `reseed`: the server must be seeded.
 */
type Way = 'equal' | 'behind' | 'older' | 'reseed';

/**
 * How a copy at `position` gets to the server's registry, which is at `found`. Undefined stands for a copy
 * without a position, and for a server without a registry. Throws RegistryDiverged if there is no way.
 */
export function wayTo(
  copy: Pick<Store['copy'], 'isPartial' | 'isEmpty'>,
  found: RegistryPosition | undefined,
  position: RegistryPosition | undefined,
): Way {
  if (found === undefined) return 'reseed';
  // A partial copy may still have its position, but its rows are of two epochs.
  if (copy.isPartial()) return 'older';
  if (position === undefined) {
    if (copy.isEmpty()) return 'older';
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
  const successor = found.history.find(([epoch]) => epoch === position.epoch);
  if (successor !== undefined) {
    if (position.version <= successor[1]) return 'older';
    throw lostChanges(position.version);
  }
  // The server is a replica that is older than the newest epoch.
  const ancestor = position.history.find(([epoch]) => epoch === found.epoch);
  if (ancestor !== undefined && found.version <= ancestor[1]) return 'reseed';
  throw new RegistryDiverged(
    'The sharing server has accounts and keys of other hosts, with another history.',
  );
}

/** Takes part in the choice of the newest copy. Resolves when this host has seeded, or is not chosen. */
export async function takePartInReseed(
  { store, server, host, log, candidatesWaitMs = CANDIDATES_WAIT_MS }: RegistryReseedOptions,
  found: RegistryPosition | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { copy } = store;
  const ownCopy = { host, rank: rankOf(copy.isPartial() ? undefined : copy.position(), copy.isEmpty()) };
  for (let waitedMs = 0; waitedMs < candidatesWaitMs; waitedMs += REPORT_PERIOD_MS) {
    await server.reportCopy(ownCopy, { wantsToSeed: false });
    // The pause rejects only by the signal.
    await pause(REPORT_PERIOD_MS, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return;
  }
  // Only the host of the newest copy asks for the permission. The server gives it to the first that asks,
  // which matters only to hosts that saw different candidates.
  const { candidates } = await server.reportCopy(ownCopy, { wantsToSeed: false });
  // Of equal copies the one of the host with the first id is chosen, so that all hosts choose the same.
  const newest = candidates
    .filter(({ ageMs }) => ageMs < CANDIDATE_AGE_MS_MAX)
    .sort((first, second) => compare(second.rank, first.rank) || compare(first.host, second.host))[0];
  if (newest?.host !== host || !(await server.reportCopy(ownCopy, { wantsToSeed: true })).may) return;
  if (await seed(store, server, host, found)) {
    const reason =
      found === undefined ? 'the sharing server had none' : 'those at the sharing server were older';
    log.info('the accounts and keys of this host are the shared ones now', { reason });
  }
}

const RANK_DIGITS = 16;

/**
 * Returns a text that is the greater the newer a copy is: by the number of its epochs, then by its version.
 * Beyond HISTORY_MAX epochs the version alone decides. A copy that was never shared, or is partial, ranks
 * lowest; of these a copy with accounts ranks above an empty one. Ranks are compared as text, so numbers are
 * padded with zeros.
 */
function rankOf(position: RegistryPosition | undefined, isEmpty: boolean): string {
  const generation = position === undefined ? (isEmpty ? 0 : 1) : 2 + position.history.length;
  const digits = (count: number): string => String(count).padStart(RANK_DIGITS, '0');
  return `${digits(generation)}.${digits(position?.version ?? 0)}`;
}

/** As a callback of `sort` compares. */
function compare(first: string, second: string): number {
  return first < second ? -1 : first > second ? 1 : 0;
}

function lostChanges(version: number): RegistryDiverged {
  return new RegistryDiverged(
    `The sharing server has lost changes of accounts and keys that this host has, up to number ${version}, and others were made since.`,
  );
}
