/**
 * Standard error as an output that never blocks: writes to a reader that has stopped or gone fail at once,
 * what does not fit waits up to a bound, and is then dropped and counted. log.ts and the access log
 * (gateway-logs.ts) write here. Any thread; each has one of its own, all on the same open file.
 *
 * A write to a full pipe blocks its thread, and with it every call, until somebody reads. Node has no call
 * that changes that for an open descriptor, so a pipe or a terminal is opened anew, non-blocking, beside the
 * one that other processes hold. A socket (systemd gives one) cannot be opened anew, and a pipe of another
 * user may not be: there Node's own stream makes the descriptor non-blocking, for everybody who shares it.
 *
 * sonic-boom, which pino-pretty brings, was tried (4.2.1) and is not used. Its `flushSync`, which the end of
 * a process needs, never returns if the reader has gone, and in its asynchronous mode not even if the reader
 * just does not read. Its synchronous mode does not try again by itself. It also needs the descriptor opened
 * as here. Test: unit/telemetry/log (on a pipe; a reader that has gone; what waits keeps its bound).
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';

/**
 * Names the log's descriptor in a process whose own standard error is not the log: see
 * supervisor/gateway-process.ts.
 */
export const LOG_DESCRIPTOR_VARIABLE = 'TOLLGATE_LOG_DESCRIPTOR';

const STANDARD_ERROR = Number(process.env[LOG_DESCRIPTOR_VARIABLE] ?? 2);
/**
 * The system writes up to this to a pipe whole or not at all (PIPE_BUF), so lines of several threads do not
 * mix.
 */
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

  /**
   * Writes `bytes`, which are `lines` whole lines; others' lines may get between bytes beyond
   * WHOLE_BYTES_MAX. Never throws, never waits.
   */
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

  /** Tries once to write what waits: by timer, and at the end of the process. */
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

  /**
   * Returns what is left of `bytes`: nothing if the reader has gone for good, since nobody will ever take it.
   */
  #try(bytes: Buffer): Buffer {
    try {
      return bytes.subarray(writeSync(this.#descriptor, bytes));
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'EAGAIN' ? bytes : bytes.subarray(bytes.length);
    }
  }
}

let shared: StandardError | undefined;
/** Kept because a collected socket closes its descriptor. */
let held: Socket | undefined;

/** Returns the one of this thread, opened at the first call. */
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
    // A file does not block, and opened anew it would be written at another offset.
    if (!kind.isFIFO() && !kind.isSocket() && !kind.isCharacterDevice()) return STANDARD_ERROR;
    const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
    return openSync(`/proc/self/fd/${STANDARD_ERROR}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  } catch {
    // Node's stream makes the descriptor non-blocking for all threads; the main thread has one before it
    // starts the others.
    if (isMainThread) held ??= new Socket({ fd: STANDARD_ERROR, readable: false, writable: true });
    return STANDARD_ERROR;
  }
}
