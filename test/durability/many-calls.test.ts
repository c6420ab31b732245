/**
 * Millions of kept calls: one by its id, and pages by filters, in their time; and the disk within its bound.
 * TOLLGATE_TEST_CALLS sets how many, such as 10000000. What was measured is printed as a comment.
 */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { CallFilter } from '#src/call-log/call-query.js';
import { callReaderOf } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { CALLS_FOLDER } from '#src/call-log/segment-files.js';
import { SystemClock } from '#src/core/clock.js';
import { asPicoUnits, asWallMs } from '#src/core/units.js';
import { type CallRecord, requestIdOf } from '#src/telemetry/call-record.js';
import { randomOf } from '../support/random.js';

const COUNT = Number(process.env.TOLLGATE_TEST_CALLS ?? 1_000_000);
/** Some 105 bytes a call: the oldest go. */
const KEEP_BYTES = Math.max(COUNT * 90, 64 * 1024 * 1024);
const PREFIXES = ['req_aaaaaaaaaaaa-', 'req_bbbbbbbbbbbb-'] as const;
const ACCOUNTS = 20_000;
/** An account with a tenth of the calls, which never fail; others fail in a tenth of theirs. */
const COMMON = 'acct_common';
/** That of the common account, whose calls alone name it. */
const COMMON_MODEL = 'gpt-4o';
const RARE_EVERY = 100_000;
/** Ten times what is promised of an idle machine: others run beside the test. */
const SLOWER = 10;

const random = randomOf(3);
const accounts = Array.from({ length: ACCOUNTS }, (_, at) => `acct_${String(at).padStart(16, '0')}`);
const keys = accounts.map((account) => account.replace('acct', 'key'));
const startMs = Date.now() - COUNT / 10;

function callOf(number: number): CallRecord {
  const account = random() < 0.1 ? undefined : Math.floor(random() * ACCOUNTS);
  const isRare = number % RARE_EVERY === RARE_EVERY - 1;
  const hasFailed = account !== undefined && random() < 0.1;
  const accountId = isRare ? 'acct_rare' : account === undefined ? COMMON : accounts[account]!;
  return {
    requestPrefix: PREFIXES[number % 2]!,
    request: number >> 1,
    endedMs: asWallMs(startMs + Math.floor(number / 10)),
    route: '/v1/chat/completions',
    account: accountId,
    key: account === undefined ? 'key_common' : keys[account]!,
    model: account === undefined ? COMMON_MODEL : 'gpt-4o-mini',
    upstream: 'api.openai.com',
    stream: true,
    cache: null,
    status: hasFailed ? 502 : 200,
    code: hasFailed ? 'provider_unavailable' : null,
    usage: hasFailed
      ? undefined
      : {
          promptTokens: 900,
          cachedTokens: 0,
          cacheWriteTokens: 0,
          cacheWrite1hTokens: 0,
          completionTokens: number % 500,
          reasoningTokens: 0,
          answeredModel: account === undefined ? COMMON_MODEL : 'gpt-4o-mini',
          source: 'reported',
          charged: asPicoUnits(855_000_000n),
        },
    firstTokenMs: 310.4,
    durationMs: 640.2,
    queuedMs: 0,
    admittedMs: 0.3,
    error: hasFailed ? 'The provider answered with status 503.' : null,
    attempts: [],
    quotas: [
      { scope: 'account', id: accountId, quota: 'requests_per_minute', left: 59 },
      { scope: 'account', id: accountId, quota: 'balance', left: 12_000_000_000_000n },
    ],
  };
}

