/**
 * Quotas at admission: whose quota refuses is in the message, a refusal has taken of nothing, and what a call
 * held becomes what it used.
 */
import t from 'tap';
import { QUOTA_FIELDS, type QuotaLimits, type QuotaName } from '#src/core/quotas.js';
import { asGroupIndex, asPicoUnits } from '#src/core/units.js';
import type { Usage } from '#src/core/token-counts.js';
import { admit } from '#src/request/admit.js';
import type { CallContext, ListenerContext } from '#src/request/context.js';
import { limitRate, setTokenLimit } from '#src/request/rate-limit.js';
import { release, reverse, settle } from '#src/request/settle.js';
import { chatCall, knownCaller, openHouse, type House } from './support.js';

const GROUP = asGroupIndex(2);
const USAGE: Usage = {
  promptTokens: 20,
  cachedTokens: 8,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 5,
  source: 'reported',
};
const CALL = chatCall({ max_tokens: 10 });
const HELD = CALL.bodyBytes + 10;
/** Millionths of a unit: a token of the prompt costs 1, of the output 2. */
const HELD_PICO = BigInt(CALL.bodyBytes + 20) * 1_000_000n;

function groupedHouse(limits: Partial<QuotaLimits>, options: Parameters<typeof openHouse>[0] = {}): House {
  const house = openHouse(options);
  const { ledger, groupNames } = house.listener;
  groupNames.set(GROUP, 'research');
  ledger.groups.open(GROUP, limits);
  ledger.setGroup(house.account, GROUP);
  return house;
}

const useOf = ({ listener }: House) =>
  Object.fromEntries(
    listener.ledger
      .useOf({ kind: 'group', index: GROUP })
      .map(({ quota, used, held }) => [quota, [used, held]]),
  );

function ask(house: House, listener: ListenerContext = house.listener, call = CALL) {
  const context = knownCaller(house, { requestsPerMinute: 100, callsPerDay: 100 });
  limitRate(context, listener);
  return { context, rejection: admit(context, call, listener) };
}

const TOKENS = { tokensPerMinute: 2 * HELD, tokensPerDay: 3 * HELD, tokensPerMonth: 4 * HELD };

void t.test('tokens are held by their bound and settled to what was used', (t) => {
  const house = groupedHouse(TOKENS);
  const { context, rejection } = ask(house);
  t.equal(rejection, undefined);
  const held = [0n, BigInt(HELD)];
  t.same(useOf(house), { tokens_per_minute: held, tokens_per_day: held, tokens_per_month: held });
  t.match(context.tokenLimit, { limit: 2 * HELD, remaining: HELD });
  settle(context, USAGE, house.listener);
  t.same(useOf(house).tokens_per_month, [25n, 0n]);
  t.same(useOf(house).tokens_per_minute, [25n, 0n]);
  t.end();
});

void t.test('cached input may be free', (t) => {
  const house = groupedHouse(TOKENS);
  const listener = { ...house.listener, cachedInput: 'free' } as const;
  settle(ask(house, listener).context, USAGE, listener);
  t.same(useOf(house).tokens_per_day, [17n, 0n]);
  t.end();
});

void t.test('a failed call gives all back, one that the provider refused its tokens alone', (t) => {
  const house = groupedHouse({ ...TOKENS, callsPerMonth: 9, spendPerDay: asPicoUnits(10n * HELD_PICO) });
  const end = (code: 'provider_unavailable' | 'internal_error' | 'invalid_parameters'): void => {
    const { context } = ask(house);
    release(context, { code, message: '' }, house.listener);
    house.listener.channel.release(context.admission!.slot);
  };
  end('provider_unavailable');
  end('internal_error');
  const nothing = [0n, 0n];
  t.same(useOf(house), {
    tokens_per_minute: nothing,
    tokens_per_day: nothing,
    tokens_per_month: nothing,
    calls_per_month: nothing,
    spend_per_day: nothing,
  });
  end('invalid_parameters');
  t.same(useOf(house).calls_per_month, [1n, 0n]);
  t.same(useOf(house).tokens_per_day, nothing);
  t.end();
});

