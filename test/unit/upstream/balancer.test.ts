/** Priority first, then the least load for the weight; who failed or asked for a pause rests. */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { asAccountIndex, asMonotonicMs, asUpstreamScopeIndex, asWallMs } from '#src/core/units.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import { MetricsReader } from '#src/telemetry/metrics-reader.js';
import { UpstreamMetrics } from '#src/telemetry/metrics-writers.js';
import { connectionFailure, invalidResponseFailure, statusFailure } from '#src/upstream/error-mapping.js';
import { Balancer } from '#src/upstream/balancer.js';
import type { TargetQuotas, UpstreamTarget } from '#src/upstream/target.js';
import { FakeLog, targetOf, upstreamQuotas } from '../../fixtures/upstream-server.js';

const target = (name: string, priority: number, weight: number, changes: Partial<UpstreamTarget> = {}) =>
  targetOf('http://x', { name, priority, weight, ...changes });

class HeldClock implements Clock {
  ms = 1_000;
  monotonicMs = () => asMonotonicMs(this.ms);
  wallMs = () => asWallMs(this.ms);
}

function balancerOf(targets: readonly UpstreamTarget[]) {
  const clock = new HeldClock();
  const log = new FakeLog();
  const buffers = createMetrics(1, 1);
  const metrics = new UpstreamMetrics(buffers, 0);
  const reader = new MetricsReader(buffers, clock);
  const quotas = upstreamQuotas(clock);
  return { clock, log, reader, quotas, balancer: new Balancer(targets, { clock, log, metrics, quotas }) };
}

/** For targets without limits. */
const NO_QUOTAS = upstreamQuotas(new HeldClock());
const NONE: readonly number[] = [];
const ACCOUNT = asAccountIndex(0);
const bad = invalidResponseFailure('x');
const paused = (seconds: string) => statusFailure(429, seconds, asWallMs(0));

void t.test('the better priority takes all, the others are for failover', (t) => {
  const { balancer } = balancerOf([target('a', 1, 1), target('b', 2, 9)]);
  for (let count = 0; count < 5; count++) t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'a');
  t.equal(balancer.take([0], ACCOUNT)?.target.name, 'b');
  t.equal(balancer.isAnyLeft([0], ACCOUNT), true);
  t.equal(balancer.take([0, 1], ACCOUNT), undefined);
  t.equal(balancer.isAnyLeft([0, 1], ACCOUNT), false);
  t.end();
});

void t.test('inside of a priority calls in flight follow the weights', (t) => {
  const { balancer } = balancerOf([target('a', 1, 1), target('b', 1, 3), target('c', 2, 100)]);
  for (let count = 0; count < 40; count++) balancer.take(NONE, ACCOUNT);
  t.strictSame(
    [0, 1, 2].map((index) => balancer.inFlight(index)),
    [10, 30, 0],
  );
  t.end();
});

void t.test('a place is given back once, however often and with whatever outcome', (t) => {
  const { balancer, log } = balancerOf([target('a', 1, 1, { breakerFailuresMax: 1 }), target('b', 1, 1)]);
  const first = balancer.take(NONE, ACCOUNT)!;
  t.equal(first.target.name, 'a');
  t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'b');
  first.release();
  first.release();
  first.releaseFailed(bad);
  first.releaseGood();
  t.equal(balancer.inFlight(0), 0);
  t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'a');
  t.equal(log.lines.length, 0);
  t.end();
});

