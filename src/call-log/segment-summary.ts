/**
 * The summary of a whole segment: the times between which its calls ended, and for each run of a listener the
 * lowest and highest request number, in all and in each extent. It is at the end of a segment's index
 * (segment-index.ts), so that a new reader (segment.ts) learns by one short read of each file which extents
 * it needs: the indexes of 1 GiB take 150 ms. SegmentIndex fills a summary, `begin` and then `add` for each
 * call; one of `SegmentSummary.of` is only read. Main threads and commands. A listener's run is its time from
 * start to end, in which its requests are numbered; the prefix of its request ids names it.
 *
 *     the JSON [firstMs, lastMs, [[prefix, first, last, [at, bytes, first, last, at …]] …] or null]
 *     MAGIC, bytes of the JSON, its CRC-32, 0 (32 bits each); then the index's tail
 *
 * Must hold: a segment without a summary, which an earlier version wrote, may have any call
 * (test/unit/call-log/segment-index.test.ts, test/unit/call-log/search-time.test.ts).
 */
import { crc32 } from 'node:zlib';

const MAGIC = 0x53494754;
const FOOT_BYTES = 16;
/** Enough for the extents of seven listeners. With more of them, the summary leaves the extents out. */
const JSON_BYTES_MAX = 32_000;
/** The summary, with what follows it, is within this many last bytes of a segment. */
export const SUMMARY_BYTES_MAX = 32_768;

type Written = [
  firstMs: number,
  lastMs: number,
  runs: readonly (readonly [prefix: string, first: number, last: number, extents?: number[]])[] | null,
];

/** Where an extent is in a segment. */
export interface ExtentAt {
  readonly at: number;
  readonly bytes: number;
}

/**
 * Of each extent with calls of a run: its offset and bytes, and the run's lowest and highest request number.
 */
const NUMBERS = 4;
const BYTES = 1;
const FIRST = 2;
const LAST = 3;

export class SegmentSummary {
  firstMs = Infinity;
  lastMs = -Infinity;
  /**
   * NUMBERS an extent, by the prefix of the listener's run. Undefined, but not while it is filled, if the
   * segment may have any.
   */
  #runs: Map<string, number[]> | undefined = new Map();
  /** The extent and the names of the block that is being added. */
  #at = 0;
  #end = 0;
  #names: readonly string[] = [];
  /** The position of the last call's prefix, and its run. */
  #lastAt = -1;
  #last: number[] = [];

  /** To be called before the calls of a block with these names, which ends at `end` of the extent at `at`. */
  begin(names: readonly string[], at: number, end: number): void {
    this.#names = names;
    this.#at = at;
    this.#end = end;
    this.#lastAt = -1;
  }

  /** `prefixAt`: the position of the call's prefix among the names. */
  add(prefixAt: number, request: number, endedMs: number): void {
    if (prefixAt !== this.#lastAt) this.#turnTo(prefixAt, request);
    const run = this.#last;
    const extent = run.length - NUMBERS;
    if (request < run[extent + FIRST]!) run[extent + FIRST] = request;
    if (request > run[extent + LAST]!) run[extent + LAST] = request;
    if (endedMs < this.firstMs) this.firstMs = endedMs;
    if (endedMs > this.lastMs) this.lastMs = endedMs;
  }

  /**
   * Returns the extents that may have a call with that number of the listener's run with that prefix, oldest
   * first; undefined if the summary does not tell.
   */
  extentsWith(prefix: string, request: number): ExtentAt[] | undefined {
    if (this.#runs === undefined) return undefined;
    const run = this.#runs.get(prefix) ?? [];
    const extents: ExtentAt[] = [];
    for (let extent = 0; extent < run.length; extent += NUMBERS) {
      if (request < run[extent + FIRST]! || request > run[extent + LAST]!) continue;
      if (run[extent + BYTES] === 0) return undefined;
      extents.push({ at: run[extent]!, bytes: run[extent + BYTES]! });
    }
    return extents;
  }

  /** To be called after a call was added. Returns bytes whose number is a multiple of 8. */
  toBytes(): Buffer {
    const whole = [...this.#runs!].map(([prefix, extents]) => {
      const of = (field: number): number[] => extents.filter((_, at) => at % NUMBERS === field);
      return [prefix, Math.min(...of(FIRST)), Math.max(...of(LAST)), extents] as const;
    });
    const short = whole.map(([prefix, first, last]) => [prefix, first, last] as const);
    const text = [whole, short, null]
      .map((runs) => Buffer.from(JSON.stringify([this.firstMs, this.lastMs, runs] satisfies Written)))
      .find(({ length }) => length <= JSON_BYTES_MAX)!;
    const begin = -text.length & 7;
    const bytes = Buffer.alloc(begin + text.length + FOOT_BYTES);
    text.copy(bytes, begin);
    const foot = begin + text.length;
    bytes.writeUInt32LE(MAGIC, foot);
    bytes.writeUInt32LE(text.length, foot + 4);
    bytes.writeUInt32LE(crc32(text), foot + 8);
    return bytes;
  }

  /** `bytes` must end where the index's tail begins. Returns undefined if they have no whole summary. */
  static of(bytes: Buffer): SegmentSummary | undefined {
    const foot = bytes.length - FOOT_BYTES;
    if (foot < 0 || bytes.readUInt32LE(foot) !== MAGIC) return undefined;
    const length = bytes.readUInt32LE(foot + 4);
    if (length > foot) return undefined;
    const text = bytes.subarray(foot - length, foot);
    if (crc32(text) !== bytes.readUInt32LE(foot + 8)) return undefined;
    const [firstMs, lastMs, runs] = JSON.parse(text.toString()) as Written;
    const summary = new SegmentSummary();
    summary.firstMs = firstMs;
    summary.lastMs = lastMs;
    // Without extents, as an earlier version wrote it, the run is somewhere in the segment.
    summary.#runs =
      runs === null
        ? undefined
        : new Map(runs.map(([prefix, first, last, extents]) => [prefix, extents ?? [0, 0, first, last]]));
    return summary;
  }

  #turnTo(prefixAt: number, request: number): void {
    const prefix = this.#names[prefixAt]!;
    let run = this.#runs!.get(prefix);
    if (run === undefined) this.#runs!.set(prefix, (run = []));
    if (run.at(-NUMBERS) !== this.#at) run.push(this.#at, 0, request, request);
    run[run.length - NUMBERS + BYTES] = this.#end - this.#at;
    this.#last = run;
    this.#lastAt = prefixAt;
  }
}