void t.test('a reversed call gives day and month back', (t) => {
  const house = groupedHouse(
    { ...TOKENS, callsPerMonth: 9, spendPerMonth: asPicoUnits(10n * HELD_PICO) },
    { durability: 'commit' },
  );
  const { context } = ask(house);
  const settled = settle(context, USAGE, house.listener);
  t.same(useOf(house).spend_per_month, [26_000_000n, 0n], '12 × 1 + 8 × 0.5 + 5 × 2 millionths');
  reverse(context, settled, house.listener);
  const { tokens_per_minute: minute, ...others } = useOf(house);
  t.same(others, {
    tokens_per_day: [0n, 0n],
    tokens_per_month: [0n, 0n],
    calls_per_month: [0n, 0n],
    spend_per_month: [0n, 0n],
  });
  t.same(minute, [25n, 0n], 'the provider was sent them in this minute');
  t.end();
});

void t.test('a reversed call gives back what was counted, however cached input counts by now', (t) => {
  for (const [before, after] of [
    ['count', 'free'],
    ['free', 'count'],
  ] as const) {
    const house = groupedHouse(TOKENS, { durability: 'commit' });
    const listener = { ...house.listener, cachedInput: before };
    const { context } = ask(house, listener);
    const settled = settle(context, USAGE, listener);
    const other = ask(house, listener).context;
    settle(other, USAGE, listener);
    const [counted] = useOf(house).tokens_per_day!;
    reverse(context, settled, { ...listener, cachedInput: after });
    t.same(useOf(house).tokens_per_day, [counted! / 2n, 0n], `${before}, then ${after}`);
  }
  t.end();
});

void t.test('each quota refuses with its code, and has taken nothing', (t) => {
  const cases: readonly [QuotaName, number | bigint, string][] = [
    ['tokens_per_minute', HELD + 9, 'rate_limit_exceeded'],
    ['tokens_per_day', HELD + 9, 'daily_limit_exceeded'],
    ['tokens_per_month', HELD + 9, 'budget_exceeded'],
    ['calls_per_day', 1, 'daily_limit_exceeded'],
    ['calls_per_month', 1, 'budget_exceeded'],
    ['calls_in_flight', 1, 'overloaded'],
    ['spend_per_day', HELD_PICO + 1_000_000n, 'budget_exceeded'],
    ['spend_per_month', HELD_PICO + 1_000_000n, 'budget_exceeded'],
  ];
  for (const [quota, limit, code] of cases) {
    const house = groupedHouse({
      [QUOTA_FIELDS[quota]]: limit,
      callsPerMonth: quota === 'calls_per_month' ? 1 : 50,
    });
    const first = ask(house);
    t.equal(first.rejection, undefined, quota);
    const before = useOf(house);
    const { available } = house.listener.ledger.snapshot(house.account);
    const { rejection, context } = ask(house);
    t.match(rejection, { code, retryAfterSeconds: Number }, quota);
    t.ok(rejection!.message.startsWith('The group research allows '), rejection!.message);
    t.same(useOf(house), before, quota);
    t.equal(house.listener.ledger.snapshot(house.account).available, available);
    t.equal(house.listener.channel.inFlight, 1);
    if (quota === 'tokens_per_minute') {
      t.match(context.tokenLimit, { limit, remaining: 9 });
      t.ok(Math.abs(context.tokenLimit!.resetMs - rejection!.retryAfterSeconds! * 1_000) <= 1_000);
      house.clock.nowMs = rejection!.retryAfterSeconds! * 1_000;
      t.match(ask(house).rejection, { code }, 'the first call still runs');
      settle(first.context, USAGE, house.listener);
      const late = ask(house).rejection!;
      t.ok(late.retryAfterSeconds! <= 62, 'never longer than what was used weighs');
      house.clock.nowMs += late.retryAfterSeconds! * 1_000;
      t.equal(ask(house).rejection, undefined, 'who keeps Retry-After is admitted');
    }
  }
  t.end();
});

