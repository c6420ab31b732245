/**
 * Builds the document of `GET /admin/v1/status` from the ProcessStatus of each gateway, and from the last
 * counters of the processes that have ended. process-group-stats.ts and process-status.ts call it on a main
 * thread, supervisor/group-snapshots.ts `addStatus` and `endedStatus` in the supervisor process. Pure.
 *
 * Must hold: the sums include the last counters of ended processes, so that no sum falls. The names in the
 * document are public. `addStatus` and the functions that it calls name each member of what they add, so a
 * new member does not compile before it is decided how processes add it up.
 */
import { decimalOf } from '../core/money.js';
import { BREAKER_STATES } from '../telemetry/metrics-layout.js';
import { newestErrors } from '../telemetry/upstream-errors.js';
import { EXCHANGE_BOUNDS_MS, type SharingSnapshot } from '../telemetry/metrics-source.js';
import {
  type CredentialStatus,
  type HistogramView,
  REGISTRY_STATES,
  SHARING_STATES,
  type SharingStatus,
  type StatusDocument,
  type ThreadStatus,
  type UpstreamStatus,
} from '../telemetry/status-document.js';
import { upstreamKeyOf } from '../telemetry/upstream-names.js';
import type { CallsStatus, ProcessStatus } from './messages.js';

const MS_PER_SECOND = 1_000;

/** Returns one process's state of sharing as the document shows it; null if nothing is shared. */
export function sharingStatusOf(snapshot: SharingSnapshot | undefined): SharingStatus | null {
  if (snapshot === undefined) return null;
  const { registry } = snapshot;
  return {
    with: snapshot.with,
    state: snapshot.state,
    reason: snapshot.reason ?? null,
    lost_seconds: Math.round(snapshot.lostMs / MS_PER_SECOND),
    exchange_ms: { bounds: EXCHANGE_BOUNDS_MS, counts: [...snapshot.exchanges.counts] },
    exchange_failures: snapshot.failures,
    leased_subjects: snapshot.leased,
    waiting_requests: snapshot.waits,
    registry: registry === undefined ? null : { state: registry.state, reason: registry.reason ?? null },
  };
}

/**
 * Adds the counters of two processes. The state is the worse of the two (SHARING_STATES and REGISTRY_STATES
 * go from the best to the worst), and the time without contact the longer. One null is rare, because the
 * setting `sharing` changes only when all processes restart: then the values of the other process count.
 */
function addSharing(first: SharingStatus | null, second: SharingStatus | null): SharingStatus | null {
  if (first === null || second === null) return first ?? second;
  const { state, reason } = worseOf(SHARING_STATES, first, second);
  return {
    with: first.with,
    state,
    reason,
    lost_seconds: Math.max(first.lost_seconds, second.lost_seconds),
    exchange_ms: addHistograms(first.exchange_ms, second.exchange_ms),
    exchange_failures: first.exchange_failures + second.exchange_failures,
    leased_subjects: first.leased_subjects + second.leased_subjects,
    waiting_requests: first.waiting_requests + second.waiting_requests,
    registry:
      first.registry && second.registry
        ? worseOf(REGISTRY_STATES, first.registry, second.registry)
        : (first.registry ?? second.registry),
  };
}

/** Returns the counters alone, for a process that has ended: other numbers are 0, the state is the best. */
function endedSharing(status: SharingStatus | null): SharingStatus | null {
  if (status === null) return null;
  const bestState = { state: SHARING_STATES[0], reason: null, lost_seconds: 0 };
  return { ...status, ...bestState, leased_subjects: 0, waiting_requests: 0, registry: null };
}

/** Returns the one whose state comes later in `states`, which go from the best to the worst. */
function worseOf<State, Status extends { readonly state: State }>(
  states: readonly State[],
  first: Status,
  second: Status,
): Status {
  return states.indexOf(second.state) > states.indexOf(first.state) ? second : first;
}

/**
 * Returns the document. `own` is the status of the process that replies; `members` has those of all running
 * processes of the process group, with `own`; `ended` is the sum over the processes that have ended.
 */
