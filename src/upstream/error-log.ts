/**
 * Upstream failures in the log, bounded: an upstream that is down fails every call, and a line for each would be a second
 * outage. Upstream worker.
 */
import type { Clock } from '../core/clock.js';
import type { Log } from '../telemetry/log.js';

/** One line for each upstream and message in this time; the next line tells how many were left out. */
const LINE_PERIOD_MS = 10_000;

interface Kind {
  lineMs: number;
  unwritten: number;
}

export class ErrorLog {
  readonly #log: Log;
  readonly #clock: Clock;
  /** By level, subject and message, which are few and fixed, so this does not grow. */
  readonly #kinds = new Map<string, Kind>();

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** `subject` is an upstream's name or another fixed word, `message` a fixed text; what varies is the `cause`. */
  write(level: 'error' | 'warn', subject: string, message: string, cause: string): void {
    const nowMs = this.#clock.monotonicMs();
    const key = `${level} ${subject} ${message}`;
    const kind = this.#kinds.get(key);
    if (kind !== undefined && nowMs - kind.lineMs < LINE_PERIOD_MS) {
      kind.unwritten++;
      return;
    }
    this.#log[level](message, { subject, cause, unwritten: kind?.unwritten });
    this.#kinds.set(key, { lineMs: nowMs, unwritten: 0 });
  }
}
