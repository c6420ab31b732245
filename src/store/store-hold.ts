/**
 * Who may change the store: the gateways of one group, or one command. Main thread of a gateway, or a command.
 *
 * A gateway reads accounts and keys when it starts and changes both sides from then on, so what a command wrote after that
 * reading would be live only after the next start. Therefore each takes the hold before it reads, and gives it back when it
 * has closed its books. The hold is a row that is looked at and written in one transaction; that of a process which died is
 * void, because its identity is no running process's.
 *
 * The gateways of one supervisor share the hold where they share their limits: then the row names their group, and a member
 * is let in beside others of it. One that goes on draining after its supervisor has died keeps everybody else out until its end.
 *
 * The row has an LMDB file of its own, `hold.lmdb`: a start that refuses the books must leave them as they are, to the byte.
 */
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { Check } from 'typebox/value';
import { invariant } from '../core/errors.js';
import { Environment, assertSpareFile } from './environment.js';
import { identityOf, isRunning } from './process-identity.js';
import { makeDataFolder, OPTIONS, unreadable } from './store-file.js';

/** Some pages; LMDB wants room for the former row beside the new one. */
const MAP_BYTES = 1024 * 1024;
const HOLDER = 'holder';

const HolderRow = Type.Object({
  kind: Type.Union([Type.Literal('gateway'), Type.Literal('command')]),
  /** Of one of the members; a program that knows of no groups looks at it alone. */
  identity: Type.String(),
  group: Type.Optional(Type.String()),
  members: Type.Optional(Type.Array(Type.String())),
});

type HolderRow = Readonly<Static<typeof HolderRow>>;

export interface StoreHolder {
  readonly kind: HolderRow['kind'];
  /** Shared by the gateways that may work on the store together; absent where the process wants it for itself. */
  readonly group?: string | undefined;
}

/** Expected: another process has the store. */
export class StoreHeld extends Error {
  readonly code = 'store_held';
  readonly kind: StoreHolder['kind'];
  readonly pid: number;
  /** Of the data folder. */
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

/** The hold of this process on a data folder, from `take` to `giveBack`. */
export class StoreHold {
  readonly #file: Environment;
  readonly #row: HoldRow;

  private constructor(file: Environment, row: HoldRow) {
    this.#file = file;
    this.#row = row;
  }

  /**
   * Throws `StoreHeld` where another process has it, `StoreFault` where it cannot be told. `onAlone` is called before any
   * other process can take it, where no other has it. Costs a disk flush.
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

  /** Never fails: on a disk that takes nothing the hold is void as soon as this process has ended. */
  async giveBack(): Promise<void> {
    try {
      this.#file.write(() => giveHoldBack(this.#row));
    } catch {
      // Void by itself.
    }
    await this.#file.close();
  }
}

function openHold(path: string): Environment {
  try {
    assertSpareFile(path);
    return new Environment(path, { ...OPTIONS, maxDbs: 1, mapSize: MAP_BYTES });
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** The row, as its table gives and takes it, inside a transaction. */
export interface HoldRow {
  readonly path: string;
  get(): unknown;
  put(row: HolderRow): void;
  remove(): void;
}

/**
 * Throws `StoreHeld` where another process that runs has it, and is not of the same group; true where none has it. What
 * cannot be read is void: it holds nobody's money.
 */
export function takeHold(row: HoldRow, { kind, group }: StoreHolder): boolean {
  const held = row.get();
  const others = othersOf(held);
  const [other] = others;
  if (other !== undefined && Check(HolderRow, held) && (group === undefined || held.group !== group)) {
    throw new StoreHeld(row.path, held.kind, other);
  }
  row.put(rowOf(kind, group, [ownIdentity(), ...others]));
  return other === undefined;
}

/** Leaves the others' alone. */
export function giveHoldBack(row: HoldRow): void {
  const held = row.get();
  if (!Check(HolderRow, held) || !membersOf(held).includes(ownIdentity())) return;
  const others = othersOf(held);
  if (others.length === 0) row.remove();
  else row.put(rowOf(held.kind, held.group, others));
}

function rowOf(kind: HolderRow['kind'], group: string | undefined, members: readonly string[]): HolderRow {
  const [identity] = members;
  invariant(identity !== undefined, 'somebody has the hold');
  return group === undefined ? { kind, identity } : { kind, identity, group, members: [...members] };
}

/** Processes that run and have the hold, but for this one. */
function othersOf(held: unknown): string[] {
  if (!Check(HolderRow, held)) return [];
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
