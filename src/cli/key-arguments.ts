/**
 * What the options of `tollgate keys` mean: durations, moments, counts. Pure.
 */
import { InvalidArgumentError } from 'commander';

const SECONDS_OF_UNIT: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 };

/** Seconds of `90`, `90s`, `15m`, `24h` or `30d`. */
export function durationSeconds(text: string): number {
  const [, count, unit = 's'] = /^(\d{1,10})([smhd])?$/.exec(text) ?? [];
  if (count === undefined)
    throw new InvalidArgumentError('A duration such as 90s, 15m, 24h or 30d is wanted.');
  return Number(count) * SECONDS_OF_UNIT[unit]!;
}

/** Unix seconds of `2030-01-31`, `2030-01-31T12:00Z` or such seconds themselves. A day begins at 00:00 UTC. */
export function momentSeconds(text: string): number {
  const ms = /^\d{1,11}$/.test(text)
    ? Number(text) * 1_000
    : /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2}))?$/.test(text)
      ? Date.parse(text)
      : NaN;
  if (!Number.isNaN(ms)) return Math.floor(ms / 1_000);
  throw new InvalidArgumentError('A moment such as 2030-01-31, 2030-01-31T12:00Z or Unix seconds is wanted.');
}

/** A whole number; its bounds are the registry's to say. */
export function wholeNumber(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('A whole number is wanted.');
}
