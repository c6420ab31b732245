/**
 * How long the call log takes to find one of millions of calls by its id, and pages of them by each filter.
 *
 *     node build/bench/micro/call-records.js --folder DIR [--calls 10000000] [--looks 200] [--smoke]
 *
 * An empty folder is filled first; one that has calls is only searched, so that a slow fill and a quiet
 * measurement can be two runs. Keeps 1 GiB, the bound that the gateway comes with. Each look asks for another
 * id, account, key or time. Told are median, 99th percentile and the longest, and what the process had
 * resident at its end.
 */
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { CallFilter } from '#src/call-log/call-query.js';
import { callReaderOf, type CallReader } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { CALLS_FOLDER } from '#src/call-log/segment-files.js';
import type { SlotNames } from '#src/call-log/block-names.js';
import { SystemClock } from '#src/core/clock.js';
import { USAGE_SOURCES } from '#src/core/token-counts.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { CallRingReader } from '#src/telemetry/call-ring-reader.js';
import { CallRingWriter } from '#src/telemetry/call-ring-writer.js';
import { createCallRing, type EndedCall } from '#src/telemetry/call-ring-layout.js';
import { createLogSwitch, LogSwitch } from '#src/telemetry/log-switch.js';
import { type CallRecord, requestIdOf } from '#src/telemetry/call-record.js';
import { appendPlain } from '../../test/support/plain-calls.js';
import { pick, randomOf } from '../../test/support/random.js';
import { machineLine } from '../support/machine.js';

const { values } = parseArgs({
  options: {
    folder: { type: 'string' },
    calls: { type: 'string', default: '10000000' },
    looks: { type: 'string', default: '200' },
    smoke: { type: 'boolean', default: false },
  },
});
const COUNT = values.smoke ? 20_000 : Number(values.calls);
const LOOKS = values.smoke ? 3 : Number(values.looks);
const KEEP_BYTES = 1024 ** 3;
const PAGE = 50;
const CALLS_A_MS = 0.2;
const PREFIX = 'req_aaaaaaaaaaaa-';
const ACCOUNTS = 20_000;
/** An account with so few calls that most segments have none. */
const RARE_EVERY = 100_000;
const RARE = 'acct_rare';
const MODELS = Array.from({ length: 12 }, (_, at) => `model-${at}`);
const UPSTREAMS = Array.from({ length: 8 }, (_, at) => `upstream-${at}.example`);
const FAILURES = [
  [502, 'provider_unavailable'],
  [429, 'rate_limit_exceeded'],
  [500, 'internal_error'],
  [null, 'client_gone'],
] as const;
const FAILED_SHARE = 0.05;
/** A code that one call in a million ends with. */
const RAREST_EVERY = 1_000_000;
const RAREST = [503, 'overloaded'] as const;
/** Calls that a drain finds: those of a tenth of a second under load. */
const BATCH = 1_000;

const accountOf = (at: number): string => (at === ACCOUNTS ? RARE : `acct_${String(at).padStart(16, '0')}`);
const keyOf = (account: string): string => account.replace('acct', 'key');
const random = randomOf(7);
/** Some accounts have many more calls than others. */
const anyAccount = (): number => Math.floor(random() ** 3 * ACCOUNTS);

/** What a call is of, by index. */
interface Of {
  readonly account: number;
  readonly model: number;
  readonly upstream: number;
}

const ofCall = (number: number): Of => ({
  account: number % RARE_EVERY === RARE_EVERY - 1 ? ACCOUNTS : anyAccount(),
  model: Math.floor(random() * MODELS.length),
  upstream: Math.floor(random() * UPSTREAMS.length),
});

/** As a listener tells of it. */
function wentWell(number: number, endedMs: number, { account, model, upstream }: Of): EndedCall {
  return {
    request: number,
    door: 0,
    endedMs: asWallMs(endedMs),
    outcome: 'ok',
    begun: true,
    stream: true,
    cache: undefined,
    account: asAccountIndex(account),
    key: asKeyIndex(account),
    model,
    upstream,
    usage: {
      promptTokens: Math.floor(random() * 4_000),
      cachedTokens: 0,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      completionTokens: Math.floor(random() * 500),
      reasoningTokens: 0,
      answered: model,
      source: 0,
      charged: asPicoUnits(855_000_000n),
    },
    firstTokenMs: 310.4,
    durationMs: 640.2,
    queuedMs: 0,
    admittedMs: 0.3,
    quotas: { minute: 59, inFlight: 3, perDay: 900, balance: 12e12, others: undefined },
    attempts: [{ upstream, model, status: 200, code: undefined, startMs: 0.5, durationMs: 639, error: '' }],
    error: '',
  };
}

