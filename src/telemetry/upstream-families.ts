/**
 * Metrics of upstreams: attempts, failures, breakers, limits and credentials. gateway-families.ts lists them
 * with its own, and exposition.ts reads both at a scrape. Main thread.
 *
 * Must hold: counters and calls in flight cover all upstreams since the start (`knownUpstreams`), so that a
 * reload removes no counter. Breakers and limits cover only the upstreams of the present settings
 * (`upstreams`). metrics-source.ts says what must hold of all families.
 */
import type { UpstreamSnapshot } from './metrics-reader.js';
import {
  counter,
  gauge,
  labelled,
  type MetricFamily,
  type MetricsSource,
  secondsOf,
} from './metrics-source.js';

const UPSTREAM_LABELS = ['model', 'upstream'] as const;

/** One sample for each upstream since the start. */
function perUpstream(valueOf: (snapshot: UpstreamSnapshot) => number) {
  return labelled(UPSTREAM_LABELS, (source) =>
    source.knownUpstreams().map(({ model, name, slot }) => ({
      value: valueOf(source.reader.upstream(slot)),
      labels: { model, upstream: name },
    })),
  );
}

/** One sample for each name in each upstream's counts; the label `label` has the name. */
function perUpstreamAnd(
  label: string,
  countsOf: (snapshot: UpstreamSnapshot) => ReadonlyMap<string, number>,
  upstreamsOf = (source: MetricsSource) => source.knownUpstreams(),
) {
  return labelled([...UPSTREAM_LABELS, label], (source) =>
    upstreamsOf(source).flatMap(({ model, name, slot }) =>
      [...countsOf(source.reader.upstream(slot))].map(([labelValue, value]) => ({
        value,
        labels: { model, upstream: name, [label]: labelValue },
      })),
    ),
  );
}

/**
 * One sample for each model: the sum over its upstreams. A call waits for any upstream of its model and is
 * counted at one of them, so the counts of a single upstream mean nothing.
 */
function waitsPerModel(valueOf: (waits: UpstreamSnapshot['waits']) => number) {
  return labelled(['model'], (source) => {
    const sums = new Map<string, number>();
    for (const { model, slot } of source.knownUpstreams())
      sums.set(model, (sums.get(model) ?? 0) + valueOf(source.reader.upstream(slot).waits));
    return [...sums].map(([model, value]) => ({ value, labels: { model } }));
  });
}

export const UPSTREAM_FAMILIES: readonly MetricFamily[] = [
  counter(
    'tollgate_upstream_attempts_total',
    'Attempts of calls on an upstream, the first and further ones. upstream is its host and port.',
    perUpstream(({ attempts }) => attempts),
  ),
  counter(
    'tollgate_upstream_retries_total',
    'Attempts on an upstream that followed a failed attempt of the same call, here or elsewhere.',
    perUpstream(({ retries }) => retries),
  ),
  counter(
    'tollgate_upstream_failures_total',
    'Attempts that failed, by kind: connect, connection_lost, timeout, rate_limited (429), credentials (401, 402, 403), status (any other that is no success), invalid_answer, no_connection_free (connections_max, or file descriptors), no_room (for a long whole answer), rejected (400, 409, 413, 422: handed to the caller).',
    perUpstreamAnd('kind', ({ failures }) => failures),
  ),
  counter(
    'tollgate_upstream_credentials_refused_total',
    'Attempts that an upstream answered with 401, 402 or 403: our key or account there does not serve, and somebody has to act.',
    // `!`: `failures` has a count for each of FAILURE_KINDS.
    perUpstream(({ failures }) => failures.get('credentials')!),
  ),
  counter(
    'tollgate_usage_disbelieved_total',
    'Reports of usage that were not believed, so that tokens were counted here, by reason: malformed, contradictory, too_much_output (than the model can give), beyond_max_tokens, too_much_input (than the body holds), zero (beside a prompt or a text).',
    perUpstreamAnd('reason', ({ disbelieved }) => disbelieved),
  ),
  counter(
    'tollgate_upstream_clients_left_total',
    'Calls whose client left after their request was sent, by what became of the upstream: aborted (at once), finished (when_client_leaves: finish, its response was read to the end), cut (before that end, by a failure, a timeout or the end of the gateway).',
    perUpstreamAnd('end', ({ left }) => left),
  ),
  gauge(
    'tollgate_upstream_calls_in_flight',
    'Attempts in work on an upstream.',
    perUpstream(({ callsInFlight }) => callsInFlight),
  ),
  gauge(
    'tollgate_upstream_breaker_workers',
    'Upstream workers by the state of their breaker for an upstream: closed, half_open (a call probes, or the next one will) or open (it is left alone). Each worker judges for itself, also the one in each listener.',
    perUpstreamAnd(
      'state',
      ({ breakers }) => breakers,
      (source) => source.upstreams(),
    ),
  ),
  gauge(
    'tollgate_upstream_quota_used_ratio',
    'How much of a limit of an upstream this host uses: of requests_per_minute, tokens_per_minute (held ones included) or calls_in_flight. 1: no room.',
    labelled([...UPSTREAM_LABELS, 'quota'], (source) =>
      source.upstreams().flatMap(({ model, name, scope }) =>
        (scope === undefined ? [] : source.upstreamUse(scope)).map(({ quota, limit, used }) => ({
          value: used / limit,
          labels: { model, upstream: name, quota },
        })),
      ),
    ),
  ),
  gauge(
    'tollgate_upstream_queue_calls',
    'Calls that wait for room in the limits of their upstreams.',
    waitsPerModel(({ now }) => now),
  ),
  counter(
    'tollgate_upstream_queue_waits_total',
    'Waits for room in the limits of upstreams that have ended, however they did.',
    waitsPerModel(({ ended }) => ended),
  ),
  counter(
    'tollgate_upstream_queue_refused_total',
    'Waits that ended with 503, because no room came in queue_ms or the queue was full.',
    waitsPerModel(({ rejected }) => rejected),
  ),
  counter(
    'tollgate_upstream_queue_wait_seconds_total',
    'Time that calls have waited for room in the limits of upstreams.',
    waitsPerModel(({ ms }) => secondsOf(ms)),
  ),
  gauge(
    'tollgate_upstream_credential_expiry_timestamp_seconds',
    'When a credential that the gateway renews expires, in Unix time; 0 if there is none now, so that calls of its upstreams fail. Without a sample if its source does not say. credential is its source: google, aws or entra, and the file or profile.',
    // Each process renews its credentials itself.
    labelled(['credential'], ({ credentials }) =>
      credentials().flatMap(({ name, ok, expires_at: expiresSeconds }) =>
        ok && expiresSeconds === null ? [] : { value: expiresSeconds ?? 0, labels: { credential: name } },
      ),
    ),
    'each',
  ),
  counter(
    'tollgate_upstream_credential_renewals_total',
    'Renewals of credentials, by result: renewed, failed. Each process has its own.',
    labelled(['credential', 'result'], ({ credentials }) =>
      credentials().flatMap(({ name: credential, renewals, failures }) => [
        { value: renewals, labels: { credential, result: 'renewed' } },
        { value: failures, labels: { credential, result: 'failed' } },
      ]),
    ),
  ),
];
