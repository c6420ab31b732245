/** Five wrong tokens in any second from an address, and no more. */
import t from 'tap';
import { WrongTokens } from '#src/admin/token.js';
import { StoppedClock } from '../store/support.js';

const v4 = (...bytes: number[]): ArrayBuffer => new Uint8Array(bytes).buffer;
const v6 = (hex: string): ArrayBuffer => new Uint8Array(Buffer.from(hex, 'hex')).buffer;

void t.test('in any second, not in each', (t) => {
  const clock = new StoppedClock();
  const wrong = new WrongTokens(clock);
  const from = v4(10, 0, 0, 1);
  const answers: boolean[] = [];
  for (let at = 0; at < 20; at++) {
    answers.push(wrong.record(from));
    clock.nowMs += 100;
  }
  const second = [true, true, true, true, true, false, false, false, false, false];
  t.same(answers, [...second, ...second], 'the first is forgotten a second after it came');
  clock.nowMs += 1_000;
  t.same(
    Array.from({ length: 6 }, () => wrong.record(from)),
    [true, true, true, true, true, false],
  );
  t.equal(wrong.record(v4(10, 0, 0, 2)), true, 'another address');
  t.end();
});

void t.test('what is one sender', (t) => {
  const wrong = new WrongTokens(new StoppedClock());
  const spent = (address: ArrayBuffer): boolean => {
    for (let at = 0; at < 5; at++) wrong.record(address);
    return !wrong.record(address);
  };
  t.ok(spent(v4(10, 0, 0, 1)));
  t.equal(wrong.record(v6('00000000000000000000ffff0a000001')), false, 'IPv4 in IPv6');
  t.equal(wrong.record(v6('00000000000000000000ffff0a000002')), true);
  t.ok(spent(v6('20010db8000000010000000000000001')));
  t.equal(wrong.record(v6('20010db8000000010123456789abcdef')), false, 'the same network');
  t.equal(wrong.record(v6('20010db8000000020000000000000001')), true, 'another');
  t.end();
});

void t.test('addresses are forgotten, the first one first', (t) => {
  const wrong = new WrongTokens(new StoppedClock());
  const address = (at: number): ArrayBuffer => v4(10, at >> 16, (at >> 8) & 255, at & 255);
  for (let at = 0; at < 4_096; at++) for (let times = 0; times < 5; times++) wrong.record(address(at));
  t.equal(wrong.record(address(0)), false);
  t.equal(wrong.record(address(4_096)), true);
  t.equal(wrong.record(address(1)), false, 'the others are still known');
  t.equal(wrong.record(address(0)), true, 'the first is not');
  t.end();
});
