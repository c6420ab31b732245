/**
 * The error for a wrong configuration: all its problems at once, each with its path. The files of config/
 * throw it; the supervisor and commands print it. Any thread.
 *
 * Must hold: no problem contains the value of a secret, because problems are printed and logged
 * (test/unit/config/settings-reader.errors.test.ts).
 */
import { withoutUrlSecrets } from '../core/secret-url.js';
import { clipped, formatInputPath, type InputPath } from '../core/wrong-input.js';

export type SettingPath = InputPath;

/** `models[0].price`; the empty path is `settings`. */
export function formatPath(path: SettingPath): string {
  return path.length === 0 ? 'settings' : formatInputPath(path);
}

/** The configuration is refused. `problems` are whole lines; none contains a secret. */
export class ConfigError extends Error {
  readonly code = 'config_refused';
  readonly problems: readonly string[];

  constructor(errors: readonly string[]) {
    super(errors.join('\n'));
    this.name = 'ConfigError';
    this.problems = errors;
  }
}

/**
 * For a map with the name `50`, which `{ input: 1,50 }` has for YAML. No setting has a name of digits alone.
 */
export const COMMA_IN_NUMBER =
  'no setting has a number as its name; within { } a comma ends a value, so write a decimal with a point and in quotes, such as "1.50"';

/** Whether such a name may be the rest of a number with a comma. */
export function isNumberName(name: string): boolean {
  return /^\d+$/.test(name);
}

const SHOWN_CHARS_MAX = 80;

/** A value as a sentence shows it: clipped, on one line. `withType`: its type too, which may be wrong. */
export function describe(value: unknown, withType: boolean): string {
  if (value === null || value === undefined) return 'nothing';
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list';
  switch (typeof value) {
    case 'string':
      return (
        JSON.stringify(clipped(withoutUrlSecrets(value), SHOWN_CHARS_MAX)) + (withType ? ' (a string)' : '')
      );
    case 'number':
    case 'boolean':
      return `${value}${withType ? ` (a ${typeof value})` : ''}`;
    default:
      return 'a map';
  }
}
