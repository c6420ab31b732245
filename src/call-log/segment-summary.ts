/**
 * The summary of a whole segment: the times between which its calls ended, and for each run of a listener the
 * lowest and highest request number, in the segment and in each extent. A listener's run is its time from
 * start to end, in which its requests are numbered; the prefix of its request ids names it.
 *
 * The summary is at the end of a segment's index, so that a new reader (segment.ts) learns by one short read
 * of each file which extents it needs: the indexes of 1 GiB take 150 ms. SegmentIndex (segment-index.ts)
 * fills a summary, `begin` for each block and then `add` for each of its calls, and writes it by `toBytes`. A
 * summary of `SegmentSummary.of` is only read. Main threads and commands.
 *
 *     0 to 7 zero bytes, so that the length of all is a multiple of 8
 *     the JSON [firstMs, lastMs, runs], where runs is null or a list of
 *         [prefix, first request, last request, [at, bytes, first request, last request, of each extent]]
 *     MAGIC, bytes of the JSON, its CRC-32, 0 (32 bits each); then the index's tail
 *
 * A JSON that would be too long has no extents of the runs, or no runs. An earlier version wrote no
 * extents, and one before it no summary.
 *
 * Must hold: the extents that it names for a call have the call if the segment has it. If it does not know
 * that, it says so (`undefined`), and the caller reads the index (test/unit/call-log/segment-index.test.ts,
 * test/unit/call-log/search-time.test.ts).
 */
import { crc32 } from 'node:zlib';

const MAGIC = 0x53494754;
/** What follows the JSON. */
const FOOT_BYTES = 16;
/** Enough for the extents of seven listeners, whose calls mostly are in all extents. */
const JSON_BYTES_MAX = 32_000;
/** The summary, with what follows it, is within this many last bytes of a segment. */
export const SUMMARY_BYTES_MAX = 32_768;

/** The JSON of a summary: see the header. */
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
 * Of each extent with calls of a run there are so many numbers: its offset in the segment, its bytes up to
 * the end of the last block with calls of the run, and the run's lowest and highest request number in it. 0
 * bytes: the numbers are those of the whole segment, and the extents are not known.
 */
const EXTENT_NUMBERS = 4;
const BYTES = 1;
const FIRST_REQUEST = 2;
const LAST_REQUEST = 3;

export class SegmentSummary {
  firstMs = Infinity;
  lastMs = -Infinity;
  /**
   * By the prefix of a listener's run: EXTENT_NUMBERS of each extent. Undefined if the bytes of the summary
   * have no runs: then the segment may have calls of any run.
   */
  #runs: Map<string, number[]> | undefined = new Map();
  /** Of the block that is being added: its names, its extent's offset, and the offset of its own end. */
  #names: readonly string[] = [];
  #extentAt = 0;
  #blockEnd = 0;
  /** The position of the last call's prefix among the names, and the numbers of its run. */
  #prefixAt = -1;
  #run: number[] = [];

  /** To be called before the calls of a block, with its names. Both offsets are in the segment. */
  begin(names: readonly string[], extentAt: number, blockEnd: number): void {
    this.#names = names;
    this.#extentAt = extentAt;
    this.#blockEnd = blockEnd;
    this.#prefixAt = -1;
  }

  /** Adds a call of the block. `prefixAt`: the position of its prefix among the names. */
  add(prefixAt: number, request: number, endedMs: number): void {
    if (prefixAt !== this.#prefixAt) this.#turnTo(prefixAt, request);
    const run = this.#run;
    const extent = run.length - EXTENT_NUMBERS;
    if (request < run[extent + FIRST_REQUEST]!) run[extent + FIRST_REQUEST] = request;
    if (request > run[extent + LAST_REQUEST]!) run[extent + LAST_REQUEST] = request;
    if (endedMs < this.firstMs) this.firstMs = endedMs;
    if (endedMs > this.lastMs) this.lastMs = endedMs;
  }

  /**
   * Returns the extents that may have a call with that number of the listener's run with that prefix, oldest
   * first; none if the segment does not have it; undefined if the summary does not say.
   */
  extentsWith(prefix: string, request: number): ExtentAt[] | undefined {
    if (this.#runs === undefined) return undefined;
    const run = this.#runs.get(prefix) ?? [];
    const extents: ExtentAt[] = [];
    for (let extent = 0; extent < run.length; extent += EXTENT_NUMBERS) {
      if (request < run[extent + FIRST_REQUEST]! || request > run[extent + LAST_REQUEST]!) continue;
      if (run[extent + BYTES] === 0) return undefined;
      extents.push({ at: run[extent]!, bytes: run[extent + BYTES]! });
    }
    return extents;
  }

  /** To be called after a call was added. Returns bytes whose number is a multiple of 8. */
  toBytes(): Buffer {
    const runs = [...this.#runs!].map(([prefix, extents]) => {
      const numbersOf = (field: number): number[] =>
        extents.filter((_, index) => index % EXTENT_NUMBERS === field);
      const first = Math.min(...numbersOf(FIRST_REQUEST));
      return [prefix, first, Math.max(...numbersOf(LAST_REQUEST)), extents] as const;
    });
    const withoutExtents = runs.map(([prefix, first, last]) => [prefix, first, last] as const);
    // The first that is short enough; the last one always is.
    const text = [runs, withoutExtents, null]
      .map((written) => Buffer.from(JSON.stringify([this.firstMs, this.lastMs, written] satisfies Written)))
      .find(({ length }) => length <= JSON_BYTES_MAX)!;
    const paddingBytes = -text.length & 7;
    const bytes = Buffer.alloc(paddingBytes + text.length + FOOT_BYTES);
    text.copy(bytes, paddingBytes);
    const foot = paddingBytes + text.length;
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
    // The calls of a run without extents are somewhere in the segment.
    summary.#runs =
      runs === null
        ? undefined
        : new Map(runs.map(([prefix, first, last, extents]) => [prefix, extents ?? [0, 0, first, last]]));
    return summary;
  }

  /** Turns to another run of the block, and to its numbers of this extent. */
  #turnTo(prefixAt: number, request: number): void {
    const prefix = this.#names[prefixAt]!;
    let run = this.#runs!.get(prefix);
    if (run === undefined) this.#runs!.set(prefix, (run = []));
    if (run.at(-EXTENT_NUMBERS) !== this.#extentAt) run.push(this.#extentAt, 0, request, request);
    run[run.length - EXTENT_NUMBERS + BYTES] = this.#blockEnd - this.#extentAt;
    this.#run = run;
    this.#prefixAt = prefixAt;
  }
}
