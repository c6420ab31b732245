/**
 * The log: one JSON line an event on standard error, or a coloured one where that is a terminal. Any thread.
 *
 * Levels mean: error = a request or data was lost, warn = something failed and was recovered, info = start and stop.
 * Never secrets, never message contents. Lines are rare, calls have a log of their own: see access-ring.ts.
 *
 * With `createLog` standard error is opened, and for a terminal pino-pretty loaded, for the first line: the supervisor and
 * most commands write none for as long as all is well. The threads of a gateway use `openLog`: when file descriptors have run
 * out nothing can be opened or loaded, and that is a moment to log.
 */
import { createRequire } from 'node:module';
import { isatty } from 'node:tty';
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

type WriteLine = (level: LogLevel, message: string, fields: LogFields) => void;

/**
 * A log whose every line carries `thread`, such as `listener-0`, and the process. `control` says what is written and may
 * change at any time; without it all levels are. Never throws and never waits: see standard-error.ts. 10 µs a line.
 */
export function createLog(thread: string, control = new LogSwitch(createLogSwitch())): Log {
  let writeLine: WriteLine | undefined;
  return logTo((...line) => (writeLine ??= open(thread))(...line), control);
}

/** As `createLog`; all that a line wants is loaded and opened when this returns. */
export function openLog(thread: string, control: LogSwitch): Log {
  return logTo(open(thread), control);
}

function logTo(writeLine: WriteLine, control: LogSwitch): Log {
  const write = (level: LogLevel, message: string, fields: LogFields = {}): void => {
    if (control.allows(level)) writeLine(level, message, shortened(fields));
  };
  return {
    error: (message, fields) => write('error', message, fields),
    warn: (message, fields) => write('warn', message, fields),
    info: (message, fields) => write('info', message, fields),
  };
}

function open(thread: string): WriteLine {
  const output = standardError();
  const format = lineFormat();
  const { pid } = process;
  const writeLine: WriteLine = (level, message, fields) => {
    const line = { level, time: new Date().toISOString(), thread, pid, ...fields, message };
    output.write(Buffer.from(format(`${JSON.stringify(line)}\n`)));
  };
  output.onResumed = (dropped) =>
    writeLine('warn', 'lines were dropped: standard error was not read for a while', { dropped });
  return writeLine;
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
