/**
 * The log of events: one JSON line for each event on standard error, or a coloured line if standard error is
 * a terminal. Each thread of each process opens a Log of its own. Any thread.
 *
 * log-switch.ts has the levels and what is written now. What operators do is written at every level, by
 * `record`. Calls have logs of their own (gateway/gateway-logs.ts).
 *
 * Must hold: lines have no secrets and no contents of calls: callers see to it, nothing is removed here
 * (test/e2e/secrets.test.ts). No thread waits for a stopped reader of standard error
 * (test/unit/telemetry/log.test.ts). Names of fields stay: operators' programs read them. A new field is in
 * snake case; older ones in camel case stay (docs/operations.md lists them).
 *
 * `createLog` opens standard error when the first line is written. The threads of a gateway use `openLog`,
 * which opens it at once, so that a process that runs out of file descriptors can still log that.
 */
import { createRequire } from 'node:module';
import { isatty } from 'node:tty';
import type { prettyFactory as PrettyFactory } from 'pino-pretty';
import { createLogSwitch, type LogLevel, LogSwitch } from './log-switch.js';
import { STANDARD_ERROR, standardError } from './standard-error.js';

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
  return isatty(STANDARD_ERROR) ? prettyFormat() : (line) => line;
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
