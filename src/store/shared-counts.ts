/**
 * How a gateway adds its counts to rows that other gateways of the host add to as well. spent-totals.ts,
 * key-uses.ts and quota-uses.ts use it, on the main thread of a gateway process. A flush reads a row in the
 * transaction that writes it, and adds what this gateway has counted and the row does not have yet.
 *
 * Must hold: what is in a row is not added to it again, and nothing is left out, also after a flush that
 * failed (test/unit/store/shared-books.test.ts, test/unit/store/quota-uses.test.ts).
 */
import type { Log } from '../telemetry/log.js';
import { unlessDamaged } from './record-codec.js';

/**
 * What this gateway has counted for each row, as of the last flush that is on disk. An entry stays for good,
 * so there are at most as many as rows. A flush calls `begin`, then `read` and `put` of each row, and
 * `recordWritten` if it is on disk.
 */
export class CountsOnDisk<RowName, Counts> {
  readonly #rows: string;
  readonly #log: Log;
  readonly #onDisk = new Map<RowName, Counts>();
  /** The same for the rows of the flush under way. `recordWritten` moves them to `#onDisk`. */
  readonly #inCommit = new Map<RowName, Counts>();

  /** `rows`: what the rows are of, for the log. */
  constructor(rows: string, log: Log) {
    this.#rows = rows;
    this.#log = log;
  }

  /** Drops what a flush that failed has put: this flush may leave out some of its rows. */
  begin(): void {
    this.#inCommit.clear();
  }

  /**
   * Returns the row that `find` finds, and this gateway's part of it. A damaged row counts as none, so that
   * charges do not wait for it: the flush replaces it by the counts of this gateway alone.
   */
  read<Row>(
    name: RowName,
    find: () => Row | undefined,
  ): { stored: Row | undefined; own: Counts | undefined } {
    let own = this.#onDisk.get(name);
    const stored = unlessDamaged(find, (error) => {
      own = undefined;
      this.#log.error(`a damaged row of ${this.#rows} is replaced by what this gateway counted`, { error });
    });
    return { stored, own };
  }

  /** `counts`: all that this gateway has counted for the row that the flush writes. */
  put(name: RowName, counts: Counts): void {
    this.#inCommit.set(name, counts);
  }

  recordWritten(): void {
    for (const [name, counts] of this.#inCommit) this.#onDisk.set(name, counts);
    this.#inCommit.clear();
  }
}

/** Fields of a row: the number of a day or month, and the counts that begin at 0 with it. */
export type CountsByPeriod<Field extends string> = readonly (readonly [Field, readonly Field[]])[];

/**
 * Returns `stored`, which is undefined for a new row, plus what this gateway has counted that is not in the
 * row yet. `own` is the part of its counts that is in the row. A count whose period on disk is later than
 * this gateway's stays as it is: a period begins for all gateways at once. All other fields are this
 * gateway's alone.
 */
export function mergedCounts<Field extends string, Row extends Readonly<Record<Field, number>>>(
  countsByPeriod: CountsByPeriod<Field>,
  counted: Row,
  own: Readonly<Record<Field, number>> | undefined,
  stored: Readonly<Record<Field, number>> | undefined,
): Row {
  const merged: Record<Field, number> = { ...counted };
  for (const [period, counts] of countsByPeriod) {
    const isLater = stored !== undefined && stored[period] > counted[period];
    if (isLater) merged[period] = stored[period];
    for (const count of counts) {
      const storedCount = stored?.[period] === merged[period] ? stored[count] : 0;
      const ownCount = own?.[period] === counted[period] ? own[count] : 0;
      // Below 0 only if a damaged row was replaced by counts from 0, and earlier calls were then taken back.
      merged[count] = isLater ? storedCount : Math.max(0, storedCount + counted[count] - ownCount);
    }
  }
  return merged as Row;
}
