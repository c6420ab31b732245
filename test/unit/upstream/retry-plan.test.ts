/** How often a call is tried, and after which pauses. */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { asAccountIndex, asMonotonicMs, asUpstreamScopeIndex, asWallMs } from '#src/core/units.js';
import { createUpstreamBuffers, UpstreamCounters } from '#src/ledger/upstream-counters.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import { UpstreamMetrics } from '#src/telemetry/metrics-writers.js';
import { connectionFailure, invalidResponseFailure, statusFailure } from '#src/upstream/error-mapping.js';
import { RetryPlan } from '#src/upstream/retry-plan.js';
import { Balancer } from '#src/upstream/balancer.js';
import type { TargetQuotas } from '#src/upstream/target.js';
import { UpstreamQuotas } from '#src/upstream/upstream-quotas.js';
import { FakeLog, targetOf } from '../../fixtures/upstream-server.js';

class HeldClock implements Clock {
  ms = 1_000;
  monotonicMs = () => asMonotonicMs(this.ms);
  wallMs = () => asWallMs(this.ms);
}

/** `shared`: with other processes, over a coordinator that never replies. */
function planOf(targets: number, spareLimits?: Partial<TargetQuotas['limits']>, tokens = 0, shared = false) {
  const clock = new HeldClock();
  const counters = new UpstreamCounters(createUpstreamBuffers(1, { isShared: shared }), clock, 0);
  const ask = () => new Promise<never>(() => undefined);
  const limits = { requestsPerMinute: undefined, tokensPerMinute: undefined, callsInFlight: undefined };
  const list = Array.from({ length: targets }, (_, index) =>
    targetOf(`http://${index}`, {
      priority: index + 1,
      quotas:
        index === 0 || spareLimits === undefined
          ? undefined
          : { scope: asUpstreamScopeIndex(0), limits: { ...limits, ...spareLimits }, queueMs: 0 },
    }),
  );
  const balancer = new Balancer(list, {
    clock,
    log: new FakeLog(),
    metrics: new UpstreamMetrics(createMetrics(1, 1), 0),
    quotas: new UpstreamQuotas(counters, clock, shared ? { ask } : undefined),
  });
  return { clock, balancer, plan: new RetryPlan(balancer, asAccountIndex(0), clock, () => tokens) };
}

const rejected = connectionFailure({ code: 'ECONNREFUSED', message: '', repeatable: true });
const garbage = invalidResponseFailure('x');

void t.test('each upstream once, without a pause, and no second round', (t) => {
  const { plan } = planOf(3);
  for (const pauseMs of [0, 0, undefined]) {
    const taken = plan.take()!;
    taken.releaseFailed(rejected);
    t.equal(plan.planPauseMs(taken, rejected, false), pauseMs);
  }
  t.equal(plan.take(), undefined);
  t.end();
});

void t.test('an only upstream: twice more after growing pauses, where nothing had been sent', (t) => {
  for (let round = 0; round < 200; round++) {
    const { plan } = planOf(1);
    for (const [least, most] of [
      [50, 100],
      [100, 200],
    ] as const) {
      const taken = plan.take()!;
      taken.releaseFailed(rejected);
      const pauseMs = plan.planPauseMs(taken, rejected, false)!;
      if (pauseMs < least || pauseMs > most) t.fail(`${pauseMs} ms`);
    }
    const taken = plan.take()!;
    taken.releaseFailed(rejected);
    if (plan.planPauseMs(taken, rejected, false) !== undefined) t.fail('a fourth try');
  }
  const { plan } = planOf(1);
  const taken = plan.take()!;
  taken.releaseFailed(garbage);
  t.equal(plan.planPauseMs(taken, garbage, true), undefined, 'work was done');
  t.end();
});

void t.test('a dead kept connection: at once, but only the first time', (t) => {
  const { plan } = planOf(1);
  const first = plan.take()!;
  first.releaseFailed(rejected);
  t.equal(plan.planPauseMs(first, rejected, true), 0);
  const second = plan.take()!;
  second.releaseFailed(rejected);
  t.ok(plan.planPauseMs(second, rejected, true)! >= 100);
  t.end();
});

