/**
 * What is logged at the moment: words that the main thread of a gateway writes and all its threads read.
 *
 *     word 0  rank of the least level that is written, an index into LOG_LEVELS
 *     word 1  1 while calls are written to the access log
 *     word 2  percent of the calls that went well which are written there; those that did not are always
 */
export const LOG_LEVELS = ['error', 'warn', 'info'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const RANK = 0;
const ACCESS = 1;
const SAMPLE_PERCENT = 2;
const WORDS = 3;

/** A plain record's field: hand it to a thread in its `workerData`. */
export type LogSwitchBuffer = SharedArrayBuffer;

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

  /** Whether a line of that level is written. */
  allows(level: LogLevel): boolean {
    return LOG_LEVELS.indexOf(level) <= Atomics.load(this.#words, RANK);
  }

  get access(): boolean {
    return Atomics.load(this.#words, ACCESS) === 1;
  }

  set access(on: boolean) {
    Atomics.store(this.#words, ACCESS, on ? 1 : 0);
  }

  get samplePercent(): number {
    return Atomics.load(this.#words, SAMPLE_PERCENT);
  }

  set samplePercent(percent: number) {
    Atomics.store(this.#words, SAMPLE_PERCENT, percent);
  }
}
