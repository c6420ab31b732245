/** What workers take of the limits of upstreams, together, and what a dead one leaves. */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import type { UpstreamLimits } from '#src/core/quotas.js';
import { asMonotonicMs, asUpstreamScopeIndex, asWallMs } from '#src/core/units.js';
import { Stocks } from '#src/ledger/stocks.js';
import { TokenWindow } from '#src/ledger/token-window.js';
import { createUpstreamBuffers, UpstreamCounters } from '#src/ledger/upstream-counters.js';

class HeldClock implements Clock {
  ms = 1_000_000;
  monotonicMs = () => asMonotonicMs(this.ms);
  wallMs = () => asWallMs(this.ms);
}

const SCOPE = asUpstreamScopeIndex(3);
const OTHER = asUpstreamScopeIndex(1_023);
const limitsOf = (limits: Partial<UpstreamLimits>): UpstreamLimits => ({
  requestsPerMinute: undefined,
  tokensPerMinute: undefined,
  callsInFlight: undefined,
  ...limits,
});
const ALL = limitsOf({ requestsPerMinute: 3, tokensPerMinute: 100, callsInFlight: 2 });

function world() {
  const clock = new HeldClock();
  const buffers = createUpstreamBuffers(2);
  const [one, two] = [0, 1].map((worker) => new UpstreamCounters(buffers, clock, worker));
  const main = new UpstreamCounters(buffers, clock);
  const used = (limits: UpstreamLimits) => main.useOf(SCOPE, limits).map(({ used }) => used);
  return { clock, buffers, one: one!, two: two!, main, used };
}

void t.test('two workers take from one scope, all or nothing', (t) => {
  const { one, two, used } = world();
  t.equal(one.take(SCOPE, ALL, 40), undefined);
  t.equal(two.take(SCOPE, ALL, 40), undefined);
  t.same(used(ALL), [2, 80, 2]);
  t.match(one.take(SCOPE, ALL, 10), { quota: 'calls_in_flight', freeInMs: 0 });
  two.giveBackCall(SCOPE);
  t.match(one.take(SCOPE, ALL, 21), { quota: 'tokens_per_minute' });
  t.same(used(ALL), [2, 80, 1], 'nothing was taken');
  t.equal(one.take(SCOPE, ALL, 20), undefined);
  t.same(used(ALL), [3, 100, 2]);
  one.giveBackCall(SCOPE);
  one.settle(SCOPE, 20, 0);
  t.match(one.take(SCOPE, ALL, 1), { quota: 'requests_per_minute' });
  t.same(used(ALL), [3, 80, 1]);
  t.equal(two.take(OTHER, ALL, 100), undefined, 'another scope is another');
  t.end();
});

void t.test('when there is room again, and that it can be never', (t) => {
  const { clock, one } = world();
  for (let n = 0; n < 3; n++) one.take(SCOPE, limitsOf({ requestsPerMinute: 3 }), 0);
  const short = one.take(SCOPE, limitsOf({ requestsPerMinute: 3 }), 0)!;
  t.equal(short.quota, 'requests_per_minute');
  t.ok(short.freeInMs > 60_000 && short.freeInMs < 61_500, `${short.freeInMs} ms`);
  clock.ms += short.freeInMs;
  t.equal(one.take(SCOPE, limitsOf({ requestsPerMinute: 3 }), 0), undefined);

  const tokens = limitsOf({ tokensPerMinute: 50 });
  t.match(one.take(OTHER, tokens, 51), { quota: 'tokens_per_minute', freeInMs: Infinity });
  t.equal(one.take(OTHER, tokens, 50), undefined);
  one.settle(OTHER, 50, 30);
  t.equal(one.take(OTHER, tokens, 20), undefined);
  one.settle(OTHER, 20, 20);
  const full = one.take(OTHER, tokens, 1)!;
  clock.ms += full.freeInMs;
  t.equal(one.take(OTHER, tokens, 50), undefined, 'after the time it said');
  t.end();
});