void t.test('a wait for room before the first attempt takes no repeat away', (t) => {
  const { plan, clock } = planOf(1);
  clock.ms += 5_000;
  const taken = plan.take('queue')!;
  taken.releaseFailed(rejected);
  t.equal(plan.planPauseMs(taken, rejected, true), 0, 'a closed kept connection');
  clock.ms += 1_000;
  const again = plan.take()!;
  again.releaseFailed(rejected);
  t.equal(plan.planPauseMs(again, rejected, false), undefined, 'a second after the first attempt');
  t.end();
});

void t.test('who has waited long is not kept waiting', (t) => {
  for (const [spentMs, again] of [
    [999, true],
    [1_000, false],
  ] as const) {
    const { plan, clock } = planOf(1);
    const taken = plan.take()!;
    clock.ms += spentMs;
    taken.releaseFailed(rejected);
    t.equal(plan.planPauseMs(taken, rejected, false) !== undefined, again, `${spentMs} ms`);
  }
  for (const [leftMs, pauseMs] of [
    [1, 0],
    [0, undefined],
  ] as const) {
    const { plan, clock } = planOf(2);
    const taken = plan.take()!;
    clock.ms += taken.target.totalTimeoutMs - leftMs;
    taken.releaseFailed(garbage);
    t.equal(plan.planPauseMs(taken, garbage, true), pauseMs, `${leftMs} ms are left of the call's time`);
  }
  t.end();
});

void t.test('others that rest take no further attempt from the one that works', (t) => {
  const { balancer, plan } = planOf(3);
  for (const spare of [1, 2]) {
    const asked = balancer.take([0, 3 - spare], asAccountIndex(0))!;
    t.equal(asked.index, spare);
    asked.releaseFailed(statusFailure(429, '60', asWallMs(0)));
  }
  const first = plan.take()!;
  t.equal(first.index, 0);
  first.releaseFailed(rejected);
  t.equal(plan.planPauseMs(first, rejected, true), 0, 'a dead kept connection');
  for (const least of [100, undefined]) {
    const next = plan.take()!;
    t.equal(next.index, 0);
    next.releaseFailed(rejected);
    const pauseMs = plan.planPauseMs(next, rejected, false);
    t.ok(least === undefined ? pauseMs === undefined : pauseMs! >= least, `${pauseMs} ms`);
  }
  t.end();
});

void t.test('a spare that is full takes no further attempt from the one that works', (t) => {
  for (const limits of [{ callsInFlight: 1 }, { requestsPerMinute: 1 }, { tokensPerMinute: 60 }]) {
    const what = JSON.stringify(limits);
    const { balancer, plan } = planOf(2, limits, 50);
    const filling = balancer.take([0], asAccountIndex(0), 50)!;
    for (const least of [50, 100]) {
      const taken = plan.take()!;
      t.equal(taken.index, 0, what);
      taken.releaseFailed(rejected);
      const pauseMs = plan.planPauseMs(taken, rejected, false)!;
      t.ok(pauseMs >= least, `${what}: ${pauseMs} ms`);
    }
    const last = plan.take()!;
    last.releaseFailed(rejected);
    t.equal(plan.planPauseMs(last, rejected, false), 0, 'then the call waits for the spare');
    t.equal(plan.take(), undefined);
    t.ok(plan.noRoom());
    filling.release();
    filling.settle(0);
  }
  t.end();
});

void t.test(
  'what may not be repeated waits for the spare that is full, or goes to the one with room',
  (t) => {
    for (const [failure, isFull] of [
      [garbage, true],
      [rejected, false],
    ] as const) {
      const { balancer, plan } = planOf(2, { callsInFlight: 1 });
      if (isFull) balancer.take([0], asAccountIndex(0));
      const taken = plan.take()!;
      taken.releaseFailed(failure);
      t.equal(plan.planPauseMs(taken, failure, true), 0);
      t.equal(plan.take()?.index, isFull ? undefined : 1);
    }
    t.end();
  },
);

void t.test('a spare that never takes a call so large is none', (t) => {
  for (const shared of [false, true]) {
    for (const [failure, pauseMs] of [
      [garbage, undefined],
      [rejected, 0],
    ] as const) {
      const { plan } = planOf(2, { tokensPerMinute: 49 }, 50, shared);
      const taken = plan.take()!;
      taken.releaseFailed(failure);
      t.equal(plan.planPauseMs(taken, failure, true), pauseMs, `shared ${shared}`);
      t.equal(plan.take()?.index, pauseMs, 'the first again, if a kept connection was closed');
    }
  }
  t.end();
});
