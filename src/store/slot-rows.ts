/**
 * Tables of records that have an id and a slot in the ledger: accounts, groups and keys. GroupRows and
 * KeyRows extend it, the store uses it for accounts. Main thread.
 *
 * Must hold: the slot of a deleted record is not used again before `restedMs`. Until then calls that ended
 * late, and other processes, still write under that slot (test/unit/store/store.test.ts).
 */
import type { WallMs } from '../core/units.js';
import type { Page } from '../registry/record-store.js';
import { damaged, locationOf } from './record-codec.js';
import type { Table } from './row-recorder.js';
import type { Tables } from './tables.js';

interface SlotTables {
  /** The name of the table of records, for messages. */
  readonly name: string;
  readonly records: Table<string>;
  /** Slot → id. */
  readonly slots: Table<number>;
}

export class SlotRows<Row, Index extends number> {
  readonly #tables: Tables;
  readonly #slotTables: SlotTables;
  readonly #read: (stored: unknown, location: string) => Row;

  constructor(tables: Tables, slotTables: SlotTables, read: (stored: unknown, location: string) => Row) {
    this.#tables = tables;
    this.#slotTables = slotTables;
    this.#read = read;
  }

  find(id: string): Row | undefined {
    const stored = this.#slotTables.records.get(id);
    return stored === undefined
      ? undefined
      : this.#read(stored, locationOf(this.#tables, this.#slotTables.name, id));
  }

  /** Undefined if nobody has the slot. */
  findAt(index: Index): Row | undefined {
    const id = this.#slotTables.slots.get(index);
    return id === undefined ? undefined : this.recordOf(id);
  }

  /** Returns at most `limit` records from slot `from` on. */
  listAll(from: number, limit: number): Page<Row> {
    return this.pageOf(this.#slotTables.slots.getRange({ start: from, limit: limit + 1 }), limit);
  }

  /** In no particular order. */
  *all(): Generator<Row> {
    for (const { key, value } of this.#slotTables.records.getRange()) {
      yield this.#read(value, locationOf(this.#tables, this.#slotTables.name, key));
    }
  }

  /** The record that another row names by its id. Throws StoreError `damaged` if there is none. */
  recordOf(id: unknown): Row {
    const record = typeof id === 'string' ? this.find(id) : undefined;
    if (record === undefined)
      throw damaged(
        locationOf(this.#tables, this.#slotTables.name, typeof id === 'string' ? id : 'of a damaged id'),
      );
    return record;
  }

  /**
   * Makes a page of slots and ids. Pass one more than `limit`, if there is one: its slot begins the next
   * page.
   */
  protected pageOf(
    ids: Iterable<{ readonly key: number; readonly value: unknown }>,
    limit: number,
  ): Page<Row> {
    const entries = Array.from(ids);
    return {
      items: entries.slice(0, limit).map(({ value }) => this.recordOf(value)),
      next: entries[limit]?.key,
    };
  }

  /**
   * Takes `count` slots: first those whose record was deleted before `restedMs`, by the table `free`, longest
   * unused first; then slots that were never used. Passes over free slots from `slotsMax` on, which stay free
   * for the day when the limit is raised again; one that was never used may be beyond. `usedMark` is the key
   * in `meta` of how many slots were ever used. Calls `clear` for each slot that is used again: another
   * process may have flushed a use of the deleted record after its deletion. 1 µs for a slot passed over.
   */
  protected takeSlots(
    count: number,
    restedMs: WallMs,
    slotsMax: number,
    free: Table<[number, number]>,
    usedMark: string,
    clear: (slot: number) => void,
  ): number[] {
    const slots: number[] = [];
    const rested = free.getKeys({ end: [restedMs, 0] }).filter(([, slot]) => slot < slotsMax);
    for (const row of Array.from(rested.slice(0, count))) {
      free.removeSync(row);
      clear(row[1]);
      slots.push(row[1]);
    }
    if (slots.length === count) return slots;
    const { meta } = this.#tables;
    const used = meta.get(usedMark) ?? 0;
    if (typeof used !== 'number') throw damaged(locationOf(this.#tables, 'meta', usedMark));
    const usedAfter = used + count - slots.length;
    for (let slot = used; slot < usedAfter; slot++) slots.push(slot);
    meta.putSync(usedMark, usedAfter);
    return slots;
  }
}
