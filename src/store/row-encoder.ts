/**
 * How a row's bytes become a value. Main thread.
 */
import { Encoder } from 'msgpackr';

/** Stands for bytes that are no value. No schema accepts it, so whoever reads the row calls it damaged and names it. */
export const UNREADABLE = Symbol('unreadable row');

/** msgpackr's, which throws at bytes that it cannot read, in the midst of a range and without naming the row. */
export class RowEncoder extends Encoder {
  override decode(bytes: Uint8Array, options?: Parameters<Encoder['decode']>[1]): unknown {
    try {
      return super.decode(bytes, options);
    } catch {
      return UNREADABLE;
    }
  }
}
