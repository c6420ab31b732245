/**
 * The log of events: one JSON line for each event on standard error, or a coloured line if standard error is
 * a terminal. Each thread of each process opens a Log of its own. Any thread.
 *
 * Levels mean: error = a request or data was lost, warn = something failed and was recovered, info = start
 * and stop. What operators do is written at every level, by `record`. Calls have logs of their own
 * (gateway/gateway-logs.ts).
 *
 * Must hold: lines have no secrets and no contents of calls: callers see to it, nothing is removed here
 * (test/e2e/secrets.test.ts). No thread waits for a stopped reader of standard error
 * (test/unit/telemetry/log.test.ts). Names of LogView and of fields stay: operators' programs read them. A
 * new field is in snake case; older ones in camel case stay (docs/operations.md lists them).
 *
 * `createLog` opens standard error when the first line is written. The threads of a gateway use `openLog`,
 * which opens it at once, so that a process that runs out of file descriptors can still log that.
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

/** Settings that are left out stay as they are. */
export type LogChange = Partial<LogView>;

/** The words of LogSwitch, which its table explains. */
const RANK = 0;
const ACCESS = 1;
const SAMPLE_PERCENT = 2;
const STORE = 3;
const WORDS = 4;

/** The memory of a LogSwitch. Threads of a gateway get it in their `workerData`. */
export type LogSwitchBuffer = SharedArrayBuffer;

/** Returns a switch that is set to level `info`, with the access log and the call log off. */
export function createLogSwitch(): LogSwitchBuffer {
  const buffer = new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
  new LogSwitch(buffer).level = 'info';
  return buffer;
}

/**
 * What is logged now. The main thread of a gateway writes these words, all its threads read them.
 *
 *     word 0  rank of the least severe level that is written, an index into LOG_LEVELS
 *     word 1  1 while the access log is on
 *     word 2  percent of the successful calls that the access log has; it has all other calls
 *     word 3  1 while ended calls are written to the call log (`storesCalls`)
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

/** Fields besides level, time, thread, pid, message. Undefined fields are left out, long texts are cut. */
export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Log {
  error(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  /**
   * Writes what an operator did, whatever level is set: an operator who may set the level must not be able to
   * hide changes by it. `level` is the level that the line shows, by default `info`.
   */
  record(message: string, fields?: LogFields, level?: LogLevel): void;
}

/** Enough for a stack trace. A line with one such text mostly fits WHOLE_BYTES_MAX of standard-error.ts. */
const FIELD_CHARS_MAX = 2_500;

/** Loads pino-pretty only if standard error is a terminal, and at once: an `import` would be a promise. */
const require = createRequire(import.meta.url);

/** Writes one line, whatever the levels of LogSwitch. */
type Logger = (level: LogLevel, message: string, fields: LogFields) => void;

/**
 * Returns a log whose lines name `thread`, such as `listener-0`, and the process. The levels that
 * `logSwitch` allows are written, by default all. They may change at any time. The log never throws and never
 * waits (standard-error.ts).
 */
export function createLog(thread: string, logSwitch = new LogSwitch(createLogSwitch())): Log {
  let logger: Logger | undefined;
  return logTo(
    (level, message, fields) => (logger ??= openLogger(thread))(level, message, fields),
    logSwitch,
  );
}

/** As `createLog`, but opens standard error at once. `logSwitch` is that of the gateway. */
export function openLog(thread: string, logSwitch: LogSwitch): Log {
  return logTo(openLogger(thread), logSwitch);
}

function logTo(logger: Logger, logSwitch: LogSwitch): Log {
  const write = (level: LogLevel, message: string, fields: LogFields = {}): void => {
    if (logSwitch.allows(level)) logger(level, message, fields);
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
  const originJson = `"thread":${JSON.stringify(thread)},"pid":${process.pid}`;
  const logger: Logger = (level, message, fields) => {
    const time = new Date().toISOString();
    // `slice` removes the braces, and JSON.stringify leaves out the fields that are undefined.
    const fieldsJson = JSON.stringify(shortened(fields)).slice(1, -1);
    const line = `{"level":"${level}","time":"${time}",${originJson}${fieldsJson && `,${fieldsJson}`},"message":${JSON.stringify(message)}}\n`;
    output.write(Buffer.from(format(line)));
  };
  // By `logger`, which ignores the set level: the operator must learn that lines are missing.
  output.onResumed = (dropped) =>
    logger('warn', 'lines were dropped: standard error was not read, or its disk was full, for a while', {
      dropped,
    });
  return logger;
}

/**
 * Returns the function that formats a JSON line with its newline. On a terminal it makes a line for people;
 * otherwise it returns the same line. gateway/gateway-logs.ts formats the access log by it.
 */
export function lineFormat(): (line: string) => string {
  return isTerminal() ? prettyFormat() : (line) => line;
}

/** Whether standard error is a terminal. */
export function isTerminal(): boolean {
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

/** Returns `fields` with long texts cut; the same object if none is long, as in most lines. */
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
