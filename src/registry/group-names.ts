/**
 * The names of groups, in shared memory. A listener that rejects a call names the group whose quota is used
 * up (request/quota-rejections.ts). Any thread reads; the main thread writes (live-buffers.ts).
 *
 * Must hold: the main thread writes a name before the ledger gets the group, and changes no name of a group
 * with accounts. So the ledger's atomics make the name visible to a thread that sees the group. (No test sees
 * that order; test/unit/registry/group-names.test.ts tests the bytes.)
 *
 * One group, 404 bytes; pages that no group has touched take no memory:
 *
 *     byte  bits   field    meaning
 *        0    32   length   bytes of the name; 0 if there is none
 *        4  3200   name     UTF-8
 */
import { invariant } from '../core/errors.js';
import type { GroupIndex } from '../core/units.js';
import { NAME_CHARS_MAX } from './record-id.js';

const LENGTH_BYTES = 4;
/** A character takes at most four bytes. */
const RECORD_BYTES = LENGTH_BYTES + 4 * NAME_CHARS_MAX;

export type GroupNamesBuffer = SharedArrayBuffer;

/** gateway/accounting-base.ts makes the buffer once; listeners get it in their `workerData`. */
export function createGroupNames(groupsMax: number): GroupNamesBuffer {
  return new SharedArrayBuffer(groupsMax * RECORD_BYTES);
}

export class GroupNames {
  readonly #bytes: Buffer;

  constructor(buffer: GroupNamesBuffer) {
    this.#bytes = Buffer.from(buffer);
  }

  /** `name` is empty, or is of `newName`. Main thread. */
  set(group: GroupIndex, name: string): void {
    const start = group * RECORD_BYTES;
    invariant(this.#isWithin(group), `group ${group} has a place for its name`);
    // Bounded: a longer name, such as of a later Tollgate, is cut off and not written over the next group's.
    const length = this.#bytes.write(name, start + LENGTH_BYTES, RECORD_BYTES - LENGTH_BYTES);
    this.#bytes.writeUInt32LE(length, start);
  }

  /** Whether the group is within the buffer and has this name. Main thread. */
  has(group: GroupIndex, name: string): boolean {
    return this.#isWithin(group) && this.nameOf(group) === name;
  }

  /** Empty if the group has no name, or is beyond the buffer, as a row of the store may be. Any thread. */
  nameOf(group: GroupIndex): string {
    if (!this.#isWithin(group)) return '';
    const start = group * RECORD_BYTES;
    const nameStart = start + LENGTH_BYTES;
    return this.#bytes.toString('utf8', nameStart, nameStart + this.#bytes.readUInt32LE(start));
  }

  #isWithin(group: GroupIndex): boolean {
    return (group + 1) * RECORD_BYTES <= this.#bytes.length;
  }
}
