/**
 * The hold on the store: a lock between processes that says who may change the data directory, which is one
 * command, or the gateways of one group. `Store.hold` takes it before a gateway or a command reads the store;
 * `Store.close` gives it back. Main thread of a gateway process, or a command. (The hold of a balance is
 * something else.)
 *
 * A gateway reads accounts and keys at its start. What a command wrote after that would be in force only
 * after the next start. So the hold is a row that is read and written in one transaction. The row of a
 * process that has died is void, because no running process has its identity.
 *
 * Gateways of one supervisor that share their limits share the hold. The row then names their group, and lets
 * in further members of it. A gateway that goes on draining after its supervisor has died keeps everybody
 * else out until its end.
 *
 * The row has an LMDB file of its own, `hold.lmdb`, because a start that rejects the store must leave its
 * file as it is, to the byte.
 *
 * Must hold: of two processes that are not of one group, one at most has the hold, and a process that has
 * ended has none. Test: unit/store/store-hold (between processes, and after one was killed).
 */
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { invariant } from '../core/errors.js';
import { schemaCheck } from '../core/schema-check.js';
import { Environment, assertDisposableFile } from './environment.js';
import { identityOf, isRunning } from './process-identity.js';
import { makeDataFolder, OPTIONS, unreadable } from './store-file.js';

/** Some pages. LMDB needs room for the former row beside the new one. */
const MAP_BYTES = 1024 * 1024;
const HOLDER = 'holder';

const HolderRow = Type.Object({
  kind: Type.Union([Type.Literal('gateway'), Type.Literal('command')]),
  /** Identity of one member. An older Tollgate, which knows no groups, checks this one alone. */
  identity: Type.String(),
  group: Type.Optional(Type.String()),
  members: Type.Optional(Type.Array(Type.String())),
});

const isHolder = schemaCheck('HolderRow', HolderRow);
type HolderRow = Readonly<Static<typeof HolderRow>>;

export interface StoreHolder {
  readonly kind: HolderRow['kind'];
  /** Shared by the gateways that may use the store together; absent if the process wants it for itself. */
  readonly group?: string | undefined;
}

/** An expected error: another process has the store. */
export class StoreHeld extends Error {
  readonly code = 'store_held';
  readonly kind: StoreHolder['kind'];
  readonly pid: number;
  /** Path of the data folder. */
  readonly path: string;

  constructor(path: string, kind: StoreHolder['kind'], identity: string) {
    const pid = Number(identity.split(' ', 1)[0]);
    super(`A ${kind} (process ${pid}) works on ${path}.`);
    this.name = 'StoreHeld';
    this.kind = kind;
    this.pid = pid;
    this.path = path;
  }
}

/** This process's hold on a data folder, from `take` to `giveBack`. */
export class StoreHold {
  readonly #file: Environment;
  readonly #row: HoldRow;

  private constructor(file: Environment, row: HoldRow) {
    this.#file = file;
    this.#row = row;
  }

  /**
   * Takes the hold. If nobody else has it, `onAlone` is called before any other process can take it. Throws
   * StoreHeld if another process has it, and StoreError if that cannot be read. Costs a disk flush.
   */
  static take(dataPath: string, holder: StoreHolder, onAlone: () => void = () => undefined): StoreHold {
    makeDataFolder(dataPath);
    const path = join(dataPath, 'hold.lmdb');
    const file = openHold(path);
    const { root } = file;
    const row: HoldRow = {
      path: dataPath,
      get: (): unknown => root.get(HOLDER),
      put: (value) => root.putSync(HOLDER, value),
      remove: () => root.removeSync(HOLDER),
    };
    try {
      file.write(() => {
        if (takeHold(row, holder)) onAlone();
      });
    } catch (error) {
      void file.close();
      throw error instanceof StoreHeld ? error : unreadable(path, error);
    }
    return new StoreHold(file, row);
  }

  /** Never fails. If the disk takes nothing, the hold is void as soon as this process has ended. */
  async giveBack(): Promise<void> {
    try {
      this.#file.write(() => giveHoldBack(this.#row));
    } catch {
      // The disk takes nothing: see above.
    }
    await this.#file.close();
  }
}

function openHold(path: string): Environment {
  try {
    assertDisposableFile(path);
    return new Environment(path, { ...OPTIONS, maxDbs: 1, mapSize: MAP_BYTES });
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** The row inside a transaction. */
export interface HoldRow {
  readonly path: string;
  get(): unknown;
  put(row: HolderRow): void;
  remove(): void;
}

/**
 * Returns true if no other process has the hold. Throws StoreHeld if a running process of another group has
 * it. A row that cannot be read is void: it holds nobody's money.
 */
export function takeHold(row: HoldRow, { kind, group }: StoreHolder): boolean {
  const held = row.get();
  const others = othersOf(held);
  const [other] = others;
  if (other !== undefined && isHolder(held) && (group === undefined || held.group !== group)) {
    throw new StoreHeld(row.path, held.kind, other);
  }
  row.put(rowOf(kind, group, [ownIdentity(), ...others]));
  return other === undefined;
}

/** Removes this process from the row, and the row if no other member is left. */
export function giveHoldBack(row: HoldRow): void {
  const held = row.get();
  if (!isHolder(held) || !membersOf(held).includes(ownIdentity())) return;
  const others = othersOf(held);
  if (others.length === 0) row.remove();
  else row.put(rowOf(held.kind, held.group, others));
}

function rowOf(kind: HolderRow['kind'], group: string | undefined, members: readonly string[]): HolderRow {
  const [identity] = members;
  invariant(identity !== undefined, 'somebody has the hold');
  return group === undefined ? { kind, identity } : { kind, identity, group, members: [...members] };
}

/** Other running processes that have the hold. */
function othersOf(held: unknown): string[] {
  if (!isHolder(held)) return [];
  const own = ownIdentity();
  return membersOf(held).filter((identity) => identity !== own && isRunning(identity));
}

function membersOf({ identity, members }: HolderRow): readonly string[] {
  return members ?? [identity];
}

function ownIdentity(): string {
  const own = identityOf(process.pid);
  invariant(own !== undefined, '/proc tells who this process is');
  return own;
}