export function statusDocument(
  own: ProcessStatus,
  members: readonly ProcessStatus[],
  ended: ProcessStatus | undefined,
): StatusDocument {
  // Running processes come first, because what has no sum is taken from the first.
  const sums = [...members, ...(ended ? [ended] : [])].reduce(addStatus);
  const areSeveral = members.length > 1;
  const threadsOf = ({ process, threads }: ProcessStatus): readonly ThreadStatus[] =>
    areSeveral ? threads.map((thread) => ({ ...thread, name: `${process}/${thread.name}` })) : threads;
  const presentKeys = new Set(own.upstreams.map(upstreamKeyOf));
  return {
    // Every field of a ProcessStatus is a field of the document too, so it is public.
    ...withMoney(sums),
    process: own.process,
    version: own.version,
    node: own.node,
    pid: own.pid,
    // While one process is ready, the group serves, because all share the port.
    ready: members.some(({ ready }) => ready),
    uptime_seconds: own.uptime_seconds,
    limits: {
      ...own.limits,
      calls_in_flight: members.reduce((sum, { limits }) => sum + limits.calls_in_flight, 0),
    },
    // The sums over all models name every outcome. A single model names only those that occurred.
    models: sums.models.map((model) => ({ ...withMoney(model), outcomes: withoutZeros(model.outcomes) })),
    // An upstream that only an ended process had is not in the settings any more.
    upstreams: sums.upstreams.filter((upstream) => presentKeys.has(upstreamKeyOf(upstream))),
    threads: members.flatMap(threadsOf),
    processes: members.map((member) => ({
      process: member.process,
      pid: member.pid,
      version: member.version,
      ready: member.ready,
      uptime_seconds: member.uptime_seconds,
      calls_in_flight: member.calls_in_flight,
    })),
  };
}

/** What a process has had from its start to its end, and what has no sum. */
function fixedPartOf({
  version,
  node,
  pid,
  process,
  ready,
  uptime_seconds,
  accounts,
  limits,
}: ProcessStatus) {
  return { version, node, pid, process, ready, uptime_seconds, accounts, limits };
}

/** Returns the counters alone, for a process that has ended: what only a running process has is empty. */
export function endedStatus(status: ProcessStatus): ProcessStatus {
  const { outcomes, tokens, cost_pico_units, duration_ms, first_token_ms } = status;
  return {
    ...fixedPartOf(status),
    ...{ outcomes, tokens, cost_pico_units, duration_ms, first_token_ms },
    refusals: status.refusals,
    overhead_ms: status.overhead_ms,
    models: status.models,
    listeners: 0,
    workers: 0,
    calls_in_flight: 0,
    upstreams: status.upstreams.map((upstream) => ({
      ...upstream,
      calls_in_flight: 0,
      breaker: 'closed',
      quotas: [],
      waiting_calls: 0,
    })),
    credentials: [],
    threads: [],
    store: { ok: true, last_error: null, unflushed_accounts: 0 },
    sharing: endedSharing(status.sharing),
  };
}

/**
 * Adds the counters of two processes. Values without a sum are those of `first`, and so are the bounds of
 * histograms. So is the store's last error if both have one: the times of these errors are not known.
 */
export function addStatus(first: ProcessStatus, second: ProcessStatus): ProcessStatus {
  const add = (countOf: (status: ProcessStatus) => number): number => countOf(first) + countOf(second);
  return {
    ...fixedPartOf(first),
    ...addCalls(first, second),
    listeners: add(({ listeners }) => listeners),
    workers: add(({ workers }) => workers),
    calls_in_flight: add(({ calls_in_flight: calls }) => calls),
    refusals: addCounts(first.refusals, second.refusals),
    overhead_ms: addHistograms(first.overhead_ms, second.overhead_ms),
    models: addByKey(
      first.models,
      second.models,
      ({ id }) => id,
      (one, other) => ({ id: one.id, ...addCalls(one, other) }),
    ),
    upstreams: addByKey(first.upstreams, second.upstreams, upstreamKeyOf, addUpstream),
    credentials: addByKey(first.credentials, second.credentials, ({ name }) => name, addCredential),
    // `statusDocument` shows the threads of all running processes.
    threads: first.threads,
    store: {
      ok: first.store.ok && second.store.ok,
      last_error: first.store.last_error ?? second.store.last_error,
      unflushed_accounts: add(({ store }) => store.unflushed_accounts),
    },
    sharing: addSharing(first.sharing, second.sharing),
  };
}

