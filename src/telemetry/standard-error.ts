/**
 * Standard error as a place that never holds anybody up: writes to a reader that has stopped or gone fail at once, what does
 * not fit waits up to a bound, and is then dropped and counted. Any thread; one a thread, all on the same open file.
 *
 * A write to a full pipe blocks its thread, and with it every call, until somebody reads. Node has no call that changes that
 * for an open descriptor, so a pipe or a terminal is opened anew, non-blocking, beside the one that other processes hold. A
 * socket (systemd gives one) cannot be opened anew, and a pipe of another user may not be: there Node's own stream makes
 * the descriptor non-blocking, for everybody who shares it.
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';
import { isPretty, lineFormat } from './log.js';

/** Names the descriptor of the log in a process whose own standard error is not the log: see supervisor/stray-output.ts. */
export const LOG_DESCRIPTOR_VARIABLE = 'TOLLGATE_LOG_DESCRIPTOR';

const STANDARD_ERROR = Number(process.env[LOG_DESCRIPTOR_VARIABLE] ?? 2);
/** The system writes so much to a pipe whole or not at all (PIPE_BUF): lines of several threads do not mix. */
export const WHOLE_BYTES_MAX = 4_096;
/** What waits for a slow reader in each thread: some 1,000 lines, four times what a pipe holds. */
const PENDING_BYTES_MAX = 256 * 1024;
const RETRY_MS = 50;

export class StandardError {
  readonly #descriptor: number;
  /** Not written yet, oldest first. */
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #dropped = 0;
  #retry: NodeJS.Timeout | undefined;
  /** Called with the lines that were dropped, once what waited is written. */
  onResumed: (droppedLines: number) => void = () => undefined;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  /** Writes `bytes`, `lines` whole lines, at most WHOLE_BYTES_MAX where they are not to be mixed with others'. Never throws nor waits. */
  write(bytes: Buffer, lines = 1): void {
    if (this.#pending.length === 0) {
      const rest = this.#try(bytes);
      if (rest.length > 0) this.#keep(rest);
    } else if (this.#pendingBytes + bytes.length <= PENDING_BYTES_MAX) {
      this.#keep(bytes);
    } else {
      this.#dropped += lines;
    }
  }

  /** One more try for what waits; at the end of the process. */
  flush(): void {
    while (this.#pending.length > 0) {
      const [first] = this.#pending as [Buffer];
      const rest = this.#try(first);
      this.#pendingBytes -= first.length - rest.length;
      if (rest.length > 0) {
        this.#pending[0] = rest;
        return;
      }
      this.#pending.shift();
    }
    clearInterval(this.#retry);
    this.#retry = undefined;
    const dropped = this.#dropped;
    this.#dropped = 0;
    if (dropped > 0) this.onResumed(dropped);
  }

  #keep(bytes: Buffer): void {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    this.#retry ??= setInterval(() => this.flush(), RETRY_MS).unref();
  }

  /** What is left of `bytes`: nothing where the reader has gone for good, since nobody will ever take it. */
  #try(bytes: Buffer): Buffer {
    try {
      return bytes.subarray(writeSync(this.#descriptor, bytes));
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'EAGAIN' ? bytes : bytes.subarray(bytes.length);
    }
  }
}

let shared: StandardError | undefined;
/** Kept: the descriptor would be closed with it. */
let held: Socket | undefined;

/** That of this thread, opened when first asked for. */
export function standardError(): StandardError {
  if (shared === undefined) {
    const opened = new StandardError(openStandardError());
    process.once('exit', () => opened.flush());
    shared = opened;
  }
  return shared;
}

function openStandardError(): number {
  try {
    const kind = fstatSync(STANDARD_ERROR);
    // A file does not block, and opened anew it would be written at another place.
    if (!kind.isFIFO() && !kind.isSocket() && !kind.isCharacterDevice()) return STANDARD_ERROR;
    const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
    return openSync(`/proc/self/fd/${STANDARD_ERROR}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  } catch {
    // Node's stream makes the descriptor non-blocking for all threads; the main thread has one before it starts the others.
    if (isMainThread) held ??= new Socket({ fd: STANDARD_ERROR, readable: false, writable: true });
    return STANDARD_ERROR;
  }
}

/*
 * Lines of calls on standard error, between those of events. Main thread of a gateway process.
 */

const NEWLINE = 0x0a;

export class StandardErrorLines {
  readonly #format = isPretty() ? lineFormat() : undefined;

  /** Writes as many lines at once as are written whole, so that those of other threads come between and not within; a copy, which may wait. */
  appendBytes(lines: Buffer): void {
    const format = this.#format;
    const bytes = format === undefined ? Buffer.from(lines) : formatted(lines, format);
    for (let start = 0; start < bytes.length;) {
      const last = bytes.subarray(0, start + WHOLE_BYTES_MAX).lastIndexOf(NEWLINE);
      // One that is longer goes by itself.
      const end = (last >= start ? last : bytes.indexOf(NEWLINE, start)) + 1;
      const piece = bytes.subarray(start, end);
      standardError().write(piece, linesIn(piece));
      start = end;
    }
  }

  close(): void {
    standardError().flush();
  }
}

function formatted(lines: Buffer, format: (line: string) => string): Buffer {
  const texts = lines.toString('latin1').split('\n').slice(0, -1);
  return Buffer.from(texts.map((line) => format(`${line}\n`)).join(''));
}

function linesIn(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}
