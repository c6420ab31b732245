/**
 * What a host remembers of the sharing server over its own restarts: the last epoch, and which nodes there
 * were. `ValkeyPartition` reads and sets it. An empty server is new only for hosts that remember nothing;
 * for others it has lost its data. Main thread.
 *
 * It is the file `sharing.json` in the data directory, which all processes of the host share. It is written
 * whole when it changes: at a join, and when nodes come or go.
 *
 * Must hold: what was remembered or promised is on disk before the caller goes on, and nothing older replaces
 * it; else two servers could both grant after a takeover. A damaged file is an error, never an empty memory.
 * Test: test/unit/sharing/coordinator-memory.test.ts (not the loss of power).
 */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { parsedJson } from '../core/json.js';
import { schemaCheck } from '../core/schema-check.js';

/** What a host remembers of a partition over restarts of itself and of the server. */
export interface Remembered {
  /** Empty if this host has never been in contact. */
  readonly epoch: string;
  readonly places: readonly string[];
}

/**
 * The newest term that a place has promised to a server, see valkey-marks.ts. Nothing that the place asks is
 * carried out by a server of another one.
 */
export interface PromisedTerm {
  readonly term: number;
  /** The server's id; empty if nothing was promised yet. */
  readonly server: string;
}

const FILE_NAME = 'sharing.json';
/** Each process has a file of its own, so that no other process overwrites its promise by an older copy. */
const promisesName = (place: string): string => `sharing-${place.slice(place.lastIndexOf(':') + 1)}.json`;
const NOTHING: Remembered = { epoch: '', places: [] };

const Memory = Type.Object({
  namespace: Type.String(),
  /** By partition. */
  partitions: Type.Array(Type.Object({ epoch: Type.String(), places: Type.Array(Type.String()) })),
});
const isMemory = schemaCheck('SharingMemory', Memory);

/** By partition; null if nothing was promised. */
const Promises = Type.Array(
  Type.Union([Type.Null(), Type.Object({ term: Type.Integer({ minimum: 0 }), server: Type.String() })]),
);
const arePromises = schemaCheck('SharingPromises', Promises);
const NO_PROMISE: PromisedTerm = { term: 0, server: '' };

export class CoordinatorMemory {
  readonly #folder: string;
  readonly #path: string;
  #memory: Static<typeof Memory>;

  /** Reads the file. Throws, with the path, if it is damaged or of another namespace. */
  constructor(dataFolder: string, namespace: string) {
    this.#folder = dataFolder;
    this.#path = join(dataFolder, FILE_NAME);
    this.#memory = this.#read() ?? { namespace, partitions: [] };
    if (this.#memory.namespace === namespace) return;
    throw new Error(
      `${this.#path}: this host shared in the namespace "${this.#memory.namespace}", want the same, ` +
        'or the file removed while no gateway of that namespace runs',
    );
  }

  /** What is remembered of the partition, as of the start or the last `set` of this process. */
  of(partition: number): Remembered {
    return this.#memory.partitions[partition] ?? NOTHING;
  }

  /** Writes the file synchronously, in a millisecond or a few; throws what the file system throws. */
  set(partition: number, { epoch, places }: Remembered): void {
    // Another process of this host may have written meanwhile.
    const partitions = [...(this.#read() ?? this.#memory).partitions];
    while (partitions.length < partition) partitions.push({ epoch: '', places: [] });
    partitions[partition] = { epoch, places: [...places] };
    const memory = { ...this.#memory, partitions };
    this.#write(FILE_NAME, memory);
    this.#memory = memory;
  }

  /** What this life of the node, or an earlier one, has promised. Reads the file; throws if it is damaged. */
  promisedBy(place: string, partition: number): PromisedTerm {
    return this.#promises(place)[partition] ?? NO_PROMISE;
  }

  /** As `set`; an older promise than what is on disk changes nothing. */
  promise(place: string, partition: number, { term, server }: PromisedTerm): void {
    const promises = [...this.#promises(place)];
    if ((promises[partition]?.term ?? 0) >= term) return;
    while (promises.length < partition) promises.push(null);
    promises[partition] = { term, server };
    this.#write(promisesName(place), promises);
  }

  #promises(place: string): Static<typeof Promises> {
    return readChecked(join(this.#folder, promisesName(place)), arePromises) ?? [];
  }

  #read(): Static<typeof Memory> | undefined {
    return readChecked(this.#path, isMemory);
  }

  /** Replaces the file, which is on disk when this returns. */
  #write(name: string, value: unknown): void {
    const path = join(this.#folder, name);
    const temporary = `${path}.${process.pid}`;
    writeFileSync(temporary, JSON.stringify(value), { mode: 0o600, flush: true });
    renameSync(temporary, path);
    // Otherwise the former file may be back after a loss of power.
    const folder = openSync(this.#folder, 'r');
    try {
      fsyncSync(folder);
    } finally {
      closeSync(folder);
    }
  }
}

/** Undefined if there is no such file. */
function readChecked<Value>(path: string, check: (value: unknown) => value is Value): Value | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
  const value = parsedJson(text);
  if (!check(value)) throw new Error(`${path}: is not what a gateway has written`);
  return value;
}
