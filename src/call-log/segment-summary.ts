/**
 * The summary of a whole segment: the times between which its calls ended, and the lowest and highest request
 * number of each run of a listener. It is at the end of a segment's index (segment-index.ts), so that a new
 * reader learns by one short read of each file which indexes it needs: those of 1 GiB take 150 ms.
 *
 *     the JSON [firstMs, lastMs, [[prefix, first, last] …] or null]
 *     MAGIC, bytes of the JSON, its CRC-32, 0 (32 bits each); then the index's tail
 *
 * Must hold: a segment without a summary, which an earlier version wrote, may have any call
 * (test/unit/call-log/segment-index.test.ts, test/unit/call-log/search-time.test.ts).
 */
import { crc32 } from 'node:zlib';

const MAGIC = 0x53494754;
const FOOT_BYTES = 16;
const JSON_BYTES_MAX = 4_000;
/** The summary, with what follows it, is within this many last bytes of a segment. */
export const SUMMARY_BYTES_MAX = 4_096;

interface Range {
  first: number;
  last: number;
}

type Written = [
  firstMs: number,
  lastMs: number,
  runs: [prefix: string, first: number, last: number][] | null,
];

export class SegmentSummary {
  firstMs = Infinity;
  lastMs = -Infinity;
  /** By the prefix of the listener's run; undefined if the segment may have any. */
  #runs: Map<string, Range> | undefined = new Map();
  /** The names of the block that is being added, the position of the last call's prefix, and its range. */
  #names: readonly string[] = [];
  #lastAt = -1;
  #last: Range = { first: 0, last: 0 };

  /** To be called before the calls of a block with these names. */
  begin(names: readonly string[]): void {
    this.#names = names;
    this.#lastAt = -1;
  }

  /** `prefixAt`: the position of the call's prefix among the names. */
  add(prefixAt: number, request: number, endedMs: number): void {
    if (prefixAt !== this.#lastAt) this.#turnTo(prefixAt);
    const run = this.#last;
    if (request < run.first) run.first = request;
    if (request > run.last) run.last = request;
    if (endedMs < this.firstMs) this.firstMs = endedMs;
    if (endedMs > this.lastMs) this.lastMs = endedMs;
  }

  mayHaveRequest(prefix: string, request: number): boolean {
    if (this.#runs === undefined) return true;
    const run = this.#runs.get(prefix);
    return run !== undefined && request >= run.first && request <= run.last;
  }

  /** Returns bytes whose number is a multiple of 8. */
  toBytes(): Buffer {
    const runs = [...this.#runs!].map(([prefix, { first, last }]) => [prefix, first, last] as const);
    const text = [runs, null]
      .map((written) => Buffer.from(JSON.stringify([this.firstMs, this.lastMs, written])))
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
    summary.#runs =
      runs === null ? undefined : new Map(runs.map(([prefix, first, last]) => [prefix, { first, last }]));
    return summary;
  }

  #turnTo(prefixAt: number): void {
    const prefix = this.#names[prefixAt]!;
    let run = this.#runs!.get(prefix);
    if (run === undefined) this.#runs!.set(prefix, (run = { first: Infinity, last: -Infinity }));
    this.#last = run;
    this.#lastAt = prefixAt;
  }
}
