/**
 * Standard error as an output that never blocks. Lines that a slow reader or a full disk does not take wait
 * in memory. Lines beyond a bound are dropped and counted. log.ts and the access log (gateway-logs.ts) write
 * here. Any thread; each thread has a StandardError of its own, all on the same open file.
 *
 * Must hold (test/unit/telemetry/log.test.ts):
 * - `write` never waits or throws, also on a full pipe or after the reader has gone.
 * - The bytes that wait are bounded.
 * - Bytes are written in the order of the calls.
 *
 * A write to a full pipe blocks its thread, and with it every call, until somebody reads. Node cannot make an
 * open descriptor non-blocking, so a pipe or a terminal is opened a second time, with O_NONBLOCK. A socket
 * (from systemd) cannot be opened again, and a pipe of another user may not be opened. In these cases Node's
 * own stream makes the descriptor non-blocking, for every process that shares it.
 *
 * sonic-boom 4.2.1, which pino-pretty brings, was tried and is not used. Its `flushSync`, which the end of a
 * process needs, never returns if the reader has gone, and in its asynchronous mode also if the reader does
 * not read. Its synchronous mode does not retry by itself.
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';

/**
 * Names the log's descriptor in a gateway process, whose own standard error the supervisor reads
 * (supervisor/gateway-process.ts). The name stays, because the supervisor may be of an older version.
 */
export const LOG_DESCRIPTOR_VARIABLE = 'TOLLGATE_LOG_DESCRIPTOR';

/** The number of the descriptor that the log is written to: 2, unless the variable names another. */
export const STANDARD_ERROR = Number(process.env[LOG_DESCRIPTOR_VARIABLE] ?? 2);
/**
 * The system writes up to this many bytes to a pipe whole or not at all (PIPE_BUF), so that such lines of
 * several threads do not mix.
 */
export const WHOLE_BYTES_MAX = 4_096;
/** How many bytes may wait in each thread: some 1,000 lines, four times as much as a pipe holds. */
const PENDING_BYTES_MAX = 256 * 1024;
/** How often the waiting bytes are tried again. */
const RETRY_MS = 50;
/** The codes after which a later try may succeed: a full pipe, and a full disk or quota below a file. */
const FULL_CODES: readonly (string | undefined)[] = ['EAGAIN', 'ENOSPC', 'EDQUOT'];

export class StandardError {
  readonly #descriptor: number;
  /** The bytes that wait, oldest first. */
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  /** Lines that were dropped since `onResumed` was called last. */
  #droppedLines = 0;
  /** Runs while bytes wait. */
  #retryTimer: NodeJS.Timeout | undefined;
  /** Called with the number of dropped lines, once all that waited is written. */
  onResumed: (droppedLines: number) => void = () => undefined;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  /**
   * Writes `bytes`, which are `lines` whole lines. If they are longer than WHOLE_BYTES_MAX, lines of other
   * threads may get between them.
   */
  write(bytes: Buffer, lines = 1): void {
    if (this.#pending.length === 0) {
      const unwritten = this.#tryWrite(bytes);
      if (unwritten.length > 0) this.#queue(unwritten);
    } else if (this.#pendingBytes + bytes.length <= PENDING_BYTES_MAX) {
      this.#queue(bytes);
    } else {
      this.#droppedLines += lines;
    }
  }

  /** Tries once to write the bytes that wait. The timer calls it, and the end of the process. */
  flush(): void {
    while (this.#pending.length > 0) {
      const [oldest] = this.#pending as [Buffer];
      const unwritten = this.#tryWrite(oldest);
      this.#pendingBytes -= oldest.length - unwritten.length;
      if (unwritten.length > 0) {
        this.#pending[0] = unwritten;
        return;
      }
      this.#pending.shift();
    }
    clearInterval(this.#retryTimer);
    this.#retryTimer = undefined;
    // Set to 0 before the call, because `onResumed` writes a line here.
    const droppedLines = this.#droppedLines;
    this.#droppedLines = 0;
    if (droppedLines > 0) this.onResumed(droppedLines);
  }

  #queue(bytes: Buffer): void {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    this.#retryTimer ??= setInterval(() => this.flush(), RETRY_MS).unref();
  }

  /**
   * Returns the bytes that were not written because the pipe or the disk is full. After any other error
   * returns none: the reader has gone, so the bytes are dropped, and are in no count.
   */
  #tryWrite(bytes: Buffer): Buffer {
    try {
      return bytes.subarray(writeSync(this.#descriptor, bytes));
    } catch (error) {
      const isFull = FULL_CODES.includes((error as NodeJS.ErrnoException).code);
      return isFull ? bytes : bytes.subarray(bytes.length);
    }
  }
}

/** What `standardError` returns in this thread; undefined before the first call. */
let threadOutput: StandardError | undefined;
/** Keeps the socket from garbage collection, which would close its descriptor. */
let keptSocket: Socket | undefined;

/** Returns this thread's standard error, opened at the first call. */
export function standardError(): StandardError {
  if (threadOutput === undefined) {
    const opened = new StandardError(openStandardError());
    process.once('exit', () => opened.flush());
    threadOutput = opened;
  }
  return threadOutput;
}

/** Returns a descriptor that does not block, if the system gives one. */
function openStandardError(): number {
  try {
    const stat = fstatSync(STANDARD_ERROR);
    // A file does not block. Opened a second time, it would be written at another offset.
    if (!stat.isFIFO() && !stat.isSocket() && !stat.isCharacterDevice()) return STANDARD_ERROR;
    const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
    return openSync(`/proc/self/fd/${STANDARD_ERROR}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  } catch {
    // Node's stream makes the descriptor non-blocking for all threads. The main thread opens its log before
    // it starts other threads, so they need no stream of their own.
    if (isMainThread) keptSocket ??= new Socket({ fd: STANDARD_ERROR, readable: false, writable: true });
    return STANDARD_ERROR;
  }
}
