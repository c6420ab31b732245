/**
 * SlotRows finds records that have an id and a slot in the ledger, and takes slots for new records. GroupRows
 * and KeyRows extend it (group-rows.ts, key-rows.ts); store.ts uses it for accounts. Main thread of a gateway
 * process, or a command. Records call their slot `index`.
 *
 * Must hold: a slot is given again only if its record was deleted before `deletedBeforeMs`: until then calls
 * that end late, and other processes, may write under the slot (test/unit/store/store.test.ts). SlotRest of
 * registry/registry-context.ts computes that time.
 */
import type { WallMs } from '../core/units.js';
import type { Page } from '../registry/record-store.js';
import { countAt, damaged, findRow, locationOf, type RowReader, rowsIn } from './record-codec.js';
import type { Table } from './row-recorder.js';
import type { Tables } from './tables.js';

interface SlotTables {
  readonly records: Table<string>;
  /** Slot → id. */
  readonly slots: Table<number>;
}

/**
 * Where new keys or groups get their slots. Not for accounts: no account is ever deleted, so each takes the
 * next slot (`Store.freeAccountIndex`).
 */
interface SlotSource {
  /** The slots of deleted records. `remove` of KeyRows and GroupRows adds them. */
  readonly freed: Table<[deletedMs: number, slot: number]>;
  /** Name of the row of `meta` that counts the slots ever used. */
  readonly slotsUsedName: string;
  /** Removes the use of the slot. A process may have flushed some after the slot's record was deleted. */
  readonly clearUse: (slot: number) => void;
}

/** A SlotRecord has an id, and a slot of type Index. Methods throw StoreError at a damaged row. */
export class SlotRows<SlotRecord, Index extends number> {
  readonly #tables: Tables;
  readonly #slotTables: SlotTables;
  readonly #read: RowReader<SlotRecord>;

  constructor(tables: Tables, slotTables: SlotTables, read: RowReader<SlotRecord>) {
    this.#tables = tables;
    this.#slotTables = slotTables;
    this.#read = read;
  }

  find(id: string): SlotRecord | undefined {
    return findRow(this.#slotTables.records, id, this.#read);
  }

  /** Returns the record that has the slot `index`; undefined if none has. */
  findAt(index: Index): SlotRecord | undefined {
    const id = this.#slotTables.slots.get(index);
    return id === undefined ? undefined : this.recordOf(id);
  }

  /** Returns at most `limit` records from slot `from` on, ordered by slot. */
  listAll(from: number, limit: number): Page<SlotRecord> {
    return this.pageOf(this.#slotTables.slots.getRange({ start: from, limit: limit + 1 }), limit);
  }

  /** In no particular order. */
  *all(): Generator<SlotRecord> {
    for (const [, record] of rowsIn(this.#slotTables.records, this.#read)) yield record;
  }

  /** The record that another row names by its id. Throws StoreError `damaged` if there is none. */
  recordOf(id: unknown): SlotRecord {
    const record = typeof id === 'string' ? this.find(id) : undefined;
    if (record !== undefined) return record;
    // An id that is no text cannot be shown: the message is then about "record of a damaged id of table …".
    throw damaged(locationOf(this.#slotTables.records, typeof id === 'string' ? id : 'of a damaged id'));
  }

  /**
   * Makes a page of at most `limit` records. `ids` (slot → id) has `limit + 1` entries if there are so many:
   * the slot of the last entry is the page's `next`.
   */
  protected pageOf(
    ids: Iterable<{ readonly key: number; readonly value: unknown }>,
    limit: number,
  ): Page<SlotRecord> {
    const entries = Array.from(ids);
    return {
      items: entries.slice(0, limit).map(({ value }) => this.recordOf(value)),
      next: entries[limit]?.key,
    };
  }

  /**
   * Takes exactly `count` slots, in the transaction that puts their records. First come free slots whose
   * record was deleted before `deletedBeforeMs`, longest unused first; then slots never used. Free slots from
   * `slotsMax` on are passed over, 1 µs each, until the limit is raised. A slot never used may be `slotsMax`
   * or above: callers check, and throw, which undoes the transaction and so gives the slots back.
   */
  protected takeSlots(
    { freed, slotsUsedName, clearUse }: SlotSource,
    count: number,
    deletedBeforeMs: WallMs,
    slotsMax: number,
  ): number[] {
    const slots: number[] = [];
    const restedKeys = freed.getKeys({ end: [deletedBeforeMs, 0] }).filter(([, slot]) => slot < slotsMax);
    // Copied, because a range must not change while it is iterated.
    for (const freedKey of Array.from(restedKeys.slice(0, count))) {
      const [, slot] = freedKey;
      freed.removeSync(freedKey);
      clearUse(slot);
      slots.push(slot);
    }
    if (slots.length === count) return slots;
    const { meta } = this.#tables;
    const slotsUsed = countAt(meta, slotsUsedName);
    const slotsUsedAfter = slotsUsed + count - slots.length;
    for (let slot = slotsUsed; slot < slotsUsedAfter; slot++) slots.push(slot);
    meta.putSync(slotsUsedName, slotsUsedAfter);
    return slots;
  }
}
