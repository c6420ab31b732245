/**
 * What a search reads: little beyond its time, so that a page comes in time; nothing that the index rules
 * out; and of a segment that nobody asks for only its summary. With no time at all each page is as short as
 * one can be, so pages tell what was read between two looks at the clock, whatever else the machine does.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { CallFilter } from '#src/call-log/call-query.js';
import { extentTestOf } from '#src/call-log/call-query.js';
import { CallReader } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { Segment } from '#src/call-log/segment.js';
import { SystemClock } from '#src/core/clock.js';
import { asWallMs } from '#src/core/units.js';
import { type CallRecord, requestIdOf } from '#src/telemetry/call-record.js';
import { newSeed, randomOf } from '../../support/random.js';
import { randomCall } from '../../support/stored-calls.js';

const CALLS = 40_000;
const START_MS = 1_763_950_000_000;
/** Its calls never fail, and none of another account is by its model. */
const STEADY = 'acct_steady';
const STEADY_MODEL = 'model-steady';
/** It never had a call with this code, and the code is of other calls in each block. */
const NEVER = 'never_of_the_steady';
const PREFIX = 'req_abcdefgh-_12-';
/** Extents that may be read between two looks at the clock. */
const EXTENTS_AT_ONCE = 16;
const seed = newSeed();
/**
 * For tests that bound how many extents a filter lets through. With calls of another seed each time, one run
 * of some hundred had two false positives where one is allowed.
 */
const FILTER_SEED = 20_251_129;
const quiet = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  record: () => undefined,
};

/** Calls that last long end in another order than they came: each extent has calls from far apart. */
const shuffled = (number: number): number => (number & ~8_191) | ((number * 4_051) & 8_191);

function callOf(random: () => number, number: number, requestOf: (number: number) => number): CallRecord {
  const call = randomCall(random, requestOf(number), START_MS + number, {
    accounts: 30,
    models: 3,
    upstreams: 3,
  });
  const plain = {
    ...call,
    status: 200,
    code: null,
    error: null,
    attempts: [],
    endedMs: asWallMs(START_MS + number),
  };
  const kind = number % 10;
  if (kind === 0)
    return { ...plain, account: STEADY, key: 'key_steady', model: STEADY_MODEL, usage: undefined };
  if (kind === 1) return { ...plain, status: 503, code: NEVER, usage: undefined };
  return plain;
}

/** Segments of 1 MiB, if no more bytes are kept than 8 MiB. */
function written(
  folder: string,
  keepBytes = 8 * 1024 * 1024,
  requestOf = (number: number): number => number,
  callSeed = seed,
): { readonly writer: CallWriter; readonly calls: readonly CallRecord[] } {
  const random = randomOf(callSeed);
  const calls = Array.from({ length: CALLS }, (_, number) => callOf(random, number, requestOf));
  const writer = new CallWriter({
    folder,
    retention: { keepHours: 72, keepBytes, processes: 1 },
    clock: new SystemClock(),
    log: quiet,
  });
  for (const call of calls) writer.append(call);
  writer.flush();
  return { writer, calls };
}

async function pagesOf(reader: CallReader, filter: CallFilter, limit: number) {
  const found: CallRecord[] = [];
  const ends: number[] = [];
  for (let cursor: string | undefined; ;) {
    const page = (await reader.page(filter, limit, cursor))!;
    found.push(...page.calls);
    if (page.next === null) return { found, ends };
    ends.push(page.searchedToMs ?? page.calls.at(-1)!.endedMs);
    cursor = page.next;
  }
}

void t.test(
  'a page ends soon after its time, comes some way, and the pages together miss nothing',
  async (t) => {
    const folder = t.testdir();
    const { writer, calls } = written(folder);
    const hasty = new CallReader(folder, { searchMs: 0 });
    // Account and model are in each extent, and never in one call.
    const { found, ends } = await pagesOf(hasty, { account: STEADY, model: 'model-1' }, 50);
    t.same(found, []);
    t.ok(ends.length > 3, `${ends.length} pages`);
    for (let at = 1; at < ends.length; at++) t.ok(ends[at]! < ends[at - 1]!, 'each page comes some way');
    const bytes = readdirSync(folder).reduce((sum, name) => sum + readFileSync(join(folder, name)).length, 0);
    const callsAtOnce = (EXTENTS_AT_ONCE * 64 * 1024 * 1.2 * CALLS) / bytes;
    const steps = ends.map((end, at) => (at === 0 ? START_MS + CALLS : ends[at - 1]!) - end);
    t.ok(Math.max(...steps) <= callsAtOnce, `at most ${Math.max(...steps)} calls a page, of ${callsAtOnce}`);
    const all = await pagesOf(hasty, { model: STEADY_MODEL }, 50);
    const kept = calls.filter(
      ({ model, endedMs }) => model === STEADY_MODEL && endedMs >= all.found.at(-1)!.endedMs,
    );
    t.same(
      all.found.map(({ request }) => request),
      kept.map(({ request }) => request).reverse(),
    );
    writer.close();
  },
);

