/**
 * Metrics of accounting, spans, the call log, webhooks, groups, threads, the process, single accounts, and
 * sharing. request-families.ts has the metrics of requests, upstream-families.ts those of upstreams.
 * exposition.ts reads them at a scrape, on the main thread.
 *
 * Must hold: money and counts that all processes read from one store have `across` 'one', because a sum
 * would count them once for each process. metrics-source.ts says what must hold of all families.
 */
import type { ThreadSnapshot } from './metrics-reader.js';
import {
  type AccountSample,
  counter,
  currencyOf,
  gauge,
  histogram,
  labelled,
  type MetricFamily,
  type MetricsSource,
  secondsOf,
  type SharingSnapshot,
  single,
} from './metrics-source.js';
import { REGISTRY_STATES, SHARING_STATES } from './status-document.js';
import { UPSTREAM_FAMILIES } from './upstream-families.js';

const MICROSECONDS_PER_SECOND = 1e6;

/** One sample for each thread that runs. `threads` has a name for each stripe, so `!` is safe. */
function perThread(valueOf: (snapshot: ThreadSnapshot) => number) {
  return labelled(['thread'], ({ reader, threads }) =>
    reader.threads().map((snapshot) => ({
      value: valueOf(snapshot),
      labels: { thread: threads[snapshot.thread]! },
    })),
  );
}

/** One sample for each account, except accounts whose value is not known yet (undefined). */
function perAccount(valueOf: (account: AccountSample) => number | undefined) {
  return labelled(['account', 'account_name'], (source) =>
    source.accounts().flatMap((account) => {
      const value = valueOf(account);
      return value === undefined
        ? []
        : [{ value, labels: { account: account.id, account_name: account.name } }];
    }),
  );
}

/**
 * One sample for each member of the counts, all of which are numbers; none if `countsOf` returns undefined.
 * The label `label` has the member's name: to rename a member is to rename a series.
 */
function perMember(label: string, countsOf: (source: MetricsSource) => object | undefined) {
  return labelled([label], (source) =>
    Object.entries((countsOf(source) ?? {}) as Record<string, number>).map(([name, value]) => ({
      value,
      labels: { [label]: name },
    })),
  );
}

/** One sample; none if limits are not shared. */
function ofSharing(valueOf: (snapshot: SharingSnapshot) => number) {
  return single(({ sharing }) => {
    const snapshot = sharing();
    return snapshot && valueOf(snapshot);
  });
}

/** One sample for each state: 1 for that of `stateOf`, 0 for the others. None if it returns undefined. */
function perState<State extends string>(
  states: readonly State[],
  stateOf: (snapshot: SharingSnapshot | undefined) => State | undefined,
) {
  return labelled(['state'], ({ sharing }) => {
    const present = stateOf(sharing());
    if (present === undefined) return [];
    return states.map((state) => ({ value: state === present ? 1 : 0, labels: { state } }));
  });
}