/** Returns the counts with the cost as decimal money, in place of pico-units. */
function withMoney<Calls extends CallsStatus>({ cost_pico_units: cost, ...calls }: Calls) {
  return { ...calls, cost: decimalOf(cost) };
}

function withoutZeros(counts: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
}

/** Adds counts by name. Either record may lack a name. */
function addCounts<Name extends string>(
  first: Readonly<Record<Name, number>>,
  second: Readonly<Record<Name, number>>,
): Record<Name, number> {
  const sums: Partial<Record<Name, number>> = { ...first };
  for (const name of Object.keys(second) as Name[]) sums[name] = (sums[name] ?? 0) + second[name];
  return sums as Record<Name, number>;
}

/**
 * Adds the counts of `second` to the buckets of `first`. A process of another version may have other bounds:
 * then a count goes to the first bucket that reaches as far as its own, so that no call is lost or too fast.
 */
function addHistograms({ bounds, counts }: HistogramView, second: HistogramView): HistogramView {
  const sums = [...counts];
  const hasSameBounds =
    bounds.length === second.bounds.length &&
    bounds.every((bound, bucket) => bound === second.bounds[bucket]);
  second.counts.forEach((count, bucket) => {
    const bound = second.bounds[bucket] ?? Infinity;
    const reaching = hasSameBounds ? bucket : bounds.findIndex((each) => each >= bound);
    // The last bucket has no bound.
    sums[reaching === -1 ? bounds.length : reaching]! += count;
  });
  return { bounds, counts: sums };
}

/** Returns one entry for each key, in the order in which the keys first occur. */
function addByKey<Entry>(
  first: readonly Entry[],
  second: readonly Entry[],
  keyOf: (entry: Entry) => string,
  add: (first: Entry, second: Entry) => Entry,
): readonly Entry[] {
  const sums = new Map(first.map((entry) => [keyOf(entry), entry]));
  for (const entry of second) {
    const sumSoFar = sums.get(keyOf(entry));
    sums.set(keyOf(entry), sumSoFar === undefined ? entry : add(sumSoFar, entry));
  }
  return [...sums.values()];
}

function addCalls(first: CallsStatus, second: CallsStatus): CallsStatus {
  return {
    outcomes: addCounts(first.outcomes, second.outcomes),
    tokens: addCounts(first.tokens, second.tokens),
    cost_pico_units: first.cost_pico_units + second.cost_pico_units,
    duration_ms: addHistograms(first.duration_ms, second.duration_ms),
    first_token_ms: addHistograms(first.first_token_ms, second.first_token_ms),
  };
}

/** The quotas may differ: an ended process has none, and processes take new settings one after the other. */
function addUpstream(first: UpstreamStatus, second: UpstreamStatus): UpstreamStatus {
  const { model, name, priority, weight } = first;
  return {
    ...{ model, name, priority, weight },
    calls_in_flight: first.calls_in_flight + second.calls_in_flight,
    breaker: worseOf(BREAKER_STATES, { state: first.breaker }, { state: second.breaker }).state,
    attempts: first.attempts + second.attempts,
    failures: first.failures + second.failures,
    last_failure: laterOf(first.last_failure, second.last_failure),
    last_errors: newestErrors(first.last_errors, second.last_errors),
    quotas: addByKey(
      first.quotas,
      second.quotas,
      ({ quota }) => quota,
      (one, other) => ({ ...one, used: one.used + other.used }),
    ),
    waiting_calls: first.waiting_calls + second.waiting_calls,
  };
}

function addCredential(first: CredentialStatus, second: CredentialStatus): CredentialStatus {
  const expiries = [first, second].flatMap(({ expires_at: expiresAt }) => expiresAt ?? []);
  return {
    name: first.name,
    ok: first.ok && second.ok,
    expires_at: expiries.length === 0 ? null : Math.min(...expiries),
    renewals: first.renewals + second.renewals,
    failures: first.failures + second.failures,
    last_error: first.last_error ?? second.last_error,
  };
}

function laterOf(
  first: UpstreamStatus['last_failure'],
  second: UpstreamStatus['last_failure'],
): UpstreamStatus['last_failure'] {
  return (second?.at ?? 0) > (first?.at ?? 0) ? second : first;
}
