/** Numbers of segments: readers and cursors know them, so none is begun again. */
import { mkdirSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CallReader } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { type CallRetention, createSegment, segmentAgeMsOf } from '#src/call-log/segment-files.js';
import { type CallRecord, requestIdOf } from '#src/telemetry/call-record.js';
import { randomOf } from '../../support/random.js';
import { randomCall } from '../../support/stored-calls.js';
import { ListLog, StoppedClock } from '../store/support.js';

const HOUR_MS = 3_600_000;
const RETENTION: CallRetention = { keepHours: 1, keepBytes: 1024 ** 3, processes: 2 };
/** The first of a folder is that of the second, since a folder of an earlier run may have been removed. */
const FIRST = new StoppedClock().nowMs / 1_000 + 1;
const nameOf = (count: number): string => `${FIRST + count - 1}.calls`;

/** With time for a whole page on a busy machine too: pages that end by time are search-time.test.ts's. */
const readerOn = (folder: string): CallReader => new CallReader(folder, { searchMs: 60_000 });

/** Two processes that write into one folder. */
function world(t: Test) {
  const folder = join(t.testdir(), 'calls');
  const clock = new StoppedClock();
  const random = randomOf(1);
  const newWriter = (): CallWriter => {
    const writer = new CallWriter({ folder, retention: RETENTION, clock, log: new ListLog() });
    t.teardown(() => writer.close());
    return writer;
  };
  const writers = [newWriter(), newWriter()] as const;
  const apply = (): void => writers.forEach((writer) => writer.applyRetention(RETENTION));
  /** Writes one call, and nothing more until its segment is old, so that it ends. */
  const write = (writer: CallWriter, request: number): CallRecord => {
    const call = randomCall(random, request, 1_763_950_000_000 + request * 1_000, {
      accounts: 1,
      models: 1,
      upstreams: 1,
    });
    writer.append(call);
    writer.flush();
    clock.nowMs += 2 * segmentAgeMsOf(RETENTION);
    apply();
    return call;
  };
  const files = (): string[] => readdirSync(folder).sort();
  /** All that was written is too old now. */
  const rest = (): void => {
    const seconds = (clock.nowMs - HOUR_MS) / 1_000;
    for (const name of files()) utimesSync(join(folder, name), seconds, seconds);
    apply();
  };
  /** All end, and start again. */
  const restart = (): CallWriter => {
    writers.forEach((writer) => writer.close());
    return newWriter();
  };
  return { folder, writers, write, files, rest, restart };
}

/** `newest`: the cursor of what the reader has found before. */
async function findsNew(
  t: Test,
  reader: CallReader,
  newest: string,
  calls: readonly CallRecord[],
): Promise<void> {
  const requests = calls.map(({ request }) => request);
  for (const call of calls)
    t.same(await reader.find(requestIdOf(call.requestPrefix, call.request)), call, `call ${call.request}`);
  const page = await reader.page({ fromMs: calls[0]!.endedMs }, 10);
  t.same(
    page!.calls.map(({ request }) => request),
    [...requests].reverse(),
    'by their time',
  );
  const after = await reader.newerCalls(newest, {}, 10);
  t.same(
    after!.calls.map(({ request }) => request),
    requests,
    'as new ones',
  );
}

void t.test('after all segments were removed by age, a reader and a cursor find the new ones', async (t) => {
  const { folder, writers, write, files, rest } = world(t);
  const [writer, other] = writers;
  write(writer, 0);
  write(other, 1);
  const reader = readerOn(folder);
  const page = await reader.page({}, 10);
  t.equal(page!.calls.length, 2);
  rest();
  t.same(files(), []);
  const calls = [write(writer, 2), write(other, 3), write(other, 4)];
  t.same(files(), [nameOf(3), nameOf(4), nameOf(5)]);
  await findsNew(t, reader, page!.newest, calls);
});

void t.test('and after an operator has removed them', async (t) => {
  const { folder, writers, write, files } = world(t);
  const [writer, other] = writers;
  write(writer, 0);
  write(writer, 1);
  const reader = readerOn(folder);
  const page = await reader.page({}, 10);
  t.equal(page!.calls.length, 2);
  for (const name of files()) rmSync(join(folder, name));
  // The one that has written nothing saw them when it last looked for old ones.
  const calls = [write(other, 2), write(writer, 3)];
  t.same(files(), [nameOf(3), nameOf(4)]);
  await findsNew(t, reader, page!.newest, calls);
});

void t.test('and after a restart with nothing left', async (t) => {
  const { folder, writers, write, files, rest, restart } = world(t);
  for (let request = 0; request < 4; request++) write(writers[request % 2]!, request);
  const reader = readerOn(folder);
  const page = await reader.page({}, 10);
  t.equal(page!.calls.length, 4);
  rest();
  t.same(files(), []);
  const writer = restart();
  await findsNew(t, reader, page!.newest, [write(writer, 4), write(writer, 5)]);
});

void t.test('and after a restart without the folder', async (t) => {
  const { folder, writers, write, files, restart } = world(t);
  write(writers[0], 0);
  t.same(files(), [nameOf(1)]);
  const reader = readerOn(folder);
  const page = await reader.page({}, 10);
  t.equal(page!.calls.length, 1);
  rmSync(folder, { recursive: true });
  const writer = restart();
  await findsNew(t, reader, page!.newest, [write(writer, 1), write(writer, 2)]);
});

void t.test('a folder that cannot be made is an error, and never a wait', (t) => {
  const root = t.testdir({ file: 'a file is in the way' });
  const errorOf = (folder: string): string => {
    try {
      createSegment(folder, 'calls', 0, 0);
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? String(error);
    }
    return 'none';
  };
  // ENOENT although the parent is there: below /proc as in a mount whose folder was removed.
  t.equal(errorOf('/proc/calls'), 'ENOENT');
  t.equal(errorOf('/proc/data/calls'), 'ENOENT');
  t.equal(
    errorOf(join(root, 'gone', 'calls')),
    'ENOENT',
    'no other data directory in place of one that is gone',
  );
  t.same(readdirSync(root), ['file']);
  t.equal(errorOf(join(root, 'file')), 'ENOTDIR');
  t.equal(errorOf(join(root, 'file', 'calls')), 'ENOTDIR');
  t.equal(errorOf(join(root, 'calls')), 'none');
  t.equal(statSync(join(root, 'calls')).mode & 0o777, 0o700);
  mkdirSync(join(root, 'there'));
  writeFileSync(join(root, 'there', '0000000007.calls'), '');
  t.equal(errorOf(join(root, 'there')), 'none');
  t.same(readdirSync(join(root, 'there')), ['0000000007.calls', '0000000008.calls']);
  t.end();
});
