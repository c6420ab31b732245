/**
 * The results as a table of text.
 */
import type { KeyCount } from './key-counts.js';
import type { Latency } from './latency.js';
import { spreadText, type Result, type Spread } from './results.js';
import type { SlowStreams } from './slow-streams.js';

const HEAD = [
  'scenario',
  'contender',
  'requests/s',
  'CPU µs/request',
  'p50 ms',
  'p99 ms',
  'peak MiB',
  'CPU ratio',
  'rate ratio',
];
const MIB = 2 ** 20;

function row(result: Result): string[] {
  const rounds = result.samples.length;
  const { requestsPerSecond, cpuMicrosPerRequest, p50Ms, p99Ms, peakBytes } = result.figures;
  const isReference = result.contender === result.reference;
  return [
    result.scenario,
    result.contender,
    spreadText(requestsPerSecond, 0, rounds),
    spreadText(cpuMicrosPerRequest, 1, rounds),
    spreadText(p50Ms, 0, rounds),
    spreadText(p99Ms, 0, rounds),
    (peakBytes.median / MIB).toFixed(0),
    isReference ? 'reference' : spreadText(result.cpuRatio, 2, rounds),
    isReference ? '' : spreadText(result.rateRatio, 2, rounds),
  ];
}

/** Lines, columns padded to one width. */
export function tableOf(results: readonly Result[]): string[] {
  return padded([HEAD, ...results.map(row)]);
}

const LATENCY_HEAD = [
  'scenario',
  'contender',
  'p50 µs',
  'p99 µs',
  'added p50 µs',
  'added p99 µs',
  'CPU µs/request',
];

/** Lines, columns padded to one width. */
export function latencyTableOf(latencies: readonly Latency[], rounds: number): string[] {
  const rows = latencies.map((line) => {
    const added = (spread: Spread): string =>
      line.contender === 'direct' ? 'reference' : spreadText(spread, 0, rounds);
    return [
      line.scenario,
      line.contender,
      spreadText(line.p50Micros, 0, rounds),
      spreadText(line.p99Micros, 0, rounds),
      added(line.addedP50Micros),
      added(line.addedP99Micros),
      spreadText(line.cpuMicrosPerRequest, 1, rounds),
    ];
  });
  return padded([LATENCY_HEAD, ...rows]);
}

const SLOW_HEAD = [
  'contender',
  'streams',
  'open at once',
  'whole',
  'cut',
  'chunk late p50 ms',
  'p99 ms',
  'KiB/stream',
  'CPU µs/chunk',
];
const KIB = 2 ** 10;

/** Lines, columns padded to one width. */
export function slowTableOf(lines: readonly SlowStreams[]): string[] {
  const rows = lines.map((one) => [
    one.contender,
    String(one.streams),
    String(one.openMax),
    String(one.served),
    one.cut === 0 ? '0' : `${one.cut} (${one.failure ?? 'not whole'})`,
    (one.lateMicros.p50 / 1_000).toFixed(1),
    (one.lateMicros.p99 / 1_000).toFixed(1),
    (one.bytesPerStream / KIB).toFixed(1),
    one.cpuMicrosPerChunk.toFixed(1),
  ]);
  return padded([SLOW_HEAD, ...rows]);
}

/** Lines, columns padded to one width. */
export function keyTableOf(lines: readonly KeyCount[], rounds: number): string[] {
  const rows = lines.map((one, at) => [
    String(one.keys),
    spreadText(one.cpuMicrosPerRequest, 1, rounds),
    at === 0 ? 'reference' : spreadText(one.cpuRatio, 2, rounds),
    spreadText(one.p99Micros, 0, rounds),
    (one.residentBytes / MIB).toFixed(0),
  ]);
  return padded([['keys', 'CPU µs/request', 'CPU ratio', 'p99 µs', 'resident MiB'], ...rows]);
}

function padded(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((cells) => cells[column]!.length)));
  return rows.map((cells) =>
    cells
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
}
