/** Five failures in any second from an address, and no more. */
import t from 'tap';
import { FailureLimiter } from '#src/admin/failure-limiter.js';
import { StoppedClock } from '../store/support.js';

const v4 = (...bytes: number[]): ArrayBuffer => new Uint8Array(bytes).buffer;
const v6 = (hex: string): ArrayBuffer => new Uint8Array(Buffer.from(hex, 'hex')).buffer;

void t.test('in any second, not in each', (t) => {
  const clock = new StoppedClock();
  const limiter = new FailureLimiter(clock);
  const from = v4(10, 0, 0, 1);
  const answers: boolean[] = [];
  for (let at = 0; at < 20; at++) {
    answers.push(limiter.record(from));
    clock.nowMs += 100;
  }
  const second = [true, true, true, true, true, false, false, false, false, false];
  t.same(answers, [...second, ...second], 'the first is forgotten a second after it came');
  clock.nowMs += 1_000;
  t.same(
    Array.from({ length: 6 }, () => limiter.record(from)),
    [true, true, true, true, true, false],
  );
  t.equal(limiter.record(v4(10, 0, 0, 2)), true, 'another address');
  t.end();
});

void t.test('what is one sender', (t) => {
  const limiter = new FailureLimiter(new StoppedClock());
  const spent = (address: ArrayBuffer): boolean => {
    for (let at = 0; at < 5; at++) limiter.record(address);
    return !limiter.record(address);
  };
  t.ok(spent(v4(10, 0, 0, 1)));
  t.equal(limiter.record(v6('00000000000000000000ffff0a000001')), false, 'IPv4 in IPv6');
  t.equal(limiter.record(v6('00000000000000000000ffff0a000002')), true);
  t.ok(spent(v6('20010db8000000010000000000000001')));
  t.equal(limiter.record(v6('20010db8000000010123456789abcdef')), false, 'the same network');
  t.equal(limiter.record(v6('20010db8000000020000000000000001')), true, 'another');
  t.end();
});

void t.test('addresses are forgotten, the first one first', (t) => {
  const limiter = new FailureLimiter(new StoppedClock());
  const address = (at: number): ArrayBuffer => v4(10, at >> 16, (at >> 8) & 255, at & 255);
  for (let at = 0; at < 4_096; at++) for (let times = 0; times < 5; times++) limiter.record(address(at));
  t.equal(limiter.record(address(0)), false);
  t.equal(limiter.record(address(4_096)), true);
  t.equal(limiter.record(address(1)), false, 'the others are still known');
  t.equal(limiter.record(address(0)), true, 'the first is not');
  t.end();
});
