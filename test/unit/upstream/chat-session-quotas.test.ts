/** Calls on upstreams with limits: who is asked, who waits, what is given back. */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { UpstreamCounters } from '#src/ledger/upstream-counters.js';
import { asAccountIndex, asMonotonicMs, asUpstreamScopeIndex, asWallMs } from '#src/core/units.js';
import type { TargetQuotas, UpstreamTarget } from '#src/upstream/target.js';
import { answerOf, USAGE, type Script } from '../../fixtures/upstream-server.js';
import { answering, failing, turn, world } from '../../fixtures/upstream-world.js';

/** Moves on with the process, and further if a test says so. */
class SteppedClock implements Clock {
  ahead = 1_000;
  monotonicMs = () => asMonotonicMs(performance.now() + this.ahead);
  wallMs = () => asWallMs(Math.floor(performance.now() + this.ahead));
}

const good = answering(answerOf(USAGE));
const NONE = { requestsPerMinute: undefined, tokensPerMinute: undefined, callsInFlight: undefined };
const limited = (scope: number, limits: Partial<TargetQuotas['limits']>, queueMs = 0): TargetQuotas => ({
  scope: asUpstreamScopeIndex(scope),
  limits: { ...NONE, ...limits },
  queueMs,
});
const quotas = (...args: Parameters<typeof limited>): Partial<UpstreamTarget> => ({
  quotas: limited(...args),
});

const start = (
  t: Parameters<typeof world>[0],
  scripts: Parameters<typeof world>[1],
  changes: Partial<UpstreamTarget>,
) => {
  const clock = new SteppedClock();
  return world(t, scripts, undefined, changes, clock).then((made) => ({ ...made, clock }));
};

void t.test('no room and no time to wait: 503, and the seconds after which there is room', async (t) => {
  const { run, upstreams, clock } = await start(t, [good], quotas(0, { requestsPerMinute: 2 }));
  await run();
  await run();
  const { error, queuedMs } = await run();
  t.match(error, { code: 'overloaded', message: /requests_per_minute/ });
  const seconds = error?.retryAfterSeconds ?? 0;
  t.ok(seconds >= 59 && seconds <= 62, `${seconds} s`);
  t.ok(queuedMs <= 1_000);
  clock.ahead += seconds * 1_000;
  t.equal((await run()).error, undefined, 'then a call passes');
  t.equal(upstreams[0]!.requests.length, 3);
});

void t.test('a call that waits is served when another ends; one that leaves is forgotten', async (t) => {
  const held: (() => void)[] = [];
  const script: Script = (request, response, body) => void held.push(() => good(request, response, body));
  const { call, upstreams } = await start(t, [script], quotas(0, { callsInFlight: 1 }, 60_000));
  const first = call();
  while (held.length === 0) await turn();
  const leaver = call({ account: asAccountIndex(7) });
  const second = call();
  const third = call({ account: asAccountIndex(7) });
  leaver.session.onCancel();
  t.equal(leaver.downstream.error?.code, 'internal_error', 'left before a provider was asked');
  await turn();
  t.equal(upstreams[0]!.requests.length, 1);
  held.shift()!();
  await first.downstream.ended;
  while (held.length === 0) await turn();
  t.equal(upstreams[0]!.requests.length, 2);
  held.shift()!();
  while (held.length === 0) await turn();
  t.equal(upstreams[0]!.requests.length, 3, 'one at a time');
  held.shift()!();
  await Promise.all([second.downstream.ended, third.downstream.ended]);
  t.same(
    [first, second, third].map(({ downstream }) => downstream.error),
    [undefined, undefined, undefined],
  );
  t.ok(second.downstream.queuedMs > 0, 'how long it waited is told');
  t.equal(first.downstream.queuedMs, 0);
});

