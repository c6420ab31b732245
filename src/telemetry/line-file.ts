/**
 * A log of calls in a file, the usage log or the access log: JSON lines, rotated by size. Main thread of a gateway process.
 *
 * It is for reading, not for billing: lines are written after what they tell of, and what cannot be written waits in
 * memory up to a bound and is then dropped, oldest first. A file holds whole lines: what was
 * written of a batch when the disk became full is cut off again, and a line that a crash cut is ended before the next.
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
import type { Log } from './log.js';

/** What waits while nothing can be written: at 250 bytes a line some 130,000 calls. */
const PENDING_BYTES_MAX = 32 * 1024 * 1024;
const NEWLINE = 0x0a;
const NOTHING = Buffer.alloc(0);

export interface LineFileOptions {
  /** For messages. */
  readonly name: 'usage log' | 'access log';
  /** Of the current file; the older ones are `path.1`, the youngest of them, to `path.<keep>`. */
  readonly path: string;
  /** A file is not made longer than this, but where one line is. */
  readonly rotateBytes: number;
  /** Older files that are kept, at least 1. */
  readonly keep: number;
  readonly log: Log;
  /** Default 32 MiB. */
  readonly pendingBytesMax?: number | undefined;
}

export class LineFile {
  readonly #name: string;
  readonly #path: string;
  readonly #rotateBytes: number;
  readonly #keep: number;
  readonly #log: Log;
  readonly #pendingBytesMax: number;
  #file: number | undefined;
  #fileBytes = 0;
  /** Not written yet, oldest first: whole lines, each with its newline, some thousand in a piece. */
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #failing = false;
  #droppedLines = 0;

  /** Opens nothing yet: a path that cannot be written is told with the first lines, and stops no start. */
  constructor(options: LineFileOptions) {
    this.#name = options.name;
    this.#path = options.path;
    this.#rotateBytes = options.rotateBytes;
    this.#keep = options.keep;
    this.#log = options.log;
    this.#pendingBytesMax = options.pendingBytesMax ?? PENDING_BYTES_MAX;
  }

  /** Lines that were dropped since the start. */
  get droppedLines(): number {
    return this.#droppedLines;
  }

  /**
   * Writes `lines`, which have no newlines in them, and what waited before, in one write a file. Never throws: a failure
   * is logged, and the lines wait for the next call. Costs some microseconds and a copy to the system's cache, no flush.
   */
  append(lines: readonly string[]): void {
    // One text and one copy of it: a buffer for each line costs more than writing them.
    this.appendBytes(lines.length === 0 ? NOTHING : Buffer.from(`${lines.join('\n')}\n`));
  }

  /**
   * The same of lines as bytes, each with its newline, which are copied where they have to wait. `isMore` says that a piece of the
   * same moment came just before: then it is not looked again whether the file is still there, half of what a write costs.
   */
  appendBytes(bytes: Buffer, isMore = false): void {
    if (bytes.length > 0) this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    if (this.#pending.length === 0) return;
    try {
      if (!isMore || this.#failing || this.#file === undefined) this.#reopen();
      while (this.#pending.length > 0) this.#writeBatch();
      if (this.#failing) this.#log.warn(`the ${this.#name} is written again`, { path: this.#path });
      this.#failing = false;
    } catch (error) {
      // What the caller gave is its own again: of it, what is left is last.
      if (bytes.length > 0) this.#pending.push(Buffer.from(this.#pending.pop()!));
      this.#fail(error);
    }
  }

  close(): void {
    this.append([]);
    this.#closeFile();
  }

  /** Of the oldest piece as many lines as fit the file, which is rotated where none does. */
  #writeBatch(): void {
    const [piece] = this.#pending as [Buffer];
    const bytes = wholeLinesIn(piece, this.#rotateBytes - this.#fileBytes);
    if (bytes === 0 && this.#fileBytes > 0) {
      this.#rotate();
      return;
    }
    const batch = piece.subarray(0, bytes > 0 ? bytes : firstLineIn(piece));
    this.#write(batch);
    if (batch.length < piece.length) this.#pending[0] = piece.subarray(batch.length);
    else this.#pending.shift();
    this.#pendingBytes -= batch.length;
  }

  /** All of it or nothing. */
  #write(bytes: Buffer): void {
    const file = this.#file!;
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(file, bytes, written);
    } catch (error) {
      if (written > 0) ftruncateSync(file, this.#fileBytes);
      throw error;
    }
    this.#fileBytes += written;
  }

  /** The file may have been moved or removed by whoever collects it: then a new one is begun. */
  #reopen(): void {
    if (this.#file !== undefined) {
      const now = statSync(this.#path, { throwIfNoEntry: false });
      const ours = fstatSync(this.#file);
      // The size is what is there now, should the collector have emptied the file in place.
      this.#fileBytes = ours.size;
      if (now?.ino === ours.ino && now.dev === ours.dev) return;
      this.#closeFile();
    }
    this.#openFile();
  }

  #openFile(): void {
    this.#file = openSync(this.#path, 'a+', 0o600);
    this.#fileBytes = fstatSync(this.#file).size;
    if (this.#fileBytes === 0) return;
    const last = Buffer.alloc(1);
    readSync(this.#file, last, 0, 1, this.#fileBytes - 1);
    if (last[0] !== NEWLINE) this.#write(Buffer.from([NEWLINE]));
  }

  #rotate(): void {
    this.#closeFile();
    rmSync(`${this.#path}.${this.#keep}`, { force: true });
    for (let age = this.#keep - 1; age >= 1; age--)
      rename(`${this.#path}.${age}`, `${this.#path}.${age + 1}`);
    rename(this.#path, `${this.#path}.1`);
    this.#openFile();
  }

  #closeFile(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  #fail(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    if (!this.#failing) {
      this.#log.warn(`the ${this.#name} cannot be written; its lines wait, charges are not affected`, {
        path: this.#path,
        error: reason,
      });
    }
    this.#failing = true;
    const dropped = this.#dropOldest();
    if (dropped === 0) return;
    this.#droppedLines += dropped;
    this.#log.error(`lines of the ${this.#name} were dropped; the charges themselves are in the books`, {
      path: this.#path,
      dropped,
      droppedSinceStart: this.#droppedLines,
      error: reason,
    });
  }

  /** Lines that go because more wait than may; as many as that. */
  #dropOldest(): number {
    let dropped = 0;
    while (this.#pendingBytes > this.#pendingBytesMax) {
      const [piece] = this.#pending as [Buffer];
      const bytes = firstLineIn(piece);
      if (bytes < piece.length) this.#pending[0] = piece.subarray(bytes);
      else this.#pending.shift();
      this.#pendingBytes -= bytes;
      dropped += 1;
    }
    return dropped;
  }
}

/** Bytes of as many of the first lines as have room in `bytesMax`. */
function wholeLinesIn(piece: Buffer, bytesMax: number): number {
  if (piece.length <= bytesMax) return piece.length;
  return bytesMax <= 0 ? 0 : piece.lastIndexOf(NEWLINE, bytesMax - 1) + 1;
}

function firstLineIn(piece: Buffer): number {
  return piece.indexOf(NEWLINE) + 1;
}

/** Where there is something to rename. */
function rename(from: string, to: string): void {
  if (statSync(from, { throwIfNoEntry: false }) !== undefined) renameSync(from, to);
}
