/** What is wrong with a configuration: all of it at once, each with its place. Any thread. */

/** Names and positions from the root: `['models', 0, 'price']`. */
export type SettingPath = readonly (string | number)[];

/** `models[0].price`; the empty path is `settings`. */
export function formatPath(path: SettingPath): string {
  if (path.length === 0) return 'settings';
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`;
    return text === '' ? part : `${text}.${part}`;
  }, '');
}

/** An expected refusal. `problems` are whole lines; none shows a secret. */
export class ConfigError extends Error {
  readonly code = 'config_refused';
  readonly problems: readonly string[];

  constructor(errors: readonly string[]) {
    super(errors.join('\n'));
    this.name = 'ConfigError';
    this.problems = errors;
  }
}

const SHOWN_CHARS_MAX = 80;

/** How a refusal shows what it got: cut, on one line, with the type where that may be what is wrong. */
export function describe(value: unknown, withType: boolean): string {
  if (value === null || value === undefined) return 'nothing';
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list';
  switch (typeof value) {
    case 'string': {
      const shown = value.length > SHOWN_CHARS_MAX ? `${value.slice(0, SHOWN_CHARS_MAX)}…` : value;
      return JSON.stringify(shown) + (withType ? ' (a string)' : '');
    }
    case 'number':
    case 'boolean':
      return `${value}${withType ? ` (a ${typeof value})` : ''}`;
    default:
      return 'a map';
  }
}
