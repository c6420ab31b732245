/**
 * The log: one JSON line an event on standard error, or a coloured one where that is a terminal. Any thread.
 *
 * Levels mean: error = a request or data was lost, warn = something failed and was recovered, info = start and stop.
 * Never secrets, never message contents. Lines are rare, calls have a log of their own: see access-ring.ts.
 *
 * With `createLog` pino is loaded for the first line: the supervisor writes none for as long as all is well, and saves its
 * 7 MB. The threads of a gateway use `openLog`: when file descriptors have run out nothing can be loaded, and that is a moment
 * to log.
 */
import { createRequire } from 'node:module';
import { isatty } from 'node:tty';
import type { pino as Pino, Logger } from 'pino';
import type { prettyFactory as PrettyFactory } from 'pino-pretty';
import { createLogSwitch, LogSwitch, type LogLevel } from './log-switch.js';
import { standardError } from './standard-error.js';

export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Log {
  error(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
}

const STANDARD_ERROR = 2;
/** A stack is 1,000 characters or two; with it a line is written whole, see WHOLE_BYTES_MAX. */
const FIELD_CHARS_MAX = 2_500;

const require = createRequire(import.meta.url);

/**
 * A log whose every line carries `thread`, such as `listener-0`, and the process. `control` says what is written and may
 * change at any time; without it all levels are. Never throws and never waits: see standard-error.ts. 10 µs a line.
 */
export function createLog(thread: string, control = new LogSwitch(createLogSwitch())): Log {
  let logger: Logger | undefined;
  return logTo(() => (logger ??= open(thread)), control);
}

/** As `createLog`; all that a line wants is loaded and opened when this returns. Some 25 ms. */
export function openLog(thread: string, control: LogSwitch): Log {
  const logger = open(thread);
  return logTo(() => logger, control);
}

function logTo(logger: () => Logger, control: LogSwitch): Log {
  const write = (level: LogLevel, message: string, fields: LogFields = {}): void => {
    if (control.allows(level)) logger()[level](shortened(fields), message);
  };
  return {
    error: (message, fields) => write('error', message, fields),
    warn: (message, fields) => write('warn', message, fields),
    info: (message, fields) => write('info', message, fields),
  };
}

function open(thread: string): Logger {
  const { pino } = require('pino') as { pino: typeof Pino };
  const output = standardError();
  const format = lineFormat();
  const logger = pino(
    {
      base: { thread, pid: process.pid },
      messageKey: 'message',
      formatters: { level: (level) => ({ level }) },
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
    },
    { write: (line) => output.write(Buffer.from(format(line))) },
  );
  output.onResumed = (dropped) =>
    logger.warn({ dropped }, 'lines were dropped: standard error was not read for a while');
  return logger;
}

/** From a JSON line with its newline to what is written: on a terminal something for people. */
export function lineFormat(): (line: string) => string {
  return isPretty() ? prettyFormat() : (line) => line;
}

/** Whether people read it as it comes. */
export function isPretty(): boolean {
  return isatty(STANDARD_ERROR);
}

/** The time of day, and the fields on the message's line. */
function prettyFormat(): (line: string) => string {
  const { prettyFactory } = require('pino-pretty') as { prettyFactory: typeof PrettyFactory };
  return prettyFactory({
    colorize: process.env.NO_COLOR === undefined,
    messageKey: 'message',
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'pid',
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