/** As the main thread makes it of what a listener tells. */
function failed(
  number: number,
  endedMs: number,
  of: Of,
  [status, code]: readonly [number | null, string],
): CallRecord {
  const account = accountOf(of.account);
  const model = MODELS[of.model]!;
  const upstream = UPSTREAMS[of.upstream]!;
  const text = 'The provider did not answer in time.';
  return {
    requestPrefix: PREFIX,
    request: number,
    endedMs: asWallMs(endedMs),
    route: '/v1/chat/completions',
    account,
    key: keyOf(account),
    model,
    upstream,
    stream: true,
    cache: null,
    status,
    code,
    usage: undefined,
    firstTokenMs: undefined,
    durationMs: 640.2,
    queuedMs: 0,
    admittedMs: 0.3,
    error: text,
    attempts: [
      { upstream, model, status: null, code: 'timeout', startMs: 0.5, durationMs: 639, error: text },
    ],
    quotas: [
      { scope: 'account', id: account, quota: 'requests_per_minute', left: 59 },
      { scope: 'account', id: account, quota: 'balance', left: 12_000_000_000_000n },
    ],
  };
}

/** Calls that went well go through a ring, as in a gateway. Returns nanoseconds of CPU that each has cost. */
function fill(folder: string): number {
  const fail = (text: string): never => {
    throw new Error(text);
  };
  const names: SlotNames = {
    requestPrefixOf: () => PREFIX,
    accountIdOf: accountOf,
    keyIdOf: (key) => keyOf(accountOf(key)),
    modelIdOf: (model) => MODELS[model]!,
    upstreamNameOf: (upstream) => UPSTREAMS[upstream]!,
    groupNameOf: () => 'group',
    sourceOf: (source) => USAGE_SOURCES[source]!,
  };
  const writer = new CallWriter({
    folder,
    names,
    retention: { keepHours: 72, keepBytes: KEEP_BYTES, processes: 1 },
    clock: new SystemClock(),
    log: { error: fail, warn: fail, info: () => undefined, record: () => undefined },
  });
  const ring = createCallRing();
  const listener = new CallRingWriter(ring, new LogSwitch(createLogSwitch()));
  const reader = new CallRingReader(ring);
  const startMs = Date.now() - COUNT / CALLS_A_MS;
  let micros = 0;
  for (let number = 0; number < COUNT;) {
    const calls: EndedCall[] = [];
    const failures: CallRecord[] = [];
    for (const end = Math.min(number + BATCH, COUNT); number < end; number++) {
      const endedMs = startMs + Math.floor(number / CALLS_A_MS);
      const failure =
        number % RAREST_EVERY === RAREST_EVERY / 2
          ? RAREST
          : random() < FAILED_SHARE
            ? pick(random, FAILURES)
            : undefined;
      if (failure === undefined) calls.push(wentWell(number, endedMs, ofCall(number)));
      else failures.push(failed(number, endedMs, ofCall(number), failure));
    }
    const before = process.cpuUsage();
    for (const call of calls) appendPlain(listener, call);
    writer.forgetSlots();
    reader.drain(
      () => fail('not each call that went well is plain'),
      (call) => writer.appendPlain(call, 0),
    );
    for (const failure of failures) writer.append(failure);
    const { user, system } = process.cpuUsage(before);
    micros += user + system;
  }
  if (reader.takeLost().dropped + writer.dropped > 0) fail('calls were dropped');
  writer.close();
  return (micros / COUNT) * 1_000;
}

function printTable(
  rows: readonly (readonly [what: string, taken: readonly number[], calls: number])[],
): void {
  process.stdout.write('| looked for | median ms | p99 | longest | calls found |\n');
  process.stdout.write('| --- | --- | --- | --- | --- |\n');
  for (const [what, taken, calls] of rows) {
    const sorted = [...taken].sort((left, right) => left - right);
    const [median, high, most] = [0.5, 0.99, 1].map((share) =>
      sorted[Math.ceil(share * sorted.length) - 1]!.toFixed(1),
    );
    process.stdout.write(`| ${what} | ${median} | ${high} | ${most} | ${calls} |\n`);
  }
}

/** Looks LOOKS times, each for another. Told are the times, and how many calls a look found on average. */
async function timed(
  what: string,
  look: (turn: number) => Promise<number>,
): Promise<readonly [string, number[], number]> {
  const taken: number[] = [];
  let found = 0;
  for (let turn = 0; turn < LOOKS; turn++) {
    const startMs = performance.now();
    found += await look(turn);
    taken.push(performance.now() - startMs);
  }
  return [what, taken, Math.round((found / LOOKS) * 10) / 10];
}

