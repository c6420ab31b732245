/**
 * Standard error as an output that never blocks. Lines that a slow reader does not take wait in memory.
 * Beyond a bound they are dropped and counted. log.ts and the access log (gateway/gateway-logs.ts) write
 * here. Any thread; each thread has its own, all on the same open file.
 *
 * Must hold: `write` never waits or throws, also on a full pipe or after the reader has gone, and the bytes
 * that wait are bounded (test/unit/telemetry/log.test.ts).
 *
 * A write to a full pipe blocks its thread, and with it every call, until somebody reads. Node cannot make an
 * open descriptor non-blocking, so a pipe or a terminal is opened a second time, with O_NONBLOCK. A socket
 * (from systemd) cannot be opened again, and another user's pipe may not be: then Node's own stream makes the
 * descriptor non-blocking, for every process that shares it.
 *
 * sonic-boom 4.2.1, which pino-pretty brings, was tried and is not used. Its `flushSync`, which the end of a
 * process needs, never returns if the reader has gone, and in its asynchronous mode also if the reader does
 * not read. Its synchronous mode does not retry by itself.
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';

/**
 * Names the log's descriptor in a process whose own standard error is not the log: see
 * supervisor/gateway-process.ts.
 */
export const LOG_DESCRIPTOR_VARIABLE = 'TOLLGATE_LOG_DESCRIPTOR';

/** The descriptor that the log is written to. */
export const STANDARD_ERROR = Number(process.env[LOG_DESCRIPTOR_VARIABLE] ?? 2);
/**
 * The system writes up to this to a pipe whole or not at all (PIPE_BUF), so lines of several threads do not
 * mix.
 */
export const WHOLE_BYTES_MAX = 4_096;
/** How many bytes may wait in each thread: some 1,000 lines, four times as much as a pipe holds. */
const PENDING_BYTES_MAX = 256 * 1024;
const RETRY_MS = 50;

export class StandardError {
  readonly #descriptor: number;
  /** The bytes that wait, oldest first. */
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #dropped = 0;
  #retry: NodeJS.Timeout | undefined;
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
      const rest = this.#try(bytes);
      if (rest.length > 0) this.#queue(rest);
    } else if (this.#pendingBytes + bytes.length <= PENDING_BYTES_MAX) {
      this.#queue(bytes);
    } else {
      this.#dropped += lines;
    }
  }

  /** Tries once to write the bytes that wait. Called by a timer, and at the end of the process. */
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

  #queue(bytes: Buffer): void {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    this.#retry ??= setInterval(() => this.flush(), RETRY_MS).unref();
  }

  /**
   * Returns the bytes that were not written. If the reader has gone, returns none, because nobody will read
   * them.
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
/** Referenced from here, because a socket that is garbage-collected closes its descriptor. */
let heldSocket: Socket | undefined;

/** Returns this thread's standard error, opened at the first call. */
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
    if (isMainThread) heldSocket ??= new Socket({ fd: STANDARD_ERROR, readable: false, writable: true });
    return STANDARD_ERROR;
  }
}
