import t from 'tap';
import {
  picoUnitsOfExact,
  BALANCE_PICO_UNITS_MAX,
  decimalOf,
  picoUnitsOf,
  picoUnitsPerToken,
} from '#src/core/money.js';

void t.test('amounts to pico-units, without rounding', (t) => {
  t.equal(picoUnitsOf('10.00'), 10_000_000_000_000n);
  t.equal(picoUnitsOf('0'), 0n);
  t.equal(picoUnitsOf('0.000000000001'), 1n);
  t.equal(picoUnitsOf('3000000'), BALANCE_PICO_UNITS_MAX);
  for (const wrong of [
    '3000000.000000000001',
    '0.0000000000001',
    '-1',
    '+1',
    '1e3',
    '.5',
    '5.',
    '',
    ' 1',
    '01',
    'x',
    '1,0',
  ]) {
    t.equal(picoUnitsOf(wrong), undefined, JSON.stringify(wrong));
  }
  t.end();
});

void t.test('prices per million tokens to whole pico-units a token', (t) => {
  t.equal(picoUnitsPerToken('0.15'), 150_000n);
  t.equal(picoUnitsPerToken('0.000001'), 1n);
  t.equal(picoUnitsPerToken('10000'), 10_000_000_000n);
  t.equal(picoUnitsPerToken('10000.000001'), undefined);
  t.equal(picoUnitsPerToken('0.0000001'), undefined, 'a seventh decimal would not be whole');
  t.end();
});

void t.test('three of the largest balances fit a signed 64-bit word', (t) => {
  t.equal(BigInt.asIntN(64, 3n * BALANCE_PICO_UNITS_MAX), 3n * BALANCE_PICO_UNITS_MAX);
  t.end();
});

void t.test('decimal text is exact, and reads back', (t) => {
  t.equal(decimalOf(0n), '0.00');
  t.equal(decimalOf(10_000_000_000_000n), '10.00');
  t.equal(decimalOf(1n), '0.000000000001');
  t.equal(decimalOf(-1_500_000_000_000n), '-1.50');
  for (const amount of [0n, 1n, 999_999_999_999n, 1_000_000_000_001n, BALANCE_PICO_UNITS_MAX as bigint]) {
    t.equal(picoUnitsOf(decimalOf(amount)), amount);
    t.equal(picoUnitsOfExact(decimalOf(amount)), amount);
    t.equal(picoUnitsOfExact(decimalOf(-amount)), -amount);
  }
  for (const wrong of ['', '-', '.5', '1.', '1e3', ' 1', '1,50', '0.1234567890123', 'NaN'])
    t.throws(() => picoUnitsOfExact(wrong), /decimal text/, wrong);
  t.end();
});
