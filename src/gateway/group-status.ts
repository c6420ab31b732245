/**
 * Builds the document of `GET /admin/v1/status` from the parts of the gateway processes, and from the last
 * counters of the processes that have ended. stats.ts calls `statusDocument` and `sharingStatusOf` on a
 * gateway's main thread, supervisor/group-snapshots.ts `addStatus` and `endedStatus` in the supervisor
 * process. Pure.
 *
 * Must hold: the sums include the last counters of ended processes, so that no sum falls. A new count of
 * ProcessStatus is added up in `addStatus`; otherwise operators see that of one process. The names in the
 * document are public.
 */
import { decimalOf } from '../core/money.js';
import type { BreakerState } from '../telemetry/metrics-layout.js';
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
import type { CallsStatus, ModelStatus, ProcessStatus } from './messages.js';

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
 * go from the best to the worst), and the time without contact the longer. Null for a process is rare,
 * because the setting `sharing` changes only when all processes restart: then the other's values count.
 */
function addSharing(left: SharingStatus | null, right: SharingStatus | null): SharingStatus | null {
  if (left === null || right === null) return left ?? right;
  const worse = rankOf(right) > rankOf(left) ? right : left;
  return {
    with: left.with,
    state: worse.state,
    reason: worse.reason,
    lost_seconds: Math.max(left.lost_seconds, right.lost_seconds),
    exchange_ms: addHistograms(left.exchange_ms, right.exchange_ms),
    exchange_failures: left.exchange_failures + right.exchange_failures,
    leased_subjects: left.leased_subjects + right.leased_subjects,
    waiting_requests: left.waiting_requests + right.waiting_requests,
    registry: worstRegistry(left.registry, right.registry),
  };
}

/** Returns the counters alone, for a process that has ended: what is now is 0, and its state the best. */
function endedSharing(status: SharingStatus | null): SharingStatus | null {
  if (status === null) return null;
  const bestState = { state: SHARING_STATES[0], reason: null, lost_seconds: 0 };
  return { ...status, ...bestState, leased_subjects: 0, waiting_requests: 0, registry: null };
}

function rankOf({ state }: SharingStatus): number {
  return SHARING_STATES.indexOf(state);
}

function worstRegistry(
  left: SharingStatus['registry'],
  right: SharingStatus['registry'],
): SharingStatus['registry'] {
  if (left === null || right === null) return left ?? right;
  return REGISTRY_STATES.indexOf(right.state) > REGISTRY_STATES.indexOf(left.state) ? right : left;
}

/**
 * Returns the document. `own` is the part of the process that replies; `members` has the parts of all running
 * processes, including `own`; `ended` is the sum over the processes that have ended.
 */
