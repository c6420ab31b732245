/**
 * The log: one JSON line an event on standard error. Any thread.
 *
 * Levels mean: error = a request or data was lost, warn = something failed and was recovered, info = start and stop.
 * Never secrets, never message contents. Lines are rare (nothing is logged per call), so they are written at once.
 */
import { writeSync } from 'node:fs';

export type LogLevel = 'error' | 'warn' | 'info';
export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Log {
  error(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
}

const STANDARD_ERROR = 2;

/** A log whose every line carries `thread`, such as `listener-0`. */
export function createLog(thread: string): Log {
  const write = (level: LogLevel, message: string, fields: LogFields = {}): void => {
    const line = JSON.stringify({ time: new Date().toISOString(), level, thread, message, ...fields });
    try {
      writeSync(STANDARD_ERROR, `${line}\n`);
    } catch {
      // A closed or full standard error must not take the gateway down.
    }
  };
  return {
    error: (message, fields) => write('error', message, fields),
    warn: (message, fields) => write('warn', message, fields),
    info: (message, fields) => write('info', message, fields),
  };
}
