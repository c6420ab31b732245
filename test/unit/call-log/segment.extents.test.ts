/** What a search gets of a segment at any moment of another search's read. */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { BLOCK_BYTES_MAX } from '#src/call-log/call-block.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import type { Segment as SegmentClass } from '#src/call-log/segment.js';
import { segmentFiles } from '#src/call-log/segment-files.js';
import { SystemClock } from '#src/core/clock.js';
import { randomCall } from '../../support/stored-calls.js';
import { randomOf } from '../../support/random.js';
import { ListLog } from '../store/support.js';

const KINDS = { accounts: 4, models: 3, upstreams: 4 };
/** More turns of the microtask queue than lie between a read of the disk and what follows of it. */
const TURNS = 30;

/** Called after each read of the disk, before what waits for it goes on. */
let onRead = (): void => undefined;

/** Loads another instance of segment.ts, with a `read` that calls `onRead`. */
async function loadSegment(): Promise<{ readonly Segment: typeof SegmentClass }> {
  const { read } = fs;
  const readAsync = promisify(read) as (...args: unknown[]) => Promise<object>;
  fs.read = Object.assign(read.bind(fs), {
    [promisify.custom]: async (...args: unknown[]) => {
      const result = await readAsync(...args);
      onRead();
      return result;
    },
  }) as typeof read;
  syncBuiltinESMExports();
  try {
    return (await import(`${import.meta.resolve('#src/call-log/segment.js')}?watched`)) as {
      Segment: typeof SegmentClass;
    };
  } finally {
    fs.read = read;
    syncBuiltinESMExports();
  }
}

void t.test('while a segment ends, no search takes a part of it for the whole', async (t) => {
  const { Segment } = await loadSegment();
  const folder = join(t.testdir(), 'calls');
  const random = randomOf(7);
  const retention = { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 };
  const writer = new CallWriter({ folder, retention, clock: new SystemClock(), log: new ListLog() });
  let calls = 0;
  const write = (count: number): void => {
    for (let more = 0; more < count; more++)
      writer.append(randomCall(random, calls++, 1_763_950_000_000 + calls, KINDS));
    writer.flush();
  };
  write(10);
  const [file] = segmentFiles(folder, 'calls');
  // As another process reads it: without the writer's state.
  const segment = new Segment(file!.number, file!.path, () => undefined);
  await segment.refreshTimes();
  t.equal(segment.isGrowing, true);
  const grown = segment.end;
  write(10);
  const whole = fs.statSync(file!.path).size;
  t.ok(whole > grown);
  writer.close();

  /** What searches got that found the segment complete as they began. */
  const ends: Promise<number>[] = [];
  let states = 0;
  onRead = () => {
    void (async () => {
      for (let turn = 0; turn < TURNS; turn++) {
        states += 1;
        if (!segment.isGrowing)
          ends.push(segment.extents().then((extents) => extents.at(-1)!.at + extents.at(-1)!.bytes));
        await Promise.resolve();
      }
    })();
  };
  const searches = [segment.extents(), segment.extents()];
  await Promise.all(searches);
  onRead = () => undefined;
  t.ok(states > TURNS);
  t.ok(ends.length > 0, 'some came between the last read and its end');
  for (const end of await Promise.all(ends)) t.equal(end, whole, 'all blocks');
  for (const extents of await Promise.all(searches))
    t.equal(extents.at(-1)!.at + extents.at(-1)!.bytes, whole, 'the searches of the read too');
});

void t.test('while a segment is read, its end is that of the extents and times it tells', async (t) => {
  const { Segment } = await loadSegment();
  const folder = join(t.testdir(), 'calls');
  const random = randomOf(9);
  const retention = { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 };
  const writer = new CallWriter({ folder, retention, clock: new SystemClock(), log: new ListLog() });
  const START_MS = 1_763_950_000_000;
  let calls = 0;
  const write = (count: number): number => {
    for (let more = 0; more < count; more++)
      writer.append(randomCall(random, calls++, START_MS + calls, KINDS));
    writer.flush();
    return START_MS + calls;
  };
  const firstMs = write(10);
  const [file] = segmentFiles(folder, 'calls');
  const segment = new Segment(file!.number, file!.path, () => undefined);
  await segment.refreshTimes();
  const before = [segment.end, firstMs];
  t.equal(segment.lastMs, firstMs);
  let lastMs = firstMs;
  while (fs.statSync(file!.path).size < 5 * BLOCK_BYTES_MAX) lastMs = write(1_000);
  const after = [fs.statSync(file!.path).size, lastMs];

  const seen = new Map<string, number[]>();
  let reads = 0;
  onRead = () => {
    reads += 1;
    void (async () => {
      for (let turn = 0; turn < TURNS; turn++) {
        const now = [segment.end, segment.lastMs];
        seen.set(String(now), now);
        await Promise.resolve();
      }
    })();
  };
  await segment.extents();
  onRead = () => undefined;
  t.ok(reads > 2, 'in several reads');
  t.same([...seen.values()], [before, after]);
  writer.close();
});

void t.test('extents that are freed as a read ends are there for those who waited for it', async (t) => {
  const { Segment } = await loadSegment();
  const folder = join(t.testdir(), 'calls');
  const random = randomOf(8);
  const retention = { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 };
  const writer = new CallWriter({ folder, retention, clock: new SystemClock(), log: new ListLog() });
  for (let call = 0; call < 10; call++)
    writer.append(randomCall(random, call, 1_763_950_000_000 + call, KINDS));
  writer.close();
  const [file] = segmentFiles(folder, 'calls');
  const segment = new Segment(file!.number, file!.path, () => undefined);
  await segment.refreshTimes();
  onRead = () => {
    void (async () => {
      for (let turn = 0; turn < TURNS; turn++) {
        segment.freeExtents();
        await Promise.resolve();
      }
    })();
  };
  const got = await Promise.all([segment.extents(), segment.extents()]);
  onRead = () => undefined;
  for (const extents of got) t.ok(extents.length > 0);
});
