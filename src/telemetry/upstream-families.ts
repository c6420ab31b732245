/**
 * Metrics of upstreams: attempts, failures, breakers, limits and credentials. gateway-families.ts lists them
 * with its own, and exposition.ts reads both at a scrape. Main thread.
 *
 * Must hold:
 * - Names and labels stay, because dashboards use them (test/unit/telemetry/exposition.names.test.ts).
 *   `npm run docs` copies names, labels and help to docs/metrics.md.
 * - Samples have the labels that the family declares (test/unit/telemetry/exposition.test.ts).
 * - Counters and calls in flight cover all upstreams since the start (`knownUpstreams`), so that a reload
 *   removes no counter. Breakers and limits cover only the upstreams of the present settings (`upstreams`).
 */
import type { UpstreamSnapshot } from './metrics-reader.js';
import { type MetricFamily, type MetricsSource, type Sample, secondsOf } from './metrics-source.js';
import type { NamedUpstream } from './upstream-names.js';

const UPSTREAM_LABELS = ['model', 'upstream'];
const MODEL_LABELS = ['model'];
const CREDENTIAL_LABELS = ['credential'];

/** Returns one sample for each upstream since the start. */
function upstreamSamples(source: MetricsSource, valueOf: (snapshot: UpstreamSnapshot) => number): Sample[] {
  return source.knownUpstreams().map(({ model, name, slot }) => ({
    value: valueOf(source.reader.upstream(slot)),
    labels: { model, upstream: name },
  }));
}

/** Returns one sample for each name in each upstream's counts; the label `label` has the name. */
function countsByName(
  source: MetricsSource,
  upstreams: readonly NamedUpstream[],
  label: string,
  countsOf: (snapshot: UpstreamSnapshot) => ReadonlyMap<string, number>,
): Sample[] {
  return upstreams.flatMap(({ model, name, slot }) =>
    [...countsOf(source.reader.upstream(slot))].map(([labelValue, count]) => ({
      value: count,
      labels: { model, upstream: name, [label]: labelValue },
    })),
  );
}

/**
 * Returns one sample for each model: the sum over its upstreams. A call waits for any upstream of its model
 * and is counted at one of them, so the counts of a single upstream mean nothing.
 */
function waitSamples(source: MetricsSource, valueOf: (waits: UpstreamSnapshot['waits']) => number): Sample[] {
  const sums = new Map<string, number>();
  for (const { model, slot } of source.knownUpstreams())
    sums.set(model, (sums.get(model) ?? 0) + valueOf(source.reader.upstream(slot).waits));
  return [...sums].map(([model, sum]) => ({ value: sum, labels: { model } }));
}