void t.test('who and how in one call: the index rules out extents that have both in two', async (t) => {
  const folder = t.testdir();
  const { writer, calls } = written(folder, 1024 ** 3, undefined, FILTER_SEED);
  const extents = writer.growing!.index.extents.filter(({ filter }) => filter !== undefined);
  t.ok(extents.length > 20 && extents.every(({ hasPairs }) => hasPairs));
  const reader = new CallReader(folder);
  const others: CallFilter[] = [{ failed: true }, { code: NEVER }, { status: 503 }, { status: 5 }];
  for (const other of others) {
    const steady = [
      { account: STEADY, ...other },
      { key: 'key_steady', ...other },
      { accounts: { ids: [STEADY], has: (id: string) => id === STEADY }, ...other },
    ];
    for (const filter of steady) {
      // A filter lets some through by chance, one of a thousand.
      t.ok(extents.filter(extentTestOf(filter)).length <= 1, `${JSON.stringify(other)} of the steady one`);
      t.same((await pagesOf(reader, filter, 50)).found, []);
    }
    t.ok(extents.filter(extentTestOf(other)).length === extents.length, 'each extent has such calls');
    const account = 'acct_3';
    const { found } = await pagesOf(reader, { account, ...other, code: NEVER }, 50);
    t.same(
      found.map(({ request }) => request),
      calls
        .filter((call) => call.account === account && call.code === NEVER)
        .map(({ request }) => request)
        .reverse(),
      'and none that has both in one',
    );
  }
  writer.close();
});

void t.test('a reader that begins reads the index of one segment to find a call', async (t) => {
  const folder = t.testdir();
  const { writer, calls } = written(folder);
  writer.close();
  const files = readdirSync(folder).sort();
  t.ok(files.length > 3, `${files.length} segments`);
  // What is in no summary is damaged in all but one segment: who reads it finds nothing there.
  const whole = files.length >> 1;
  files.forEach((name, at) => {
    if (at === whole) return;
    const bytes = readFileSync(join(folder, name));
    bytes.fill(0xff, 8, bytes.length - 4_096);
    writeFileSync(join(folder, name), bytes);
  });
  const reader = new CallReader(folder);
  await reader.begin();
  const inWhole = await pagesOf(reader, {}, 1_000);
  t.ok(inWhole.found.length > 100);
  const one = inWhole.found[inWhole.found.length >> 1]!;
  t.same(await new CallReader(folder).find(requestIdOf(PREFIX, one.request)), calls[one.request]);
  t.equal(await new CallReader(folder).find('req_abcdefgh-_99-1'), undefined);
});

void t.test('what the writer in this thread has is not indexed a second time', async (t) => {
  const folder = t.testdir();
  const { writer, calls } = written(folder);
  const reader = new CallReader(folder, { growingSegment: () => writer.growing });
  const newest = calls.at(-1)!;
  t.same(await reader.find(requestIdOf(PREFIX, newest.request)), newest);
  // Whoever makes an index of its own needs the blocks that come before.
  const file = join(folder, readdirSync(folder).sort().at(-1)!);
  const bytes = readFileSync(file);
  const { extents } = writer.growing!.index;
  t.ok(extents.length > 1);
  writeFileSync(file, bytes.fill(0xff, 8, extents.at(-1)!.at));
  t.same(
    await new CallReader(folder, { growingSegment: () => writer.growing }).find(
      requestIdOf(PREFIX, newest.request),
    ),
    newest,
  );
  for (let number = CALLS; number < CALLS + 2_000; number++) {
    writer.append({ ...newest, request: number, endedMs: asWallMs(START_MS + number) });
    if (number % 100 === 0) {
      writer.flush();
      t.equal((await reader.find(requestIdOf(PREFIX, number)))?.request, number, 'while it grows');
    }
  }
  writer.close();
  const last = requestIdOf(PREFIX, CALLS + 1_999);
  t.equal((await reader.find(last))?.request, CALLS + 1_999, 'after its end');
  t.equal((await new CallReader(folder).find(last))?.request, CALLS + 1_999);
});

for (const [what, requestOf, isIndexRead] of [
  ['in the order of their ends', (number: number) => number, false],
  ['from far apart', shuffled, true],
] as const) {
  void t.test(`a call is found by its id without an index that is kept: calls ${what}`, async (t) => {
    const folder = t.testdir();
    const { writer, calls } = written(folder, undefined, requestOf, FILTER_SEED);
    writer.close();
    const kept = readdirSync(folder).map((name) => join(folder, name));
    const segments = kept.map((path, number) => new Segment(number + 1, path, () => undefined));
    await Promise.all(segments.map((segment) => segment.refreshTimes()));
    const random = randomOf(FILTER_SEED);
    const reader = new CallReader(folder);
    const looks = Array.from({ length: 50 }, () => calls[CALLS - 1 - Math.floor(random() * (CALLS / 4))]!);
    for (const call of looks) {
      const places = await Promise.all(segments.map((segment) => segment.extentsWith(PREFIX, call.request)));
      const count = places.reduce((sum, found) => sum + found!.length, 0);
      // Without a look into the index at most four of a segment.
      t.ok(count > 0 && count <= 8, `of call ${call.request} ${count} extents are read`);
      t.same(await reader.find(requestIdOf(PREFIX, call.request)), call);
    }
    t.equal(
      segments.reduce((sum, { indexBytes }) => sum + indexBytes, 0),
      0,
    );
    // What is between the calls and the summary is damaged now.
    for (const path of kept) {
      const bytes = readFileSync(path);
      const foot = bytes.length - 8;
      const summaryAt = foot - 16 - bytes.readUInt32LE(foot - 12);
      writeFileSync(path, bytes.fill(0xff, bytes.readUInt32LE(foot), summaryAt));
    }
    const told = looks.flatMap(({ request }) =>
      segments.map((segment) => segment.extentsWith(PREFIX, request)),
    );
    const isUntold = (await Promise.all(told)).includes(undefined);
    t.equal(isUntold, isIndexRead, 'only the summary is read if few extents have such calls');
    for (const call of looks) t.same(await reader.find(requestIdOf(PREFIX, call.request)), call);
  });
}