export function statusDocument(
  own: ProcessStatus,
  members: readonly ProcessStatus[],
  ended: ProcessStatus | undefined,
): StatusDocument {
  const sums = [...members, ...(ended ? [ended] : [])].reduce(addStatus);
  const areSeveral = members.length > 1;
  const threadsOf = ({ process, threads }: ProcessStatus): readonly ThreadStatus[] =>
    areSeveral ? threads.map((thread) => ({ ...thread, name: `${process}/${thread.name}` })) : threads;
  const current = new Set(own.upstreams.map(upstreamKeyOf));
  return {
    // All members of a process's part are members of the document too, so they are public.
    ...withMoney(sums),
    process: own.process,
    version: own.version,
    node: own.node,
    pid: own.pid,
    // While one process is ready, the group serves, because all share the port.
    ready: members.some(({ ready }) => ready),
    uptime_seconds: own.uptime_seconds,
    limits: { ...own.limits, calls_in_flight: total(members, ({ limits }) => limits.calls_in_flight) },
    // The sums over all models name every outcome. A single model names only those that occurred.
    models: sums.models.map((model) => ({ ...withMoney(model), outcomes: withoutZeros(model.outcomes) })),
    // An upstream that only an ended process had is not in the settings any more.
    upstreams: sums.upstreams.filter((upstream) => current.has(upstreamKeyOf(upstream))),
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

/** Returns the counters alone, for a process that has ended: whatever is a state of now is empty. */
export function endedStatus(status: ProcessStatus): ProcessStatus {
  return {
    ...status,
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
 * Adds two parts. Values that have no sum are those of `left`. Of two errors of the store the text of `left`
 * stays, because their times are not known.
 */
export function addStatus(left: ProcessStatus, right: ProcessStatus): ProcessStatus {
  const add = (countOf: (status: ProcessStatus) => number): number => countOf(left) + countOf(right);
  return {
    ...left,
    ...addCalls(left, right),
    listeners: add(({ listeners }) => listeners),
    workers: add(({ workers }) => workers),
    calls_in_flight: add(({ calls_in_flight: calls }) => calls),
    refusals: addRecords(left.refusals, right.refusals),
    overhead_ms: addHistograms(left.overhead_ms, right.overhead_ms),
    models: addByKey(left.models, right.models, ({ id }) => id, addModel),
    upstreams: addByKey(left.upstreams, right.upstreams, upstreamKeyOf, addUpstream),
    credentials: addByKey(left.credentials, right.credentials, ({ name }) => name, addCredential),
    store: {
      ok: left.store.ok && right.store.ok,
      last_error: left.store.last_error ?? right.store.last_error,
      unflushed_accounts: add(({ store }) => store.unflushed_accounts),
    },
    sharing: addSharing(left.sharing, right.sharing),
  };
}

/** Returns the counts with the cost as decimal money, in place of pico-units. */
function withMoney<Calls extends CallsStatus>({ cost_pico_units: cost, ...calls }: Calls) {
  return { ...calls, cost: decimalOf(cost) };
}

function withoutZeros(counts: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
}

function total(members: readonly ProcessStatus[], countOf: (status: ProcessStatus) => number): number {
  return members.reduce((sum, status) => sum + countOf(status), 0);
}

/** Adds by name. A name may be in only one of the two. */
function addRecords<Name extends string>(
  left: Readonly<Record<Name, number>>,
  right: Readonly<Record<Name, number>>,
): Record<Name, number> {
  const sums: Partial<Record<Name, number>> = { ...left };
  for (const name of Object.keys(right) as Name[]) sums[name] = (sums[name] ?? 0) + right[name];
  return sums as Record<Name, number>;
}

function addHistograms({ bounds, counts }: HistogramView, right: HistogramView): HistogramView {
  return { bounds, counts: counts.map((count, bucket) => count + (right.counts[bucket] ?? 0)) };
}

/** From the best to the worst. */
const SEVERITY: readonly BreakerState[] = ['closed', 'half_open', 'open'];

const upstreamKeyOf = ({ model, name }: UpstreamStatus): string => `${model} ${name}`;

/** Returns one entry for each key, in the order in which keys first occur. */
function addByKey<Entry>(
  left: readonly Entry[],
  right: readonly Entry[],
  key: (entry: Entry) => string,
  add: (left: Entry, right: Entry) => Entry,
): readonly Entry[] {
  const sums = new Map(left.map((entry) => [key(entry), entry]));
  for (const entry of right) {
    const former = sums.get(key(entry));
    sums.set(key(entry), former === undefined ? entry : add(former, entry));
  }
  return [...sums.values()];
}

function addModel(left: ModelStatus, right: ModelStatus): ModelStatus {
  return { id: left.id, ...addCalls(left, right) };
}

function addCalls(left: CallsStatus, right: CallsStatus): CallsStatus {
  return {
    outcomes: addRecords(left.outcomes, right.outcomes),
    tokens: addRecords(left.tokens, right.tokens),
    cost_pico_units: left.cost_pico_units + right.cost_pico_units,
    duration_ms: addHistograms(left.duration_ms, right.duration_ms),
    first_token_ms: addHistograms(left.first_token_ms, right.first_token_ms),
  };
}

function addUpstream(left: UpstreamStatus, right: UpstreamStatus): UpstreamStatus {
  return {
    ...left,
    calls_in_flight: left.calls_in_flight + right.calls_in_flight,
    breaker: SEVERITY[Math.max(SEVERITY.indexOf(left.breaker), SEVERITY.indexOf(right.breaker))]!,
    attempts: left.attempts + right.attempts,
    failures: left.failures + right.failures,
    last_failure: laterOf(left.last_failure, right.last_failure),
    last_errors: newestErrors(left.last_errors, right.last_errors),
    quotas: left.quotas.map((quota, index) => ({
      ...quota,
      used: quota.used + (right.quotas[index]?.used ?? 0),
    })),
    waiting_calls: left.waiting_calls + right.waiting_calls,
  };
}

function addCredential(left: CredentialStatus, right: CredentialStatus): CredentialStatus {
  const ends = [left, right].flatMap(({ expires_at: expiresAt }) => expiresAt ?? []);
  return {
    name: left.name,
    ok: left.ok && right.ok,
    expires_at: ends.length === 0 ? null : Math.min(...ends),
    renewals: left.renewals + right.renewals,
    failures: left.failures + right.failures,
    last_error: left.last_error ?? right.last_error,
  };
}

function laterOf(
  left: UpstreamStatus['last_failure'],
  right: UpstreamStatus['last_failure'],
): UpstreamStatus['last_failure'] {
  return (right?.at ?? 0) > (left?.at ?? 0) ? right : left;
}
