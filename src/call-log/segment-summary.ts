/**
 * The summary of a whole segment: the times between which its calls ended, and for each run of a listener the
 * lowest and highest request number, in the segment and in each extent. A listener's run is its time from
 * start to end, in which its requests are numbered; the prefix of its request ids names it.
 *
 * The summary is at the end of a segment's index, so that a new reader (segment.ts) learns by one short read
 * of each file which extents it needs: reading the indexes of 1 GiB takes 150 ms. SegmentIndex
 * (segment-index.ts) fills a summary: it calls `begin` for each block, then `add` for each of the block's
 * calls, and `toBytes` at the end. What `SegmentSummary.parse` returns is only read. Main threads; commands.
 *
 *     0 to 7 zero bytes, so that the length of all is a multiple of 8
 *     the JSON [firstMs, lastMs, runs], where runs is null or a list of
 *         [prefix, first request, last request, [at, bytes, first request, last request, of each extent]]
 *     MAGIC, bytes of the JSON, its CRC-32, 0 (32 bits each); then the index's tail
 *
 * A JSON that would be too long has no extents of the runs, or no runs. An earlier version wrote no
 * extents, and a still earlier one no summary.
 *
 * Must hold: a call of the segment is in one of the extents that the summary names for it; undefined sends
 * the caller to the index (test/unit/call-log/segment-index.test.ts, test/unit/call-log/search-time.test.ts).
 * Later versions read summaries, so a change of the JSON needs another MAGIC.
 */
import { crc32 } from 'node:zlib';

const MAGIC = 0x53494754;
/** Length of the foot, which follows the JSON: MAGIC, bytes of the JSON, CRC-32, 0. */
const FOOT_BYTES = 16;
/** Enough for the extents of seven listeners, whose calls mostly are in all extents. */
const JSON_BYTES_MAX = 32_000;
/** The summary and the index's tail are within this many last bytes of a segment. */
export const SUMMARY_BYTES_MAX = 32_768;

/** The JSON of a summary, as the header describes it. */
type SummaryJson = [
  firstMs: number | null,
  lastMs: number | null,
  runs: readonly (readonly [prefix: string, first: number, last: number, extents?: number[]])[] | null,
];

/** Where an extent is in a segment. */
export interface ExtentAt {
  readonly at: number;
  readonly bytes: number;
}

/**
 * The numbers that a run has for each extent with its calls. FIRST_REQUEST and LAST_REQUEST are the run's
 * lowest and highest request number in the extent.
 */
const EXTENT_NUMBERS = 4;
/** The extent's offset in the segment. */
const AT = 0;
/** Up to the end of the last block with calls of the run. 0: the next two are of the whole segment. */
const BYTES = 1;
const FIRST_REQUEST = 2;
const LAST_REQUEST = 3;

export class SegmentSummary {
  /** When the first and the last call of the segment ended, by the wall clock. */
  firstMs = Infinity;
  lastMs = -Infinity;
  /**
   * By the prefix of a listener's run: its numbers, EXTENT_NUMBERS for each extent. Undefined if the summary
   * was read without runs: then the segment may have calls of any run. `!` is safe while a summary is filled.
   */
  #runs: Map<string, number[]> | undefined = new Map();
  /** The names of the block that is being added, the offset of its extent, and the offset of its end. */
  #names: readonly string[] = [];
  #extentAt = 0;
  #blockEnd = 0;
  /** The position of the last call's prefix among the names (-1: no call yet). */
  #prefixPosition = -1;
  /** The numbers of the last call's run: EXTENT_NUMBERS of them for each extent so far. */
  #runNumbers: number[] = [];

  /** Call it before the calls of a block are added, with its names. Both offsets are in the segment. */
  begin(names: readonly string[], extentAt: number, blockEnd: number): void {
    this.#names = names;
    this.#extentAt = extentAt;
    this.#blockEnd = blockEnd;
    this.#prefixPosition = -1;
  }

