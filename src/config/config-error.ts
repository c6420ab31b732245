/**
 * The error of wrong settings, and what its lines are made of. ConfigError names all problems at once, each
 * with its path. The files of config/ throw it; the supervisor and commands print it. Any thread.
 *
 * Must hold: no problem contains a secret, because problems are printed and logged. Callers give no secret to
 * `describe`. Test: test/unit/config/settings-reader.errors.test.ts.
 */
import { withoutUrlSecrets } from '../core/secret-url.js';
import { clipped, formatInputPath, type InputPath } from '../core/wrong-input.js';

export type SettingPath = InputPath;

/** Reports an error of the setting at `path`. */
export type Report = (path: SettingPath, text: string) => void;

/** Whether an error was reported of the setting, or of one within it. */
export type HasErrors = (path: SettingPath) => boolean;

/** Returns a text such as `models[0].price`; `settings` for the empty path. */
export function formatPath(path: SettingPath): string {
  return path.length === 0 ? 'settings' : formatInputPath(path);
}

/** The configuration is rejected. `problems` are whole lines, each once; none contains a secret. */
export class ConfigError extends Error {
  readonly code = 'config_refused';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    // The parser of YAML reports the same line for each bracket that is not closed.
    const differing = [...new Set(problems)];
    super(differing.join('\n'));
    this.name = 'ConfigError';
    this.problems = differing;
  }
}

/** The text for a setting that names an unset variable. `namesUnsetVariable` finds it in a problem. */
export const unsetVariableText = (name: string): string => `the environment variable ${name} is not set`;

/** Whether a line of a ConfigError says that a variable is not set. */
export const namesUnsetVariable = (problem: string): boolean =>
  /: the environment variable \w+ is not set$/.test(problem);

/**
 * The text for a setting whose name has only digits (`isNumberName`). No setting has such a name, but YAML
 * reads `{ input: 1,50 }` as a map with the names `input` and `50`.
 */
export const COMMA_IN_NUMBER =
  'no setting has a number as its name; within { } a comma ends a value, so write a decimal with a point and in quotes, such as "1.50"';

/** Whether a name has only digits, as the `50` that YAML makes of `1,50`. */
export function isNumberName(name: string): boolean {
  return /^\d+$/.test(name);
}

/** How many characters of a text are shown. Secrets are removed before: they are found in whole addresses. */
const SHOWN_CHARS_MAX = 80;

/**
 * Returns a value as an error shows it: clipped, on one line, without user, password and query of an address.
 * `withType`: adds the type of a text, number or boolean, which may be what is wrong.
 */
export function describe(value: unknown, { withType = false } = {}): string {
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
