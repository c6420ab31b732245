/**
 * Lists, creates and removes the segment files of the call log: `0000000042.calls` with records,
 * `0000000042.contents` with contents, each kind in its folder. All gateway processes of a data directory use
 * one sequence of numbers for a kind. segment-writer.ts calls it, on main threads of gateway processes;
 * call-reader.ts and contents-writer.ts list files, there and in commands.
 *
 * Must hold: no two processes begin the same number, and the oldest are removed first
 * (test/unit/call-log/call-log.test.ts). No number is begun again, also after all files were removed and the
 * gateway was started again: readers take a number for an identity, and a client's cursor for newer calls
 * names the last one (test/unit/call-log/segment-files.test.ts).
 */
import { mkdirSync, openSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { BLOCK_BYTES_MAX } from './call-block.js';

export const CALLS_FOLDER = 'calls';
export const CONTENTS_FOLDER = 'contents';
/** How often old segments are removed if nothing is written. */
export const REMOVE_PERIOD_MS = 300_000;
const SEGMENT_BYTES_MAX = 16 * 1024 * 1024;
/** The bytes of each process make at least so many segments, so that removing one loses a small part. */
const SEGMENTS_KEPT = 8;
/** By this factor an index, which takes 3 to 6 %, may make a segment longer. Its last block comes on top. */
const SEGMENT_MORE = 1.08;
const HOUR_MS = 3_600_000;

/** The extension of the file. */
export type SegmentKind = 'calls' | 'contents';

interface SegmentFile {
  readonly number: number;
  readonly path: string;
}

/** The bounds from the settings. `processes`: how many gateway processes write. */
export interface CallRetention {
  readonly keepHours: number;
  /** The bound for all segments of the data directory together. */
  readonly keepBytes: number;
  readonly processes: number;
  /** How many bytes the longest block has. Default: 256 KiB, as a block of calls has some 64 KiB. */
  readonly blockBytes?: number;
}

/** Returns the files, oldest first; none if there is no such folder. */
export function segmentFiles(folder: string, kind: SegmentKind): SegmentFile[] {
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
  return names
    .filter((name) => /^\d{10}$/.test(name.slice(0, 10)) && name.slice(10) === `.${kind}`)
    .sort()
    .map((name) => ({ number: Number(name.slice(0, 10)), path: join(folder, name) }));
}

/**
 * Creates an empty file with the next number, which only its owner may read. `after` is the greatest number
 * that the caller has seen, or 0: that file may be gone, but readers and cursors know its number. With 0 and
 * no file, files of an earlier run may have been removed. The number is then the second after `nowMs` (Unix
 * time), which is beyond theirs, because less than one segment a second is begun on average.
 */
export function createSegment(
  folder: string,
  kind: SegmentKind,
  after: number,
  nowMs: number,
): SegmentFile & { readonly file: number } {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const known = Math.max(lastNumberOf(segmentFiles(folder, kind)), after);
  const last = known === 0 ? Math.floor(nowMs / 1_000) : known;
  for (let number = last + 1; ; number++) {
    try {
      const path = join(folder, `${String(number).padStart(10, '0')}.${kind}`);
      return { file: openSync(path, 'wx', 0o600), number, path };
    } catch (error) {
      // Another process has taken the number: `wx` creates a file or fails.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

/** Returns the greatest number of the files, which are oldest first; 0 without a file. */
function lastNumberOf(files: readonly SegmentFile[]): number {
  return files.at(-1)?.number ?? 0;
}

/** Returns the size at which a process begins a new segment. */
export function segmentBytesOf({ keepBytes, processes }: CallRetention): number {
  return Math.min(SEGMENT_BYTES_MAX, Math.floor(keepBytes / SEGMENTS_KEPT / processes));
}

/** Returns the age at which a process begins a new segment. Calls are removed at most that much early. */
export function segmentAgeMsOf({ keepHours }: CallRetention): number {
  return (keepHours * HOUR_MS) / 24;
}

/**
 * Removes segments with a call that may exceed `keepHours` before the next check, and the oldest until each
 * process can fill another segment within `keepBytes`. Every process calls it before it begins a segment, so
 * the bounds hold for all together. A segment that an idle process has open may go too: segment-writer.ts
 * then begins another. `nowMs` is that of a RetentionCalendar (core/clock.ts): -Infinity just after the
 * start, so that none is too old. Returns the greatest number before, for `createSegment`; 0 without a file.
 */
export function removeOldSegments(
  folder: string,
  kind: SegmentKind,
  retention: CallRetention,
  nowMs: number,
): number {
  const { keepHours, keepBytes, processes, blockBytes = BLOCK_BYTES_MAX / 4 } = retention;
  const reserved = processes * (segmentBytesOf(retention) * SEGMENT_MORE + blockBytes);
  // A first call is older than the last write by a segment's age and a check. The next check adds one more.
  const oldestMs = nowMs - keepHours * HOUR_MS + segmentAgeMsOf(retention) + 2 * REMOVE_PERIOD_MS;
  const found = segmentFiles(folder, kind);
  const files = found.flatMap(({ path }) => {
    const stat = statSync(path, { throwIfNoEntry: false });
    return stat === undefined ? [] : [{ path, bytes: stat.size, writtenMs: stat.mtimeMs }];
  });
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  for (const { path, bytes: fileBytes, writtenMs } of files) {
    if (bytes <= keepBytes - reserved && writtenMs >= oldestMs) continue;
    rmSync(path, { force: true });
    bytes -= fileBytes;
  }
  return lastNumberOf(found);
}
