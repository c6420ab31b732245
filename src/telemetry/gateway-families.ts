/**
 * Metrics of what is behind the requests: books, spans, threads, the process, and in files of their own upstreams and
 * accounts. Main thread, at a scrape.
 */
import { ACCOUNT_FAMILIES } from './account-families.js';
import type { ThreadReading } from './metrics-reader.js';
import {
  histogramSamples,
  secondsOf,
  type MetricFamily,
  type MetricsSource,
  type Sample,
} from './metrics-source.js';
import { UPSTREAM_FAMILIES } from './upstream-families.js';

function threadSamples(
  { reader, threads }: MetricsSource,
  value: (reading: ThreadReading) => number,
): Sample[] {
  return reader.threads().map((reading) => ({
    value: value(reading),
    labels: { thread: threads[reading.thread]! },
  }));
}

const FLUSH_DURATION = 'tollgate_ledger_flush_duration_seconds';
const MICROSECONDS_PER_SECOND = 1e6;

const BOOKS_FAMILIES: readonly MetricFamily[] = [
  {
    name: FLUSH_DURATION,
    type: 'histogram',
    help: 'Time of writing the books to disk, runs that had nothing to write among them.',
    labels: [],
    collect: ({ flush }) => histogramSamples(FLUSH_DURATION, flush().durations, {}, secondsOf),
  },
  {
    name: 'tollgate_ledger_flush_errors_total',
    type: 'counter',
    help: 'Runs that could not write the books.',
    labels: [],
    collect: ({ flush }) => [{ value: flush().errors, labels: {} }],
  },
  {
    name: 'tollgate_ledger_flush_lag_seconds',
    type: 'gauge',
    help: 'Age of the oldest charge that may not be on disk yet: time since the last run that wrote all of the books began.',
    labels: [],
    across: 'max',
    collect: ({ flush }) => [{ value: secondsOf(flush().lagMs), labels: {} }],
  },
  {
    name: 'tollgate_ledger_unflushed_accounts',
    type: 'gauge',
    help: 'Accounts whose charges wait in memory for the disk.',
    labels: [],
    collect: ({ unflushedAccounts }) => [{ value: unflushedAccounts(), labels: {} }],
  },
  {
    name: 'tollgate_journal_fill_ratio',
    type: 'gauge',
    help: "How full a listener's journal of ended calls is; at 1 new calls are refused.",
    labels: ['listener'],
    across: 'each',
    collect: ({ journalFills }) =>
      journalFills().map((value, index) => ({ value, labels: { listener: String(index) } })),
  },
];

const THREAD_FAMILIES: readonly MetricFamily[] = [
  {
    name: 'tollgate_event_loop_delay_p99_seconds',
    type: 'gauge',
    help: 'How late the event loop of a thread came, 99th percentile of the last 5 seconds.',
    labels: ['thread'],
    across: 'each',
    collect: (source) => threadSamples(source, ({ delayP99Ms }) => secondsOf(delayP99Ms)),
  },
  {
    name: 'tollgate_event_loop_delay_max_seconds',
    type: 'gauge',
    help: 'The same, longest delay of the last 5 seconds.',
    labels: ['thread'],
    across: 'each',
    collect: (source) => threadSamples(source, ({ delayMaxMs }) => secondsOf(delayMaxMs)),
  },
  {
    name: 'tollgate_heap_bytes',
    type: 'gauge',
    help: 'JavaScript heap in use, of a thread.',
    labels: ['thread'],
    across: 'each',
    collect: (source) => threadSamples(source, ({ heapBytes }) => heapBytes),
  },
  {
    name: 'process_cpu_seconds_total',
    type: 'counter',
    help: 'CPU time of the gateway processes, user and system, all threads.',
    labels: [],
    collect: () => {
      const { user, system } = process.cpuUsage();
      return [{ value: (user + system) / MICROSECONDS_PER_SECOND, labels: {} }];
    },
  },
  {
    name: 'process_resident_memory_bytes',
    type: 'gauge',
    help: 'Resident memory of the gateway process.',
    labels: [],
    across: 'each',
    collect: () => [{ value: process.memoryUsage.rss(), labels: {} }],
  },
  {
    name: 'process_start_time_seconds',
    type: 'gauge',
    help: 'When the gateway process began, in Unix seconds.',
    labels: [],
    across: 'each',
    collect: () => [{ value: secondsOf(performance.timeOrigin), labels: {} }],
  },
  {
    name: 'tollgate_build_info',
    type: 'gauge',
    help: 'Always 1, with the versions of Tollgate and Node.',
    labels: ['version', 'node'],
    across: 'max',
    collect: ({ version }) => [{ value: 1, labels: { version, node: process.version } }],
  },
];

/** Without samples unless spans are exported. */
const SPANS_FAMILY: MetricFamily = {
  name: 'tollgate_spans_total',
  type: 'counter',
  help: 'Spans of traces by what became of them: exported, failed (the collector did not take them) or dropped (there was no room). Only where OTEL_EXPORTER_OTLP_ENDPOINT is set.',
  labels: ['state'],
  collect: ({ spans }) =>
    Object.entries(spans() ?? {}).map(([state, value]) => ({ value: Number(value), labels: { state } })),
};

export const GATEWAY_FAMILIES: readonly MetricFamily[] = [
  ...UPSTREAM_FAMILIES,
  ...BOOKS_FAMILIES,
  SPANS_FAMILY,
  ...THREAD_FAMILIES,
  ...ACCOUNT_FAMILIES,
];
