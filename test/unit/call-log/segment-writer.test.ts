/** What a segment writer leaves in its folder. */
import { readdirSync } from 'node:fs';
import t from 'tap';
import { SegmentWriter } from '#src/call-log/segment-writer.js';
import { SystemClock } from '#src/core/clock.js';
import { ListLog } from '../store/support.js';

void t.test('a segment that cannot be begun leaves no file, however often it is tried', (t) => {
  const folder = t.testdir();
  const appended = [{ data: Buffer.alloc(8), count: 1 }];
  const log = new ListLog();
  const writer = new SegmentWriter({
    folder,
    kind: 'calls',
    // Stands in for a full disk, which takes an empty file and no byte: this cannot be written.
    start: { length: 8 } as Buffer,
    newIndex: () => ({ add: () => undefined, toBytes: () => Buffer.alloc(0) }),
    retention: { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 },
    clock: new SystemClock(),
    log,
    take: () => appended.shift(),
  });
  for (let tries = 0; tries < 3; tries++) writer.flush();
  t.equal(log.lines.length, 1, 'the failure is logged');
  t.same(readdirSync(folder), []);
  writer.close();
  t.end();
});
