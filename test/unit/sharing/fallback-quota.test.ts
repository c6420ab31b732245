/** The fallback quota of one scope has a part of each resource, and none of a resource that calls lack. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { LeaseReply } from '#src/sharing/coordinator.js';
import { FallbackQuota } from '#src/sharing/fallback-quota.js';
import { askOf, type PlainAsk } from '../../support/plain-asks.js';

const SHARES = 2;
const DAY = 20_000;
const pico = asPicoUnits;

/** An ask of calls. */
const PLAIN: PlainAsk = {
  scope: 'acct_a',
  limits: { requestsPerMinute: 60, callsPerDay: 1_000 },
  minute: { least: 1, most: 4, forMs: 2_000, returned: [] },
  day: { dayNumber: DAY, used: 0, unused: 0, least: 1, most: 4 },
  money: { outstanding: pico(0n), least: pico(10n), most: pico(40n) },
};
const ASK = askOf(PLAIN);

/** Grants what is asked for, and says how much is left then. */
function answerTo(ask: ReturnType<typeof askOf>, nowMs: number): LeaseReply {
  const { minute, stocks } = ask;
  const of = (granted: bigint, all: bigint, period: number) => ({
    granted,
    remaining: all - granted,
    heldByOthers: false,
    period,
    freeInMs: 0,
  });
  return {
    minute: {
      granted: minute!.most,
      remaining: 60 - minute!.most,
      heldByOthers: false,
      tick: Math.floor(nowMs / 1_000),
      validMs: 16_000,
      freeInMs: 0,
    },
    stocks: {
      calls_per_day: of(stocks!.calls_per_day!.most, 1_000n, DAY),
      balance: of(stocks!.balance!.most, 100_000n, 0),
    },
  };
}

function filledQuota(): FallbackQuota {
  const quota = new FallbackQuota(ASK.scope, SHARES, 0);
  quota.recordReply(ASK, answerTo(ASK, 0), 0);
  // The first response says how much there is.
  for (let count = 0; count < 2; count++)
    quota.applyReply(answerTo(quota.ask(0, { givesAllBack: false }), 0), 0);
  return quota;
}

void t.test('a part of each is set aside', (t) => {
  const quota = filledQuota();
  const { minute, stocks } = quota.grant(
    askOf({
      ...PLAIN,
      minute: { ...PLAIN.minute!, most: 60 },
      day: { ...PLAIN.day!, most: 1_000 },
      money: { ...PLAIN.money!, most: pico(100_000n) },
    }),
    1_000,
  );
  t.ok(minute!.count >= 10 && minute!.count <= 30, `${minute!.count} of 60`);
  t.same(stocks, { calls_per_day: 500n, balance: 50_000n });
  t.end();
});

for (const lacked of ['minute', 'calls_per_day', 'balance'] as const) {
  void t.test(`calls lack ${lacked}: that is given back for a while, and nothing else`, (t) => {
    const quota = filledQuota();
    const answer = answerTo(ASK, 1_000);
    const none: LeaseReply =
      lacked === 'minute'
        ? { ...answer, minute: { ...answer.minute!, granted: 0 } }
        : { ...answer, stocks: { ...answer.stocks, [lacked]: { ...answer.stocks![lacked]!, granted: 0n } } };
    const wantedOf = ({ minute, stocks }: ReturnType<typeof askOf>): number =>
      lacked === 'minute' ? minute!.most : Number(stocks![lacked]!.most);
    t.notOk(quota.recordReply(ASK, answer, 1_000), 'nothing is lacking');
    t.ok(quota.recordReply(ASK, none, 1_000), 'some of it is here');
    const ask = quota.ask(1_000, { givesAllBack: false });
    t.equal(ask.minute!.returned.length > 0, lacked === 'minute', 'permits are given back');
    t.equal(ask.stocks!.calls_per_day!.unused, lacked === 'calls_per_day' ? 0n : 500n);
    t.equal(ask.stocks!.balance!.unused, lacked === 'balance' ? 0n : 50_000n);
    t.equal(wantedOf(ask), 0, 'and not asked for');
    quota.applyReply(answerTo(ask, 1_000), 1_000);
    t.notOk(quota.recordReply(ASK, none, 1_500), 'there is none of it');
    quota.applyReply(answerTo(quota.ask(4_000, { givesAllBack: false }), 4_000), 4_000);
    t.equal(wantedOf(quota.ask(4_000, { givesAllBack: false })), 0, 'there is enough of it again');
    t.ok(quota.recordReply(ASK, none, 5_000), 'as before');
    t.end();
  });
}

void t.test('only after its first reply does a quota ask again at once', (t) => {
  const quota = new FallbackQuota(ASK.scope, SHARES, 0);
  quota.recordReply(ASK, answerTo(ASK, 0), 0);
  t.ok(
    quota.applyReply(answerTo(quota.ask(0, { givesAllBack: false }), 0), 0),
    'it has asked for nothing: how much is left was not known',
  );
  t.notOk(
    quota.applyReply(answerTo(quota.ask(0, { givesAllBack: false }), 0), 0),
    'it has what it asked for',
  );
  const none: LeaseReply = { minute: { ...answerTo(ASK, 0).minute!, granted: 0 }, stocks: {} };
  quota.recordReply(ASK, none, 1_000);
  t.notOk(
    quota.applyReply(answerTo(quota.ask(1_000, { givesAllBack: true }), 1_000), 1_000),
    'it has given all back',
  );
  t.ok(quota.isEmpty);
  t.end();
});