void t.test('a target that keeps failing rests, and the next priority takes its calls', (t) => {
  const { balancer, clock, log } = balancerOf([
    target('a', 1, 1, { breakerFailuresMax: 2 }),
    target('b', 2, 1, { breakerFailuresMax: 2 }),
  ]);
  for (const name of ['a', 'a', 'b', 'b']) {
    const taken = balancer.take(NONE, ACCOUNT)!;
    t.equal(taken.target.name, name);
    taken.releaseFailed(bad);
  }
  t.equal(balancer.take(NONE, ACCOUNT), undefined);
  t.strictSame(balancer.cooldown(ACCOUNT), { waitMs: 2_000, reason: 'it failed repeatedly' });
  clock.ms += 2_000;
  const probe = balancer.take(NONE, ACCOUNT)!;
  t.equal(probe.target.name, 'a', 'one probe');
  t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'b', 'and only one');
  probe.recordResponseBegin();
  t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'a', 'used again before its answer is whole');
  t.strictSame(
    log.lines.map(({ level, message, fields }) => [level, message, fields.subject]),
    [
      ['warn', 'an upstream keeps failing and is left alone', 'a'],
      ['warn', 'an upstream keeps failing and is left alone', 'b'],
      ['info', 'an upstream answers again and is used again', 'a'],
    ],
  );
  t.end();
});

void t.test("an upstream's Retry-After is kept to, a minute at most", (t) => {
  for (const [seconds, restMs] of [
    ['7', 7_000],
    ['60', 60_000],
    ['61', 60_000],
    ['3600', 60_000],
  ] as const) {
    const { balancer, clock } = balancerOf([target('a', 1, 1), target('b', 2, 1)]);
    balancer.take(NONE, ACCOUNT)!.releaseFailed(paused(seconds));
    t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'b');
    clock.ms += restMs - 1;
    t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'b');
    clock.ms += 1;
    t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'a', seconds);
  }
  const { balancer } = balancerOf([target('a', 1, 1, { breakerFailuresMax: 1 })]);
  const slow = balancer.take(NONE, ACCOUNT)!;
  balancer.take(NONE, ACCOUNT)!.releaseFailed(paused('9'));
  slow.releaseFailed(paused('2'));
  t.strictSame(
    balancer.cooldown(ACCOUNT),
    { waitMs: 5_000, reason: 'it asked for a pause' },
    'no longer where it is alone',
  );
  t.end();
});

void t.test(
  'the only upstream: one call asks again after park_max_ms, all follow where it is answered',
  (t) => {
    for (const [end, isOpen] of [
      ['releaseGood', true],
      ['recordResponseBegin', true],
      ['release', false],
      ['again', false],
    ] as const) {
      const { balancer, clock } = balancerOf([
        target('a', 1, 1, { breakerFailuresMax: 0, parkMsMax: 3_000 }),
      ]);
      balancer.take(NONE, ACCOUNT)!.releaseFailed(paused('60'));
      clock.ms += 2_999;
      t.equal(balancer.take(NONE, ACCOUNT), undefined);
      t.equal(balancer.cooldown(ACCOUNT).waitMs, 1);
      clock.ms += 1;
      const probe = balancer.take(NONE, ACCOUNT)!;
      t.equal(balancer.take(NONE, ACCOUNT), undefined, 'one call');
      if (end === 'again') probe.releaseFailed(paused('60'));
      else probe[end]();
      t.equal(balancer.isAnyLeft(NONE, ACCOUNT), isOpen || end === 'release', `after ${end}`);
      if (isOpen) t.ok(balancer.take(NONE, ACCOUNT) && balancer.take(NONE, ACCOUNT), 'as many as like');
    }
    const { balancer } = balancerOf([target('a', 1, 1, { parkMsMax: 0 })]);
    for (let count = 0; count < 10; count++) balancer.take(NONE, ACCOUNT)!.releaseFailed(paused('60'));
    t.ok(balancer.take(NONE, ACCOUNT), '0: never');
    t.end();
  },
);

void t.test('who has found out the end of one pause ends no later one', (t) => {
  for (const end of ['releaseGood', 'release'] as const) {
    const { balancer, clock } = balancerOf([target('a', 1, 1, { breakerFailuresMax: 0, parkMsMax: 3_000 })]);
    balancer.take(NONE, ACCOUNT)!.releaseFailed(paused('60'));
    clock.ms += 3_000;
    const probe = balancer.take(NONE, ACCOUNT)!;
    probe.recordResponseBegin();
    balancer.take(NONE, ACCOUNT)!.releaseFailed(paused('60'));
    probe[end]();
    t.equal(balancer.take(NONE, ACCOUNT), undefined, end);
    t.equal(balancer.cooldown(ACCOUNT).waitMs, 3_000);
  }
  t.end();
});