void t.test('no quota is named that has room', (t) => {
  const { one } = world();
  const room = { quota: undefined, freeInMs: 0, mayAskForMore: false };
  t.same(one.shortageOf(SCOPE, limitsOf({ requestsPerMinute: 5 }), 0), room);
  t.same(one.shortageOf(SCOPE, ALL, 10), room);
  const calls = limitsOf({ callsInFlight: 1 });
  t.same(one.shortageOf(SCOPE, calls, 0), room);
  one.take(SCOPE, calls, 0);
  t.same(one.shortageOf(SCOPE, calls, 0), { ...room, quota: 'calls_in_flight' });
  t.end();
});

void t.test('a dead worker gives its calls back, and its tokens count as used for a minute', (t) => {
  const { clock, one, two, main, used } = world();
  t.equal(one.take(SCOPE, ALL, 40), undefined);
  t.equal(two.take(SCOPE, ALL, 40), undefined);
  main.releaseWorker(1);
  t.same(used(ALL), [2, 80, 1]);
  main.releaseWorker(1);
  t.same(used(ALL), [2, 80, 1], 'once');
  one.giveBackCall(SCOPE);
  one.settle(SCOPE, 40, 0);
  t.same(used(ALL), [2, 40, 0]);
  clock.ms += 61_500;
  t.same(used(ALL), [0, 0, 0]);
  t.end();
});

void t.test('a worker that dies while it gives back does not give back twice', (t) => {
  // A step that does not return is where the thread was ended.
  const endsIn = (prototype: Stocks | TokenWindow, when: 'before' | 'after', act: () => void): void => {
    const settle = Object.getOwnPropertyDescriptor(prototype, 'settle')!;
    const whole = settle.value as (...given: unknown[]) => void;
    Object.defineProperty(prototype, 'settle', {
      ...settle,
      value(...given: unknown[]) {
        if (when === 'after') whole.apply(this, given);
        throw new Error('terminated');
      },
    });
    t.throws(act, { message: 'terminated' });
    Object.defineProperty(prototype, 'settle', settle);
  };
  for (const [when, left] of [
    ['before', 2],
    ['after', 1],
  ] as const) {
    const { one, two, main, used } = world();
    t.equal(one.take(SCOPE, ALL, 40), undefined);
    t.equal(two.take(SCOPE, ALL, 40), undefined);
    endsIn(Stocks.prototype, when, () => one.giveBackCall(SCOPE));
    endsIn(TokenWindow.prototype, when, () => one.settle(SCOPE, 40, 0));
    main.releaseWorker(0);
    t.same(used(ALL), [2, 40 * left, left], `${when} the record was changed`);
    main.releaseWorker(1);
    two.take(SCOPE, ALL, 0);
    t.ok(main.useOf(SCOPE, ALL)[1]!.used >= 40, 'the tokens of the other weigh for their minute');
  }
  t.end();
});

void t.test('who has no stripe takes nothing, and no worker has the stripe of another', (t) => {
  const { clock, buffers, main, used } = world();
  t.throws(() => main.take(SCOPE, ALL, 40), /stripe/);
  t.same(used(ALL), [0, 0, 0]);
  for (const worker of [2, -1]) {
    t.throws(() => new UpstreamCounters(buffers, clock, worker), RangeError);
    t.throws(() => main.releaseWorker(worker), RangeError);
  }
  t.end();
});

void t.test('what is not limited is not counted', (t) => {
  const { one, main } = world();
  t.equal(one.take(SCOPE, limitsOf({}), 1_000), undefined);
  t.same(main.useOf(SCOPE, limitsOf({})), []);
  t.same(
    main.useOf(SCOPE, ALL).map(({ used }) => used),
    [0, 0, 0],
  );
  t.end();
});

void t.test('what is no number of tokens is neither taken nor given back', (t) => {
  const { one, used } = world();
  const tokens = limitsOf({ tokensPerMinute: 100 });
  t.equal(one.take(SCOPE, tokens, 40), undefined);
  for (const amount of [NaN, -1]) {
    t.throws(() => one.take(SCOPE, tokens, amount), /tokens/);
    t.throws(() => one.settle(SCOPE, 40, amount), /tokens/);
  }
  t.same(used(tokens), [40]);
  one.settle(SCOPE, 40, 10);
  t.same(used(tokens), [10]);
  t.end();
});
