import t from 'tap';
import { higherPrice, importPrice, PER_CALL } from '#src/config/litellm/price.js';

void t.test('costs per token become exact prices per million', (t) => {
  const exact: Readonly<Record<string, string>> = {
    '1.5e-07': '0.15',
    '1.5E-7': '0.15',
    '0.00000015': '0.15',
    '.00000015': '0.15',
    '1e-06': '1',
    '3e-5': '30',
    '+2.5e-6': '2.5',
    '1e-12': '0.000001',
    '0.000000000001': '0.000001',
    '0': '0',
    '0.0': '0',
    '1e-2': '10000',
    '0.010000000000': '10000',
    '1.23456e-07': '0.123456',
    // A binary fraction would make 0.28500000000000003 of it.
    '2.85e-07': '0.285',
  };
  for (const [cost, text] of Object.entries(exact)) t.same(importPrice(cost), { text, isExact: true }, cost);
  t.same(importPrice('1.2345678e-07'), { text: '0.123457', isExact: false }, 'rounded up');
  t.same(importPrice('1e-13'), { text: '0.000001', isExact: false });
  t.same(importPrice('9.9999999999e-7'), { text: '1', isExact: false });
  t.end();
});

void t.test('what is no price', (t) => {
  for (const cost of [
    '',
    '.',
    'e-7',
    '-1e-7',
    '1e-07x',
    'NaN',
    '.inf',
    '0x10',
    '0.010000001',
    '1e0',
    '1e400',
    '1e-41',
    '1'.repeat(41),
  ]) {
    t.equal(importPrice(cost), undefined, cost);
  }
  t.end();
});

void t.test('costs per call stay what they are', (t) => {
  t.same(importPrice('0.002', PER_CALL), { text: '0.002', isExact: true });
  t.same(importPrice('2e-3', PER_CALL), { text: '0.002', isExact: true });
  t.same(importPrice('1.5', PER_CALL), { text: '1.5', isExact: true });
  t.same(importPrice('1e-13', PER_CALL), { text: '0.000000000001', isExact: false }, 'rounded up');
  t.equal(importPrice('10000.5', PER_CALL), undefined);
  t.end();
});

void t.test('the higher of two', (t) => {
  const small = { text: '2', isExact: true };
  const large = { text: '10', isExact: true };
  t.equal(higherPrice(small, large), large);
  t.equal(higherPrice(large, small), large);
  t.end();
});
