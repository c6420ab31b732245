/**
 * Finds calls in the segments of all gateway processes of a data directory. gateway/admin-service.ts creates
 * a CallReader on the main thread, and cli/store-client.ts in a command that finds no gateway.
 *
 * Searches may overlap, and share the Segment objects. Each search keeps the list of segments and the extents
 * that it got, also if another one lists the files again or frees extents. But a segment's `isGrowing` and
 * `end` may change whenever a search awaits something.
 *
 * Must hold:
 * - Pages that continue at a cursor neither skip nor repeat a call, also while processes write
 *   (page-search.ts, newer-calls.ts; test/unit/call-log/call-log.test.ts). Both rely on `#refreshedSegments`:
 *   a segment that it does not list is newer than all that it lists, or was removed. Those that it lists have
 *   their times and `isGrowing`, which are not known before `refreshTimes`.
 * - A segment that cannot be read ends no search, and each search tells of it (failed-reads.ts).
 */
import { join } from 'node:path';
import { type CallRecord, requestIdOf } from '../telemetry/call-record.js';
import { type CallFilter, readPositionsOf, sortKeyOf } from './call-query.js';
import type { GrowingSegment } from './call-writer.js';
import { FailedReads } from './failed-reads.js';
import { newerCalls } from './newer-calls.js';
import { type CallPage, PageSearch } from './page-search.js';
import { CALLS_FOLDER, type SegmentFile, segmentFiles } from './segment-files.js';
import { type Extent, mayHaveCall } from './segment-index.js';
import { Segment } from './segment.js';

/** How many bytes the indexes may take that stay in memory between searches: those of some 2 GiB of calls. */
const INDEX_BYTES_MAX = 48 * 1024 * 1024;
/** After this time a search returns what it has found. Making the page's text takes up to 30 ms more. */
const SEARCH_MS = 70;
/** How many segment files are open at once while summaries (segment-summary.ts) are read. */
const OPEN_FILES_MAX = 64;

interface CallReaderOptions {
  /** Returns the segment that a writer in this thread appends to; undefined if there is none. */
  readonly growingSegment?: (() => GrowingSegment | undefined) | undefined;
  /** How long a search may take. Default: SEARCH_MS. */
  readonly searchMs?: number;
}

export class CallReader {
  readonly #folder: string;
  readonly #searchMs: number;
  readonly #growingSegment: () => GrowingSegment | undefined;
  /**
   * By number, oldest first: the segments that were listed last. If a file is removed after that, a search
   * finds no calls in its segment, and the next search does not list it.
   */
  #segments = new Map<number, Segment>();

  constructor(
    folder: string,
    { growingSegment = () => undefined, searchMs = SEARCH_MS }: CallReaderOptions = {},
  ) {
    this.#folder = folder;
    this.#searchMs = searchMs;
    this.#growingSegment = growingSegment;
  }

  /** Optional, at the start: reads the summary of each segment, so that the first search need not. */
  async begin(): Promise<void> {
    await this.#refreshedSegments(new FailedReads());
  }