void t.test('tokens: failures give back, a cut connection keeps what it may have used', async (t) => {
  let script: Script = failing(500);
  const { run } = await start(
    t,
    [(request, response, body) => script(request, response, body)],
    // The call may use some 16,450.
    quotas(0, { tokensPerMinute: 17_000 }),
  );
  t.equal((await run()).error?.code, 'provider_unavailable');
  script = failing(429);
  t.equal((await run()).error?.code, 'provider_unavailable');
  script = good;
  const { usage } = await run();
  t.same(usage && usage.promptTokens + usage.completionTokens, 10);
  t.equal((await run()).error, undefined, 'only what was used counts');
  script = (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 });
    response.write('{"id":');
    setTimeout(() => response.destroy(), 10);
  };
  t.equal((await run()).error?.code, 'provider_unavailable');
  script = good;
  const rejected = (await run()).error;
  t.match(rejected, { code: 'overloaded', message: /tokens_per_minute/ });
  t.equal((await run({ outputTokensMax: 400 })).error, undefined, 'a smaller one fits');
  const beyond = (await run({ choices: 2 })).error;
  t.match(beyond, { code: 'invalid_parameters', message: /17000 a minute/ });
});

void t.test(
  'the next upstream takes what the first has no room for, and a retry takes from its own',
  async (t) => {
    const { run, upstreams } = await start(
      t,
      [failing(500), good],
      // Both have a limit of their own below.
      {},
    );
    t.equal((await run()).error, undefined);
    t.same(
      upstreams.map(({ requests }) => requests.length),
      [1, 1],
    );
    const pooled = await start(t, [good, good], quotas(3, { requestsPerMinute: 3 }));
    for (let n = 0; n < 3; n++) t.equal((await pooled.run()).error, undefined);
    t.equal((await pooled.run()).error?.code, 'overloaded', 'both are one scope');
    t.equal(pooled.upstreams[0]!.requests.length, 3);
  },
);

void t.test('a limit that a reload takes away holds up nobody', async (t) => {
  const { call, routes } = await start(t, [good], quotas(0, { requestsPerMinute: 1 }, 60_000));
  await call().downstream.ended;
  const waits = call();
  routes.replace([
    { ...routes.routeOf(0), targets: [{ ...routes.routeOf(0).targets[0]!, quotas: undefined }] },
  ]);
  await waits.downstream.ended;
  t.equal(waits.downstream.error, undefined);
});

void t.test('the limits are looked at once or twice a look, however many calls wait', async (t) => {
  const held: (() => void)[] = [];
  const script: Script = (request, response, body) => void held.push(() => good(request, response, body));
  const { call } = await start(t, [script], quotas(0, { callsInFlight: 1 }, 60_000));
  const first = call();
  while (held.length === 0) await turn();
  const waiting = Array.from({ length: 300 }, (_, n) => call({ account: asAccountIndex(n % 7) }));
  const counters = UpstreamCounters.prototype;
  // oxlint-disable-next-line typescript/unbound-method -- it is called with its own object
  const checks = t.capture(counters, 'shortageOf', counters.shortageOf);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const count = checks().length;
  t.ok(count > 0 && count < 30, `${count} checks`);
  held.shift()!();
  await first.downstream.ended;
  while (held.length === 0) await turn();
  const more = checks().length;
  t.ok(more < 30, `${more} checks`);
  for (const { session } of waiting) session.onCancel();
});

void t.test('a limit that is not short is not named', async (t) => {
  const held: (() => void)[] = [];
  const script: Script = (request, response, body) => void held.push(() => good(request, response, body));
  const waits = quotas(0, { tokensPerMinute: 17_000, callsInFlight: 40 }, 60_000);
  const { call, run, routes } = await start(t, [script], waits);
  // Each may use some 16,450 tokens.
  call();
  const second = call();
  await turn();
  routes.replace([
    {
      ...routes.routeOf(0),
      targets: [{ ...routes.routeOf(0).targets[0]!, quotas: { ...waits.quotas!, queueMs: 0 } }],
    },
  ]);
  const { error } = await run({ outputTokensMax: 10 });
  t.match(error, { code: 'overloaded' });
  t.notMatch(error?.message, /calls_in_flight/, 'it waits behind a call for which tokens are short');
  second.session.onCancel();
});
