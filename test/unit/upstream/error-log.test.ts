/** Lines about failures are bounded in number. */
import t from 'tap';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { ErrorLog } from '#src/upstream/error-log.js';
import { FakeLog } from '../../fixtures/upstream-server.js';

void t.test('one line a period for each subject, level and message, and none is forgotten', (t) => {
  let nowMs = 0;
  const log = new FakeLog();
  const faults = new ErrorLog(log, {
    monotonicMs: () => asMonotonicMs(nowMs),
    wallMs: () => asWallMs(nowMs),
  });
  for (let count = 0; count < 5; count++) faults.write('warn', 'a', 'm', `c${count}`);
  faults.write('warn', 'b', 'm', 'c');
  faults.write('error', 'a', 'm', 'c');
  faults.write('error', 'a', 'other', 'c');
  t.strictSame(
    log.lines.map(({ level, fields }) => [level, fields.subject, fields.cause]),
    [
      ['warn', 'a', 'c0'],
      ['warn', 'b', 'c'],
      ['error', 'a', 'c'],
      ['error', 'a', 'c'],
    ],
  );
  nowMs = 9_999;
  faults.write('warn', 'a', 'm', 'c');
  t.equal(log.lines.length, 4);
  nowMs = 10_000;
  faults.write('warn', 'a', 'm', 'c');
  t.equal(log.lines[4]?.fields.unwritten, 5);
  t.end();
});
