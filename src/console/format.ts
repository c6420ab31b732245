/**
 * Numbers, money and moments as people read them. All pages call these functions. Pure; browser.
 *
 * Must hold: money is decimal text, whose decimals are cut and never computed as a binary fraction
 * (test/e2e/console-tables.test.ts). A day of usage has its date in UTC (test/unit/console/format.test.ts).
 */
import { picoUnitsOfExact, decimalOf } from '../core/money.js';

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/** `1,234`, `12.3`, `0.05`: larger values have fewer decimals, those from 100 on none. */
export function number(value: number): string {
  if (Number.isInteger(value) || Math.abs(value) >= 100) return WHOLE.format(value);
  return value.toLocaleString('en', { maximumFractionDigits: Math.abs(value) >= 10 ? 1 : 2 });
}

/**
 * Units, and from which value on each is used: from where the smaller one would be rounded up to `1,000`. `k`
 * only from 10,000 on: four digits are as short as `1.23k`.
 */
const UNITS = [
  { from: 999.5e9, size: 1e12, unit: 'T' },
  { from: 999.5e6, size: 1e9, unit: 'G' },
  { from: 999.5e3, size: 1e6, unit: 'M' },
  { from: 9_999.5, size: 1e3, unit: 'k' },
] as const;

/** `1 call`, `1,234 calls`. `format` writes the number. */
export function counted(count: number, noun: string, format = number): string {
  return `${format(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** `12.3k`, for narrow places. */
export function shortNumber(value: number): string {
  for (const { from, size, unit } of UNITS) {
    if (Math.abs(value) >= from) return `${number(value / size)}${unit}`;
  }
  return number(value);
}

/** `12.3 %`, rounded down to a tenth: `100 %` is said of all alone. `whole` is not 0. */
export function percent(part: number, whole: number): string {
  return `${number(Math.floor((1_000 * part) / whole) / 10)} %`;
}

/** Money is counted in pico-units, so that no amount has more decimals. */
export const DECIMALS_OF_MONEY = 12;

/** `1,234.50` of decimal text: two to `decimalsMax` decimals, and `…` if others than 0 were left out. */
export function money(text: string, decimalsMax = 6): string {
  const [, sign = '', whole = '0', decimals = ''] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text) ?? [];
  const shown = decimals
    .slice(0, decimalsMax)
    .replace(/(?<!0)0+$/, '')
    .padEnd(2, '0');
  const ellipsis = /[1-9]/.test(decimals.slice(decimalsMax)) ? '…' : '';
  // oxlint-disable-next-line regexp/no-super-linear-move -- Money has at most some twenty digits.
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  return `${sign}${grouped}.${shown}${ellipsis}`;
}

/** The exact sum of decimal texts with at most DECIMALS_OF_MONEY decimals, as decimal text. */
export function sumOfMoney(texts: readonly string[]): string {
  return decimalOf(texts.reduce((picoUnits, text) => picoUnits + picoUnitsOfExact(text), 0n));
}

/** An amount of money that is a float, as charts have it: `0.0012`, `12.3k`, and never `3.0e-6`. */
export function roughMoney(value: number): string {
  if (Math.abs(value) >= 1) return shortNumber(value);
  return value.toLocaleString('en', { maximumSignificantDigits: 2 });
}

/** `1.23 s`, `12.3 ms`: three figures, so that 999.5 ms is `1 s`. A dash for null. */
export function milliseconds(value: number | null): string {
  if (value === null) return '–';
  if (value >= 999.5) return `${number(Number((value / 1_000).toPrecision(3)))} s`;
  return `${number(Number(value.toPrecision(3)))} ms`;
}

/** `12.3 MiB`; GiB from where MiB would be rounded up to `1,024`. */
export function bytes(value: number): string {
  return value >= 1023.5 * 1024 ** 2
    ? `${number(value / 1024 ** 3)} GiB`
    : `${number(value / 1024 ** 2)} MiB`;
}

/**
 * `31 Jan 2025, 12:00` of Unix seconds. All moments but those of `isoOf` and of bars of a day are in the
 * browser's time zone.
 */
export function moment(seconds: number): string {
  return new Date(seconds * 1_000).toLocaleString('en-GB', {
    year: 'numeric',
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
  });
}

/** `31 Jan 2025, 12:00:05` of Unix milliseconds. */
export function exactMoment(ms: number): string {
  return new Date(ms).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
}

/** `31 Jan, 12:00:05` of Unix milliseconds, for lists of recent events. */
export function recentMoment(ms: number): string {
  return new Date(ms).toLocaleString('en-GB', {
    day: 'numeric',
    month: 'short',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
  });
}

export const HOUR_SECONDS = 3_600;
export const DAY_SECONDS = 86_400;
/** Charts of more time than this have days on their axis instead of times of the day. */
const DAYS_FROM_SECONDS = 2 * DAY_SECONDS;

/**
 * `31 Jan`, `12:00` or `12:00:05`, for a chart of `shownSeconds`. A bar of a day is a day in UTC, as in the
 * tables of usage. `barSeconds` is undefined for lines.
 */
export function axisMoment(unixSeconds: number, shownSeconds: number, barSeconds?: number): string {
  const date = new Date(unixSeconds * 1_000);
  const day = { day: 'numeric', month: 'short' } as const;
  if (barSeconds === DAY_SECONDS) return date.toLocaleDateString('en-GB', { ...day, timeZone: 'UTC' });
  if (shownSeconds > DAYS_FROM_SECONDS) return date.toLocaleDateString('en-GB', day);
  return date.toLocaleTimeString('en-GB', {
    hour: '2-digit',
    minute: '2-digit',
    ...(shownSeconds <= 300 ? { second: '2-digit' } : {}),
  });
}

/** The value of a `datetime-local` field, in the browser's time zone: `2025-01-31T12:00`. */
export function localOf(seconds: number): string {
  const date = new Date(seconds * 1_000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** `2025-01-31T12:00:00.000Z`, for files. */
export function isoOf(seconds: number): string {
  return new Date(seconds * 1_000).toISOString();
}

const AGE_UNITS: readonly (readonly [seconds: number, name: string])[] = [
  [DAY_SECONDS, 'day'],
  [HOUR_SECONDS, 'hour'],
  [60, 'minute'],
  [1, 'second'],
];

/** `3 hours ago`, of Unix seconds. A moment after `nowMs`, by a wrong clock, is `just now`. */
export function ago(seconds: number, nowMs: number): string {
  const ageSeconds = Math.max(0, Math.floor(nowMs / 1_000 - seconds));
  for (const [unitSeconds, name] of AGE_UNITS) {
    if (ageSeconds >= unitSeconds) return `${counted(Math.floor(ageSeconds / unitSeconds), name)} ago`;
  }
  return 'just now';
}

/** `3 d 4 h`, `4 h 5 min`, `5 min` or `6 s`. */
export function duration(seconds: number): string {
  const days = Math.floor(seconds / DAY_SECONDS);
  const hours = Math.floor((seconds % DAY_SECONDS) / HOUR_SECONDS);
  const minutes = Math.floor((seconds % HOUR_SECONDS) / 60);
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min` : `${seconds} s`;
}

/** `rate_limit_exceeded` as `rate limit exceeded`. */
export function words(code: string): string {
  return code.replaceAll('_', ' ');
}