void t.test('what can never fit is told so, with what would', (t) => {
  for (const limits of [
    { tokensPerMinute: HELD - 3 },
    { tokensPerMonth: HELD - 3 },
    { spendPerDay: asPicoUnits(HELD_PICO - 6_000_000n) },
  ]) {
    const house = groupedHouse({ callsInFlight: 1, ...limits });
    const small = chatCall({ max_tokens: 1 });
    t.equal(ask(house, house.listener, small).rejection, undefined);
    const { rejection } = ask(house);
    t.match(
      rejection,
      { code: 'invalid_parameters', detail: 'beyond_quota' },
      'although calls in flight are full',
    );
    t.match(rejection!.message, /Set max_tokens to at most 7\.$/);
    const thinking = { ...CALL, outputTokensMin: 8 };
    t.match(ask(house, house.listener, thinking).rejection!.message, /Shorten the messages\.$/);
    const wordy = chatCall({ max_tokens: 1, messages: [{ role: 'user', content: 'x'.repeat(500) }] });
    t.match(ask(house, house.listener, wordy).rejection!.message, /Shorten the messages\.$/);
  }
  t.end();
});

void t.test('token_quota: settle admits while anything is left', (t) => {
  const house = groupedHouse({ tokensPerDay: 30 });
  const listener = { ...house.listener, tokenQuota: 'settle' } as const;
  const contexts: CallContext[] = [];
  for (let call = 0; call < 2; call++) {
    const { context, rejection } = ask(house, listener);
    t.equal(rejection, undefined);
    contexts.push(context);
  }
  t.same(useOf(house).tokens_per_day, [0n, 0n]);
  for (const context of contexts) settle(context, USAGE, listener);
  t.same(useOf(house).tokens_per_day, [50n, 0n]);
  const { rejection } = ask(house, listener);
  t.match(rejection, { code: 'daily_limit_exceeded', detail: 'tokens_per_day' });
  t.match(rejection!.message, /^The group research allows 30 tokens per day and they are used up\./);
  t.end();
});

void t.test('low_balance: clamp lowers the output to what a budget affords, but not for tokens', (t) => {
  const limits = {
    spendPerDay: asPicoUnits(HELD_PICO + 50_000_000n),
    spendPerMonth: asPicoUnits(HELD_PICO + 40_000_000n),
  };
  const house = groupedHouse(limits, { lowBalance: 'clamp' });
  const call = chatCall({});
  const { context, rejection } = ask(house, house.listener, call);
  t.equal(rejection, undefined, 'although it could never fit');
  const { max_tokens: sent } = JSON.parse(context.admission!.call.body) as { max_tokens: number };
  t.equal(sent, Math.floor((CALL.bodyBytes + 20 + 40 - call.bodyBytes) / 2), 'the lower of the two budgets');
  t.match(ask(house).rejection, { code: 'budget_exceeded' }, 'nothing is left of them');

  const tokens = groupedHouse({ tokensPerDay: 2 * HELD - 5 }, { lowBalance: 'clamp' });
  t.equal(ask(tokens).rejection, undefined);
  t.match(ask(tokens).rejection, { code: 'daily_limit_exceeded' });
  t.end();
});

void t.test('the tightest of key, plan and group is in the headers of tokens', (t) => {
  const house = groupedHouse({ tokensPerMinute: 500 });
  house.listener.ledger.keys.open(house.keyIndex, { tokensPerMinute: 400 });
  const plan = {
    requestsPerMinute: 100,
    quotas: { ...knownCaller(house).caller!.plan.quotas, tokensPerMinute: 300 },
  };
  const limitOf = (bounds: object, keyLimits?: object) => {
    const context = knownCaller(house, bounds, keyLimits);
    setTokenLimit(context, house.listener);
    return context.tokenLimit;
  };
  t.match(limitOf(plan, {}), { limit: 300, remaining: 300, resetMs: 0 });
  t.match(limitOf({ requestsPerMinute: 100 }, {}), { limit: 400 });
  t.match(limitOf({ requestsPerMinute: 100 }), { limit: 500 });
  house.listener.ledger.setGroup(house.account, undefined);
  t.equal(limitOf({ requestsPerMinute: 100 }), undefined);
  t.end();
});
