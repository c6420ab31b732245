/**
 * Metrics of accounting, spans, the call log, webhooks, groups, threads, the process, single accounts, and
 * sharing. request-families.ts has the metrics of requests, upstream-families.ts those of upstreams.
 * exposition.ts reads them at a scrape, on the main thread.
 *
 * Must hold:
 * - Names and labels stay, because dashboards use them (test/unit/telemetry/exposition.names.test.ts).
 *   `npm run docs` copies names, labels and help to docs/metrics.md.
 * - No label has a value that a caller can choose, so that the number of time series is bounded.
 * - Samples have the labels that the family declares (test/unit/telemetry/exposition.test.ts).
 * - Money and counts that all processes read from one store have `across: 'one'`, because a sum would count
 *   them once for each process.
 */
import type { ThreadSnapshot } from './metrics-reader.js';
import {
  type AccountSample,
  currencyOf,
  histogramSamples,
  type MetricFamily,
  type MetricsSource,
  type Sample,
  secondsOf,
  type SharingSnapshot,
} from './metrics-source.js';
import { REGISTRY_STATES, SHARING_STATES } from './status-document.js';
import { UPSTREAM_FAMILIES } from './upstream-families.js';

const ACCOUNT_LABELS = ['account', 'account_name'];

/** Returns a sample for each account, except accounts whose value is not known yet (undefined). */
function accountSamples(
  source: MetricsSource,
  valueOf: (account: AccountSample) => number | undefined,
): Sample[] {
  return source.accounts().flatMap((account) => {
    const value = valueOf(account);
    if (value === undefined) return [];
    return [{ value, labels: { account: account.id, account_name: account.name } }];
  });
}

/** These families have samples only if `metrics.account_labels` is on. */
const ACCOUNT_FAMILIES: readonly MetricFamily[] = [
  {
    name: 'tollgate_account_balance',
    type: 'gauge',
    help: 'What an account has left for new calls, in units of the currency. If processes or hosts share it, what all of them have left, at most 10 seconds old; while the coordinator cannot be asked, as it was known last. Only with metrics.account_labels.',
    labels: ACCOUNT_LABELS,
    across: 'one',
    collect: (source) =>
      accountSamples(source, ({ availablePicoUnits: available }) =>
        available === undefined ? undefined : currencyOf(available),
      ),
  },
  {
    name: 'tollgate_account_spent_total',
    type: 'counter',
    help: 'What the calls of an account have cost so far, in units of the currency. Only with metrics.account_labels.',
    labels: ACCOUNT_LABELS,
    across: 'one',
    collect: (source) => accountSamples(source, ({ spentPicoUnits }) => currencyOf(spentPicoUnits)),
  },
  {
    name: 'tollgate_account_calls_today',
    type: 'gauge',
    help: 'Calls of an account that count toward its day, which begins at 00:00 UTC+8. Only with metrics.account_labels.',
    labels: ACCOUNT_LABELS,
    across: 'one',
    collect: (source) => accountSamples(source, ({ callsToday }) => callsToday),
  },
];

/** Returns one sample for each thread that runs. `threads` has a name for each stripe, so `!` is safe. */
function threadSamples(
  { reader, threads }: MetricsSource,
  valueOf: (snapshot: ThreadSnapshot) => number,
): Sample[] {
  return reader.threads().map((snapshot) => ({
    value: valueOf(snapshot),
    labels: { thread: threads[snapshot.thread]! },
  }));
}

const FLUSH_DURATION = 'tollgate_ledger_flush_duration_seconds';
const MICROSECONDS_PER_SECOND = 1e6;

