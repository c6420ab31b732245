/** Figures as the status screen writes them: short, and `–` for what is not known. Pure. */
import type { Percentile } from './status-figures.js';

export const UNKNOWN = '–';

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
/** From here on digits tell less than the order of magnitude. */
const SHORT_FROM = 10_000_000;

/** `1,234,567`, and `12.3M` from ten million on. */
export function countText(count: number | undefined): string {
  if (count === undefined) return UNKNOWN;
  return count < SHORT_FROM ? grouped.format(count) : short.format(count);
}

/** One decimal below ten. */
export function rateText(perSecond: number | undefined): string {
  if (perSecond === undefined) return UNKNOWN;
  return perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : countText(perSecond);
}

/** `0.35 ms`, `12 ms`, `1.2 s`; `> 60 s` beyond what is measured. */
export function durationText(percentile: Percentile | undefined): string {
  if (percentile === undefined) return UNKNOWN;
  const { ms, above } = percentile;
  const text =
    ms < 1
      ? `${ms.toFixed(2)} ms`
      : ms < 10
        ? `${ms.toFixed(1)} ms`
        : ms < 1_000
          ? `${ms.toFixed(0)} ms`
          : `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  return above ? `> ${text}` : text;
}

/** `3d 04:05:06`. */
export function uptimeText(seconds: number | undefined): string {
  if (seconds === undefined) return UNKNOWN;
  const two = (part: number): string => String(Math.floor(part)).padStart(2, '0');
  const days = Math.floor(seconds / 86_400);
  const clock = `${two((seconds % 86_400) / 3_600)}:${two((seconds % 3_600) / 60)}:${two(seconds % 60)}`;
  return days > 0 ? `${days}d ${clock}` : clock;
}

const MIB = 1024 * 1024;

export function mebibytesText(bytes: number | undefined): string {
  return bytes === undefined ? UNKNOWN : `${(bytes / MIB).toFixed(1)} MiB`;
}

/** Of an amount's twelve decimals those that fit; `--json` and `usage` have all. */
export function moneyText(amount: number | undefined): string {
  if (amount === undefined) return UNKNOWN;
  return amount.toFixed(amount < 100 ? 6 : 2);
}
