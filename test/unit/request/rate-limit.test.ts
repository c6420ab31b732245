import t from 'tap';
import type { LeaseChannel, LeaseEnd } from '#src/channel/lease-channel.js';
import { asWallMs } from '#src/core/units.js';
import type { ListenerContext } from '#src/request/context.js';
import { limitRate, passRateLimit } from '#src/request/rate-limit.js';
import { knownCaller, openHouse } from './support.js';

void t.test('the minute: what is left, and a refusal that says when', (t) => {
  const house = openHouse();
  const take = () => {
    const context = knownCaller(house);
    return { rejection: limitRate(context, house.listener), limit: context.rateLimit! };
  };
  t.match(take(), { rejection: undefined, limit: { limit: 2, remaining: 1 } });
  t.match(take(), { rejection: undefined, limit: { limit: 2, remaining: 0 } });
  const { rejection, limit } = take();
  t.match(rejection, { code: 'rate_limit_exceeded' });
  t.equal(limit.remaining, 0);
  const seconds = rejection!.retryAfterSeconds!;
  t.match(rejection!.message, `Retry after ${seconds} seconds`);
  t.ok(seconds >= 60 && seconds <= 62, `${seconds} s`);

  const resetMs = limit.resetSeconds * 1_000 - house.clock.wallMs();
  for (const [what, waitMs] of [
    ['Retry-After', seconds * 1_000],
    ['X-RateLimit-Reset', resetMs],
  ] as const) {
    house.clock.nowMs = waitMs;
    const next = knownCaller(house);
    t.equal(limitRate(next, house.listener), undefined, `whoever waits for ${what} is admitted`);
  }
  t.end();
});

void t.test('a body that has come waits for its lease, and its client is not waited for', async (t) => {
  for (const size of ['onBody', 'onLargeBody', 'onTooLarge'] as const) {
    const house = openHouse();
    let granted = false;
    let reply = (_: LeaseEnd): void => undefined;
    const take = { remaining: 0, resetWallMs: asWallMs(house.clock.wallMs() + 60_000), mayAskForMore: true };
    const listener = {
      ...house.listener,
      ledger: { minute: { take: () => ({ ...take, admitted: granted }) }, groupOf: () => undefined },
      leases: { ask: () => new Promise<LeaseEnd>((resolve) => (reply = resolve)) } as unknown as LeaseChannel,
    } as unknown as ListenerContext;
    const events: string[] = [];
    const intake = {
      isOver: false,
      takeIdempotencyKey: () => undefined,
      stopReading: () => events.push('stopReading'),
      reject: () => events.push('reject'),
      onBody: () => events.push('onBody'),
      onLargeBody: () => events.push('onLargeBody'),
      onTooLarge: () => events.push('onTooLarge'),
    };
    const context = knownCaller(house);
    const receiver = passRateLimit(intake, context, undefined, undefined, listener)!;
    t.same(events, [], 'the body is read meanwhile');
    if (size === 'onBody') receiver.onBody(Buffer.from('{}'));
    else if (size === 'onLargeBody') receiver.onLargeBody([Buffer.from('{}')]);
    else receiver.onTooLarge('read');
    t.same(events, ['stopReading'], 'no sweep takes the client for idle');
    granted = true;
    reply('try');
    await new Promise((resolve) => setImmediate(resolve));
    t.same(events, ['stopReading', size]);
    t.equal(context.asksLease, false, 'it has what it asked for');
  }
});
