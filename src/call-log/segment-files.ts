/**
 * The segment files of the call log (`0000000042.calls` with records, `0000000042.contents` with contents)
 * and which of them are removed. All gateway processes of a data directory number them in one order. Writers
 * and readers call it, on main threads and in commands.
 *
 * Must hold: no two processes begin the same number, and the oldest are removed first
 * (test/unit/call-log/call-log.test.ts). No number is begun again, also if all files were removed and the
 * gateway was started again (test/unit/call-log/segment-files.test.ts): readers take a number for an
 * identity, and a client's cursor for newer calls names the last one.
 */
import { mkdirSync, openSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { BLOCK_BYTES_MAX } from './call-block.js';

export const CALLS_FOLDER = 'calls';
export const CONTENTS_FOLDER = 'contents';
/** How often old segments are removed if nothing is written. */
export const REMOVE_PERIOD_MS = 300_000;
const SEGMENT_BYTES_MAX = 16 * 1024 * 1024;
/** At least this many segments a process are kept, so that removing the oldest loses a small part. */
const SEGMENTS_KEPT = 8;
/**
 * A segment may be longer than `segmentBytesOf` by its last block, and by its index, which takes 3 to 6 %.
 */
const SEGMENT_MORE = 1.08;
const HOUR_MS = 3_600_000;

/** The extension of the file. */
export type SegmentKind = 'calls' | 'contents';

interface SegmentFile {
  readonly number: number;
  readonly path: string;
}

/** The bounds from the settings, and how many gateway processes write. */
export interface CallRetention {
  readonly keepHours: number;
  /** The bound for all segments of the data directory together. */
  readonly keepBytes: number;
  readonly processes: number;
  /** How many bytes the longest block has. Default: more than a block of calls, which has some 64 KiB. */
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
 * Creates an empty file with the next number, which only its owner may read. `after`: the greatest number
 * that the caller has seen. Its file may have been removed, but readers and cursors know the number. If there
 * is none, files of an earlier run may have been removed, perhaps with their folder: the number is then that
 * of the second, Unix time `nowMs`, which is beyond theirs, since a second brings no segment on average.
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
      // Another process has taken the number.
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

/** Returns the age at which a process begins a new segment. So calls go at most that much early. */
export function segmentAgeMsOf({ keepHours }: CallRetention): number {
  return (keepHours * HOUR_MS) / 24;
}

/**
 * Removes the oldest segments: those with a call that may exceed `keepHours` before the next check, and as
 * many that each process can fill another segment. Every process does this when it begins a segment, so the
 * bound holds for all together. If an idle writer's segment is removed, the writer begins another. `nowMs` is
 * that of a RetentionCalendar (core/clock.ts): -Infinity just after the start, so that none is too old.
 * Returns the greatest number that there was before, for `createSegment`; 0 without a file.
 */
export function removeOldSegments(
  folder: string,
  kind: SegmentKind,
  retention: CallRetention,
  nowMs: number,
): number {
  const { keepHours, keepBytes, processes, blockBytes = BLOCK_BYTES_MAX / 4 } = retention;
  const reserved = processes * (segmentBytesOf(retention) * SEGMENT_MORE + blockBytes);
  // A segment's first call is at most the age of a segment, and a check, older than its last.
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
