/**
 * The row codec: a msgpackr Encoder that caches field names. lmdb makes one for each table (TABLE in
 * tables.ts). Main thread.
 *
 * A row is a record of msgpackr: the names of its fields, then their values. msgpackr looks the names up in a
 * tree and writes them anew for every row, which is three quarters of its time. The rows of a table have the
 * same names, so the encoded names are cached here.
 *
 * Must hold: rows are byte for byte those of a plain msgpackr Encoder, or other versions cannot read the
 * store (test/unit/store/row-encoder.test.ts).
 */
import { Encoder, RESERVE_START_SPACE, type Options } from 'msgpackr';

/**
 * Stands for bytes that cannot be decoded. No schema accepts it, so the reader of the row throws `damaged`
 * with the row's name.
 */
export const UNREADABLE = Symbol('unreadable row');

/** The most values of an array whose length msgpack writes as one byte. */
const VALUES_MAX = 15;
/** The most bytes of encoded names for which msgpackr can leave room. */
const HEAD_BYTES_MAX = 256;

type Encode = Encoder['encode'];

/** msgpackr uses one buffer again and again, and marks in it where the value begins. */
type Encoded = Buffer & { readonly start?: number };

export class RowEncoder extends Encoder {
  /** Names of the row that was encoded last. */
  #fields: readonly string[] = [];
  #head = Buffer.alloc(0);

  constructor(options?: Options) {
    super(options);
    // msgpackr defines the method on each encoder, and so would hide one of this class.
    const encode: Encode = this.encode.bind(this);
    this.encode = (value: unknown, flags = 0): Buffer => {
      const values = valuesOf(value);
      if (values === undefined) return encode(value, flags);
      const head = this.#headOf(Object.keys(value as object), encode);
      if (head.length > HEAD_BYTES_MAX) return encode(value, flags);
      // The byte with the number of values takes the place of the last byte of the names.
      const row: Encoded = encode(values, flags | RESERVE_START_SPACE | (head.length - 1));
      row.set(head, row.start ?? 0);
      return row;
    };
  }

  /**
   * Returns UNREADABLE for bytes at which msgpackr throws, which it would do in the midst of a range and
   * without naming the row.
   */
  override decode(bytes: Uint8Array, options?: Parameters<Encoder['decode']>[1]): unknown {
    try {
      return super.decode(bytes, options);
    } catch {
      return UNREADABLE;
    }
  }

  #headOf(fields: readonly string[], encode: Encode): Buffer {
    if (!isSame(fields, this.#fields)) {
      const empty = encode(Object.fromEntries(fields.map((field) => [field, null])));
      // Without the values, of one byte each. Copied, because the next row overwrites it.
      this.#head = Buffer.from(empty.subarray(0, empty.length - fields.length));
      this.#fields = fields;
    }
    return this.#head;
  }
}

/** Undefined if `value` is no record, or contains records or lists: nested names are not cached. */
function valuesOf(value: unknown): unknown[] | undefined {
  if (typeof value !== 'object' || value?.constructor !== Object) return undefined;
  const values: unknown[] = Object.values(value);
  if (values.length === 0 || values.length > VALUES_MAX) return undefined;
  for (const one of values) if (typeof one === 'object') return undefined;
  return values;
}

function isSame(fields: readonly string[], others: readonly string[]): boolean {
  if (fields.length !== others.length) return false;
  for (let at = 0; at < fields.length; at++) if (fields[at] !== others[at]) return false;
  return true;
}
