/** What a segment writer leaves in its folder. */
import fs, { readdirSync, readFileSync, unlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { REMOVE_PERIOD_MS } from '#src/call-log/segment-files.js';
import { SegmentWriter, type WrittenBlock, type WrittenIndex } from '#src/call-log/segment-writer.js';
import { SystemClock } from '#src/core/clock.js';
import { ListLog, StoppedClock } from '../store/support.js';

/** Writes the blocks that it is given. */
class BlockWriter extends SegmentWriter<WrittenBlock> {
  blocks: WrittenBlock[] = [];

  protected take(): WrittenBlock | undefined {
    return this.blocks.shift();
  }

  protected newIndex(): WrittenIndex<WrittenBlock> {
    return { add: () => undefined, toBytes: () => Buffer.alloc(0) };
  }
}

void t.test('a segment that cannot be begun leaves no file, however often it is tried', (t) => {
  const folder = t.testdir();
  const log = new ListLog();
  const writer = new BlockWriter({
    folder,
    kind: 'calls',
    // Stands in for a full disk, which takes an empty file and no byte: this cannot be written.
    start: { length: 8 } as Buffer,
    retention: { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 },
    clock: new SystemClock(),
    log,
  });
  writer.blocks = [{ data: Buffer.alloc(8), count: 1 }];
  for (let tries = 0; tries < 3; tries++) writer.flush();
  t.equal(log.lines.length, 1, 'the failure is logged');
  t.same(readdirSync(folder), []);
  writer.close();
  t.end();
});

void t.test('what cannot be written at the end is counted, and logged then', (t) => {
  const log = new ListLog();
  const writer = new BlockWriter({
    folder: join(t.testdir({ file: '' }), 'file'),
    kind: 'calls',
    start: Buffer.alloc(8),
    retention: { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 },
    clock: new StoppedClock(),
    log,
  });
  log.lines.splice(0);
  log.fields.splice(0);
  writer.blocks = [{ data: Buffer.alloc(8), count: 3 }];
  writer.flush();
  t.equal(writer.dropped, 0, 'it waits for the disk');
  writer.blocks = [{ data: Buffer.alloc(8), count: 4 }];
  writer.close();
  t.equal(writer.dropped, 7);
  t.match(log.fields.at(-1), { dropped: 7, droppedSinceStart: 7 });
  t.end();
});

void t.test(
  'calls that were dropped after the last line in the log are told of as the disk takes more',
  (t) => {
    const log = new ListLog();
    const folder = join(t.testdir(), 'calls');
    writeFileSync(folder, 'in its place');
    const writer = new BlockWriter({
      folder,
      kind: 'calls',
      start: Buffer.alloc(8),
      retention: { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 },
      clock: new StoppedClock(),
      log,
    });
    log.lines.splice(0);
    log.fields.splice(0);
    // The clock stands still, so only the constructor's failure is logged.
    for (let count = 1; count <= 3; count++) {
      writer.blocks = [{ data: Buffer.alloc(4 * 1024 * 1024), count }];
      writer.flush();
    }
    t.equal(writer.dropped, 3, 'of two of the three blocks');
    t.same(log.lines, []);
    unlinkSync(folder);
    writer.flush();
    t.match(log.lines, ['warn the call log is written again, without some calls']);
    t.match(log.fields, [{ folder, dropped: 3, droppedSinceStart: 3 }]);
    writer.blocks = [{ data: Buffer.alloc(8), count: 1 }];
    writer.close();
    t.equal(log.lines.length, 1, 'once');
    t.end();
  },
);

/** Of blocks of one number, in the order of the segments. */
function numbersIn(folder: string): number[] {
  const files = readdirSync(folder).sort();
  return files.flatMap((name) => [...readFileSync(join(folder, name)).subarray(8)]);
}

void t.test('if a segment cannot be closed, its block is written once, and the next has a new file', (t) => {
  const folder = t.testdir();
  const log = new ListLog();
  const writer = new BlockWriter({
    folder,
    kind: 'calls',
    start: Buffer.alloc(8),
    // Each block fills a segment.
    retention: { keepHours: 72, keepBytes: 1, processes: 1 },
    clock: new SystemClock(),
    log,
  });
  const { closeSync } = fs;
  const setClose = (close: typeof closeSync): void => {
    fs.closeSync = close;
    syncBuiltinESMExports();
  };
  const flush = (): void => {
    setClose((file) => {
      closeSync(file);
      throw new Error('EIO: i/o error, close');
    });
    try {
      writer.flush();
    } finally {
      setClose(closeSync);
    }
  };
  const kept: number[] = [];
  for (const number of [1, 2, 3]) {
    writer.blocks = [{ data: Buffer.of(number), count: 1 }];
    flush();
    flush();
    // Segments beyond the bound of bytes are removed before the next one begins.
    kept.push(...numbersIn(folder));
  }
  t.same(kept, [1, 2, 3]);
  t.equal(writer.dropped, 0);
  t.match(log.lines[0], /call log cannot be written/);
  t.doesNotThrow(() => writer.close());
  t.end();
});

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** A folder with a segment of each of the last 60 hours, and a writer that keeps 72. */
function worldOf(t: Test) {
  const folder = t.testdir();
  const clock = new StoppedClock();
  for (let hours = 60; hours > 0; hours--) {
    const path = join(folder, `${String(61 - hours).padStart(10, '0')}.calls`);
    writeFileSync(path, 'a segment');
    utimesSync(path, (clock.nowMs - hours * HOUR_MS) / 1_000, (clock.nowMs - hours * HOUR_MS) / 1_000);
  }
  const retention = { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 };
  const start = () => {
    const writer = new BlockWriter({
      folder,
      kind: 'calls',
      start: Buffer.alloc(8),
      retention,
      clock,
      log: new ListLog(),
    });
    t.teardown(() => writer.close());
    return writer;
  };
  /** Time passes, with a look each five minutes, as of the timer. */
  const pass = (writer: ReturnType<typeof start>, ms: number): void => {
    for (let passed = 0; passed < ms; passed += REMOVE_PERIOD_MS) {
      clock.nowMs += REMOVE_PERIOD_MS;
      writer.applyRetention(retention);
    }
  };
  const step = (ms: number): void => {
    clock.nowMs += ms;
    clock.setMs += ms;
  };
  return { clock, start, pass, step, left: () => readdirSync(folder).length };
}

void t.test('a clock that is ahead for some minutes removes nothing; one that stays there does', (t) => {
  const { start, pass, step, left } = worldOf(t);
  const writer = start();
  pass(writer, 2 * HOUR_MS);
  t.equal(left(), 60);
  step(10 * 24 * HOUR_MS);
  pass(writer, 50 * MINUTE_MS);
  t.equal(left(), 60, 'ahead');
  step(-10 * 24 * HOUR_MS);
  pass(writer, 2 * HOUR_MS);
  t.equal(left(), 60, 'right again');
  pass(writer, 20 * HOUR_MS);
  t.ok(left() < 60 && left() > 35, `those of more than 72 hours are gone: ${left()} are left`);
  step(10 * 24 * HOUR_MS);
  pass(writer, 65 * MINUTE_MS);
  t.equal(left(), 0, 'it was right: the machine had slept');
  t.end();
});

void t.test('a clock that is ahead at the start, and set right soon, removes nothing', (t) => {
  const { clock, start, pass, step, left } = worldOf(t);
  step(10 * 24 * HOUR_MS);
  const writer = start();
  clock.nowMs += MINUTE_MS;
  writer.applyRetention({ keepHours: 72, keepBytes: 1024 ** 3, processes: 1 });
  t.equal(left(), 60);
  step(-10 * 24 * HOUR_MS);
  pass(writer, HOUR_MS);
  t.equal(left(), 60);
  t.end();
});

void t.test('bytes are bounded whatever the clock says', (t) => {
  const { start, left } = worldOf(t);
  start().applyRetention({ keepHours: 72, keepBytes: 1_000, processes: 1 });
  t.equal(left(), 0, 'no room beside the next segment');
  t.end();
});
