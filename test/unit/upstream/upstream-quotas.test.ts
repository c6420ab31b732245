/** Limits that are shared with other processes: who asks the coordinator, how often, and what follows. */
import t from 'tap';
import type { LeaseAsk, LeaseEnd } from '#src/channel/lease-channel.js';
import type { Clock } from '#src/core/clock.js';
import { asAccountIndex, asMonotonicMs, asUpstreamScopeIndex, asWallMs } from '#src/core/units.js';
import { createUpstreamBuffers, UpstreamCounters, UpstreamLeases } from '#src/ledger/upstream-counters.js';
import type { TargetQuotas } from '#src/upstream/target.js';
import { ASK_MS, UpstreamQuotas } from '#src/upstream/upstream-quotas.js';

class HeldClock implements Clock {
  ms = 1_000_000;
  monotonicMs = () => asMonotonicMs(this.ms);
  wallMs = () => asWallMs(this.ms);
}

const SCOPE = asUpstreamScopeIndex(5);
const QUOTAS: TargetQuotas = {
  scope: SCOPE,
  limits: { requestsPerMinute: 100, tokensPerMinute: 1_000, callsInFlight: 10 },
  queueMs: 0,
};

function world() {
  const clock = new HeldClock();
  const buffers = createUpstreamBuffers(1, { isShared: true });
  const lows: number[] = [];
  const counters = new UpstreamCounters(buffers, clock, 0, (scope) => void lows.push(scope));
  const asks: (LeaseAsk & { reply: (end: LeaseEnd) => void })[] = [];
  const ask = (lease: LeaseAsk): Promise<LeaseEnd> =>
    new Promise((reply) => void asks.push({ ...lease, reply }));
  const quotas = new UpstreamQuotas(counters, clock, { ask });
  const leases = new UpstreamLeases(buffers, clock);
  const grant = (permits: number, tokens: bigint, calls: bigint): void => {
    leases.minute.addMinute(SCOPE, clock.ms + 5_000, permits, 0, clock.ms);
    leases.stockOf(SCOPE, 'tokens_per_minute').add(0, tokens, tokens / 4n);
    leases.stockOf(SCOPE, 'calls_in_flight').add(0, calls, 0n);
  };
  return { clock, counters, quotas, leases, asks, lows, grant };
}

const REFUSED: LeaseEnd = { refused: [] };
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

void t.test('one ask a scope at a time, and a pause after a refusal', async (t) => {
  const { clock, quotas, asks, grant } = world();
  t.equal(quotas.take(QUOTAS, 50, 'call'), undefined);
  t.equal(quotas.take(QUOTAS, 60, 'call'), undefined);
  t.equal(asks.length, 1);
  t.same(asks[0]!.scopes, [{ kind: 'upstream', index: SCOPE }]);
  t.same(asks[0]!.need, { kind: 'upstream', tokens: 50 });
  t.match(quotas.shortageOf(QUOTAS, 50), { mayBeGranted: true });
  asks[0]!.reply(REFUSED);
  await turn();
  t.match(quotas.shortageOf(QUOTAS, 50), { mayBeGranted: false }, 'the coordinator has replied');
  t.equal(quotas.take(QUOTAS, 50, 'call'), undefined);
  t.equal(asks.length, 1);
  clock.ms += 300;
  t.equal(quotas.take(QUOTAS, 50, 'call'), undefined);
  t.equal(asks.length, 2);
  grant(2, 100n, 2n);
  asks[1]!.reply('try');
  await turn();
  t.ok(quotas.take(QUOTAS, 50, 'call'));
});

void t.test('what was granted is taken, settled, and told when it runs low', (t) => {
  const { counters, quotas, leases, asks, lows, grant } = world();
  grant(3, 400n, 3n);
  const hold = quotas.take(QUOTAS, 350, 'call')!;
  t.ok(hold);
  t.same(lows, [SCOPE], 'less than a quarter of the tokens is left');
  t.equal(quotas.take(QUOTAS, 100, 'call'), undefined);
  t.equal(asks.length, 1);
  hold.settle(10);
  hold.giveBackCall();
  t.match(leases.stockOf(SCOPE, 'tokens_per_minute').read(), { used: 10n, available: 390n });
  t.match(leases.stockOf(SCOPE, 'calls_in_flight').read(), { used: 0n, available: 3n });
  t.same(
    counters.useOf(SCOPE, QUOTAS.limits).map(({ used }) => used),
    [1, 10, 0],
    'what this process uses',
  );
  t.end();
});