void t.test(`${COUNT} calls`, async (t) => {
  const dataPath = t.testdir();
  const folder = join(dataPath, CALLS_FOLDER);
  const writer = new CallWriter({
    folder,
    retention: { keepHours: 72, keepBytes: KEEP_BYTES, processes: 1 },
    clock: new SystemClock(),
    log: {
      error: (text) => void t.fail(text),
      warn: (text) => void t.fail(text),
      info: () => undefined,
      record: () => undefined,
    },
  });
  const bytes = (): number =>
    readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  let most = 0;
  let cpuMs = 0;
  let batch: CallRecord[] = [];
  for (let number = 0; number < COUNT; number++) {
    batch.push(callOf(number));
    if (batch.length < 10_000) continue;
    const before = process.cpuUsage();
    for (const call of batch) writer.append(call);
    const { user, system } = process.cpuUsage(before);
    cpuMs += (user + system) / 1_000;
    batch = [];
    most = Math.max(most, bytes());
  }
  writer.flush();
  t.comment(`${((cpuMs * 1e6) / COUNT).toFixed(0)} ns of CPU a call; ${most} bytes at most`);
  t.equal(writer.dropped, 0);
  t.ok(most <= KEEP_BYTES, `${most} of ${KEEP_BYTES} bytes`);

  const reader = callReaderOf(dataPath);
  const timed = async <T>(what: string, limitMs: number, work: () => Promise<T>): Promise<T> => {
    const spent: number[] = [];
    let result!: T;
    for (let turn = 0; turn < 20; turn++) {
      const beforeMs = performance.now();
      result = await work();
      spent.push(performance.now() - beforeMs);
    }
    const first = spent[0]!;
    spent.sort((left, right) => left - right);
    const median = spent[10]!;
    t.comment(
      `${what}: first ${first.toFixed(1)} ms, then ${median.toFixed(1)} to ${spent[19]!.toFixed(1)} ms`,
    );
    t.ok(median <= limitMs * SLOWER, what);
    return result;
  };

  t.equal(await reader.find(requestIdOf(PREFIXES[0], 1)), undefined, 'the oldest are gone');
  for (const back of [1, COUNT / 10, COUNT / 3]) {
    const number = COUNT - Math.floor(back);
    const id = requestIdOf(PREFIXES[number % 2]!, number >> 1);
    const found = await timed(`show the call ${back} back`, 5, () => reader.find(id));
    t.equal(found?.request, number >> 1);
  }
  await timed('show one that is not there', 5, () => reader.find(requestIdOf(PREFIXES[0], COUNT)));
  const page = async (what: string, filter: CallFilter): Promise<readonly CallRecord[]> =>
    (await timed(`page of ${what}`, 100, () => reader.page(filter, 50)))!.calls;
  t.equal((await page('all', {})).length, 50);
  t.equal((await page('a common account', { account: COMMON })).length, 50);
  t.equal((await page('failed calls', { failed: true })).length, 50);
  t.equal((await page('one of 20,000 accounts', { account: accounts[7]! })).length > 10, true);
  const rare = await page('a rare account', { account: 'acct_rare' });
  t.ok(rare.length >= Math.min(COUNT / RARE_EVERY / 4, 50));
  t.same(await page('nobody', { account: 'acct_nobody' }), []);
  // Both are in each block, and never in one call: the index says so of failures, and of a model each page
  // ends in its time and says where it was.
  t.same(
    await page('a common account and a common code', { account: COMMON, code: 'provider_unavailable' }),
    [],
  );
  t.same(await page('a common account and a common model', { account: COMMON, model: 'gpt-4o-mini' }), []);
  // Groups: some accounts are found by the indexes, of many each call is looked at.
  for (const size of [1, 100, ACCOUNTS / 2]) {
    const ids = accounts.slice(0, size);
    const set = new Set(ids);
    const members = { ids: size > 256 ? undefined : ids, has: (account: string) => set.has(account) };
    const found = await page(`a group of ${size} accounts`, { accounts: members });
    t.ok(found.length > 10 && found.every(({ account }) => set.has(account!)));
    await page(`failed calls of a group of ${size} accounts`, { accounts: members, failed: true });
  }
  await page('a large group whose accounts have no calls', {
    accounts: { ids: undefined, has: () => false },
  });
  const strangers = Array.from({ length: 256 }, (_, at) => `acct_stranger${at}`);
  const none = { ids: strangers, has: () => false };
  t.same(await page('256 accounts without calls', { accounts: none }), []);
  let pages = 0;
  for (let cursor: string | undefined; ; pages++) {
    const next = await reader.page({ account: COMMON, model: 'gpt-4o-mini' }, 50, cursor);
    t.ok(next!.calls.length === 0 && (next!.next === null) === (next!.searchedToMs === null));
    if (next!.next === null) break;
    cursor = next!.next;
  }
  t.comment(
    `all of the last were searched in ${pages + 1} pages; ${process.memoryUsage().rss >> 20} MiB resident`,
  );
  writer.close();
});
