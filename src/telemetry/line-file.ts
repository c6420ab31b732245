/**
 * A file of JSON lines that is rotated by size: the usage log (gateway/usage-log.ts) or the access log
 * (gateway/gateway-logs.ts). Main thread of a gateway process.
 *
 * The file is for reading, not for billing: lines that cannot be written wait in memory up to a bound, and
 * are then dropped, oldest first.
 *
 * Must hold (test/unit/telemetry/line-file.test.ts):
 * - If a write fails within a batch, the bytes of the batch that were written are cut off the file again.
 * - A line that a crash has cut is ended by a newline before the next line is written.
 * - No failure of the file is thrown to the caller of `append`, whose call has been served, or of `close`,
 *   which has other logs to close.
 * - Only regular files are renamed and removed.
 *
 * rotating-file-stream 3.2 was tried and is not used: it continues in a file that was moved away, appends to
 * a cut line, writes beyond the size, and loses all waiting lines at its first error.
 */
import {
  closeSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { errorText } from '../core/errors.js';
import type { Log } from './log.js';

/** How many bytes of waiting lines are kept after a failure: some 130,000 lines of 250 bytes. */
const WAITING_BYTES_MAX = 32 * 1024 * 1024;
const NEWLINE = 0x0a;

export interface LineFileOptions {
  /** What the messages in the log of events call the file. */
  readonly name: 'usage log' | 'access log';
  /** Path of the current file. Older files are `path.1`, the youngest of them, to `path.<keep>`. */
  readonly path: string;
  /** How long a file may become. A file with a single longer line is the exception. */
  readonly rotateBytes: number;
  /** How many older files are kept, at least 1. */
  readonly keep: number;
  readonly log: Log;
  /** How many bytes of waiting lines are kept after a failure. Default: 32 MiB. */
  readonly waitingBytesMax?: number | undefined;
}

export class LineFile {
  readonly #options: LineFileOptions;
  /** The open descriptor; undefined if the file is closed. */
  #file: number | undefined;
  /** Whether the open file is a regular one. A device (/dev/null) is never renamed: others use it too. */
  #isRegular = false;
  #fileBytes = 0;
  /** Lines that wait, oldest first. A chunk has the lines of one `append`, each with its newline. */
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  /** Why the last write failed; undefined after a write that succeeded. */
  #failure: string | undefined;
  /** How many lines were dropped since the start. */
  #droppedLines = 0;

  /**
   * Opens nothing yet. So a path that cannot be written is reported with the first lines, and the gateway
   * starts all the same.
   */
  constructor(options: LineFileOptions) {
    this.#options = options;
  }

  /**
   * Writes the waiting lines and `lines`, which have no newlines in them. Never throws: a failure is logged,
   * and the lines wait for the next call. Takes some microseconds, because it does not wait for the disk (no
   * fsync).
   */
  append(lines: readonly string[]): void {
    if (lines.length > 0) {
      // One buffer for all lines: a buffer for each line costs more than the write.
      const chunk = Buffer.from(`${lines.join('\n')}\n`);
      this.#waiting.push(chunk);
      this.#waitingBytes += chunk.length;
    }
    if (this.#waiting.length === 0) return;
    const { name, path, log } = this.#options;
    try {
      this.#ensureOpen();
      while (this.#waiting.length > 0) this.#writeBatch();
      if (this.#failure !== undefined) log.warn(`the ${name} is written again`, { path });
      this.#failure = undefined;
    } catch (error) {
      this.#fail(error);
    }
  }

  /**
   * Writes the waiting lines. Lines that cannot be written are dropped, and counted and logged as such. Never
   * throws, as `append`: some systems say only here that a disk is full (NFS).
   */
  close(): void {
    this.append([]);
    this.#dropBeyond(0);
    try {
      this.#closeFile();
    } catch (error) {
      const { name, path, log } = this.#options;
      log.error(`the last lines of the ${name} may be missing; the charges themselves are in the books`, {
        path,
        error: errorText(error),
      });
    }
  }

  /** Writes as many lines of the oldest chunk as fit the file; rotates if none fits and the file has some. */
  #writeBatch(): void {
    const [chunk] = this.#waiting as [Buffer];
    const bytesMax = this.#isRegular ? this.#options.rotateBytes - this.#fileBytes : chunk.length;
    const bytes = wholeLineBytes(chunk, bytesMax);
    if (bytes === 0 && this.#fileBytes > 0) {
      this.#rotate();
      return;
    }
    const batch = chunk.subarray(0, bytes > 0 ? bytes : firstLineBytes(chunk));
    this.#write(batch);
    this.#shift(batch.length);
  }

  /** Removes the first `bytes` of the oldest chunk. */
  #shift(bytes: number): void {
    const [chunk] = this.#waiting as [Buffer];
    if (bytes < chunk.length) this.#waiting[0] = chunk.subarray(bytes);
    else this.#waiting.shift();
    this.#waitingBytes -= bytes;
  }

  #write(bytes: Buffer): void {
    writeWhole(this.#file!, bytes, this.#fileBytes);
    this.#fileBytes += bytes.length;
  }

  /** Opens the file if it is closed, or if a log collector has moved or removed the open one. */
  #ensureOpen(): void {
    if (this.#file !== undefined) {
      const current = statSync(this.#options.path, { throwIfNoEntry: false });
      const open = fstatSync(this.#file);
      // The size is read again, because the collector may have emptied the file in place.
      this.#fileBytes = open.size;
      if (current?.ino === open.ino && current.dev === open.dev) return;
      this.#closeFile();
    }
    this.#openFile();
  }

  #openFile(): void {
    this.#file = openSync(this.#options.path, 'a+', 0o600);
    try {
      this.#endLastLine(this.#file);
    } catch (error) {
      // Closed, because `#ensureOpen` expects the last line of an open file to be ended.
      this.#closeFile();
      throw error;
    }
  }

  /** Adds a newline to a line that a crash has cut. Throws if the path is that of a pipe. */
  #endLastLine(file: number): void {
    const stat = fstatSync(file);
    // A pipe cannot be rotated, and a pipe that nobody reads would block this thread.
    if (stat.isFIFO()) throw new Error('the path must be that of a file: it is a pipe');
    this.#isRegular = stat.isFile();
    this.#fileBytes = stat.size;
    if (this.#fileBytes === 0) return;
    const lastByte = Buffer.alloc(1);
    readSync(file, lastByte, 0, 1, this.#fileBytes - 1);
    if (lastByte[0] !== NEWLINE) this.#write(Buffer.from([NEWLINE]));
  }

  /** Renames each file to the next higher number, from the oldest on, so that none is overwritten. */
  #rotate(): void {
    const { path, keep } = this.#options;
    this.#closeFile();
    // Also removes the files that an earlier, higher `keep` has left. Their numbers have no gap.
    for (let number = keep; isThere(`${path}.${number}`); number++) rmSync(`${path}.${number}`);
    for (let number = keep - 1; number >= 1; number--)
      renameIfThere(`${path}.${number}`, `${path}.${number + 1}`);
    renameIfThere(path, `${path}.1`);
    this.#openFile();
  }

  #closeFile(): void {
    const file = this.#file;
    // Closed also after an error of `closeSync`: Linux has freed the number, which another file may get.
    this.#file = undefined;
    if (file !== undefined) closeSync(file);
  }

  /** Logs the first of several failures in a row, and drops the lines beyond the bound. */
  #fail(error: unknown): void {
    const { name, path, log, waitingBytesMax = WAITING_BYTES_MAX } = this.#options;
    const reason = errorText(error);
    if (this.#failure === undefined)
      log.warn(`the ${name} cannot be written; its lines wait, charges are not affected`, {
        path,
        error: reason,
      });
    this.#failure = reason;
    this.#dropBeyond(waitingBytesMax);
  }

  /** Drops the oldest waiting lines beyond `bytesMax`, and logs how many. */
  #dropBeyond(bytesMax: number): void {
    let dropped = 0;
    while (this.#waitingBytes > bytesMax) {
      this.#shift(firstLineBytes(this.#waiting[0]!));
      dropped += 1;
    }
    if (dropped === 0) return;
    this.#droppedLines += dropped;
    const { name, path, log } = this.#options;
    log.error(`lines of the ${name} were dropped; the charges themselves are in the books`, {
      path,
      dropped,
      droppedSinceStart: this.#droppedLines,
      error: this.#failure,
    });
  }
}

/**
 * Writes all bytes at `at`, which is the end of the file. If it cannot, it cuts off what was written and
 * throws. call-log/segment-writer.ts calls it too.
 */
export function writeWhole(file: number, bytes: Buffer, at: number): void {
  let written = 0;
  try {
    while (written < bytes.length) {
      written += writeSync(file, bytes, written, bytes.length - written, at + written);
    }
  } catch (error) {
    if (written > 0) ftruncateSync(file, at);
    throw error;
  }
}

/** Returns how many bytes the first lines have that fit `bytesMax` (may be negative); 0 if none fits. */
function wholeLineBytes(chunk: Buffer, bytesMax: number): number {
  if (chunk.length <= bytesMax) return chunk.length;
  return bytesMax <= 0 ? 0 : chunk.lastIndexOf(NEWLINE, bytesMax - 1) + 1;
}

/** Returns how many bytes the first line has, with its newline. */
function firstLineBytes(chunk: Buffer): number {
  return chunk.indexOf(NEWLINE) + 1;
}

function isThere(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

function renameIfThere(from: string, to: string): void {
  if (isThere(from)) renameSync(from, to);
}