  /**
   * Returns the call of that request id; undefined if none is on disk. It takes up to a second to find that
   * none is. The thread is blocked for each extent that is read, by 0.03 to 1 ms (`blocksAt` of Segment).
   * Rejects if the call is not found, and a segment that may have it cannot be read.
   */
  async find(requestId: string): Promise<CallRecord | undefined> {
    // The id is a prefix that ends in `-`, and a request number in base 36.
    const [, prefix, number] = /^(.*-)([0-9a-z]{1,11})$/.exec(requestId) ?? [];
    if (prefix === undefined) return undefined;
    const request = parseInt(number!, 36);
    // Other digits of the same number, as with a 0 before them, are no id of ours.
    if (requestIdOf(prefix, request) !== requestId) return undefined;
    // The newest segment first, because most searches are for recent calls.
    const failures = new FailedReads();
    for (const segment of (await this.#refreshedSegments(failures)).reverse()) {
      const record = await failures.orElse(segment, undefined, () => this.#findIn(segment, prefix, request));
      if (record !== undefined) return record;
    }
    failures.throwFirst();
    return undefined;
  }

  async #findIn(segment: Segment, prefix: string, request: number): Promise<CallRecord | undefined> {
    // `extentsWith` returns undefined if all extents must be asked, as while the segment grows.
    const extents =
      (await segment.extentsWith(prefix, request)) ??
      (await this.#extentsOf(segment)).filter((extent) => mayHaveCall(extent, prefix, request));
    for (const extent of extents) {
      for (const { block } of segment.blocksAt(extent)) {
        const record = block.find(prefix, request);
        if (record !== undefined) return record;
      }
    }
    return undefined;
  }

  /**
   * Returns the calls that pass the filter, those that ended last first. `cursor` is `next` of the page
   * before, or undefined for the first page. Returns undefined if the cursor is invalid. After `searchMs` the
   * page has the calls that were found by then.
   */
  async page(filter: CallFilter, limit: number, cursor?: string): Promise<CallPage | undefined> {
    const before = cursor === undefined ? undefined : sortKeyOf(cursor);
    if (cursor !== undefined && before === undefined) return undefined;
    const endMs = performance.now() + this.#searchMs;
    const failures = new FailedReads();
    const segments = await this.#refreshedSegments(failures);
    const extentsOf = (segment: Segment): Promise<readonly Extent[]> => this.#extentsOf(segment);
    return new PageSearch({ segments, filter, limit, before, endMs, extentsOf, failures }).run();
  }

  /**
   * Returns at most `limit` calls that pass the filter and were written after the cursor (`newest` of a page
   * or of the last `newerCalls`), in the order in which each process wrote them. Returns undefined if the
   * cursor is invalid. `newest` of the result is the next cursor; there may be more calls after it already.
   */
  async newerCalls(cursor: string, filter: CallFilter, limit: number): Promise<CallPage | undefined> {
    const positions = readPositionsOf(cursor);
    if (positions === undefined) return undefined;
    const failures = new FailedReads();
    const segments = await this.#refreshedSegments(failures);
    const extentsOf = (segment: Segment): Promise<readonly Extent[]> => this.#extentsOf(segment);
    return newerCalls({ segments, positions, filter, limit, extentsOf, failures });
  }

  /**
   * Lists the files. Returns a Segment of each, oldest first, whose `refreshTimes` has resolved, or is one of
   * the `failures`. That reads a complete segment's summary once, and what another process has appended since
   * the last read.
   */
  async #refreshedSegments(failures: FailedReads): Promise<Segment[]> {
    const segments = new Map<number, Segment>();
    for (const { number, path } of this.#listedFiles())
      segments.set(number, this.#segments.get(number) ?? this.#segmentOf(number, path));
    this.#segments = segments;
    const listed = [...segments.values()];
    for (let index = 0; index < listed.length; index += OPEN_FILES_MAX)
      await Promise.all(
        listed
          .slice(index, index + OPEN_FILES_MAX)
          .map((segment) => failures.orElse(segment, undefined, () => segment.refreshTimes())),
      );
    return listed;
  }

  /**
   * Lists the files, oldest first. If there is a new one, lists them a second time, and returns the files up
   * to that one. For the system may list a long folder in parts: then it may miss a file that another process
   * adds meanwhile, and have the next file (seen with 1,000 files on ext4). Cursors would take the missing
   * file for a segment that was read to its end. A listing that begins after the next file is there has both.
   */
  #listedFiles(): SegmentFile[] {
    const files = segmentFiles(this.#folder, 'calls');
    const newest = files.at(-1)?.number;
    if (newest === undefined || this.#segments.has(newest)) return files;
    return segmentFiles(this.#folder, 'calls').filter(({ number }) => number <= newest);
  }

  #segmentOf(number: number, path: string): Segment {
    return new Segment(number, path, () => {
      const growing = this.#growingSegment();
      return growing?.number === number ? growing : undefined;
    });
  }

  /** Reads the segment's extents, and then frees those of the oldest segments beyond INDEX_BYTES_MAX. */
  async #extentsOf(segment: Segment): Promise<readonly Extent[]> {
    const extents = await segment.extents();
    let bytes = 0;
    for (const listed of this.#segments.values()) bytes += listed.indexBytes;
    for (const listed of this.#segments.values()) {
      if (bytes <= INDEX_BYTES_MAX) break;
      bytes -= listed.indexBytes;
      listed.freeExtents();
    }
    return extents;
  }
}

export function callReaderOf(dataPath: string, options?: CallReaderOptions): CallReader {
  return new CallReader(join(dataPath, CALLS_FOLDER), options);
}
