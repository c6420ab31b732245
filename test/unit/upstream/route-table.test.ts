/**
 * Routes replaced while calls run: what is known of upstreams that stay is kept, changed ones are met afresh.
 */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { asAccountIndex, asMonotonicMs, asWallMs } from '#src/core/units.js';
import { invalidResponseFailure, statusFailure } from '#src/upstream/error-mapping.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import { UpstreamMetrics } from '#src/telemetry/metrics-writers.js';
import { RouteTable } from '#src/upstream/route-table.js';
import type { ModelRoute, UpstreamTarget } from '#src/upstream/target.js';
import { FakeLog, targetOf, upstreamQuotas } from '../../fixtures/upstream-server.js';

const CLOCK: Clock = { monotonicMs: () => asMonotonicMs(1_000), wallMs: () => asWallMs(0) };
const NONE: readonly number[] = [];
const ACCOUNT = asAccountIndex(0);

const target = (name: string, changes: Partial<UpstreamTarget> = {}): UpstreamTarget =>
  targetOf(`http://${name}`, { name, ...changes });
const routeOf = (...targets: UpstreamTarget[]): ModelRoute => ({
  id: 'm',
  ownedBy: 'o',
  tokenizer: 'none',
  outputTokensMax: 16_384,
  mediaPartTokens: 0,
  fallbackOn: [],
  targets,
});
const tableOf = (...routes: ModelRoute[]): RouteTable =>
  new RouteTable(routes, {
    clock: CLOCK,
    log: new FakeLog(),
    metrics: new UpstreamMetrics(createMetrics(1, 1), 0),
    quotas: upstreamQuotas(CLOCK),
  });

void t.test('calls in flight, breakers and pauses outlive a change of weight, priority or time', (t) => {
  const table = tableOf(
    routeOf(target('busy'), target('broken', { breakerFailuresMax: 1 }), target('paused')),
  );
  const balancer = table.balancerOf(0);
  const [busy, broken, paused] = [
    balancer.take(NONE, ACCOUNT)!,
    balancer.take([0], ACCOUNT)!,
    balancer.take([0, 1], ACCOUNT)!,
  ];
  broken.releaseFailed(invalidResponseFailure('x'));
  paused.releaseFailed(statusFailure(429, '30', asWallMs(0)));
  table.replace([
    routeOf(
      target('paused', { weight: 9 }),
      target('broken', { breakerFailuresMax: 1, idleTimeoutMs: 9 }),
      target('busy', { priority: 2 }),
      target('new', { priority: 3 }),
    ),
  ]);
  t.equal(table.balancerOf(0), balancer, 'a call that runs tries further upstreams of the new list');
  t.equal(balancer.inFlight(busy.index), 1);
  const next = balancer.take(NONE, ACCOUNT)!;
  t.same([next.target.name, next.target.priority], ['busy', 2], 'the others rest, as before');
  t.equal(balancer.take([next.index], ACCOUNT)?.target.name, 'new');
  busy.release();
  t.equal(balancer.inFlight(busy.index), 1, 'the place of before was given back');
  t.end();
});

void t.test('another key, address, path, certificate or header: nothing is known of it', (t) => {
  const broken = target('a', { breakerFailuresMax: 1 });
  for (const changes of [
    { key: 'sk-other' },
    { origin: 'http://b' },
    { path: '/v2' },
    { ca: 'x' },
    { headers: { 'x-org': '1' } },
  ] as Partial<UpstreamTarget>[]) {
    const table = tableOf(routeOf(broken));
    const balancer = table.balancerOf(0);
    const taken = balancer.take(NONE, ACCOUNT)!;
    taken.releaseFailed(invalidResponseFailure('x'));
    t.equal(balancer.take(NONE, ACCOUNT), undefined, 'it rests');
    table.replace([routeOf({ ...broken, ...changes })]);
    const tried = [taken.index];
    t.match(balancer.take(tried, ACCOUNT)?.target, changes, 'the call that failed there may try the new one');
    t.doesNotThrow(() => taken.release());
  }
  t.end();
});

void t.test('one upstream named twice stays two', (t) => {
  const table = tableOf(routeOf(target('a'), target('a')));
  const taken = [0, 1, 2].map(() => table.balancerOf(0).take(NONE, ACCOUNT)!.index);
  table.replace([routeOf(target('a'), target('a'), target('a'))]);
  const balancer = table.balancerOf(0);
  t.same(
    [0, 1, 2].map((index) => balancer.inFlight(index)),
    [2, 1, 0],
    String(taken),
  );
  t.end();
});

void t.test('a removed model still has its upstreams, which are not kept ready', (t) => {
  const old = target('old');
  const table = tableOf(routeOf(old), routeOf(target('b')));
  table.replace([{ ...routeOf(old), retired: true }, routeOf(target('b')), routeOf(target('c'))]);
  t.equal(table.balancerOf(0).take(NONE, ACCOUNT)?.target.name, 'old');
  t.equal(table.balancerOf(2).take(NONE, ACCOUNT)?.target.name, 'c');
  t.same(
    table.targets.map(({ name }) => name),
    ['b', 'c'],
  );
  t.end();
});

void t.test('a model keeps its index, or the routes are a bug', (t) => {
  const [first, second] = ['first', 'second'].map((id) => ({ ...routeOf(target('a')), id }));
  const table = tableOf(first!, second!);
  t.throws(() => table.replace([second!, first!]), /keeps its index/);
  t.throws(() => table.replace([first!]), /keeps its index/);
  t.equal(table.routeOf(1).id, 'second', 'the routes are as before');
  table.replace([first!, { ...second!, retired: true }, { ...first!, id: 'third' }]);
  t.equal(table.routeOf(2).id, 'third');
  for (const index of [3, -1, 0.5, NaN]) {
    t.throws(() => table.routeOf(index), /has the routes of all models/);
    t.throws(() => table.balancerOf(index), /has the routes of all models/);
  }
  t.end();
});