void t.test('the only upstream is asked again within 5 s, however long it was down', (t) => {
  const { balancer, clock } = balancerOf([
    target('a', 1, 1, { breakerFailuresMax: 1 }),
    target('b', 2, 1, { breakerFailuresMax: 1 }),
  ]);
  balancer.take(NONE, ACCOUNT)!.releaseFailed(bad);
  balancer.take(NONE, ACCOUNT)!.releaseFailed(bad);
  for (let count = 0; count < 20; count++) {
    clock.ms += balancer.cooldown(ACCOUNT).waitMs;
    balancer.take(NONE, ACCOUNT)!.releaseFailed(bad);
    t.ok(balancer.cooldown(ACCOUNT).waitMs <= 5_000, `after ${count} probes`);
  }
  clock.ms += 5_000;
  balancer.take(NONE, ACCOUNT)!.releaseGood();
  // One of them is back: the other rests as long as it is worth.
  const found = balancer.take(NONE, ACCOUNT)!.target.name;
  clock.ms += 5_000;
  t.equal(balancer.take(NONE, ACCOUNT)!.target.name, found);
  t.end();
});

void t.test('an operator closes breakers, of one slot or of all', (t) => {
  const { balancer, log } = balancerOf([
    target('a', 1, 1, { breakerFailuresMax: 1, slot: 1 }),
    target('b', 2, 1, { breakerFailuresMax: 1, slot: 2 }),
    target('c', 3, 1, { slot: 3 }),
  ]);
  const old = balancer.take(NONE, ACCOUNT)!;
  balancer.take(NONE, ACCOUNT)!.releaseFailed(bad);
  balancer.take(NONE, ACCOUNT)!.releaseFailed(bad);
  balancer.take(NONE, ACCOUNT)!.releaseFailed(paused('60'));
  t.equal(balancer.take(NONE, ACCOUNT), undefined);
  balancer.reset(2);
  t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'b');
  balancer.reset(undefined);
  t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'a');
  t.equal(balancer.take([0, 1], ACCOUNT)?.target.name, 'c');
  old.releaseFailed(bad);
  t.equal(balancer.take(NONE, ACCOUNT)?.target.name, 'a', 'what calls of before say is not heard');
  t.equal(log.lines.filter(({ message }) => message.includes('answers again')).length, 2);
  t.end();
});

void t.test(
  'small worlds: whatever comes, somebody is asked within 5 s, and resting ones only by one call',
  (t) => {
    const EVENTS = ['good', 'bad', 'pause', 'leave', 'stream', '1 s', '4 s', '30 s'] as const;
    const DEPTH = 4;
    let worlds = 0;
    const metrics = new UpstreamMetrics(createMetrics(1, 1), 0);
    const faults: string[] = [];
    const sequences = EVENTS.length ** DEPTH;
    for (const size of [1, 2])
      for (const parkMsMax of [0, 5_000])
        for (const breakerFailuresMax of [0, 1])
          for (let number = 0; number < sequences; number++) {
            const targets = Array.from({ length: size }, (_, index) =>
              target('ab'[index]!, 1 + index, 1, { parkMsMax, breakerFailuresMax, slot: index }),
            );
            const clock = new HeldClock();
            const balancer = new Balancer(targets, {
              clock,
              log: new FakeLog(),
              metrics,
              quotas: NO_QUOTAS,
            });
            const story: string[] = [];
            for (let rest = number, step = 0; step < DEPTH; step++, rest = Math.floor(rest / EVENTS.length)) {
              const event = EVENTS[rest % EVENTS.length]!;
              story.push(event);
              if (event.endsWith(' s')) clock.ms += Number.parseInt(event) * 1_000;
              else {
                const taken = balancer.take(NONE, ACCOUNT);
                if (event === 'good') taken?.releaseGood();
                else if (event === 'bad') taken?.releaseFailed(bad);
                else if (event === 'pause') taken?.releaseFailed(paused('60'));
                else if (event === 'leave') taken?.release();
                // And a stream goes on to the end of the world.
              }
              const { waitMs } = balancer.cooldown(ACCOUNT);
              const isLeft = balancer.isAnyLeft(NONE, ACCOUNT);
              const fault =
                waitMs > 5_000
                  ? `nobody for ${waitMs} ms`
                  : isLeft !== (waitMs === 0)
                    ? `a rest of ${waitMs} ms, and ${isLeft ? 'one' : 'none'} is left`
                    : parkMsMax === 0 && breakerFailuresMax === 0 && !isLeft
                      ? 'rests though it is never to'
                      : undefined;
              if (fault !== undefined)
                faults.push(`${size} ${parkMsMax} ${breakerFailuresMax}: ${story.join()}: ${fault}`);
            }
            worlds++;
          }
    t.strictSame(faults.slice(0, 5), [], `${faults.length} faults in ${worlds} worlds`);
    t.comment(`${worlds} worlds`);
    t.end();
  },
);