  /** Adds a call of the block. `prefixPosition`: the position of its prefix among the names. */
  add(prefixPosition: number, request: number, endedMs: number): void {
    if (prefixPosition !== this.#prefixPosition) this.#selectRun(prefixPosition, request);
    const numbers = this.#runNumbers;
    const start = numbers.length - EXTENT_NUMBERS;
    if (request < numbers[start + FIRST_REQUEST]!) numbers[start + FIRST_REQUEST] = request;
    if (request > numbers[start + LAST_REQUEST]!) numbers[start + LAST_REQUEST] = request;
    if (endedMs < this.firstMs) this.firstMs = endedMs;
    if (endedMs > this.lastMs) this.lastMs = endedMs;
  }

  /**
   * Returns the extents that may have the call, oldest first; none if the segment does not have the call;
   * undefined if the summary does not know. `prefix` names the listener's run, `request` is the number in it.
   */
  extentsWith(prefix: string, request: number): ExtentAt[] | undefined {
    if (this.#runs === undefined) return undefined;
    const numbers = this.#runs.get(prefix) ?? [];
    const extents: ExtentAt[] = [];
    for (let start = 0; start < numbers.length; start += EXTENT_NUMBERS) {
      if (request < numbers[start + FIRST_REQUEST]! || request > numbers[start + LAST_REQUEST]!) continue;
      if (numbers[start + BYTES] === 0) return undefined;
      extents.push({ at: numbers[start + AT]!, bytes: numbers[start + BYTES]! });
    }
    return extents;
  }

  /** Returns a multiple of 8 bytes. Without a call the times are null in the JSON, which `parse` rejects. */
  toBytes(): Buffer {
    const runs = [...this.#runs!].map(([prefix, extents]) => {
      const numbersOf = (field: number): number[] =>
        extents.filter((_, index) => index % EXTENT_NUMBERS === field);
      const first = Math.min(...numbersOf(FIRST_REQUEST));
      return [prefix, first, Math.max(...numbersOf(LAST_REQUEST)), extents] as const;
    });
    const withoutExtents = runs.map(([prefix, first, last]) => [prefix, first, last] as const);
    // The first text that is short enough. The last text, without runs, always is.
    const text = [runs, withoutExtents, null]
      .map((listed) => Buffer.from(JSON.stringify([this.firstMs, this.lastMs, listed] satisfies SummaryJson)))
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

  /**
   * Reads the summary at the end of `bytes`, which end at the index's tail. Returns undefined without one, or
   * if the segment has no call, as after a disk that took the start of a segment and no block.
   */
  static parse(bytes: Buffer): SegmentSummary | undefined {
    const foot = bytes.length - FOOT_BYTES;
    if (foot < 0 || bytes.readUInt32LE(foot) !== MAGIC) return undefined;
    const length = bytes.readUInt32LE(foot + 4);
    if (length > foot) return undefined;
    const text = bytes.subarray(foot - length, foot);
    if (crc32(text) !== bytes.readUInt32LE(foot + 8)) return undefined;
    const [firstMs, lastMs, runs] = JSON.parse(text.toString()) as SummaryJson;
    if (firstMs === null || lastMs === null) return undefined;
    const summary = new SegmentSummary();
    summary.firstMs = firstMs;
    summary.lastMs = lastMs;
    // A run without extents is given one with 0 bytes: its calls are somewhere in the segment.
    summary.#runs =
      runs === null
        ? undefined
        : new Map(runs.map(([prefix, first, last, extents]) => [prefix, extents ?? [0, 0, first, last]]));
    return summary;
  }

  /** Makes the run of that prefix the current one, and adds numbers of this extent if the run lacks them. */
  #selectRun(prefixPosition: number, request: number): void {
    const prefix = this.#names[prefixPosition]!;
    let numbers = this.#runs!.get(prefix);
    if (numbers === undefined) this.#runs!.set(prefix, (numbers = []));
    if (numbers.at(-EXTENT_NUMBERS) !== this.#extentAt) numbers.push(this.#extentAt, 0, request, request);
    numbers[numbers.length - EXTENT_NUMBERS + BYTES] = this.#blockEnd - this.#extentAt;
    this.#runNumbers = numbers;
    this.#prefixPosition = prefixPosition;
  }
}