void t.test('what can never fit is not asked for', (t) => {
  const { quotas, asks } = world();
  t.equal(quotas.take(QUOTAS, 1_001, 'call'), undefined);
  t.match(quotas.shortageOf(QUOTAS, 1_001), { freeInMs: Infinity, mayBeGranted: false });
  t.equal(quotas.isFull(QUOTAS, 1_001), true);
  t.equal(quotas.isFull(QUOTAS, 1_000), false);
  t.equal(asks.length, 0);
  t.end();
});

void t.test('only after a refusal is a caller told that the limit is used up', async (t) => {
  const { clock, quotas, asks } = world();
  const take = (): unknown => quotas.take(QUOTAS, 50, 'call');
  const isUnknown = (): boolean => quotas.shortageOf(QUOTAS, 50).isUnknown;
  take();
  t.equal(isUnknown(), true, 'no reply yet');
  for (const [end, unknown] of [
    ['late', true],
    [REFUSED, false],
    ['lost', true],
    [{ lostForMs: 5_000 }, true],
    [REFUSED, false],
    // As much as was lacking has come, and others have taken it first.
    ['try', true],
  ] as const) {
    asks.at(-1)!.reply(end);
    await turn();
    t.equal(isUnknown(), unknown, JSON.stringify(end));
    clock.ms += 300;
    take();
    t.equal(isUnknown(), unknown, 'until the next reply');
  }
  asks.at(-1)!.reply(REFUSED);
  await turn();
  clock.ms += 300;
  take();
  clock.ms += ASK_MS - 1;
  t.equal(isUnknown(), false);
  clock.ms += 1;
  t.equal(isUnknown(), true, 'if that takes too long, the refusal is too old');
});

void t.test('a call that finds room while others wait has its turn after them', (t) => {
  const { quotas, asks, grant } = world();
  const minuteAlone = { ...QUOTAS, limits: { ...QUOTAS.limits, callsInFlight: undefined } };
  quotas.take(minuteAlone, 50, 'call');
  const served: string[] = [];
  quotas.queue.add({
    account: asAccountIndex(1),
    bytes: 0,
    isLate: () => false,
    waitsFor: () => [SCOPE],
    tryNow: () => {
      if (quotas.take(minuteAlone, 50, 'queue') === undefined) return false;
      served.push('the call that waits');
      return true;
    },
    giveUp: () => undefined,
  });
  // The main thread writes a lease before it replies.
  grant(9, 1_000n, 9n);
  t.equal(quotas.take(minuteAlone, 50, 'call'), undefined, 'nobody overtakes');
  t.match(quotas.shortageOf(minuteAlone, 50), { quota: undefined, mayBeGranted: true, isUnknown: true });
  t.equal(asks.length, 1);
  quotas.queue.sweep();
  t.same(served, ['the call that waits']);
  t.ok(quotas.take(minuteAlone, 50, 'call'));
  t.end();
});

void t.test('full is what the coordinator has just said, not what it was not asked for', async (t) => {
  const { clock, quotas, asks, grant } = world();
  t.equal(quotas.isFull(QUOTAS, 50), false, 'nobody has asked');
  quotas.take(QUOTAS, 50, 'call');
  t.equal(quotas.isFull(QUOTAS, 50), false, 'the coordinator has not replied');
  asks[0]!.reply(REFUSED);
  await turn();
  t.equal(quotas.isFull(QUOTAS, 50), true);
  clock.ms += 300;
  t.equal(quotas.isFull(QUOTAS, 50), false, 'it would be asked again');
  quotas.take(QUOTAS, 50, 'call');
  asks[1]!.reply(REFUSED);
  await turn();
  grant(2, 100n, 2n);
  t.equal(quotas.isFull(QUOTAS, 50), false, 'it was granted meanwhile');
});
