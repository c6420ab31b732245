/** Newer calls: each once, however the segments end meanwhile, and no more work than a request may do. */
import t from 'tap';
import { newestCursorOf, readPositionsOf } from '#src/call-log/call-query.js';
import { CallReader } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { FailedReads } from '#src/call-log/failed-reads.js';
import { newerCalls } from '#src/call-log/newer-calls.js';
import { segmentFiles, type CallRetention } from '#src/call-log/segment-files.js';
import { Segment } from '#src/call-log/segment.js';
import { SystemClock } from '#src/core/clock.js';
import { type CallRecord, requestIdOf } from '#src/telemetry/call-record.js';
import { type CallKinds, randomCall } from '../../support/stored-calls.js';
import { randomOf } from '../../support/random.js';
import { ListLog } from '../store/support.js';

const KINDS: CallKinds = { accounts: 40, models: 3, upstreams: 4 };
const RETENTION: CallRetention = { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 };
const START_MS = 1_763_950_000_000;

function writerOn(folder: string): CallWriter {
  return new CallWriter({ folder, retention: RETENTION, clock: new SystemClock(), log: new ListLog() });
}

function calls(seed: number, count: number): CallRecord[] {
  const random = randomOf(seed);
  return Array.from({ length: count }, (_, number) => randomCall(random, number, START_MS + number, KINDS));
}

const idOf = ({ requestPrefix, request }: CallRecord): string => requestIdOf(requestPrefix, request);

/** Writes each call to a segment of its own. */
function writeSegments(folder: string, written: readonly CallRecord[]): void {
  for (const call of written) {
    const writer = writerOn(folder);
    writer.append(call);
    writer.close();
  }
}

void t.test('a look from long ago finds the calls of more segments than a cursor names', async (t) => {
  const folder = t.testdir();
  const reader = new CallReader(folder);
  const start = await reader.page({}, 10);
  const written = calls(13, 130);
  writeSegments(folder, written);
  const found: CallRecord[] = [];
  for (let cursor = start!.newest, more = -1; more !== 0;) {
    const after = await reader.newerCalls(cursor, {}, 7);
    found.push(...after!.calls);
    cursor = after!.newest;
    more = after!.calls.length;
  }
  t.same(found.map(idOf), written.map(idOf));
});

void t.test('newer calls of a segment that ends during a search are returned by the next one', async (t) => {
  const folder = t.testdir();
  const written = calls(31, 50);
  const writer = writerOn(folder);
  const reader = new CallReader(folder, { growingSegment: () => writer.growing });
  const first = await reader.page({}, 10);
  for (const call of written) writer.append(call);
  writer.flush();
  const search = reader.newerCalls(first!.newest, {}, 10);
  // Now the search has the writer's index, and waits for the disk.
  for (let turns = 0; turns < 100; turns++) await Promise.resolve();
  writer.close();
  const otherSearch = reader.page({}, 10);
  const newer = await search;
  await otherSearch;
  const rest = await reader.newerCalls(newer!.newest, {}, 100);
  t.same([...newer!.calls, ...rest!.calls].map(idOf), written.map(idOf));
});

void t.test('a segment that grows, and could not be refreshed for a moment, is asked again', async (t) => {
  const folder = t.testdir();
  const written = calls(41, 20);
  const writer = writerOn(folder);
  for (const call of written.slice(0, 10)) writer.append(call);
  writer.flush();
  const [{ number, path }] = segmentFiles(folder, 'calls') as [{ number: number; path: string }];
  const segment = new Segment(number, path, () => undefined);
  // As if the process had had no free file descriptor for `refreshTimes`, and one again after it.
  const failures = new FailedReads();
  failures.add(segment, new Error('EMFILE'));
  const look = (cursor: string, failed: FailedReads) =>
    newerCalls({
      segments: [segment],
      positions: readPositionsOf(cursor)!,
      filter: {},
      limit: 100,
      extentsOf: () => segment.extents(),
      failures: failed,
    });
  const first = await look('0', failures);
  for (const call of written.slice(10)) writer.append(call);
  writer.flush();
  await segment.refreshTimes();
  const rest = await look(first.newest, new FailedReads());
  t.same([...first.calls, ...rest.calls].map(idOf), written.map(idOf));
  writer.close();
});

void t.test(
  'a request that has its calls reads nothing of further segments, and loses none of them',
  async (t) => {
    const folder = t.testdir();
    const writers = Array.from({ length: 5 }, () => writerOn(folder));
    const first = calls(21, 5);
    writers.forEach((writer, index) => {
      writer.append(first[index]!);
      writer.flush();
    });
    const segments = segmentFiles(folder, 'calls').map(
      ({ number, path }) => new Segment(number, path, () => undefined),
    );
    for (const segment of segments) await segment.refreshTimes();
    // Five segments that grow, which the cursor names, and then five new ones.
    let cursor = newestCursorOf(segments);
    const written = calls(22, 10);
    writers.forEach((writer, index) => {
      writer.append(written[index]!);
      writer.flush();
    });
    writeSegments(folder, written.slice(5));
    for (const { number, path } of segmentFiles(folder, 'calls').slice(5))
      segments.push(new Segment(number, path, () => undefined));
    const found: CallRecord[] = [];
    for (let request = 1; request <= written.length; request++) {
      for (const segment of segments) await segment.refreshTimes();
      const read: number[] = [];
      const page = await newerCalls({
        segments,
        positions: readPositionsOf(cursor)!,
        filter: {},
        limit: 1,
        extentsOf: (segment) => {
          read.push(segments.indexOf(segment));
          return segment.extents();
        },
        failures: new FailedReads(),
      });
      found.push(...page.calls);
      // Those that grow are read again, because they may have more calls.
      const growing = [...segments.keys()].slice(0, Math.min(5, request - 1));
      t.same(read, [...growing, request - 1], `request ${request}`);
      cursor = page.newest;
    }
    t.same(found.map(idOf), written.map(idOf));
    for (const writer of writers) writer.close();
  },
);
