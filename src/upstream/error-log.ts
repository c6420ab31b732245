/**
 * Writes rate-limited log lines about failures of upstreams: an upstream that is down fails every call, and
 * a line for each call would fill the log. Sessions and upstream-task.ts use it. Upstream worker.
 *
 * Must hold: level, subject and message are few and fixed texts, because they are the keys of a map that
 * never shrinks. Only `cause` varies. Lines that are left out are counted, and the next line has their number
 * (test/unit/upstream/error-log.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { Log } from '../telemetry/log.js';
import type { AttemptFailure } from './error-mapping.js';
import { addressOf, type UpstreamTarget } from './target.js';

/** At most one line for each level, subject and message is written in this time. */
const LINE_PERIOD_MS = 10_000;

/** When the last line of one level, subject and message was written, and how many were left out since. */
interface LastLine {
  readonly writtenMs: number;
  unwritten: number;
}

export class ErrorLog {
  readonly #log: Log;
  readonly #clock: Clock;
  /** By level, subject and message. */
  readonly #lastLines = new Map<string, LastLine>();

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** Writes why an attempt failed. `goesOn`: another attempt follows. */
  writeFailure(target: UpstreamTarget, failure: AttemptFailure, goesOn: boolean): void {
    const { name } = target;
    if (failure.wrongAddress)
      this.write(
        'warn',
        name,
        'an upstream has no chat interface at its address, or not this model: check url and model',
        `${failure.cause}, at ${addressOf(target)}`,
      );
    else if (failure.kind === 'credentials')
      this.write('error', name, 'an upstream refuses our key or account', failure.cause);
    else if (goesOn) this.write('warn', name, 'an upstream failed, the call was tried again', failure.cause);
    else this.write('error', name, 'an upstream failed, the call was lost', failure.cause);
  }

  /** Writes that all upstreams of a model cool down, and why. `goesOn`: a fallback gets the call. */
  writeCoolingDown(modelId: string, reason: string, goesOn: boolean): void {
    const subject = `model ${modelId}`;
    if (goesOn) this.write('warn', subject, 'all upstreams of a model rest, a fallback got the call', reason);
    else this.write('error', subject, 'all upstreams of a model rest, the call was lost', reason);
  }

  /** Writes an exception, which is a bug of the gateway. */
  writeCrash(error: unknown): void {
    const cause = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.write('error', 'gateway', 'a call failed inside of the gateway', cause);
  }

  /** `subject` is an upstream's name or another fixed word, `message` a fixed text; only `cause` varies. */
  write(level: 'error' | 'warn', subject: string, message: string, cause: string): void {
    const nowMs = this.#clock.monotonicMs();
    const key = `${level} ${subject} ${message}`;
    const lastLine = this.#lastLines.get(key);
    if (lastLine !== undefined && nowMs - lastLine.writtenMs < LINE_PERIOD_MS) {
      lastLine.unwritten++;
      return;
    }
    this.#log[level](message, { subject, cause, unwritten: lastLine?.unwritten });
    this.#lastLines.set(key, { writtenMs: nowMs, unwritten: 0 });
  }
}
