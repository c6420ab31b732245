/**
 * What a gateway logs now: the least severe level, and which calls its access log and its call log get. The
 * main thread writes it into a word each of shared memory (gateway/gateway-logs.ts), for an operator or at a
 * reload; all threads read it, for log.ts and, of calls, call-ring-writer.ts. Any thread.
 *
 * Levels mean: error = a request or data was lost, warn = something failed and was recovered, info = start
 * and stop.
 *
 * Must hold: names of LogView stay, because the admin interface has them. LOG_LEVELS go from the most to the
 * least severe: a level allows all before it. Only the main thread writes the words.
 */
export const LOG_LEVELS = ['error', 'warn', 'info'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** What a running gateway logs, with the names of the admin interface. */
export interface LogView {
  level: LogLevel;
  /** Whether a line is written for each chat call. */
  access_log: boolean;
  /** Share of the successful calls that the access log has, 0 to 100. */
  sample_percent: number;
}

/** Settings that are left out stay as they are. */
export type LogChange = Partial<LogView>;

// The words of LogSwitch.
const RANK = 0; // of the least severe level that is written: an index into LOG_LEVELS
const ACCESS = 1; // 1 while the access log is on
const SAMPLE_PERCENT = 2; // of the successful calls that the access log has; it has all other calls
const STORE = 3; // 1 while ended calls are written to the call log or exported (`storesCalls`)
const WORDS = 4;

/** The memory of a LogSwitch. Threads of a gateway get it in their `workerData`. */
export type LogSwitchBuffer = SharedArrayBuffer;

/** Returns a switch that is set to level `info`, with the access log and the call log off. */
export function createLogSwitch(): LogSwitchBuffer {
  const buffer = new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
  new LogSwitch(buffer).level = 'info';
  return buffer;
}

export class LogSwitch {
  readonly #words: Int32Array;

  constructor(buffer: LogSwitchBuffer) {
    this.#words = new Int32Array(buffer);
  }

  get level(): LogLevel {
    return LOG_LEVELS[Atomics.load(this.#words, RANK)]!;
  }

  set level(level: LogLevel) {
    Atomics.store(this.#words, RANK, LOG_LEVELS.indexOf(level));
  }

  allows(level: LogLevel): boolean {
    return LOG_LEVELS.indexOf(level) <= Atomics.load(this.#words, RANK);
  }

  // Each call reads the next three words, so they are read without Atomics.load (13 ns). A plain read is
  // safe, because a 32-bit word is never read in halves. A change may be seen a moment later.

  get writesAccessLog(): boolean {
    return this.#words[ACCESS] === 1;
  }

  set writesAccessLog(isOn: boolean) {
    Atomics.store(this.#words, ACCESS, isOn ? 1 : 0);
  }

  get storesCalls(): boolean {
    return this.#words[STORE] === 1;
  }

  set storesCalls(isOn: boolean) {
    Atomics.store(this.#words, STORE, isOn ? 1 : 0);
  }

  get samplePercent(): number {
    return this.#words[SAMPLE_PERCENT]!;
  }

  set samplePercent(percent: number) {
    Atomics.store(this.#words, SAMPLE_PERCENT, percent);
  }
}
