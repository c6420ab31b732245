/**
 * Lists, creates and removes the segment files of the call log: `0000000042.calls` with records,
 * `0000000042.contents` with contents, each kind in its folder. All gateway processes of a data directory use
 * one sequence of numbers for a kind. segment-writer.ts calls it, on main threads of gateway processes;
 * call-reader.ts and contents-writer.ts list files, there and in commands.
 *
 * Must hold:
 * - No number is given twice, by no two processes, and not after all files were removed and the gateway was
 *   started again: readers and cursors know a segment by its number. The oldest segments are removed first
 *   (test/unit/call-log/segment-files.test.ts, test/unit/call-log/call-log.test.ts).
 * - A folder that cannot be made is an error, never a wait: the main thread would stop (the first test).
 */
import { existsSync, mkdirSync, openSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { BLOCK_BYTES_MAX } from './call-block.js';

export const CALLS_FOLDER = 'calls';
export const CONTENTS_FOLDER = 'contents';
/** How often old segments are removed if nothing is written. */
export const REMOVE_PERIOD_MS = 300_000;
const SEGMENT_BYTES_MAX = 16 * 1024 * 1024;
/** The bytes of each process make at least so many segments, so that removing one loses a small part. */
const SEGMENTS_MIN = 8;
/** A segment may be longer than `segmentBytesOf` by this factor: its index takes 3 to 6 %, and some spare. */
const INDEX_FACTOR = 1.08;
/** A segment ends after `keepHours` divided by this. */
const AGES_KEPT = 24;
const HOUR_MS = 3_600_000;

/** The file's extension. */
export type SegmentKind = 'calls' | 'contents';

export interface SegmentFile {
  readonly number: number;
  readonly path: string;
}

/** The bounds from the settings. `keepHours`: at least 1. `processes`: how many gateway processes write. */
export interface CallRetention {
  readonly keepHours: number;
  /** The bound for all segments of the data directory together. */
  readonly keepBytes: number;
  readonly processes: number;
  /** Bytes of the longest block. Default: 256 KiB, more than a block of calls has. */
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
 * Creates an empty file with the next number, which only its owner may read. The number is greater than that
 * of any file and than `lastNumber`: the greatest number that the caller knows, or 0. The file of that number
 * may be gone, but readers and cursors know the number.
 *
 * If `lastNumber` is 0 and there is no file, files of an earlier run may have been removed. The number is
 * then one more than the Unix time `nowMs` in seconds. The removed files had smaller numbers, because on
 * average less than one segment is begun in a second. Creates the folder too, if it is missing. Throws the
 * error of the system if folder or file cannot be created.
 */
export function createSegment(
  folder: string,
  kind: SegmentKind,
  lastNumber: number,
  nowMs: number,
): SegmentFile & { readonly file: number } {
  makeFolder(folder);
  const greatest = Math.max(lastNumberOf(segmentFiles(folder, kind)), lastNumber);
  const last = greatest === 0 ? Math.floor(nowMs / 1_000) : greatest;
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

/**
 * The folder that it is to be in, the data directory, was made at the start. It is not made again here: if it
 * is gone, its disk may be too. Nor is `recursive: true` used, with which Node never returns if the system
 * says ENOENT of a folder whose parent is there, as in a mount that was removed (tried with Node 20.20).
 */
function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // A file of that name is no folder: then the error of `openSync` says so.
    if (!existsSync(folder)) throw error;
  }
}

/** Returns the greatest number of the files, which are oldest first; 0 without a file. */
function lastNumberOf(files: readonly SegmentFile[]): number {
  return files.at(-1)?.number ?? 0;
}

/** Returns the size at which a process begins a new segment. */
export function segmentBytesOf({ keepBytes, processes }: CallRetention): number {
  return Math.min(SEGMENT_BYTES_MAX, Math.floor(keepBytes / SEGMENTS_MIN / processes));
}

/** Returns the age at which a segment ends. */
export function segmentAgeMsOf({ keepHours }: CallRetention): number {
  return (keepHours * HOUR_MS) / AGES_KEPT;
}

/**
 * Removes segments with a call that may exceed `keepHours` before the next check, and the oldest segments
 * until each process can fill another one within `keepBytes`. Every process calls it before it begins a
 * segment, so the bounds hold for all together (test/unit/call-log/call-log.test.ts). A segment that an idle
 * process has open may go too: segment-writer.ts sees that before its next write, and begins another.
 *
 * `nowMs` is the time of a RetentionCalendar (core/retention.ts): -Infinity just after the start, so that no
 * segment is too old. Returns the greatest number before the removal, for `createSegment`; 0 without a file.
 */
export function removeOldSegments(
  folder: string,
  kind: SegmentKind,
  retention: CallRetention,
  nowMs: number,
): number {
  const { keepHours, keepBytes, processes, blockBytes = BLOCK_BYTES_MAX / 4 } = retention;
  const reserved = processes * (segmentBytesOf(retention) * INDEX_FACTOR + blockBytes);
  // The first call of a segment may be older than the file's last write by a segment's age and a period of
  // checks. Until the next check it ages by one more period. So the last calls go earlier, by all of these.
  const oldestMs = nowMs - keepHours * HOUR_MS + segmentAgeMsOf(retention) + 2 * REMOVE_PERIOD_MS;
  const listed = segmentFiles(folder, kind);
  const files = listed.flatMap(({ path }) => {
    // Another process may have removed the file since it was listed.
    const stat = statSync(path, { throwIfNoEntry: false });
    return stat === undefined ? [] : [{ path, bytes: stat.size, writtenMs: stat.mtimeMs }];
  });
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  for (const { path, bytes: fileBytes, writtenMs } of files) {
    if (bytes <= keepBytes - reserved && writtenMs >= oldestMs) continue;
    rmSync(path, { force: true });
    bytes -= fileBytes;
  }
  return lastNumberOf(listed);
}
