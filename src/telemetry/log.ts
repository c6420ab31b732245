/**
 * The log of events: one JSON line for each event on standard error, or a coloured line if that is a
 * terminal. Each process and thread opens its own. Any thread.
 *
 * Levels mean: error = a request or data was lost, warn = something failed and was recovered, info = start
 * and stop. What operators do is written at every level, by `record`. Calls have logs of their own
 * (gateway/gateway-logs.ts).
 *
 * Must hold: lines have no secrets and no contents of messages (test/e2e/secrets.test.ts), and no thread
 * waits for a reader of standard error that has stopped (test/unit/telemetry/log.test.ts).
 *
 * `createLog` opens standard error for the first line. The threads of a gateway use `openLog`, because
 * nothing can be opened when file descriptors have run out, which is a moment to log.
 */
import { createRequire } from 'node:module';
import { isatty } from 'node:tty';
import type { prettyFactory as PrettyFactory } from 'pino-pretty';
import { STANDARD_ERROR, standardError } from './standard-error.js';

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

/** Members that are left out stay as they are. */
export type LogChange = Partial<LogView>;

/** The words of LogSwitch. */
const RANK = 0;
const ACCESS = 1;
const SAMPLE_PERCENT = 2;
const STORE = 3;
const WORDS = 4;

/** Hand it to a thread in its `workerData`. */
export type LogSwitchBuffer = SharedArrayBuffer;

export function createLogSwitch(): LogSwitchBuffer {
  const buffer = new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
  new LogSwitch(buffer).level = 'info';
  return buffer;
}

/**
 * What is logged now. The main thread of a gateway writes these words, all its threads read them.
 *
 *     word 0  rank of the least level that is written, an index into LOG_LEVELS
 *     word 1  1 while the access log is on
 *     word 2  percent of the successful calls in the access log; the others are always in it
 *     word 3  1 while calls are stored
 */
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

  /** Returns whether lines of that level are written. */
  allows(level: LogLevel): boolean {
    return LOG_LEVELS.indexOf(level) <= Atomics.load(this.#words, RANK);
  }

  // The next three are read for each call, so without Atomics.load (13 ns). That is safe, because a 32-bit
  // word is never read in halves.

  get access(): boolean {
    return this.#words[ACCESS] === 1;
  }

  set access(on: boolean) {
    Atomics.store(this.#words, ACCESS, on ? 1 : 0);
  }

  get store(): boolean {
    return this.#words[STORE] === 1;
  }

  set store(on: boolean) {
    Atomics.store(this.#words, STORE, on ? 1 : 0);
  }

  get samplePercent(): number {
    return this.#words[SAMPLE_PERCENT]!;
  }

  set samplePercent(percent: number) {
    Atomics.store(this.#words, SAMPLE_PERCENT, percent);
  }
}

export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Log {
  error(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  /**
   * Writes what an operator did, at every level that is set: an operator who may set the level must not be
   * able to hide changes by it. `level` is the level in the line, by default `info`.
   */
  record(message: string, fields?: LogFields, level?: LogLevel): void;
}

/**
 * A stack trace has one or two thousand characters. A line with one is still written whole (WHOLE_BYTES_MAX).
 */
const FIELD_CHARS_MAX = 2_500;

const require = createRequire(import.meta.url);

/** Writes one line. */
type Logger = (level: LogLevel, message: string, fields: LogFields) => void;

/**
 * Returns a log whose lines name `thread`, such as `listener-0`, and the process. `control` decides which
 * levels are written and may change at any time; without it all are. Never throws, never waits
 * (standard-error.ts).
 */
export function createLog(thread: string, control = new LogSwitch(createLogSwitch())): Log {
  let logger: Logger | undefined;
  return logTo((level, message, fields) => (logger ??= openLogger(thread))(level, message, fields), control);
}

/** As `createLog`, but opens standard error at once. `control` is the switch of the gateway. */
export function openLog(thread: string, control: LogSwitch): Log {
  return logTo(openLogger(thread), control);
}

function logTo(logger: Logger, control: LogSwitch): Log {
  const write = (level: LogLevel, message: string, fields: LogFields = {}): void => {
    if (control.allows(level)) logger(level, message, fields);
  };
  return {
    error: (message, fields) => write('error', message, fields),
    warn: (message, fields) => write('warn', message, fields),
    info: (message, fields) => write('info', message, fields),
    record: (message, fields = {}, level = 'info') => logger(level, message, fields),
  };
}

function openLogger(thread: string): Logger {
  const output = standardError();
  const format = lineFormat();
  const origin = `"thread":${JSON.stringify(thread)},"pid":${process.pid}`;
  const logger: Logger = (level, message, fields) => {
    const time = new Date().toISOString();
    // The JSON without its braces. JSON.stringify leaves out fields that are undefined.
    const own = JSON.stringify(shortened(fields)).slice(1, -1);
    const line = `{"level":"${level}","time":"${time}",${origin}${own && `,${own}`},"message":${JSON.stringify(message)}}\n`;
    output.write(Buffer.from(format(line)));
  };
  output.onResumed = (dropped) =>
    logger('warn', 'lines were dropped: standard error was not read for a while', { dropped });
  return logger;
}

/**
 * Returns the function that formats a JSON line with its newline: on a terminal, to a line for people.
 * gateway/gateway-logs.ts formats the access log by it.
 */
export function lineFormat(): (line: string) => string {
  return isPretty() ? prettyFormat() : (line) => line;
}

/** Returns whether standard error is a terminal, where people read the log. */
export function isPretty(): boolean {
  return isatty(STANDARD_ERROR);
}

/**
 * Shows the time of day, and the fields on the line of the message. Leaves out the long fields of an
 * operator's change (gateway/accounting-base.ts), which `tollgate changes list` shows.
 */
function prettyFormat(): (line: string) => string {
  const { prettyFactory } = require('pino-pretty') as { prettyFactory: typeof PrettyFactory };
  return prettyFactory({
    colorize: process.env.NO_COLOR === undefined,
    messageKey: 'message',
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'pid,hash,changes',
    singleLine: true,
  }) as (line: string) => string;
}

function shortened(fields: LogFields): LogFields {
  if (!Object.values(fields).some(isLong)) return fields;
  const entries = Object.entries(fields).map(([name, value]) =>
    isLong(value) ? [name, `${value.slice(0, FIELD_CHARS_MAX)}…`] : [name, value],
  );
  return Object.fromEntries(entries) as LogFields;
}

function isLong(value: LogFields[string]): value is string {
  return typeof value === 'string' && value.length > FIELD_CHARS_MAX;
}
