/** Random records of calls, and the plain search that the call log is held against. */
import { asPicoUnits, asWallMs } from '#src/core/units.js';
import type { CallFilter } from '#src/call-log/call-query.js';
import type { CallRecord } from '#src/telemetry/call-record.js';
import { pick, type Random } from './random.js';

const CODES = ['provider_unavailable', 'client_gone', 'rate_limit_exceeded', 'internal_error'];
const STATUSES: Readonly<Record<string, number | null>> = {
  provider_unavailable: 502,
  client_gone: null,
  rate_limit_exceeded: 429,
  internal_error: 500,
};
const TEXTS = ['Geht nicht – später', 'line\nbreak "quoted"', '限制', '\u{1f600}', ''];

export interface CallKinds {
  readonly accounts: number;
  readonly models: number;
  readonly upstreams: number;
}

const roundedMs = (ms: number): number => Math.round(ms * 1_000) / 1_000;

/** The `number`th call of a listener. Every field has all of its forms. */
export function randomCall(random: Random, number: number, endedMs: number, kinds: CallKinds): CallRecord {
  const account = Math.floor(random() ** 3 * kinds.accounts);
  const code = random() < 0.7 ? null : pick(random, CODES);
  const upstream = random() < 0.1 ? null : `upstream-${Math.floor(random() * kinds.upstreams)}`;
  const model = `model-${Math.floor(random() * kinds.models)}`;
  const isKnown = random() < 0.95;
  return {
    requestPrefix: 'req_abcdefgh-_12-',
    request: number,
    endedMs: asWallMs(endedMs),
    route: '/v1/chat/completions',
    account: isKnown ? `acct_${account}` : null,
    key: isKnown ? `key_${account}_${Math.floor(random() * 2)}` : null,
    model: random() < 0.05 ? null : model,
    upstream,
    stream: random() < 0.5,
    cache: pick(random, ['hit', 'miss', null]),
    status: code === null ? 200 : STATUSES[code]!,
    code,
    usage:
      code !== null || random() < 0.1
        ? undefined
        : {
            promptTokens: Math.floor(random() * 1e6),
            cachedTokens: Math.floor(random() * 100),
            cacheWriteTokens: Math.floor(random() * 100),
            cacheWrite1hTokens: Math.floor(random() * 10),
            completionTokens: Math.floor(random() * 2 ** 40),
            reasoningTokens: Math.floor(random() * 300),
            answeredModel: random() < 0.9 ? model : 'model-other',
            source: pick(random, ['reported', 'counted', 'estimated']),
            charged: asPicoUnits(BigInt(Math.floor(random() * Number.MAX_SAFE_INTEGER))),
          },
    firstTokenMs: random() < 0.5 ? undefined : roundedMs(random() * 1e4),
    durationMs: roundedMs(random() * 1e7),
    queuedMs: Math.floor(random() * 1e5),
    admittedMs: random() < 0.3 ? undefined : roundedMs(random()),
    error: code === null ? null : pick(random, TEXTS),
    attempts: Array.from({ length: Math.floor(random() * 4) }, () => ({
      upstream: `upstream-${Math.floor(random() * kinds.upstreams)}`,
      model: random() < 0.1 ? null : model,
      status: random() < 0.5 ? 200 : null,
      code: random() < 0.5 ? null : 'timeout',
      startMs: roundedMs(random() * 100),
      durationMs: roundedMs(random() * 100),
      error: random() < 0.5 ? null : pick(random, TEXTS),
    })),
    quotas: Array.from({ length: Math.floor(random() * 3) }, (_, at) => ({
      scope: pick(random, ['account', 'key', 'group']),
      id: random() < 0.1 ? null : `acct_${account}`,
      quota: at === 0 ? 'requests_per_minute' : 'balance',
      left: at === 0 ? Math.floor(random() * 1e9) : BigInt(Math.floor(random() * 1e15)) - 10n,
    })),
  };
}

/** What `CallReader.page` does, call by call. */
export function passes(call: CallRecord, filter: CallFilter): boolean {
  const { account, key, model, upstream, code, status, failed, fromMs, toMs } = filter;
  return (
    (account === undefined || call.account === account) &&
    (key === undefined || call.key === key) &&
    (model === undefined || call.model === model || call.usage?.answeredModel === model) &&
    (upstream === undefined ||
      call.upstream === upstream ||
      call.attempts.some((attempt) => attempt.upstream === upstream)) &&
    (code === undefined || (call.code !== null && code.split(',').includes(call.code))) &&
    (status === undefined || call.status === status || Math.floor((call.status ?? 0) / 100) === status) &&
    (failed === undefined || (call.code !== null) === failed) &&
    (fromMs === undefined || call.endedMs >= fromMs) &&
    (toMs === undefined || call.endedMs < toMs)
  );
}
