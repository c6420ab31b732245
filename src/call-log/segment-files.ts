/**
 * The segment files of the call log: `0000000042.calls` with records, `0000000042.contents` with contents,
 * numbered in the order in which they were begun by the gateway processes of a data directory, and retention:
 * which of them are removed. Writers and readers call it, on main threads and in commands.
 *
 * Must hold: no two processes begin the same number, and the oldest go first
 * (test/unit/call-log/call-log.test.ts).
 */
import { mkdirSync, openSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { BLOCK_BYTES_MAX } from './call-block.js';

export const CALLS_FOLDER = 'calls';
export const CONTENTS_FOLDER = 'contents';
/** How often what is too old is removed, if nothing is written. */
export const REMOVE_PERIOD_MS = 300_000;
const SEGMENT_BYTES_MAX = 16 * 1024 * 1024;
/** So many segments a process are kept, so that the oldest is a small part. */
const SEGMENTS_KEPT = 8;
/** Beyond its calls' bytes: the last block and the index. */
const SEGMENT_MORE = 1.08;
const HOUR_MS = 3_600_000;

/** How the name of a file ends. */
export type SegmentKind = 'calls' | 'contents';

export interface SegmentFile {
  readonly number: number;
  readonly path: string;
}

/** What the settings say, and how many gateway processes write. */
export interface CallRetention {
  readonly keepHours: number;
  /** Of all segments of the data directory together. */
  readonly keepBytes: number;
  readonly processes: number;
  /** Of the longest block. */
  readonly blockBytes?: number;
}

/** Oldest first; none if there is no such folder. */
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

/** Begins an empty file, the newest one, for its owner alone. */
export function createSegment(folder: string, kind: SegmentKind): { file: number; number: number } {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (let number = (segmentFiles(folder, kind).at(-1)?.number ?? 0) + 1; ; number++) {
    try {
      const path = join(folder, `${String(number).padStart(10, '0')}.${kind}`);
      return { file: openSync(path, 'wx', 0o600), number };
    } catch (error) {
      // Another process was quicker.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

/** The size at which a process begins a new segment. */
export function segmentBytesOf({ keepBytes, processes }: CallRetention): number {
  return Math.min(SEGMENT_BYTES_MAX, Math.floor(keepBytes / SEGMENTS_KEPT / processes));
}

/** The age at which it does: the oldest call that is kept is at most so much younger than `keepHours`. */
export function segmentAgeMsOf({ keepHours }: CallRetention): number {
  return (keepHours * HOUR_MS) / 24;
}

/**
 * Removes the oldest segments: those with a call that could be older than the hours that are kept before the
 * next look, and as many that each process can fill another segment. Every process does so as it begins one,
 * so the bound holds for all of them. A writer whose segment was removed, because it had nothing to write for
 * so long, begins another.
 */
export function removeOldSegments(
  folder: string,
  kind: SegmentKind,
  retention: CallRetention,
  nowMs: number,
): void {
  const { keepHours, keepBytes, processes, blockBytes = BLOCK_BYTES_MAX / 4 } = retention;
  const room = processes * (segmentBytesOf(retention) * SEGMENT_MORE + blockBytes);
  // Its first call came at most the age of a segment, and a look, before its last.
  const oldestMs = nowMs - keepHours * HOUR_MS + segmentAgeMsOf(retention) + 2 * REMOVE_PERIOD_MS;
  const files = segmentFiles(folder, kind).flatMap(({ path }) => {
    const stat = statSync(path, { throwIfNoEntry: false });
    return stat === undefined ? [] : [{ path, bytes: stat.size, writtenMs: stat.mtimeMs }];
  });
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  for (const { path, bytes: fileBytes, writtenMs } of files) {
    if (bytes <= keepBytes - room && writtenMs >= oldestMs) continue;
    rmSync(path, { force: true });
    bytes -= fileBytes;
  }
}
