/** Calls on disk: whole, found by their ids, and by filters as a plain search finds them. */
import fs, { readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import t, { type Test } from 'tap';
import { Block, SEGMENT_START } from '#src/call-log/call-block.js';
import type { CallFilter } from '#src/call-log/call-query.js';
import { CallReader } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { REMOVE_PERIOD_MS, type CallRetention } from '#src/call-log/segment-files.js';
import { type Clock, SystemClock } from '#src/core/clock.js';
import { type CallRecord, requestIdOf } from '#src/telemetry/call-record.js';
import { type CallKinds, passes, randomCall } from '../../support/stored-calls.js';
import { randomOf } from '../../support/random.js';
import { StoppedClock } from '../store/support.js';

const KINDS: CallKinds = { accounts: 40, models: 3, upstreams: 4 };
const START_MS = 1_763_950_000_000;
const RETENTION: CallRetention = { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 };
/** A new folder's numbers begin at the second: files of an earlier run may have been in another. */
const FIRST_FILE = `${new StoppedClock().nowMs / 1_000 + 1}.calls`;
const logged: object[] = [];
const log = {
  error: () => undefined,
  warn: (_: string, fields?: object) => void logged.push(fields!),
  info: () => undefined,
  record: () => undefined,
};

function writerOn(folder: string, retention = RETENTION, clock: Clock = new SystemClock()): CallWriter {
  return new CallWriter({ folder, retention, clock, log });
}

/** Calls that ended one after the other, some in the same millisecond, some a little before. */
function calls(seed: number, count: number, prefix = 'req_abcdefgh-_12-'): CallRecord[] {
  const random = randomOf(seed);
  let endedMs = START_MS;
  return Array.from({ length: count }, (_, number) => {
    endedMs += Math.floor(random() * 3);
    const call = randomCall(random, number, endedMs - Math.floor(random() * 5), KINDS);
    return { ...call, requestPrefix: prefix };
  });
}

const idOf = ({ requestPrefix, request }: CallRecord): string => requestIdOf(requestPrefix, request);
const byTime = (records: readonly CallRecord[]): CallRecord[] =>
  [...records].sort((left, right) => right.endedMs - left.endedMs);

async function pages(reader: CallReader, filter: CallFilter, limit: number): Promise<CallRecord[]> {
  const found: CallRecord[] = [];
  for (let cursor: string | undefined, turns = 0; turns < 10_000; turns++) {
    const page = await reader.page(filter, limit, cursor);
    found.push(...page!.calls);
    if (page!.next === null) return found;
    cursor = page!.next;
  }
  throw new Error('the pages do not end');
}

/** The order among calls of one millisecond is the store's. */
function sameCalls(t: Test, found: readonly CallRecord[], wanted: readonly CallRecord[], what: string) {
  t.same(
    found.map(({ endedMs }) => endedMs),
    byTime(wanted).map(({ endedMs }) => endedMs),
    `${what}: newest first`,
  );
  t.same(found.map(idOf).sort(), wanted.map(idOf).sort(), `${what}: each once`);
}

void t.test('a call is read as it was written', async (t) => {
  const folder = join(t.testdir(), 'calls');
  const written = calls(1, 3_000);
  const writer = writerOn(folder, RETENTION, new StoppedClock());
  for (const call of written) writer.append(call);
  writer.flush();
  const open = new CallReader(folder);
  for (const call of written.slice(0, 200)) t.same(await open.find(idOf(call)), call);
  writer.close();
  const closed = new CallReader(folder);
  for (const call of written.slice(-200)) t.same(await closed.find(idOf(call)), call);
  t.equal(await closed.find('req_abcdefgh-_12-zzzz'), undefined);
  t.equal(await closed.find('nonsense'), undefined);
  t.equal(await closed.find('req_abcdefgh-_12-01'), undefined, 'other digits of a number are another id');
  t.equal(await closed.find('req_another-12345-1'), undefined);
  t.equal(await new CallReader(join(folder, 'none')).find('req_abcdefgh-_12-1'), undefined);
  t.equal(readdirSync(folder).length, 1);
  t.equal(statSync(join(folder, FIRST_FILE)).mode & 0o777, 0o600);
});

void t.test('the extremes of each number are kept', async (t) => {
  const folder = t.testdir();
  const [first] = calls(2, 1);
  const extreme: CallRecord = {
    ...first!,
    request: Number.MAX_SAFE_INTEGER,
    durationMs: 2 ** 43,
    queuedMs: 2 ** 32 - 1,
    firstTokenMs: 0,
    admittedMs: 0,
    status: null,
    error: 'x'.repeat(1_000),
    quotas: [
      { scope: 'group', id: null, quota: 'balance', left: -(2n ** 63n) },
      { scope: 'key', id: 'key_1', quota: 'tokens_per_day', left: 2 ** 53 - 1 },
    ],
  };
  const writer = writerOn(folder);
  writer.append(extreme);
  writer.close();
  const found = await new CallReader(folder).find(idOf(extreme));
  t.same(found, { ...extreme, error: `${'x'.repeat(300)}…` });
});

void t.test('names of any length cost no call', async (t) => {
  const folder = t.testdir();
  const written = calls(4, 2_000);
  // The most names that a call may have, and each of the most bytes.
  const nameOf = (number: number): string => `${number} ${'\u0001'.repeat(5_000)}`;
  const longest: CallRecord = {
    ...written[0]!,
    request: 1_000_000,
    account: nameOf(0),
    attempts: Array.from({ length: 8 }, (_, number) => ({
      upstream: nameOf(100 + number),
      model: nameOf(200 + number),
      status: 500,
      code: nameOf(300 + number),
      startMs: 0,
      durationMs: 1,
      error: '\u{1f600}'.repeat(1_000),
    })),
    quotas: Array.from({ length: 64 }, (_, number) => ({
      scope: 'group' as const,
      id: nameOf(400 + number),
      quota: nameOf(500 + number) as 'balance',
      left: 2n ** 62n,
    })),
  };
  const writer = writerOn(folder);
  const LONG_CALLS = 3;
  for (const [number, call] of written.entries()) {
    writer.append(call);
    if (number % 700 === 0) writer.append({ ...longest, request: longest.request + number });
  }
  writer.close();
  const reader = new CallReader(folder);
  t.equal((await pages(reader, {}, 1_000)).length, written.length + LONG_CALLS);
  const found = await reader.find(idOf(longest));
  t.equal(found?.account?.length, 300, 'cut');
  t.equal(found?.quotas[63]?.id, nameOf(463).slice(0, 300));
});

void t.test('filters and pages find what a plain search finds', async (t) => {
  const folder = t.testdir();
  const written = calls(3, 12_000);
  const small = { ...RETENTION, keepBytes: 8 * 1024 * 1024 };
  const writer = writerOn(folder, small);
  for (const call of written) writer.append(call);
  writer.flush();
  t.ok(readdirSync(folder).length > 1, 'several segments');
  const reader = new CallReader(folder);
  const middleMs = written[6_000]!.endedMs;
  const filters: CallFilter[] = [
    {},
    { account: 'acct_0' },
    { account: 'acct_39' },
    { account: 'acct_none' },
    { key: 'key_7_1' },
    { model: 'model-1' },
    { model: 'model-other' },
    { upstream: 'upstream-3' },
    { code: 'client_gone' },
    { code: 'internal_error,client_gone,none' },
    { code: 'none,nothing' },
    { code: 'internal_error,client_gone', account: 'acct_2' },
    { status: 502 },
    { status: 5 },
    { status: 4, account: 'acct_3' },
    { status: 3 },
    { failed: true },
    { failed: false, upstream: 'upstream-0' },
    { fromMs: middleMs },
    { toMs: middleMs },
    { fromMs: middleMs, toMs: middleMs + 100, failed: true },
    { account: 'acct_1', code: 'internal_error', model: 'model-2' },
  ];
  for (const filter of filters) {
    const wanted = written.filter((call) => passes(call, filter));
    sameCalls(t, await pages(reader, filter, 97), wanted, JSON.stringify(filter));
  }
  // A search that has no time left gives less, and as much in all.
  const hasty = new CallReader(folder, { searchMs: 0 });
  const wanted = written.filter((call) => passes(call, { account: 'acct_30' }));
  sameCalls(t, await pages(hasty, { account: 'acct_30' }, 50), wanted, 'without time');
  const first = await reader.page({ account: 'acct_1', code: 'none' }, 50);
  t.equal(first!.next, null, 'the index alone says that there is none');
  t.equal(await reader.page({}, 10, 'nonsense'), undefined);
  t.equal(await reader.newerCalls('nonsense', {}, 10), undefined);
  writer.close();
});

void t.test('calls of one millisecond come in pages too', async (t) => {
  const folder = t.testdir();
  const written = calls(4, 5_000).map((call) => ({ ...call, endedMs: calls(4, 1)[0]!.endedMs }));
  const writer = writerOn(folder);
  for (const call of written) writer.append(call);
  writer.close();
  sameCalls(t, await pages(new CallReader(folder, { searchMs: 0 }), {}, 100), written, 'one moment');
});

void t.test('pages and looks for newer calls miss nothing while two processes write', async (t) => {
  const folder = t.testdir();
  const both = [calls(5, 4_000, 'req_first-'), calls(6, 4_000, 'req_second-')];
  const writers = both.map(() => writerOn(folder, { ...RETENTION, keepBytes: 6 * 1024 * 1024 }));
  const reader = new CallReader(folder);
  const start = await reader.page({}, 10);
  const seen: CallRecord[] = [];
  let cursor = start!.newest;
  const look = async (limit: number): Promise<number> => {
    const news = await reader.newerCalls(cursor, {}, limit);
    cursor = news!.newest;
    seen.push(...news!.calls);
    return news!.calls.length;
  };
  const before: CallRecord[] = [];
  for (let at = 0; at < 4_000; at++) {
    writers.forEach((writer, index) => writer.append(both[index]![at]!));
    if (at % 97 === 0) writers[at % 2]!.flush();
    if (at % 301 === 0) await look(100);
    if (at !== 2_000) continue;
    // Pages that were begun before the rest was written end with what was there.
    for (const writer of writers) writer.flush();
    let page = await reader.page({}, 100);
    for (let turn = 0; page!.next !== null; turn++) {
      before.push(...page!.calls);
      for (const [index, writer] of writers.entries()) {
        if (turn >= 15) continue;
        for (let more = 0; more < 100; more++) writer.append(both[index]![at + 1 + turn * 100 + more]!);
        writer.flush();
      }
      page = await reader.page({}, 100, page!.next);
    }
    before.push(...page!.calls);
    at += 1_500;
  }
  for (const writer of writers) writer.close();
  while ((await look(1_000)) > 0);
  t.same(seen.map(idOf).sort(), both.flat().map(idOf).sort(), 'each was seen once');
  t.equal(new Set(before.map(idOf)).size, before.length, 'no page has a call of another');
  const ids = new Set(before.map(idOf));
  t.ok(
    both.flatMap((calls) => calls.slice(0, 2_001)).every((call) => ids.has(idOf(call))),
    'all that was there is on the pages',
  );
  sameCalls(t, await pages(new CallReader(folder), {}, 500), both.flat(), 'both');
  const numbers = readdirSync(folder);
  t.equal(new Set(numbers).size, numbers.length);
});

void t.test('what another process writes between two reads of a page comes once', async (t) => {
  const folder = t.testdir();
  const written = calls(12, 300);
  const writer = writerOn(folder);
  let count = 0;
  const write = (): undefined => {
    if (count === written.length) return;
    writer.append(written[count++]!);
    writer.flush();
  };
  while (count < 100) write();
  // It is asked before each read of a segment.
  const reader = new CallReader(folder, { growingSegment: write });
  const page = await reader.page({}, 1_000);
  const found = [...page!.calls];
  for (let cursor = page!.newest, more = -1; more !== 0 || count < written.length;) {
    const after = await reader.newerCalls(cursor, {}, 1_000);
    found.push(...after!.calls);
    cursor = after!.newest;
    more = after!.calls.length;
  }
  writer.close();
  t.same(found.map(idOf).sort(), written.map(idOf).sort());
});

void t.test('a listing without a file that is older than another of it loses no call', async (t) => {
  // The system may list a folder of many files while others are added, and pass one by and not a later one.
  const folder = t.testdir();
  const groups = [51, 52, 53, 54].map((seed) => calls(seed, 5, `req_${seed}-`));
  const write = (group: readonly CallRecord[]): void => {
    const writer = writerOn(folder);
    for (const call of group) writer.append(call);
    writer.close();
  };
  write(groups[0]!);
  const reader = new CallReader(folder);
  const first = await reader.page({}, 100);
  for (const group of groups.slice(1)) write(group);
  const { readdirSync: list } = fs;
  t.teardown(() => {
    fs.readdirSync = list;
    syncBuiltinESMExports();
  });
  let listings = 0;
  fs.readdirSync = ((path: string) => {
    const names = list(path).sort();
    if (path !== folder) return names;
    listings += 1;
    return listings === 1 ? names.filter((_, index) => index === 0 || index === 2) : names;
  }) as typeof list;
  syncBuiltinESMExports();
  const found: CallRecord[] = [];
  for (let cursor = first!.newest, more = -1; more !== 0;) {
    const newer = await reader.newerCalls(cursor, {}, 100);
    found.push(...newer!.calls);
    cursor = newer!.newest;
    more = newer!.calls.length;
  }
  t.same(found.map(idOf), groups.slice(1).flat().map(idOf), 'newer calls: each once');
  listings = 0;
  sameCalls(t, await pages(new CallReader(folder), {}, 3), groups.flat(), 'pages');
});

void t.test('a segment that was cut anywhere has the whole blocks before the cut', async (t) => {
  const folder = join(t.testdir(), 'calls');
  const written = calls(7, 12);
  const writer = writerOn(folder, RETENTION, new StoppedClock());
  const ends: number[] = [];
  const path = join(folder, FIRST_FILE);
  for (const [at, call] of written.entries()) {
    writer.append(call);
    if (at % 3 !== 2) continue;
    writer.flush();
    ends.push(statSync(path).size);
  }
  writer.close();
  const whole = readFileSync(path);
  t.ok(whole.length > ends.at(-1)!, 'an index follows');
  for (let cut = 0; cut <= whole.length; cut++) {
    writeFileSync(path, whole.subarray(0, cut));
    const page = await new CallReader(folder, { searchMs: 60_000 }).page({}, 100);
    const blocks = ends.filter((end) => end <= cut).length;
    if (page!.calls.length !== blocks * 3) t.fail(`cut at ${cut}: ${page!.calls.length} calls`);
  }
  // What a killed process cut is left as it is, and the next start begins another segment.
  writeFileSync(path, whole.subarray(0, ends[2]! + 5));
  const next = writerOn(folder);
  const [more] = calls(8, 1, 'req_next-');
  next.append(more!);
  next.close();
  const found = await new CallReader(folder, { searchMs: 60_000 }).page({}, 100);
  t.same(found!.calls.map(idOf).sort(), [...written.slice(0, 9), more!].map(idOf).sort());
});

void t.test('damaged bytes cost the blocks that they are in', async (t) => {
  const folder = join(t.testdir(), 'calls');
  const written = calls(9, 60);
  const writer = writerOn(folder, RETENTION, new StoppedClock());
  const path = join(folder, FIRST_FILE);
  for (const [at, call] of written.entries()) {
    writer.append(call);
    if (at % 10 === 9) writer.flush();
  }
  const withoutIndex = readFileSync(path);
  writer.close();
  const withIndex = readFileSync(path);
  const random = randomOf(10);
  for (let turn = 0; turn < 200; turn++) {
    const damaged = Buffer.from(turn % 2 === 0 ? withIndex : withoutIndex);
    const at = Math.floor(random() * damaged.length);
    damaged[at]! ^= 1 << Math.floor(random() * 8);
    writeFileSync(path, damaged);
    const page = await new CallReader(folder).page({}, 100);
    const found = page!.calls.length;
    const least = at < SEGMENT_START.length || at >= withoutIndex.length ? 60 : 50;
    if (found !== least && found !== 60) t.fail(`bit ${at}: ${found} calls`);
    if (!page!.calls.every((call) => isDeepStrictEqual(call, written[call.request]))) t.fail(`bit ${at}`);
  }
  t.equal(Block.read(Buffer.alloc(64), 0), undefined);
  // A file that is none of ours harms nothing.
  writeFileSync(join(folder, '0000000002.calls'), Buffer.alloc(100_001, 7));
  writeFileSync(path, withIndex);
  t.equal((await new CallReader(folder).page({}, 100))!.calls.length, 60);
});

void t.test('the oldest are removed by bytes and by hours', async (t) => {
  const folder = t.testdir();
  const retention = { keepHours: 24, keepBytes: 3 * 1024 * 1024, processes: 2 };
  const clock = new StoppedClock();
  clock.nowMs = Date.now();
  const writers = [writerOn(folder, retention, clock), writerOn(folder, retention, clock)];
  const bytes = (): number =>
    readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  let most = 0;
  for (let round = 0; round < 12; round++) {
    for (const [index, writer] of writers.entries()) {
      for (const call of calls(round, 3_000, `req_${round}-${index}-`)) writer.append(call);
      writer.flush();
      most = Math.max(most, bytes());
    }
  }
  t.ok(most <= retention.keepBytes, `${most} of ${retention.keepBytes} bytes`);
  t.ok(most > retention.keepBytes / 2, `${most} bytes`);
  const reader = new CallReader(folder);
  t.equal(await reader.find('req_0-0-1'), undefined, 'the oldest are gone');
  t.ok(await reader.find('req_11-1-1'), 'the newest are there');
  // While a page is between two reads, the oldest go.
  const page = await reader.page({}, 10);
  const names = readdirSync(folder).sort();
  rmSync(join(folder, names[0]!));
  t.ok((await reader.page({}, 10, page!.next!))!.calls.length > 0);
  const old = (Date.now() - 25 * 3_600_000) / 1_000;
  for (const name of names.slice(1)) utimesSync(join(folder, name), old, old);
  // Just after the start nothing is removed by age.
  clock.nowMs += REMOVE_PERIOD_MS;
  writers[0]!.applyRetention(retention);
  t.same(readdirSync(folder), []);
  // A writer whose segment is gone begins another.
  const [again] = calls(1, 1, 'req_again-');
  writers[1]!.append(again!);
  writers[1]!.flush();
  t.ok(await reader.find('req_again-0'));
  for (const writer of writers) writer.close();
});

void t.test('a disk that takes nothing costs calls of the log, within a bound, and says so', async (t) => {
  const folder = t.testdir({ calls: 'a file is in the way' });
  const path = join(folder, 'calls');
  logged.splice(0);
  const writer = writerOn(path);
  const written = calls(11, 2_000);
  for (let round = 0; round < 30; round++) for (const call of written) writer.append(call);
  writer.flush();
  t.ok(writer.dropped > 0 && writer.dropped < 60_000, `${writer.dropped} dropped`);
  t.equal(logged.length, 1, 'one line in 10 seconds');
  rmSync(path);
  writer.flush();
  const kept = await pages(new CallReader(path), { account: 'acct_0' }, 1_000);
  const share = written.filter((call) => call.account === 'acct_0').length / 2_000;
  t.ok(Math.abs(kept.length - (60_000 - writer.dropped) * share) < 200, 'what waited is written');
  writer.close();
});