void t.test('waiting for a connection of our own number is no failure of the upstream', (t) => {
  const { balancer } = balancerOf([target('a', 1, 1, { breakerFailuresMax: 1 })]);
  const fault = { code: 'TIMEOUT_QUEUE', message: '', repeatable: true };
  balancer.take(NONE, ACCOUNT)!.releaseFailed(connectionFailure(fault));
  t.ok(balancer.take(NONE, ACCOUNT));
  balancer.take(NONE, ACCOUNT)!.releaseFailed(connectionFailure({ ...fault, code: 'TIMEOUT_CONNECT' }));
  t.equal(balancer.take(NONE, ACCOUNT), undefined);
  t.end();
});

void t.test('a model without an upstream is a bug', (t) => {
  t.throws(() => balancerOf([]), /has an upstream/);
  t.end();
});

void t.test('attempts, calls in flight and the breaker are told to the metrics', (t) => {
  const { balancer, clock, reader } = balancerOf([
    target('a', 1, 1, { slot: 5, breakerFailuresMax: 1 }),
    target('b', 2, 1, { slot: 6 }),
  ]);
  const breaker = () => [...reader.upstream(5).breakers].find(([, workers]) => workers > 0)?.[0];
  const failing = balancer.take(NONE, ACCOUNT)!;
  balancer.take([0], ACCOUNT, 0, 'further');
  t.match(reader.upstream(5), { attempts: 1, retries: 0, callsInFlight: 1 });
  t.match(reader.upstream(6), { attempts: 1, retries: 1, callsInFlight: 1 });
  t.equal(breaker(), 'closed');
  failing.releaseFailed(bad);
  t.equal(reader.upstream(5).callsInFlight, 0);
  t.equal(breaker(), 'open');
  clock.ms += 1_999;
  t.equal(breaker(), 'open');
  clock.ms += 1;
  t.equal(breaker(), 'half_open', 'the next call probes');
  const probe = balancer.take(NONE, ACCOUNT)!;
  t.equal(breaker(), 'half_open');
  probe.releaseGood();
  t.equal(breaker(), 'closed');
  t.end();
});

void t.test('slots go by name: a reload that passes a name on passes no breaker on with it', (t) => {
  const first = target('host', 1, 1, { breakerFailuresMax: 1, key: 'one', slot: 0 });
  const second = target('host#2', 1, 1, { breakerFailuresMax: 1, key: 'two', slot: 1 });
  const { balancer, reader } = balancerOf([first, second]);
  const state = (slot: number): string =>
    [...reader.upstream(slot).breakers].find(([, workers]) => workers > 0)?.[0] ?? 'none';
  balancer.take([1], ACCOUNT)!.releaseFailed(bad);
  t.same([state(0), state(1)], ['open', 'closed']);
  const running = balancer.take([], ACCOUNT)!;
  t.equal(running.target.key, 'two');
  balancer.replace([{ ...second, name: 'host', slot: 0 }]);
  t.equal(state(0), 'closed', 'it has the name of the one that was removed, and its own breaker');
  // Back, with the other order of the two: the second one's call fails, which has the first one's slot.
  balancer.replace([
    { ...second, name: 'host', slot: 0 },
    { ...first, name: 'host#2', slot: 1 },
  ]);
  running.releaseFailed(bad);
  t.same([state(0), state(1)], ['open', 'closed']);
  balancer.replace([{ ...first, slot: 0 }]);
  t.equal(state(0), 'closed');
  t.end();
});

