/**
 * Stores what a host knows of the sharing server over restarts, in files of its data directory. open-hosts.ts
 * makes one SharingMemory in a gateway process; valkey-partition.ts reads and sets two things of each
 * partition P:
 *
 * - The last epoch, and which nodes there were, in `sharing-partition-P.json`. All processes of the host
 *   share this file, and write it at a join and when nodes come or go. A host that remembers an epoch takes
 *   an empty server for one that has lost its data; a host that remembers nothing takes it for a new one.
 * - The term that a node has promised, in `sharing-N.json`. Only the node of slot N writes this file, when
 *   another server takes over, so no other process puts an older promise back.
 *
 * Main thread.
 *
 * Must hold: what was remembered or promised is on disk before the caller goes on, and no older promise
 * replaces a newer one; otherwise two servers could both grant after a takeover. A `set` replaces its own
 * file whole, so it undoes nothing that another process has set of another partition. Of one partition the
 * last `set` counts. If that was an older list of nodes, its process learns so at its next exchange. A
 * damaged file is an error, and is never taken for an empty memory. The unit test cannot see a loss of power.
 */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { parsedJson } from '../core/json.js';
import { schemaCheck } from '../core/schema-check.js';

export interface Remembered {
  /** Empty if this host has never reached the server. */
  readonly epoch: string;
  /** The places of all nodes on the server's list, also of other hosts. */
  readonly places: readonly string[];
}

/** The newest term that a place has promised: from then on only the server of that term does what it asks. */
export interface PromisedTerm {
  readonly term: number;
  /** The server's id; empty if nothing was promised yet. */
  readonly server: string;
}

const fileOf = (partition: number): string => `sharing-partition-${partition}.json`;
/** `place` is of this host. `placeOf` of coordinator.ts makes it end in `:` and the slot of the node. */
const termsFileOf = (place: string): string => `sharing-${place.slice(place.lastIndexOf(':') + 1)}.json`;
const NOTHING: Remembered = { epoch: '', places: [] };
/** A host without the file takes an empty server for a new one. Any other host that remembers corrects it. */
const DAMAGED_ADVICE =
  '. Remove this file alone, if the sharing server has lost nothing since this host last shared; ' +
  'else only after another host of the namespace has started';

const Memory = Type.Object({
  namespace: Type.String(),
  /** How many partitions there were. A former version did not write it. */
  partitions: Type.Optional(Type.Integer({ minimum: 1 })),
  epoch: Type.String(),
  places: Type.Array(Type.String()),
});
const isMemory = schemaCheck('SharingMemory', Memory);

/** What a node has promised, by partition; null if nothing. */
const PromisedTerms = Type.Array(
  Type.Union([Type.Null(), Type.Object({ term: Type.Integer({ minimum: 0 }), server: Type.String() })]),
);
const arePromisedTerms = schemaCheck('PromisedTerms', PromisedTerms);
const NOT_PROMISED: PromisedTerm = { term: 0, server: '' };

export class SharingMemory {
  readonly #folder: string;
  readonly #namespace: string;
  readonly #partitions: number;

  /** `partitions`: how many there are. */
  constructor(dataFolder: string, namespace: string, partitions: number) {
    this.#folder = dataFolder;
    this.#namespace = namespace;
    this.#partitions = partitions;
  }

  /**
   * What any process of this host has set last. Reads the file. Throws, with the path, if it is damaged or of
   * another namespace. Of a partition that was added since, as its scopes were in others before: what was set
   * of the first one, so that the server takes the empty partition for one that has lost its data.
   */
  of(partition: number): Remembered {
    const { epoch, places } = this.#read(partition) ?? this.#firstIfAdded() ?? NOTHING;
    return { epoch, places };
  }

  /** What was set of the first partition while there was another number of them; undefined if never. */
  #firstIfAdded(): Static<typeof Memory> | undefined {
    const first = this.#read(0);
    return first?.partitions === undefined || first.partitions === this.#partitions ? undefined : first;
  }

  #read(partition: number): Static<typeof Memory> | undefined {
    const path = join(this.#folder, fileOf(partition));
    const memory = readChecked(path, isMemory, DAMAGED_ADVICE);
    if (memory === undefined || memory.namespace === this.#namespace) return memory;
    const { namespace } = memory;
    throw new Error(
      `${path}: this host shared in the namespace "${namespace}", want the same, ` +
        'or the file removed while no gateway of that namespace runs',
    );
  }

  /** Writes the file; blocks for some ms. Throws if the disk takes nothing. */
  set(partition: number, { epoch, places }: Remembered): void {
    const [namespace, partitions] = [this.#namespace, this.#partitions];
    this.#write(fileOf(partition), { namespace, partitions, epoch, places });
  }

  /** What the node of that place has promised, in any life. Reads the file; throws if it is damaged. */
  promisedBy(place: string, partition: number): PromisedTerm {
    return this.#promisedTerms(place)[partition] ?? NOT_PROMISED;
  }

  /**
   * Writes as `set`, unless the node has promised this term or a later one before. Returns what it has
   * promised now, which the caller must go by.
   */
  promiseTerm(place: string, partition: number, { term, server }: PromisedTerm): PromisedTerm {
    const terms = [...this.#promisedTerms(place)];
    const before = terms[partition] ?? NOT_PROMISED;
    // Two servers may have counted to the same term: a place promises this term to one of them only.
    if (before.term >= term) return before;
    while (terms.length < partition) terms.push(null);
    terms[partition] = { term, server };
    this.#write(termsFileOf(place), terms);
    return { term, server };
  }

  #promisedTerms(place: string): Static<typeof PromisedTerms> {
    return readChecked(join(this.#folder, termsFileOf(place)), arePromisedTerms) ?? [];
  }

  /** Replaces the file, which is on disk when this returns. */
  #write(name: string, value: unknown): void {
    const path = join(this.#folder, name);
    const temporary = `${path}.${process.pid}`;
    writeFileSync(temporary, JSON.stringify(value), { mode: 0o600, flush: true });
    renameSync(temporary, path);
    // Without this the former file may be back after a loss of power.
    const folderFile = openSync(this.#folder, 'r');
    try {
      fsyncSync(folderFile);
    } finally {
      closeSync(folderFile);
    }
  }
}

/** Undefined if there is no such file. Throws if it is damaged. */
function readChecked<Value>(
  path: string,
  check: (value: unknown) => value is Value,
  advice = '',
): Value | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
  const value = parsedJson(text);
  if (!check(value)) throw new Error(`${path}: is not what a gateway has written${advice}`);
  return value;
}
