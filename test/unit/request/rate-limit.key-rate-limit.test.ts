import t from 'tap';
import { limitRate } from '#src/request/rate-limit.js';
import { interruptAt } from '../../fixtures/ledger-world.js';
import type { ListenerContext } from '#src/request/context.js';
import { knownCaller, openHouse, type House } from './support.js';

const PERIOD_MS = 10_000;

/** Requests of a key with a limit of its own, on a plan with one of its own. */
function limitedHouse(
  ofKey: number,
  ofPlan: number,
): { house: House; ask: (listener?: ListenerContext) => Asked } {
  const house = openHouse();
  const limit = { requestsPerMinute: ofKey, callsPerDay: undefined };
  house.listener.ledger.keys.open(house.keyIndex, limit);
  const ask = (listener = house.listener): Asked => {
    const context = knownCaller(house, { requestsPerMinute: ofPlan }, limit);
    const rejection = limitRate(context, listener);
    return { rejection, ...context.rateLimit! };
  };
  return { house, ask };
}

interface Asked {
  readonly rejection: ReturnType<typeof limitRate>;
  readonly limit: number;
  readonly remaining: number;
  readonly resetSeconds: number;
}

const usedOf = ({ listener, account, keyIndex }: House) => ({
  key: listener.ledger.keys.countsOf(keyIndex).minuteUsed,
  account: listener.ledger.minute.usedOf(account),
});

void t.test('the tighter limit is told; a refusal by either has taken of neither', (t) => {
  const { house, ask } = limitedHouse(2, 5);
  t.match(ask(), { rejection: undefined, limit: 2, remaining: 1 });
  t.match(ask(), { rejection: undefined, limit: 2, remaining: 0 });
  const refused = ask();
  t.match(refused, { rejection: { code: 'rate_limit_exceeded' }, limit: 2, remaining: 0 });
  t.match(refused.rejection!.message, /^This key allows 2 requests per minute .* Retry after 6\d seconds\.$/);
  t.same(usedOf(house), { key: 2, account: 2 });

  // Another key of the account uses the plan's up.
  const others = Array.from({ length: 3 }, () =>
    limitRate(knownCaller(house, { requestsPerMinute: 5 }), house.listener),
  );
  t.same(others, [undefined, undefined, undefined]);
  t.match(
    ask(),
    { rejection: { message: /^The plan plan allows/ }, limit: 5 },
    'where both are full alike, the plan is told',
  );
  t.same(usedOf(house), { key: 2, account: 5 });
  t.end();
});

void t.test('a full plan refuses a key that has permits left, and takes none of them', (t) => {
  const { house, ask } = limitedHouse(5, 2);
  t.match(ask(), { rejection: undefined, limit: 2, remaining: 1 }, 'the plan is the tighter one');
  t.match(ask(), { rejection: undefined, limit: 2, remaining: 0 });
  for (let n = 0; n < 3; n++)
    t.match(ask(), { rejection: { message: /^The plan plan allows 2 / }, limit: 2 });
  t.same(usedOf(house), { key: 2, account: 2 });
  t.end();
});

void t.test('where both refuse, whoever waits for what is told is admitted', (t) => {
  const { house, ask } = limitedHouse(1, 2);
  limitRate(knownCaller(house, { requestsPerMinute: 2 }), house.listener);
  house.clock.nowMs += PERIOD_MS;
  t.equal(ask().rejection, undefined);
  const refused = ask();
  t.match(refused, { rejection: { message: /^This key allows 1 / }, limit: 1 }, 'the later of both resets');
  house.clock.nowMs += refused.rejection!.retryAfterSeconds! * 1_000;
  t.equal(ask().rejection, undefined);
  t.end();
});

void t.test('whenever another thread takes the last permit, neither limit is exceeded', (t) => {
  for (const [ofKey, ofPlan] of [
    [1, 5],
    [5, 1],
    [1, 1],
  ] as const) {
    let lost = 0;
    for (let step = 0; ; step++) {
      const { house, ask } = limitedHouse(ofKey, ofPlan);
      const other = house.ofAnotherThread();
      const answers: Asked[] = [];
      const reached = interruptAt(
        step,
        () => answers.push(ask()),
        () => answers.push(ask(other)),
      );
      if (!reached) {
        t.ok(step > 5, 'all steps were tried');
        break;
      }
      const admitted = answers.filter(({ rejection }) => rejection === undefined).length;
      t.equal(admitted, 1, `${ofKey} and ${ofPlan}, step ${step}: one of the two`);
      const used = usedOf(house);
      t.equal(used.account, 1, 'nothing of the account is lost');
      // Between the look at the account and the taking from it: the file says why.
      const lostMost = ofPlan < ofKey ? 1 : 0;
      t.ok(used.key >= 1 && used.key <= 1 + lostMost, `at most ${lostMost} of the key`);
      lost += used.key - 1;
    }
    t.comment(`${ofKey} and ${ofPlan}: ${lost} permits of the key lost over all steps`);
  }
  t.end();
});
