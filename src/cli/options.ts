/**
 * Options that several commands share, parsers of arguments, and the question before a dangerous change. Most
 * files of commands use them.
 *
 * Must hold: a parser throws only InvalidArgumentError, which Commander prints with the option's name
 * (test/unit/cli/options.test.ts).
 */
import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { type Command, InvalidArgumentError } from 'commander';
import { parseMomentMs } from '../core/clock.js';
import { KEY_EXPIRES_SECONDS_MAX } from '../registry/key-table.js';
import { visible } from '../core/wrong-input.js';
import { CommandError, Misuse } from './output.js';

/** The values of the options that `addAdminOptions` adds, as Commander parses them. */
export interface AdminOptions {
  readonly config?: string;
  readonly data?: string;
  readonly adminUrl?: string;
  readonly json?: boolean;
}

/** Adds the option of commands that read the settings. */
export function addConfigOption(command: Command): Command {
  return command.option(
    '--config <file>',
    'configuration file (TOLLGATE_CONFIG; default: tollgate.yaml, if there is one)',
    parseNonEmpty,
  );
}

/** Adds the options of commands that read the data directory. */
export function addStoreOptions(command: Command): Command {
  return addConfigOption(command).option(
    '--data <folder>',
    'folder of the books (TOLLGATE_DATA; default: that of the configuration)',
    parseNonEmpty,
  );
}

/** Adds the options of commands that call the admin interface. */
export function addAdminOptions(command: Command): Command {
  return addStoreOptions(command)
    .option(
      '--admin-url <url>',
      'admin interface of a gateway elsewhere (TOLLGATE_ADMIN_URL), with its token in TOLLGATE_ADMIN_TOKEN',
      parseAdminUrl,
    )
    .option('--json', 'print JSON');
}

function parseAdminUrl(text: string): string {
  const origin = adminOriginOf(text);
  if (origin === undefined) throw new InvalidArgumentError(ADMIN_URL_RULE);
  return origin;
}

export const ADMIN_URL_RULE = 'Want an address such as http://10.0.0.5:8081.';

/** Returns the origin of an http(s) address of only host and port; undefined for any other text. */
export function adminOriginOf(text: string): string | undefined {
  if (!URL.canParse(text)) return undefined;
  const { protocol, username, password, pathname, search, hash, origin } = new URL(text);
  const isHostAlone = username + password + search + hash === '' && pathname === '/';
  return isHostAlone && (protocol === 'http:' || protocol === 'https:') ? origin : undefined;
}

/** Rejects an empty argument, which a shell passes for a variable that is not set. */
export function parseNonEmpty(text: string): string {
  if (text === '') throw new InvalidArgumentError('It is empty.');
  return text;
}

/** Returns a parser for whole numbers between two bounds. */
export function wholeNumberFrom(minimum: number, maximum: number): (text: string) => number {
  return (text) => {
    // Up to fifteen digits, here and below, are exact as a number.
    if (/^\d{1,15}$/.test(text) && Number(text) >= minimum && Number(text) <= maximum) return Number(text);
    throw new InvalidArgumentError(`Want a whole number from ${minimum} to ${maximum}.`);
  };
}

const DAY_SECONDS = 86_400;
const SECONDS_OF_UNIT: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: DAY_SECONDS };

/** Parses `90`, `90s`, `15m`, `24h` or `30d`, and returns seconds. */
export function durationSeconds(text: string): number {
  const [, count, unit = 's'] = /^(\d{1,10})([smhd])?$/.exec(text) ?? [];
  if (count === undefined)
    throw new InvalidArgumentError('A duration such as 90s, 15m, 24h or 30d is wanted.');
  // The pattern lets only units of SECONDS_OF_UNIT pass.
  return Number(count) * SECONDS_OF_UNIT[unit]!;
}

/**
 * As `durationSeconds`, for the life of a key or a token, which is not over at once. The gateway checks that
 * it ends before 2106.
 */
export function lifeSeconds(text: string): number {
  const seconds = durationSeconds(text);
  if (seconds >= 1 && seconds <= KEY_EXPIRES_SECONDS_MAX) return seconds;
  throw new InvalidArgumentError(
    'A duration such as 90s, 15m, 24h or 30d is wanted, of at least 1s, which ends before 2106.',
  );
}

/**
 * Parses `2030-01-31` (00:00 UTC), `2030-01-31T12:00Z` or Unix seconds, and returns Unix seconds. Rejects a
 * day that is in no calendar.
 */
export function momentSeconds(text: string): number {
  // More than eleven digits may be milliseconds.
  const ms = /^\d{1,11}$/.test(text)
    ? Number(text) * 1_000
    : /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2}))?$/.test(text)
      ? parseMomentMs(text)
      : NaN;
  if (!Number.isNaN(ms)) return Math.floor(ms / 1_000);
  throw new InvalidArgumentError('A moment such as 2030-01-31, 2030-01-31T12:00Z or Unix seconds is wanted.');
}

/** As `momentSeconds`, for the end of a period. A day is included, so its last second is returned. */
export function endSeconds(text: string): number {
  const seconds = momentSeconds(text);
  return /^\d{4}-\d{2}-\d{2}$/.test(text) ? seconds + DAY_SECONDS - 1 : seconds;
}

/** Parses a whole number. The gateway checks its bounds. */
export function parseWholeNumber(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('A whole number is wanted.');
}

/** Returns the examples at the end of a command's help. `lines`: commands without `tollgate`. */
export function exampleText(...lines: readonly string[]): string {
  return `\nExample:\n${lines.map((line) => `  tollgate ${line}`).join('\n')}`;
}

export interface ConfirmationOptions {
  readonly yes?: boolean;
}

/** Adds `--yes`, for a command that calls `confirm`. */
export function addConfirmation(command: Command): Command {
  return command.option('--yes', 'do not ask');
}

/**
 * Asks before a change that cannot be undone or that stops callers. Resolves if `--yes` was given or a person
 * at the terminal says yes. Rejects with Misuse if standard input is no terminal, and with CommandError for
 * any other answer.
 */
export async function confirm(question: string, { yes }: ConfirmationOptions): Promise<void> {
  if (yes === true) return;
  if (!process.stdin.isTTY)
    throw new Misuse('Nobody is here to confirm: give --yes to go on without asking.');
  // Standard error, because a script may capture standard output.
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    // Ctrl-D rejects the question. Any other end of the input leaves it pending, so `close` is awaited too.
    const answer = await Promise.race([
      terminal.question(`${visible(question)} [y/N] `).catch(() => ''),
      once(terminal, 'close').then(() => ''),
    ]);
    if (!/^y(es)?$/i.test(answer.trim())) throw new CommandError('Nothing was changed.');
  } finally {
    terminal.close();
  }
}
