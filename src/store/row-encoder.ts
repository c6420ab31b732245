/**
 * How a value becomes a row's bytes, and these a value. Main thread.
 *
 * A row is msgpackr's record: its fields' names, then their values. msgpackr looks the names up in a tree and writes them
 * anew for every row, which is three quarters of its time; a table's rows have the same names, so here these are kept as the
 * bytes that they were. The rows are the same, byte by byte, as without.
 */
import { Encoder, RESERVE_START_SPACE, type Options } from 'msgpackr';

/** Stands for bytes that are no value. No schema accepts it, so whoever reads the row calls it damaged and names it. */
export const UNREADABLE = Symbol('unreadable row');

/** Of an array that takes one byte to say how long it is. */
const VALUES_MAX = 15;
/** The names' bytes that msgpackr can leave room for. */
const HEAD_BYTES_MAX = 256;

type Encode = Encoder['encode'];

/** Where a buffer is used again and again, msgpackr says in it from where to where the value is. */
type Encoded = Buffer & { readonly start?: number };

export class RowEncoder extends Encoder {
  /** Of the row that was encoded last. */
  #fields: readonly string[] = [];
  #head = Buffer.alloc(0);

  constructor(options?: Options) {
    super(options);
    // msgpackr makes the method for each encoder: one of this class would be hidden by it.
    const encode: Encode = this.encode.bind(this);
    this.encode = (value: unknown, flags = 0): Buffer => {
      const values = valuesOf(value);
      if (values === undefined) return encode(value, flags);
      const head = this.#headOf(Object.keys(value as object), encode);
      if (head.length > HEAD_BYTES_MAX) return encode(value, flags);
      // The byte that says how many values there are becomes the last one of the names.
      const row: Encoded = encode(values, flags | RESERVE_START_SPACE | (head.length - 1));
      row.set(head, row.start ?? 0);
      return row;
    };
  }

  /** Where msgpackr throws at bytes that it cannot read, in the midst of a range and without naming the row: UNREADABLE. */
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
      // Without the values, of one byte each. A copy: the next row is written over it.
      this.#head = Buffer.from(empty.subarray(0, empty.length - fields.length));
      this.#fields = fields;
    }
    return this.#head;
  }
}

/** Undefined where it is no record, or has others in it: those have names of their own. */
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
