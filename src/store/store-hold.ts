/**
 * The store hold: a lock between processes that says who may change the data directory, which is one command,
 * or the gateways of one process group. `Store.hold` takes it before a gateway or a command reads the store;
 * `Store.close` gives it back. Main thread of a gateway process, or a command. (A hold of money is something
 * else.)
 *
 * The hold is needed because a gateway reads accounts and keys at its start: what a command wrote later would
 * be in force only after the next start. The hold is a row that is read and written in one transaction. The
 * row of a process that has died is void. It has an LMDB file of its own, `hold.lmdb`, because a start that
 * rejects the store must leave its file as it is, to the byte.
 *
 * Containers that share a volume do not see each other's processes (PID namespaces), so `/proc` alone does
 * not tell whether the process in the row has died. Therefore whoever has the hold is also a _reader_ of
 * `hold.lmdb`: it has read the file outside of a write; reads within a write make no reader. LMDB guards a
 * reader's entry by a lock of the kernel, which all containers of one machine see, and which ends with its
 * process, even if that is killed. It needs no clock, no heartbeat and no Unix socket, and without such locks
 * LMDB does not work either. For an older Tollgate, which is no reader, `/proc` decides.
 *
 * Gateways of one supervisor that share their limits share the hold: the row names their group, and lets in
 * further members. One that drains after its supervisor has died keeps everybody else out until its end.
 *
 * Must hold: of two processes that are not of one group, one at most has the hold, and a process that has
 * ended has none, whatever PID namespaces they are in. Nobody reads `hold.lmdb` but in a transaction, or with
 * the hold (test/unit/store/store-hold.test.ts: between processes and namespaces, and after one was killed;
 * test/e2e/containers.test.ts).
 */
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { SystemClock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { schemaCheck } from '../core/schema-check.js';
import { Environment, assertDisposableFile } from './environment.js';
import { identityOf, isRunning } from './process-identity.js';
import { makeDataFolder, OPTIONS, unreadable } from './store-file.js';

/** Some pages. LMDB needs space for the former row beside the new row. */
const MAP_BYTES = 1024 * 1024;
const ROW_KEY = 'holder';

/** The row: who has the hold, the _holder_. */
const HolderRow = Type.Object({
  kind: Type.Union([Type.Literal('gateway'), Type.Literal('command')]),
  /** The identity (process-identity.ts) of one of `members`: all that a Tollgate without groups reads. */
  identity: Type.String(),
  group: Type.Optional(Type.String()),
  members: Type.Optional(Type.Array(Type.String())),
  /** The name of the holder's host: in a container its id or name. Absent in rows of an older Tollgate. */
  host: Type.Optional(Type.String()),
  /** When the hold was taken, by the wall clock. Of a group: by its first member. */
  sinceMs: Type.Optional(Type.Integer()),
});

const isHolderRow = schemaCheck('HolderRow', HolderRow);
type HolderRow = Readonly<Static<typeof HolderRow>>;

/** Who wants the hold, or has it. */
export interface StoreUser {
  readonly kind: HolderRow['kind'];
  /** Shared by the gateways that may use the store together; absent if the process wants it for itself. */
  readonly group?: string | undefined;
}

/** An expected error: another process has the hold. */
export class StoreHeld extends Error {
  readonly code = 'store_held';
  readonly kind: StoreUser['kind'];
  /** The holder's number in its own PID namespace. */
  readonly pid: number;
  /** Path of the data directory. */
  readonly path: string;
  /** The host of a holder that this process cannot see, because it is in another container. */
  readonly container: string | undefined;
  /** Names the holder: `gateway (process 7)`. */
  readonly who: string;

  /** `where`: whether the holder is in the PID namespace of this process. */
  constructor(path: string, row: HolderRow, where: 'this namespace' | 'another container') {
    const { kind, identity, host = 'unknown', sinceMs } = row;
    const isVisible = where === 'this namespace';
    const pid = Number(identity.split(' ', 1)[0]);
    const since = sinceMs === undefined ? '' : `, since ${new Date(sinceMs).toISOString()}`;
    const who = isVisible
      ? `${kind} (process ${pid})`
      : `${kind} in another container (process ${pid} of ${host}${since})`;
    super(`A ${who} works on ${path}.`);
    this.name = 'StoreHeld';
    this.kind = kind;
    this.pid = pid;
    this.path = path;
    this.container = isVisible ? undefined : host;
    this.who = who;
  }
}

/** This process's hold on a data directory, from `take` to `giveBack`. */
export class StoreHold {
  /**
   * All holds of this process. If one is on a folder, the reader of that folder's file may be this process
   * itself. The garbage collector would close the file of a hold to which nothing refers.
   */
  static readonly #ownHolds = new Set<StoreHold>();

  readonly #file: Environment;
  readonly #row: RowAccess;

  private constructor(file: Environment, row: RowAccess) {
    this.#file = file;
    this.#row = row;
  }

  /**
   * Takes the hold. If nobody else has it, `onAlone` is called before any other process can take it. Throws
   * StoreHeld if another process has it, and StoreError if the file cannot be read or written. Costs an
   * fsync. Call it once until `giveBack`: a second hold on the folder would end with the first.
   */
  static take(dataPath: string, user: StoreUser, onAlone: () => void = () => undefined): StoreHold {
    makeDataFolder(dataPath);
    const path = join(dataPath, 'hold.lmdb');
    const file = openHold(path);
    const { root } = file;
    const row: RowAccess = {
      path: dataPath,
      hasReaders: () => !StoreHold.#hasOwnHold(dataPath) && file.hasReaders(),
      get: (): unknown => root.get(ROW_KEY),
      put: (value) => root.putSync(ROW_KEY, value),
      remove: () => root.removeSync(ROW_KEY),
    };
    try {
      // While this process has the gate (environment.ts), no other process opens or writes it.
      file.inGate(() => {
        file.write(() => {
          if (takeHold(row, user)) onAlone();
        });
        // A read outside of a write makes this process a reader, before another process can look.
        row.get();
      });
    } catch (error) {
      void file.close();
      throw error instanceof StoreHeld ? error : unreadable(path, error);
    }
    const hold = new StoreHold(file, row);
    StoreHold.#ownHolds.add(hold);
    return hold;
  }

  static #hasOwnHold(dataPath: string): boolean {
    return Array.from(StoreHold.#ownHolds).some((hold) => resolve(hold.#row.path) === resolve(dataPath));
  }

  /** Never throws because of the disk: the hold is void anyway as soon as this process has ended. */
  async giveBack(): Promise<void> {
    try {
      this.#file.write(() => giveHoldBack(this.#row));
    } catch {
      // The disk takes no write. The row stays, and is void when this process has ended.
    }
    StoreHold.#ownHolds.delete(this);
    await this.#file.close();
  }
}

function openHold(path: string): Environment {
  try {
    return new Environment(path, { ...OPTIONS, maxDbs: 1, mapSize: MAP_BYTES }, assertDisposableFile);
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** What may be done with the row, inside a transaction. */
export interface RowAccess {
  /** Path of the data directory. */
  readonly path: string;
  /** Whether another process is a reader of the row's file: it has the hold, or has just removed the row. */
  hasReaders(): boolean;
  get(): unknown;
  put(row: HolderRow): void;
  remove(): void;
}

/**
 * Takes the hold. Returns true if no other process has it. Throws StoreHeld if a running process of another
 * group has it. A row that cannot be read counts as none: it only says who has the lock.
 */
export function takeHold(row: RowAccess, { kind, group }: StoreUser): boolean {
  const stored = row.get();
  const holderRow = isHolderRow(stored) ? stored : undefined;
  const otherMembers = otherMembersOf(holderRow);
  const [visibleHolder] = otherMembers;
  // A group is of one supervisor, so its members are in one PID namespace.
  if (holderRow !== undefined && (group === undefined || holderRow.group !== group)) {
    if (visibleHolder !== undefined)
      throw new StoreHeld(row.path, { ...holderRow, identity: visibleHolder }, 'this namespace');
    // No process of this PID namespace has the hold, so a reader is in another container.
    if (row.hasReaders()) throw new StoreHeld(row.path, holderRow, 'another container');
  }
  const isJoined = holderRow !== undefined && visibleHolder !== undefined;
  const origin = isJoined ? holderRow : { host: hostname(), sinceMs: new SystemClock().wallMs() };
  row.put(rowOf({ kind, group }, origin, [ownIdentity(), ...otherMembers]));
  return visibleHolder === undefined;
}

/** Removes this process from the row, and the row if it names no other running process. */
export function giveHoldBack(row: RowAccess): void {
  const holderRow = row.get();
  if (!isHolderRow(holderRow) || !membersOf(holderRow).includes(ownIdentity())) return;
  const otherMembers = otherMembersOf(holderRow);
  if (otherMembers.length === 0) row.remove();
  else row.put(rowOf(holderRow, holderRow, otherMembers));
}

/** `host` and `sinceMs` are those of the process that took the hold first. */
function rowOf(
  { kind, group }: StoreUser,
  { host, sinceMs }: Pick<HolderRow, 'host' | 'sinceMs'>,
  members: readonly string[],
): HolderRow {
  const [identity] = members;
  invariant(identity !== undefined, 'somebody has the hold');
  const origin = { ...(host !== undefined && { host }), ...(sinceMs !== undefined && { sinceMs }) };
  return group === undefined
    ? { kind, identity, ...origin }
    : { kind, identity, group, members: [...members], ...origin };
}

/** Identities of the other holders that run and are in the PID namespace of this process. */
function otherMembersOf(holderRow: HolderRow | undefined): string[] {
  if (holderRow === undefined) return [];
  const ownId = ownIdentity();
  return membersOf(holderRow).filter((identity) => identity !== ownId && isRunning(identity));
}

function membersOf({ identity, members }: HolderRow): readonly string[] {
  return members ?? [identity];
}

function ownIdentity(): string {
  const identity = identityOf(process.pid);
  invariant(identity !== undefined, '/proc tells who this process is');
  return identity;
}