async function measureAll(dataPath: string, reader: CallReader): Promise<void> {
  const first = async (what: string, id: string) => {
    const fresh = callReaderOf(dataPath);
    return timed(what, async () => ((await fresh.find(id)) === undefined ? 0 : 1));
  };
  const oldest = await oldestOf(reader);
  const span = COUNT - oldest;
  const idOf = (number: number): string => requestIdOf(PREFIX, number);
  const byId = (number: () => number) => async (): Promise<number> =>
    (await reader.find(idOf(number()))) === undefined ? 0 : 1;
  const page =
    (filterOf: (turn: number) => CallFilter) =>
    async (turn: number): Promise<number> =>
      (await reader.page(filterOf(turn), PAGE))!.calls.length;
  const newestMs = (await reader.page({}, 1))!.calls[0]!.endedMs;
  const spanMs = span / CALLS_A_MS;
  const account = (): string => accountOf(anyAccount());
  const group = (size: number): CallFilter => {
    const ids = Array.from({ length: size }, account);
    const set = new Set(ids);
    return { accounts: { ids: size > 256 ? undefined : ids, has: (id) => set.has(id) } };
  };
  printTable([
    await first('the id of the oldest, by a reader that begins', idOf(oldest + 1)),
    await timed(
      'an id of the newest tenth',
      byId(() => COUNT - 1 - Math.floor((random() * span) / 10)),
    ),
    await timed(
      'any id',
      byId(() => COUNT - 1 - Math.floor(random() * span)),
    ),
    await timed(
      'an id of one that has gone',
      byId(() => Math.floor(random() * oldest)),
    ),
    await timed('an id of none', async () => byId(() => 2 ** 40 + Math.floor(random() * 2 ** 20))()),
    await timed(
      'the newest',
      page(() => ({})),
    ),
    await timed(
      'an account',
      page(() => ({ account: account() })),
    ),
    await timed(
      'an account with few calls',
      page(() => ({ account: accountOf(ACCOUNTS - 1 - Math.floor(random() * 50)) })),
    ),
    await timed(
      'an account with hardly any',
      page(() => ({ account: RARE })),
    ),
    await timed(
      'an account with none',
      page((turn) => ({ account: `acct_none${turn}` })),
    ),
    await timed(
      'a key',
      page(() => ({ key: keyOf(account()) })),
    ),
    await timed(
      'a model',
      page(() => ({ model: pick(random, MODELS) })),
    ),
    await timed(
      'an upstream',
      page(() => ({ upstream: pick(random, UPSTREAMS) })),
    ),
    await timed(
      'a status',
      page(() => ({ status: pick(random, [429, 500, 502]) })),
    ),
    await timed(
      'a class of statuses',
      page(() => ({ status: pick(random, [4, 5]) })),
    ),
    await timed(
      'a code',
      page(() => ({ code: pick(random, FAILURES)[1] })),
    ),
    await timed(
      'a code of ten calls',
      page(() => ({ code: 'overloaded' })),
    ),
    await timed(
      'failed',
      page(() => ({ failed: true })),
    ),
    await timed(
      'ended before a time',
      page(() => ({ toMs: newestMs - random() * spanMs })),
    ),
    await timed(
      'a minute',
      page(() => {
        const fromMs = newestMs - random() * spanMs;
        return { fromMs, toMs: fromMs + 60_000 };
      }),
    ),
    await timed(
      'failed in a minute',
      page(() => {
        const fromMs = newestMs - random() * spanMs;
        return { fromMs, toMs: fromMs + 60_000, failed: true };
      }),
    ),
    await timed(
      'an account, failed',
      page(() => ({ account: account(), failed: true })),
    ),
    await timed(
      'an account, a model, an upstream, a code',
      page(() => ({
        account: account(),
        model: pick(random, MODELS),
        upstream: pick(random, UPSTREAMS),
        code: 'internal_error',
      })),
    ),
    await timed(
      'a model and the code of ten calls',
      page(() => ({ model: MODELS[0]!, code: 'overloaded' })),
    ),
    await timed(
      'an account that is with each code, and never of this one',
      page(() => ({ account: accountOf(0), code: 'overloaded' })),
    ),
    await timed(
      'a group of 100 accounts',
      page(() => group(100)),
    ),
    await timed(
      'a group of 10,000 accounts, failed',
      page(() => ({ ...group(10_000), failed: true })),
    ),
  ]);
}

/** The number of the oldest call that is kept: halving, since the oldest go first. */
async function oldestOf(reader: CallReader): Promise<number> {
  let gone = -1;
  let kept = COUNT - 1;
  while (kept - gone > 1) {
    const middle = Math.floor((gone + kept) / 2);
    if ((await reader.find(requestIdOf(PREFIX, middle))) === undefined) gone = middle;
    else kept = middle;
  }
  return kept;
}

const dataPath = values.folder ?? mkdtempSync(join(tmpdir(), 'calls-'));
const folder = join(dataPath, CALLS_FOLDER);
try {
  process.stdout.write(`${machineLine()}\n`);
  if (readSegments().length === 0) {
    process.stdout.write(`filled: ${fill(folder).toFixed(0)} ns of CPU a call\n`);
  }
  const bytes = readSegments().reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  const reader = callReaderOf(dataPath);
  process.stdout.write(
    `${bytes} of ${KEEP_BYTES} bytes; the oldest kept is number ${await oldestOf(reader)}\n`,
  );
  await measureAll(dataPath, reader);
  process.stdout.write(`${process.memoryUsage().rss >> 20} MiB resident\n`);
} finally {
  if (values.folder === undefined) rmSync(dataPath, { recursive: true, force: true });
}

function readSegments(): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
