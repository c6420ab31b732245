/**
 * What a host remembers of the sharing server over its own restarts: the last epoch, and which nodes there
 * were. An empty server is new only for hosts that remember nothing; for others it has lost its data. Main
 * thread.
 *
 * It is the file `sharing.json` in the data directory, which all processes of the host share. It is written
 * whole when it changes: at a join, and when nodes come or go.
 */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { Check } from 'typebox/value';
import type { Remembered } from './valkey-partition.js';

const FILE_NAME = 'sharing.json';
const NOTHING: Remembered = { epoch: '', places: [] };

const Memory = Type.Object({
  namespace: Type.String(),
  /** By partition. */
  partitions: Type.Array(Type.Object({ epoch: Type.String(), places: Type.Array(Type.String()) })),
});

export class CoordinatorMemory {
  readonly #path: string;
  #memory: Static<typeof Memory>;

  /**
   * Reads the file synchronously. Throws with the path if it is damaged or of another namespace, because it
   * would not be safe to forget it.
   */
  constructor(dataFolder: string, namespace: string) {
    this.#path = join(dataFolder, FILE_NAME);
    this.#memory = this.#read() ?? { namespace, partitions: [] };
    if (this.#memory.namespace === namespace) return;
    throw new Error(
      `${this.#path}: this host shared in the namespace "${this.#memory.namespace}", want the same, ` +
        'or the file removed while no gateway of that namespace runs',
    );
  }

  of(partition: number): Remembered {
    return this.#memory.partitions[partition] ?? NOTHING;
  }

  /** Writes the file synchronously, in a millisecond or a few; throws what the file system throws. */
  set(partition: number, { epoch, places }: Remembered): void {
    const partitions = [...this.#memory.partitions];
    while (partitions.length <= partition) partitions.push({ epoch: '', places: [] });
    partitions[partition] = { epoch, places: [...places] };
    this.#memory = { ...this.#memory, partitions };
    const temporary = `${this.#path}.${process.pid}`;
    const file = openSync(temporary, 'w', 0o600);
    try {
      writeSync(file, JSON.stringify(this.#memory));
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(temporary, this.#path);
  }

  #read(): Static<typeof Memory> | undefined {
    let text: string;
    try {
      text = readFileSync(this.#path, 'utf8');
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
      throw error;
    }
    const value = parsed(text);
    if (!Check(Memory, value)) throw new Error(`${this.#path}: is not what a gateway has written`);
    return value;
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
