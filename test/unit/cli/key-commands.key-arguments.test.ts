import t from 'tap';
import { durationSeconds, momentSeconds, wholeNumber } from '#src/cli/key-commands.js';

void t.test('durations, moments and counts', (t) => {
  for (const [text, seconds] of [
    ['0', 0],
    ['90', 90],
    ['90s', 90],
    ['15m', 900],
    ['24h', 86_400],
    ['30d', 2_592_000],
  ] as const) {
    t.equal(durationSeconds(text), seconds, text);
  }
  for (const [text, seconds] of [
    ['0', 0],
    ['1900000000', 1_900_000_000],
    ['2030-01-31', Date.UTC(2030, 0, 31) / 1_000],
    ['2030-01-31T12:00Z', Date.UTC(2030, 0, 31, 12) / 1_000],
    ['2030-01-31T12:00:30+08:00', Date.UTC(2030, 0, 31, 4, 0, 30) / 1_000],
  ] as const) {
    t.equal(momentSeconds(text), seconds, text);
  }
  t.equal(wholeNumber('15'), 15);
  for (const wrong of ['', '-1', '1.5', '1w', 'm', '1 h', '99999999999']) {
    t.throws(() => durationSeconds(wrong), { code: 'commander.invalidArgument' }, wrong);
  }
  // Without its zone a time means another moment on every machine.
  for (const wrong of ['', 'tomorrow', '2030-13-01', '2030-01-31T12:00', '31.01.2030', '999999999999']) {
    t.throws(() => momentSeconds(wrong), { code: 'commander.invalidArgument' }, wrong);
  }
  for (const wrong of ['', '-1', '1.5', '1e3', '1'.repeat(16)]) {
    t.throws(() => wholeNumber(wrong), { code: 'commander.invalidArgument' }, wrong);
  }
  t.end();
});