const ACCOUNTING_FAMILIES: readonly MetricFamily[] = [
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

/**
 * Returns one sample for each member of `counts`, all of which are numbers. The label `label` has the
 * member's name: to rename a member is to rename a series.
 */
function memberSamples(label: string, counts: object): Sample[] {
  return Object.entries(counts as Record<string, number>).map(([name, value]) => ({
    value,
    labels: { [label]: name },
  }));
}

/** This family has samples only if spans are exported. Its states are the members of ExportCounts. */
const SPANS_FAMILY: MetricFamily = {
  name: 'tollgate_spans_total',
  type: 'counter',
  help: 'Spans of traces by what became of them: exported, failed (the collector did not take them, or they could not be read) or dropped (there was no room). Only if OTEL_EXPORTER_OTLP_ENDPOINT is set.',
  labels: ['state'],
  collect: ({ spans }) => memberSamples('state', spans() ?? {}),
};

/** This family has samples only if log records are exported. Its states are those of SPANS_FAMILY. */
const LOG_RECORDS_FAMILY: MetricFamily = {
  name: 'tollgate_log_records_total',
  type: 'counter',
  help: 'Records of calls for OpenTelemetry by what became of them: exported, failed (the collector did not take them) or dropped (there was no room). Only if OTEL_LOGS_EXPORTER is otlp.',
  labels: ['state'],
  collect: ({ logRecords }) => memberSamples('state', logRecords() ?? {}),
};

const DROPPED_CALLS_FAMILY: MetricFamily = {
  name: 'tollgate_call_log_dropped_total',
  type: 'counter',
  help: 'Calls that are missing in the call log, or whose contents are, because more ended than could be written or the disk took nothing; rejected: beyond 1,000 rejected calls a second of a listener (100 of unknown callers).',
  labels: ['part'],
  collect: ({ droppedCalls }) => memberSamples('part', droppedCalls()),
};

const GROUP_QUOTA_FAMILY: MetricFamily = {
  name: 'tollgate_quota_used_ratio',
  type: 'gauge',
  help: 'How much of a quota of a group is used or held by calls in flight, 1 being all; of the 100 groups that are nearest to a limit, at most 10 seconds old. group_name is empty unless metrics.account_labels is on.',
  labels: ['group', 'group_name', 'quota'],
  across: 'max',
  collect: ({ groupQuotas }) =>
    groupQuotas().map(({ group, name, quota, ratio }) => ({
      value: ratio,
      labels: { group, group_name: name, quota },
    })),
};

/** These families have samples only if `notify.url` is set. */
const WEBHOOK_FAMILIES: readonly MetricFamily[] = [
  {
    name: 'tollgate_webhooks_total',
    type: 'counter',
    help: 'Webhooks of quotas and balances by what became of them: sent (the receiver took it), failed (given up after a day, or because the receiver is gone) or dropped (too many waited). Only with notify.url.',
    labels: ['state'],
    collect: ({ webhooks }) => {
      const counts = webhooks();
      if (counts === undefined) return [];
      // The label says `failed` for a webhook that was given up. Failed attempts have a family of their own.
      const { sent, givenUp: failed, dropped } = counts;
      return memberSamples('state', { sent, failed, dropped });
    },
  },
  {
    name: 'tollgate_webhook_failures_total',
    type: 'counter',
    help: 'Attempts to send a webhook that its receiver did not take; most are tried again. Only with notify.url.',
    labels: [],
    collect: ({ webhooks }) => {
      const counts = webhooks();
      return counts === undefined ? [] : [{ value: counts.failedAttempts, labels: {} }];
    },
  },
];

export const GATEWAY_FAMILIES: readonly MetricFamily[] = [
  ...UPSTREAM_FAMILIES,
  ...ACCOUNTING_FAMILIES,
  SPANS_FAMILY,
  LOG_RECORDS_FAMILY,
  DROPPED_CALLS_FAMILY,
  ...WEBHOOK_FAMILIES,
  GROUP_QUOTA_FAMILY,
  ...THREAD_FAMILIES,
  ...ACCOUNT_FAMILIES,
];

const EXCHANGE_DURATION = 'tollgate_sharing_exchange_duration_seconds';

/** Returns no sample if limits are not shared. */
function sharingSample({ sharing }: MetricsSource, valueOf: (snapshot: SharingSnapshot) => number): Sample[] {
  const snapshot = sharing();
  return snapshot === undefined ? [] : [{ value: valueOf(snapshot), labels: {} }];
}

/** Returns a sample for each state: 1 for `state`, 0 for the others. Returns none if `state` is undefined. */
function stateSamples(states: readonly string[], state: string | undefined): Sample[] {
  if (state === undefined) return [];
  return states.map((name) => ({ value: name === state ? 1 : 0, labels: { state: name } }));
}

/** These families have samples only if limits are shared. */
export const SHARING_FAMILIES: readonly MetricFamily[] = [
  {
    name: 'tollgate_sharing_processes',
    type: 'gauge',
    help: 'Gateway processes by how they stand with the coordinator that lends limits and money: connected, alone (on an equal share), quarantine (it has lost its data and lends nothing yet) or lost.',
    labels: ['state'],
    collect: ({ sharing }) => stateSamples(SHARING_STATES, sharing()?.state),
  },
  {
    name: 'tollgate_sharing_lost_seconds',
    type: 'gauge',
    help: 'Since the coordinator could last be asked; 0 while it can.',
    labels: [],
    across: 'max',
    collect: (source) => sharingSample(source, ({ lostMs }) => secondsOf(lostMs)),
  },
  {
    name: EXCHANGE_DURATION,
    type: 'histogram',
    help: 'Time of an exchange of leases with the coordinator that was answered; many requests share one.',
    labels: [],
    collect: ({ sharing }) => {
      const snapshot = sharing();
      return snapshot === undefined
        ? []
        : histogramSamples(EXCHANGE_DURATION, snapshot.exchanges, {}, secondsOf);
    },
  },
  {
    name: 'tollgate_sharing_exchange_failures_total',
    type: 'counter',
    help: 'Exchanges with the coordinator that were not answered, or refused.',
    labels: [],
    collect: (source) => sharingSample(source, ({ failures }) => failures),
  },
  {
    name: 'tollgate_sharing_leased_subjects',
    type: 'gauge',
    help: 'Accounts, groups, and keys with limits of their own, of which something is leased or waited for.',
    labels: [],
    collect: (source) => sharingSample(source, ({ leased }) => leased),
  },
  {
    name: 'tollgate_sharing_waiting_requests',
    type: 'gauge',
    help: 'Requests that wait for a lease.',
    labels: [],
    collect: (source) => sharingSample(source, ({ waits }) => waits),
  },
  {
    name: 'tollgate_sharing_registry_processes',
    type: 'gauge',
    help: 'Gateway processes by how they stand with the accounts and keys that hosts share: following, lost (nothing can be changed) or diverged (an operator must decide). Over hosts alone.',
    labels: ['state'],
    collect: ({ sharing }) => stateSamples(REGISTRY_STATES, sharing()?.registry?.state),
  },
];