export const GATEWAY_FAMILIES: readonly MetricFamily[] = [
  ...UPSTREAM_FAMILIES,
  histogram(
    'tollgate_ledger_flush_duration_seconds',
    'Time of writing the books to disk, runs that had nothing to write among them.',
    [],
    ({ flush }) => [{ snapshot: flush().durations, labels: {} }],
    secondsOf,
  ),
  counter(
    'tollgate_ledger_flush_errors_total',
    'Runs that could not write the books.',
    single(({ flush }) => flush().errors),
  ),
  gauge(
    'tollgate_ledger_flush_lag_seconds',
    'Age of the oldest charge that may not be on disk yet: time since the last run that wrote all of the books began.',
    single(({ flush }) => secondsOf(flush().lagMs)),
    'max',
  ),
  gauge(
    'tollgate_ledger_unflushed_accounts',
    'Accounts whose charges wait in memory for the disk.',
    single(({ unflushedAccounts }) => unflushedAccounts()),
  ),
  gauge(
    'tollgate_journal_fill_ratio',
    "How full a listener's journal of ended calls is; at 1 new calls are refused.",
    labelled(['listener'], ({ journalFills }) =>
      journalFills().map((value, index) => ({ value, labels: { listener: String(index) } })),
    ),
    'each',
  ),
  // Has samples only if spans are exported.
  counter(
    'tollgate_spans_total',
    'Spans of traces by what became of them: exported, failed (the collector did not take them, or they could not be read) or dropped (there was no room). Only if OTEL_EXPORTER_OTLP_ENDPOINT is set.',
    perMember('state', ({ spans }) => spans()),
  ),
  // Has samples only if log records are exported.
  counter(
    'tollgate_log_records_total',
    'Records of calls for OpenTelemetry by what became of them: exported, failed (the collector did not take them) or dropped (there was no room). Only if OTEL_LOGS_EXPORTER is otlp.',
    perMember('state', ({ logRecords }) => logRecords()),
  ),
  counter(
    'tollgate_call_log_dropped_total',
    'Calls that are missing in the call log, or whose contents are, because more ended than could be written or the disk took nothing; rejected: beyond 1,000 rejected calls a second of a listener (100 of unknown callers).',
    perMember('part', ({ droppedCalls }) => droppedCalls()),
  ),
  // The next two have samples only if `notify.url` is set.
  counter(
    'tollgate_webhooks_total',
    'Webhooks of quotas and balances by what became of them: sent (the receiver took it), failed (given up after a day, or because the receiver is gone) or dropped (too many waited). Only with notify.url.',
    perMember('state', ({ webhooks }) => {
      const counts = webhooks();
      // The label says `failed` for a webhook that was given up. Failed attempts have a family of their own.
      return counts && { sent: counts.sent, failed: counts.givenUp, dropped: counts.dropped };
    }),
  ),
  counter(
    'tollgate_webhook_failures_total',
    'Attempts to send a webhook that its receiver did not take; most are tried again. Only with notify.url.',
    single(({ webhooks }) => webhooks()?.failedAttempts),
  ),
  gauge(
    'tollgate_quota_used_ratio',
    'How much of a quota of a group is used or held by calls in flight, 1 being all; of the 100 groups that are nearest to a limit, at most 10 seconds old. group_name is empty unless metrics.account_labels is on.',
    labelled(['group', 'group_name', 'quota'], ({ groupQuotas }) =>
      groupQuotas().map(({ group, name, quota, ratio }) => ({
        value: ratio,
        labels: { group, group_name: name, quota },
      })),
    ),
    'max',
  ),
  gauge(
    'tollgate_event_loop_delay_p99_seconds',
    'How late the event loop of a thread came, 99th percentile of the last 5 seconds.',
    perThread(({ delayP99Ms }) => secondsOf(delayP99Ms)),
    'each',
  ),
  gauge(
    'tollgate_event_loop_delay_max_seconds',
    'The same, longest delay of the last 5 seconds.',
    perThread(({ delayMaxMs }) => secondsOf(delayMaxMs)),
    'each',
  ),
  gauge(
    'tollgate_heap_bytes',
    'JavaScript heap in use, of a thread.',
    perThread(({ heapBytes }) => heapBytes),
    'each',
  ),
  counter(
    'process_cpu_seconds_total',
    'CPU time of the gateway processes, user and system, all threads.',
    single(() => {
      const { user, system } = process.cpuUsage();
      return (user + system) / MICROSECONDS_PER_SECOND;
    }),
  ),
  gauge(
    'process_resident_memory_bytes',
    'Resident memory of the gateway process.',
    single(() => process.memoryUsage.rss()),
    'each',
  ),
  gauge(
    'process_start_time_seconds',
    'When the gateway process began, in Unix seconds.',
    single(() => secondsOf(performance.timeOrigin)),
    'each',
  ),
  gauge(
    'tollgate_build_info',
    'Always 1, with the versions of Tollgate and Node.',
    labelled(['version', 'node'], ({ version }) => [
      { value: 1, labels: { version, node: process.version } },
    ]),
    'max',
  ),
  // The next three have samples only if `metrics.account_labels` is on.
  gauge(
    'tollgate_account_balance',
    'What an account has left for new calls, in units of the currency. If processes or hosts share it, what all of them have left, at most 10 seconds old; while the coordinator cannot be asked, as it was known last. Only with metrics.account_labels.',
    perAccount(({ availablePicoUnits: available }) =>
      available === undefined ? undefined : currencyOf(available),
    ),
    'one',
  ),
  counter(
    'tollgate_account_spent_total',
    'What the calls of an account have cost so far, in units of the currency. Only with metrics.account_labels.',
    perAccount(({ spentPicoUnits }) => currencyOf(spentPicoUnits)),
    'one',
  ),
  gauge(
    'tollgate_account_calls_today',
    'Calls of an account that count toward its day, which begins at 00:00 UTC+8. Only with metrics.account_labels.',
    perAccount(({ callsToday }) => callsToday),
    'one',
  ),
  // The others have samples only if limits are shared.
  gauge(
    'tollgate_sharing_processes',
    'Gateway processes by how they stand with the coordinator that lends limits and money: connected, alone (on an equal share), quarantine (it has lost its data and lends nothing yet) or lost.',
    perState(SHARING_STATES, (sharing) => sharing?.state),
  ),
  gauge(
    'tollgate_sharing_lost_seconds',
    'Since the coordinator could last be asked; 0 while it can.',
    ofSharing(({ lostMs }) => secondsOf(lostMs)),
    'max',
  ),
  histogram(
    'tollgate_sharing_exchange_duration_seconds',
    'Time of an exchange of leases with the coordinator that was answered; many requests share one.',
    [],
    ({ sharing }) => {
      const snapshot = sharing();
      return snapshot === undefined ? [] : [{ snapshot: snapshot.exchanges, labels: {} }];
    },
    secondsOf,
  ),
  counter(
    'tollgate_sharing_exchange_failures_total',
    'Exchanges with the coordinator that were not answered, or refused.',
    ofSharing(({ failures }) => failures),
  ),
  gauge(
    'tollgate_sharing_leased_subjects',
    'Accounts, groups, and keys with limits of their own, of which something is leased or waited for.',
    ofSharing(({ leased }) => leased),
  ),
  gauge(
    'tollgate_sharing_waiting_requests',
    'Requests that wait for a lease.',
    ofSharing(({ waits }) => waits),
  ),
  gauge(
    'tollgate_sharing_registry_processes',
    'Gateway processes by how they stand with the accounts and keys that hosts share: following, lost (nothing can be changed) or diverged (an operator must decide). Over hosts alone.',
    perState(REGISTRY_STATES, (sharing) => sharing?.registry?.state),
  ),
];
