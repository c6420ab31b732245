/**
 * The mark that each flush of a group's gateway leaves in its own transaction, so that one whose outcome was not told can be
 * recognised. Main thread.
 *
 *     flushes   slot of the gateway  → its life, and the number of that life's last flush
 *     meta      'books_version'      → number of all flushes of this store that left a mark, and of lives that began
 *
 * Rows of a group are sums that each member adds to, so a flush that got to the disk must not be made again. A gateway without
 * a group writes totals, which it may write as often as it likes, and leaves no mark.
 */
import { Type, type Static } from 'typebox';
import { Compile } from 'typebox/compile';
import { Count, FORMAT, Format, damaged, fast } from './record-codec.js';
import type { Tables } from './tables.js';

const ACCOUNTING_VERSION = 'books_version';

const StoredFlush = Type.Object(
  { format: Format, life: Type.String({ minLength: 1 }), sequence: Count },
  { additionalProperties: false },
);

const flushes = fast(Compile(StoredFlush));

/** Throws `damaged`; `place` names the record in the message. */
export function readFlush(stored: unknown, place: string): Static<typeof StoredFlush> {
  if (!flushes.Check(stored)) throw damaged(place);
  return stored;
}

type MarkTables = Pick<Tables, 'path' | 'environment' | 'meta' | 'flushes'>;

type MetaTable = Pick<Tables, 'path' | 'meta'>;

/** Grows with every flush of a group's gateway. In a transaction, or of the moment. Throws `StoreFault`. */
export function accountingVersionOf({ path, meta }: MetaTable): number {
  const version = meta.get(ACCOUNTING_VERSION) ?? 0;
  if (typeof version !== 'number') throw damaged(`${path}: record ${ACCOUNTING_VERSION} of table meta`);
  return version;
}

/** In a transaction. */
function raiseAccountingVersion(tables: MetaTable): void {
  tables.meta.putSync(ACCOUNTING_VERSION, accountingVersionOf(tables) + 1);
}

/** The marks of one gateway's life. */
export class FlushMark {
  readonly #tables: MarkTables;
  readonly #slot: number;
  readonly #life: string;
  #sequence = 0;

  /**
   * `life` is text that no other gateway has had, also none in the same `slot`. Raises the version: a gateway without a group,
   * which leaves no marks, may have kept the books meanwhile. Costs a disk flush.
   */
  constructor(tables: MarkTables, slot: number, life: string) {
    this.#tables = tables;
    this.#slot = slot;
    this.#life = life;
    tables.environment.write(() => raiseAccountingVersion(tables));
  }

  /** Before the transaction of a flush: one that fails as it begins is not taken for the one before. */
  begin(): void {
    this.#sequence += 1;
  }

  /** In the transaction. */
  put(): void {
    this.#tables.flushes.putSync(this.#slot, { format: FORMAT, life: this.#life, sequence: this.#sequence });
    raiseAccountingVersion(this.#tables);
  }

  /** Whether the flush that was begun last is on disk, where its commit has failed. Throws what the store throws. */
  hasReachedDisk(): boolean {
    const { environment, path, flushes: table } = this.#tables;
    environment.refresh();
    const stored = table.get(this.#slot);
    if (stored === undefined) return false;
    const { life, sequence } = readFlush(stored, `${path}: record ${this.#slot} of table flushes`);
    return life === this.#life && sequence === this.#sequence;
  }
}
