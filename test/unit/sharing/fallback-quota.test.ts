/** The fallback quota of one scope has a part of each resource, and none of a resource that calls lack. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { LeaseReply, LeaseAsk } from '#src/sharing/coordinator.js';
import { FallbackQuota } from '#src/sharing/fallback-quota.js';

const SHARES = 2;
const DAY = 20_000;
const pico = asPicoUnits;

/** An ask of calls. */
const ASK: LeaseAsk = {
  scope: 'acct_a',
  limits: { requestsPerMinute: 60, callsPerDay: 1_000, callsInFlight: 0 },
  minute: { least: 1, most: 4, forMs: 2_000, returned: [] },
  day: { dayNumber: DAY, used: 0, unused: 0, least: 1, most: 4 },
  money: { outstanding: pico(0n), least: pico(10n), most: pico(40n) },
};

/** Grants what is asked for, and says how much is left then. */
function answerTo({ minute, day, money }: LeaseAsk, nowMs: number): LeaseReply {
  return {
    minute: {
      granted: minute!.most,
      remaining: 60 - minute!.most,
      heldByOthers: false,
      tick: Math.floor(nowMs / 1_000),
      validMs: 16_000,
      freeInMs: 0,
    },
    day: {
      granted: day!.most,
      remaining: 1_000 - day!.most,
      heldByOthers: false,
      dayNumber: DAY,
      endsInMs: 0,
    },
    money: { granted: money!.most, remaining: pico(100_000n - money!.most), heldByOthers: false },
  };
}

function filledQuota(): FallbackQuota {
  const quota = new FallbackQuota(ASK, SHARES, 0);
  quota.serve(ASK, answerTo(ASK, 0), 0);
  // The first response says how much there is.
  for (let count = 0; count < 2; count++) quota.take(answerTo(quota.ask(0, false), 0), 0);
  return quota;
}

void t.test('a part of each is set aside', (t) => {
  const quota = filledQuota();
  const { minute, day, money } = quota.grant(
    {
      ...ASK,
      minute: { ...ASK.minute!, most: 60 },
      day: { ...ASK.day!, most: 1_000 },
      money: { ...ASK.money!, most: pico(100_000n) },
    },
    DAY,
    1_000,
  );
  t.ok(minute!.count >= 10 && minute!.count <= 30, `${minute!.count} of 60`);
  t.equal(day!.count, 500);
  t.equal(money, 50_000n);
  t.end();
});

for (const lacked of ['minute', 'day', 'money'] as const) {
  void t.test(`calls lack ${lacked}: that is given back for a while, and nothing else`, (t) => {
    const quota = filledQuota();
    const answer = answerTo(ASK, 1_000);
    const none = { ...answer, [lacked]: { ...answer[lacked]!, granted: lacked === 'money' ? pico(0n) : 0 } };
    t.notOk(quota.serve(ASK, answer, 1_000), 'nothing is lacking');
    t.ok(quota.serve(ASK, none, 1_000), 'some of it is here');
    const ask = quota.ask(1_000, false);
    t.equal(ask.minute!.returned.length > 0, lacked === 'minute', 'permits are given back');
    t.equal(ask.day!.unused, lacked === 'day' ? 0 : 500);
    t.equal(ask.money!.outstanding, lacked === 'money' ? 0n : 50_000n);
    t.equal(ask[lacked]!.most, lacked === 'money' ? 0n : 0, 'and not asked for');
    quota.take(answerTo(ask, 1_000), 1_000);
    t.notOk(quota.serve(ASK, none, 1_500), 'there is none of it');
    quota.take(answerTo(quota.ask(4_000, false), 4_000), 4_000);
    t.ok(
      quota.ask(4_000, false)[lacked]!.most === (lacked === 'money' ? 0n : 0),
      'there is enough of it again',
    );
    t.ok(quota.serve(ASK, none, 5_000), 'as before');
    t.end();
  });
}