export const UPSTREAM_FAMILIES: readonly MetricFamily[] = [
  {
    name: 'tollgate_upstream_attempts_total',
    type: 'counter',
    help: 'Attempts of calls on an upstream, the first and further ones. upstream is its host and port.',
    labels: UPSTREAM_LABELS,
    collect: (source) => upstreamSamples(source, ({ attempts }) => attempts),
  },
  {
    name: 'tollgate_upstream_retries_total',
    type: 'counter',
    help: 'Attempts on an upstream that followed a failed attempt of the same call, here or elsewhere.',
    labels: UPSTREAM_LABELS,
    collect: (source) => upstreamSamples(source, ({ retries }) => retries),
  },
  {
    name: 'tollgate_upstream_failures_total',
    type: 'counter',
    help: 'Attempts that failed, by kind: connect, connection_lost, timeout, rate_limited (429), credentials (401, 402, 403), status (any other that is no success), invalid_answer, no_connection_free (connections_max, or file descriptors), no_room (for a long whole answer), rejected (400, 409, 413, 422: handed to the caller).',
    labels: [...UPSTREAM_LABELS, 'kind'],
    collect: (source) => countsByName(source, source.knownUpstreams(), 'kind', ({ failures }) => failures),
  },
  {
    name: 'tollgate_upstream_credentials_refused_total',
    type: 'counter',
    help: 'Attempts that an upstream answered with 401, 402 or 403: our key or account there does not serve, and somebody has to act.',
    labels: UPSTREAM_LABELS,
    // `!`: `failures` has a count for each of FAILURE_KINDS.
    collect: (source) => upstreamSamples(source, ({ failures }) => failures.get('credentials')!),
  },
  {
    name: 'tollgate_usage_disbelieved_total',
    type: 'counter',
    help: 'Reports of usage that were not believed, so that tokens were counted here, by reason: malformed, contradictory, too_much_output (than the model can give), beyond_max_tokens, too_much_input (than the body holds), zero (beside a prompt or a text).',
    labels: [...UPSTREAM_LABELS, 'reason'],
    collect: (source) =>
      countsByName(source, source.knownUpstreams(), 'reason', ({ disbelieved }) => disbelieved),
  },
  {
    name: 'tollgate_upstream_clients_left_total',
    type: 'counter',
    help: 'Calls whose client left after their request was sent, by what became of the upstream: aborted (at once), finished (when_client_leaves: finish, its response was read to the end), cut (before that end, by a failure, a timeout or the end of the gateway).',
    labels: [...UPSTREAM_LABELS, 'end'],
    collect: (source) => countsByName(source, source.knownUpstreams(), 'end', ({ left }) => left),
  },
  {
    name: 'tollgate_upstream_calls_in_flight',
    type: 'gauge',
    help: 'Attempts in work on an upstream.',
    labels: UPSTREAM_LABELS,
    collect: (source) => upstreamSamples(source, ({ callsInFlight }) => callsInFlight),
  },
  {
    name: 'tollgate_upstream_breaker_workers',
    type: 'gauge',
    help: 'Upstream workers by the state of their breaker for an upstream: closed, half_open (a call probes, or the next one will) or open (it is left alone). Each worker judges for itself, also the one in each listener.',
    labels: [...UPSTREAM_LABELS, 'state'],
    collect: (source) => countsByName(source, source.upstreams(), 'state', ({ breakers }) => breakers),
  },
  {
    name: 'tollgate_upstream_quota_used_ratio',
    type: 'gauge',
    help: 'How much of a limit of an upstream this host uses: of requests_per_minute, tokens_per_minute (held ones included) or calls_in_flight. 1: no room.',
    labels: [...UPSTREAM_LABELS, 'quota'],
    collect: (source) =>
      source.upstreams().flatMap(({ model, name, scope }) =>
        (scope === undefined ? [] : source.upstreamUse(scope)).map(({ quota, limit, used }) => ({
          value: used / limit,
          labels: { model, upstream: name, quota },
        })),
      ),
  },
  {
    name: 'tollgate_upstream_queue_calls',
    type: 'gauge',
    help: 'Calls that wait for room in the limits of their upstreams.',
    labels: MODEL_LABELS,
    collect: (source) => waitSamples(source, ({ now }) => now),
  },
  {
    name: 'tollgate_upstream_queue_waits_total',
    type: 'counter',
    help: 'Waits for room in the limits of upstreams that have ended, however they did.',
    labels: MODEL_LABELS,
    collect: (source) => waitSamples(source, ({ ended }) => ended),
  },
  {
    name: 'tollgate_upstream_queue_refused_total',
    type: 'counter',
    help: 'Waits that ended with 503, because no room came in queue_ms or the queue was full.',
    labels: MODEL_LABELS,
    collect: (source) => waitSamples(source, ({ rejected }) => rejected),
  },
  {
    name: 'tollgate_upstream_queue_wait_seconds_total',
    type: 'counter',
    help: 'Time that calls have waited for room in the limits of upstreams.',
    labels: MODEL_LABELS,
    collect: (source) => waitSamples(source, ({ ms }) => secondsOf(ms)),
  },
  {
    name: 'tollgate_upstream_credential_expiry_timestamp_seconds',
    type: 'gauge',
    help: 'When a credential that the gateway renews expires, in Unix time; 0 if there is none now, so that calls of its upstreams fail. Without a sample if its source does not say. credential is its source: google, aws or entra, and the file or profile.',
    labels: CREDENTIAL_LABELS,
    // Each process renews its credentials itself.
    across: 'each',
    collect: ({ credentials }) =>
      credentials().flatMap(({ name, ok, expires_at: expiresSeconds }) =>
        ok && expiresSeconds === null ? [] : { value: expiresSeconds ?? 0, labels: { credential: name } },
      ),
  },
  {
    name: 'tollgate_upstream_credential_renewals_total',
    type: 'counter',
    help: 'Renewals of credentials, by result: renewed, failed. Each process has its own.',
    labels: [...CREDENTIAL_LABELS, 'result'],
    collect: ({ credentials }) =>
      credentials().flatMap(({ name: credential, renewals, failures }) => [
        { value: renewals, labels: { credential, result: 'renewed' } },
        { value: failures, labels: { credential, result: 'failed' } },
      ]),
  },
];
