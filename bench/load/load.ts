/**
 * One run of autocannon in a process of its own. Closed-loop: every connection sends its next request when it
 * has the whole answer to the last one; or at a fixed rate.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export interface Load {
  readonly url: string;
  readonly method: 'GET' | 'POST';
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly connections: number;
  readonly seconds: number;
  /** At most so many requests, over all connections; times are then counted from when a request was due. */
  readonly ratePerSecond?: number;
}

export interface LoadResult {
  /** Answers, whatever their status. */
  readonly answers: number;
  /** Answers by status. */
  readonly statuses: ReadonlyMap<number, number>;
  /** Connections that broke and requests that were not answered in time. */
  readonly failures: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** What is read of autocannon's JSON. */
interface Report {
  readonly requests: { readonly total: number };
  readonly statusCodeStats: Readonly<Record<string, { readonly count: number }>>;
  readonly errors: number;
  readonly timeouts: number;
  readonly duration: number;
  readonly latency: { readonly p50: number; readonly p99: number };
}

const run = promisify(execFile);
/** So often autocannon looks at the latest whether its time is over: its default. */
const SAMPLE_SECONDS_MAX = 1;
/** On top of the run itself: start, and the report. */
const OVERHEAD_MS_MAX = 20_000;

export async function applyLoad(load: Load): Promise<LoadResult> {
  const script = new URL(import.meta.resolve('autocannon')).pathname;
  const headers = Object.entries(load.headers).flatMap(([name, value]) => ['-H', `${name}=${value}`]);
  const { stdout } = await run(
    process.execPath,
    [
      script,
      '--json',
      '--no-progress',
      ...['-c', String(load.connections), '-d', String(load.seconds), '-m', load.method],
      ...['--sampleInt', String(1_000 * Math.min(load.seconds, SAMPLE_SECONDS_MAX))],
      ...(load.ratePerSecond === undefined ? [] : ['-R', String(load.ratePerSecond)]),
      ...headers,
      ...(load.body === '' ? [] : ['-b', load.body]),
      load.url,
    ],
    { timeout: load.seconds * 1_000 + OVERHEAD_MS_MAX },
  );
  const report = JSON.parse(stdout) as Report;
  return {
    answers: report.requests.total,
    statuses: new Map(
      Object.entries(report.statusCodeStats).map(([status, { count }]) => [Number(status), count]),
    ),
    failures: report.errors + report.timeouts,
    seconds: report.duration,
    p50Ms: report.latency.p50,
    p99Ms: report.latency.p99,
  };
}
