/** What a call gives back at its end, and that it ends once. */
import t from 'tap';
import type { Swept } from '#src/request/context.js';
import { bed } from './exchange-bed.js';

void t.test('the end of a hit gives back what it holds, and other ends nothing', (t) => {
  const hit = { stream: false, bytes: new Uint8Array(7) };
  for (const [outcome, isHit] of [
    ['ok', true],
    ['client_gone', true],
    ['ok', false],
  ] as const) {
    const { exchange, letGo } = bed();
    if (isHit) exchange.hit = hit;
    exchange.finish(outcome);
    t.same(letGo, isHit ? [hit.bytes] : []);
  }
  t.end();
});

void t.test('a call has one sweep at a time, and none when it is over', (t) => {
  const { exchange, sweeps } = bed();
  const swept: Swept = { onSweep: () => undefined };
  exchange.startSweep(swept);
  t.throws(() => exchange.startSweep(swept), /one sweep/, 'the first would never end');
  exchange.stopSweep();
  exchange.stopSweep();
  t.equal(sweeps.size, 0);
  exchange.startSweep(swept);
  t.equal(sweeps.size, 1);
  exchange.finish('client_gone');
  t.equal(sweeps.size, 0);
  t.throws(() => exchange.startSweep(swept), /one sweep until/, 'its response is freed');
  t.equal(sweeps.size, 0);
  t.end();
});

void t.test('a call ends once', (t) => {
  const { exchange, logged, control } = bed();
  control.writesAccessLog = true;
  exchange.finish('client_gone');
  t.throws(() => exchange.finish('ok'), /ends once/);
  t.equal(logged().length, 1);
  t.end();
});
