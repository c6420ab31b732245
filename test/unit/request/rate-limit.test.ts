import t from 'tap';
import { limitRate } from '#src/request/rate-limit.js';
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