void t.test('an upstream that a reload has renamed is logged by its new name', (t) => {
  const first = target('old', 1, 1, { breakerFailuresMax: 1 });
  const { balancer, log } = balancerOf([first]);
  balancer.replace([{ ...first, name: 'new' }]);
  balancer.take(NONE, ACCOUNT)!.releaseFailed(bad);
  balancer.reset(undefined);
  t.same(
    log.lines.map(({ fields }) => fields.subject),
    ['new', 'new'],
  );
  t.end();
});

void t.test('a call that still runs at a removed upstream says nothing of the next one in its slot', (t) => {
  const first = target('host', 1, 1, { breakerFailuresMax: 1, key: 'one', slot: 0 });
  const second = target('host#2', 1, 1, { breakerFailuresMax: 1, key: 'two', slot: 1 });
  const { balancer, reader } = balancerOf([first, second]);
  const running = balancer.take([1], ACCOUNT)!;
  balancer.replace([{ ...second, name: 'host', slot: 0 }]);
  running.releaseFailed(bad);
  t.equal(reader.upstream(0).breakers.get('open'), 0);
  t.equal(reader.upstream(0).breakers.get('closed'), 1);
  t.end();
});

void t.test('the limits that a call waits for are those of the upstreams that could serve it', (t) => {
  const quotasOf = (scope: number, tokensPerMinute: number | undefined): TargetQuotas => ({
    scope: asUpstreamScopeIndex(scope),
    limits: { requestsPerMinute: 1_000_000, tokensPerMinute, callsInFlight: undefined },
    queueMs: 0,
  });
  const targets = [
    target('a', 1, 1, { quotas: quotasOf(1, 50) }),
    target('b', 1, 1, { quotas: quotasOf(2, undefined) }),
    target('c', 2, 1),
    target('d', 2, 1, { quotas: quotasOf(1, 50), parkMsMax: 5_000 }),
  ];
  const subsets = Array.from({ length: 16 }, (_, bits) => [0, 1, 2, 3].filter((at) => bits & (1 << at)));
  const clock = new HeldClock();
  const metrics = new UpstreamMetrics(createMetrics(1, 1), 0);
  const quotas = upstreamQuotas(clock);
  let served = 0;
  for (const tried of subsets)
    for (const resting of subsets)
      for (const waitedMs of [0, 5_000])
        for (const tokens of [10, 51]) {
          const balancer = new Balancer(targets, { clock, log: new FakeLog(), metrics, quotas });
          for (const at of resting) {
            const others = [0, 1, 2, 3].filter((other) => other !== at);
            balancer.take(others, ACCOUNT)!.releaseFailed(paused('60'));
          }
          clock.ms += waitedMs;
          const scopes: number[] = balancer.limitsOf(tried, ACCOUNT, tokens).map(({ scope }) => scope);
          const wanted: number[] = [];
          let isFree = false;
          for (let passed = tried; ;) {
            const taken = balancer.take(passed, ACCOUNT, tokens);
            if (taken === undefined) break;
            passed = [...passed, taken.index];
            taken.settle(0);
            if (taken.target.quotas !== undefined) wanted.push(taken.target.quotas.scope);
            else isFree = true;
          }
          served += wanted.length;
          // One without limits serves the call at once.
          if (isFree) wanted.length = 0;
          const [found, expected] = [scopes, wanted].map((list) => list.sort().join(' '));
          if (found !== expected)
            t.fail(JSON.stringify({ tried, resting, waitedMs, tokens, found, expected }));
        }
  t.ok(served > 500);
  t.end();
});
