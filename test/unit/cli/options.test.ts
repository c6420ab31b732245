import t from 'tap';
import {
  durationSeconds,
  endSeconds,
  lifeSeconds,
  momentSeconds,
  parseNonEmpty,
  parseWholeNumber,
  wholeNumberFrom,
} from '#src/cli/options.js';

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
  t.equal(parseWholeNumber('15'), 15);
  for (const wrong of ['', '-1', '1.5', '1w', 'm', '1 h', '99999999999']) {
    t.throws(() => durationSeconds(wrong), { code: 'commander.invalidArgument' }, wrong);
  }
  t.equal(lifeSeconds('1s'), 1);
  // Nothing lives for 0 seconds, and no key or token is accepted after 2106.
  for (const wrong of ['0', '0d', '49711d', '1w'])
    t.throws(() => lifeSeconds(wrong), { code: 'commander.invalidArgument' }, wrong);
  t.throws(() => lifeSeconds('49711d'), { message: /at least 1s, which ends before 2106/ });
  // Without its zone a time means another moment on every machine.
  for (const wrong of [
    '',
    'tomorrow',
    '2030-13-01',
    '2030-02-31',
    '2030-02-31T12:00Z',
    '2030-01-31T12:00',
    '31.01.2030',
    '999999999999',
  ]) {
    t.throws(() => momentSeconds(wrong), { code: 'commander.invalidArgument' }, wrong);
  }
  for (const wrong of ['', '-1', '1.5', '1e3', '1'.repeat(16)]) {
    t.throws(() => parseWholeNumber(wrong), { code: 'commander.invalidArgument' }, wrong);
  }
  t.end();
});

void t.test('the end of a span: a day belongs to it', (t) => {
  for (const [text, seconds] of [
    ['2030-01-31', Date.UTC(2030, 1, 1) / 1_000 - 1],
    ['2030-01-31T00:00Z', Date.UTC(2030, 0, 31) / 1_000],
    ['1900000000', 1_900_000_000],
  ] as const) {
    t.equal(endSeconds(text), seconds, text);
  }
  t.throws(() => endSeconds('2030-02-31'), { code: 'commander.invalidArgument' });
  t.end();
});

void t.test('an empty word is misuse', (t) => {
  t.equal(parseNonEmpty(' '), ' ');
  t.throws(() => parseNonEmpty(''), { code: 'commander.invalidArgument' });
  t.end();
});

void t.test('whole numbers between two bounds', (t) => {
  const port = wholeNumberFrom(1, 65_535);
  t.same(['1', '080', '65535'].map(port), [1, 80, 65_535]);
  for (const wrong of ['', '0', '65536', '-1', '1.5', '1e3', ' 1', '1'.repeat(16)]) {
    t.throws(() => port(wrong), { code: 'commander.invalidArgument', message: /from 1 to 65535/ }, wrong);
  }
  t.end();
});
