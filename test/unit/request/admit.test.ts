import t from 'tap';
import type { ErrorRecord } from '#src/core/errors.js';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { asPicoUnits } from '#src/core/units.js';
import { dayNumberOf } from '#src/ledger/day.js';
import { admit } from '#src/request/admit.js';
import type { CallContext, ListenerContext } from '#src/request/context.js';
import { release, reverse, settle } from '#src/request/settle.js';
import type { Usage } from '#src/core/token-counts.js';
import { type ModelEntry, tokenPriceOf } from '#src/registry/catalog.js';
import { ModelAccess } from '#src/request/model-access.js';
import { CATALOG, SECONDS_TO_MIDNIGHT, chatCall, knownCaller, openHouse, type House } from './support.js';
import { newSeed } from '../../support/random.js';

const fundsOf = ({ listener, account }: House) => {
  const { available, held, spent, dayCalls } = listener.ledger.snapshot(account);
  return { available: decimalOf(available), held: decimalOf(held), spent: decimalOf(spent), dayCalls };
};
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

function randomOf(seed: number): (below: number) => number {
  let state = seed | 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}
const USAGE: Usage = {
  promptTokens: 10,
  cachedTokens: 4,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 5,
  source: 'reported',
};

void t.test('an admitted call holds its worst case and is charged its cost', (t) => {
  const house = openHouse();
  const context = knownCaller(house);
  const call = chatCall({ max_tokens: 10 });
  t.equal(admit(context, call, house.listener), undefined);
  t.equal(context.admission?.call, call, 'the call is not changed');
  const hold = BigInt(call.bodyBytes) * 1_000_000n + 10n * 2_000_000n;
  t.match(fundsOf(house), { held: decimalOf(hold), spent: '0.00', dayCalls: 1 });
  settle(context, USAGE, house.listener);
  // 6 × 1 + 4 × 0.5 + 5 × 2 millionths.
  t.match(fundsOf(house), { available: '0.999982', held: '0.00', spent: '0.000018', dayCalls: 1 });
  t.match(house.records(), [
    {
      request: 1,
      account: house.account,
      key: house.keyIndex,
      model: 0,
      outcome: 'served',
      promptTokens: 10,
      cachedTokens: 4,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      reasoningTokens: 0,
      completionTokens: 5,
      charged: 18_000_000n,
      uncovered: 0n,
    },
  ]);
  t.end();
});

void t.test('a member that routes is refused, and taken where the model lets it through', (t) => {
  const house = openHouse();
  const call = chatCall({ models: ['dearer'], provider: { order: ['x'] } });
  const refused = admit(knownCaller(house), call, house.listener);
  t.match(refused, { code: 'invalid_parameters', message: /^models must not be given: .*pass_members/ });
  t.match(fundsOf(house), { held: '0.00', dayCalls: 0 }, 'it has taken nothing');
  const passing = (...passMembers: ModelEntry['passMembers']): ListenerContext => {
    const catalog = { ...CATALOG, models: CATALOG.models.map((model) => ({ ...model, passMembers })) };
    return { ...house.listener, catalog, access: new ModelAccess(catalog) };
  };
  t.match(admit(knownCaller(house), call, passing('models')), { message: /^provider must not/ });
  const context = knownCaller(house);
  t.equal(admit(context, call, passing('provider', 'models')), undefined);
  t.equal(context.admission?.call, call, 'it is not changed');
  // What is told of a model that the plan does not have is the same with and without them.
  const hidden = chatCall({ model: 'hidden', models: ['dearer'] });
  t.match(admit(knownCaller(house), hidden, house.listener), { code: 'model_not_found' });
  t.end();
});

void t.test('Retry-After of a day that is used up is true, however the clock is set', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomOf(seed);
  const spans = [
    1_000,
    5_000,
    60_000,
    HOUR_MS,
    12 * HOUR_MS,
    DAY_MS - 1,
    DAY_MS,
    25 * HOUR_MS,
    2 * DAY_MS,
    400 * DAY_MS,
  ];
  for (let world = 0; world < 300; world++) {
    const house = openHouse();
    const { clock, listener } = house;
    const keyLimit = world % 2 === 0 ? undefined : { requestsPerMinute: undefined, callsPerDay: 2 };
    if (keyLimit !== undefined) listener.ledger.keys.open(house.keyIndex, keyLimit);
    const ask = (): ErrorRecord | undefined => {
      const context = knownCaller(house, {}, keyLimit);
      const refused = admit(context, chatCall({ model: 'free', max_tokens: 0 }), listener);
      if (refused !== undefined) return refused;
      settle(context, USAGE, listener);
      listener.channel.release(context.admission!.slot);
      house.records();
      return undefined;
    };
    // Around a midnight.
    clock.stepMs = SECONDS_TO_MIDNIGHT * 1_000 + (random(7) - 3) * 2_000;
    let latestDay = 0;
    for (let step = 0; step < 12; step++) {
      const refused = Array.from({ length: 4 }, ask).find((answer) => answer !== undefined);
      if (refused === undefined) throw new Error('four calls are more than a day has');
      const day = dayNumberOf(clock.wallMs());
      const seconds = refused.retryAfterSeconds!;
      const name = `seed ${seed}, world ${world}, step ${step}: ${refused.message}`;
      if (refused.code !== 'daily_limit_exceeded') t.fail(name);
      const wait = `${seconds} second${seconds === 1 ? '' : 's'}`;
      if (!refused.message.includes(`Retry after ${wait}, at 00:00 UTC+8.`)) t.fail(name);
      latestDay = latestDay > day + 1 ? day : Math.max(latestDay, day);
      // Longer than a day only if the clock was set back over midnight: the later day is not given twice.
      const most = latestDay > day ? 2 * 86_400 : 86_400;
      if (!Number.isInteger(seconds) || seconds < 1 || seconds > most) t.fail(name);
      const before = clock.nowMs;
      clock.nowMs += seconds * 1_000 - 1_001;
      if (ask() === undefined) t.fail(`early: ${name}`);
      clock.nowMs = before + seconds * 1_000;
      const again = ask();
      if (again !== undefined) t.fail(`after waiting: ${name}; then ${again.message}`);
      latestDay = Math.max(latestDay, dayNumberOf(clock.wallMs()));
      clock.stepMs += (random(2) === 0 ? 1 : -1) * spans[random(spans.length)]!;
      clock.nowMs += random(10_000);
    }
  }
  t.end();
});

void t.test('the worst case is bounded by the model, and multiplied by the choices', (t) => {
  for (const [fields, completionTokens] of [
    [{}, 1_000],
    [{ max_tokens: 0 }, 0],
    [{ max_tokens: 1e12 }, 1_000],
    [{ max_completion_tokens: 7 }, 7],
    [{ max_tokens: 7, n: 3 }, 21],
  ] as const) {
    const house = openHouse();
    const call = chatCall(fields);
    t.equal(admit(knownCaller(house), call, house.listener), undefined);
    const hold = BigInt(call.bodyBytes) * 1_000_000n + BigInt(completionTokens) * 2_000_000n;
    t.equal(fundsOf(house).held, decimalOf(hold), JSON.stringify(fields));
  }
  t.end();
});

void t.test('each refusal has its code and has taken nothing', (t) => {
  const cases: readonly { what: string; house: House; fields: object; rejection: object }[] = [
    {
      what: 'unknown model',
      house: openHouse(),
      fields: { model: 'nope' },
      rejection: { code: 'model_not_found', message: /"nope"/ },
    },
    {
      what: 'hidden model',
      house: openHouse(),
      fields: { model: 'hidden' },
      rejection: { code: 'model_not_found' },
    },
    {
      what: 'too little money',
      house: openHouse({ credit: '0.0001' }),
      fields: {},
      rejection: { code: 'insufficient_quota', message: /balance is 0\.0001/ },
    },
    {
      what: 'no slot',
      house: openHouse({ slots: 0 }),
      fields: {},
      rejection: { code: 'overloaded', retryAfterSeconds: 1 },
    },
  ];
  for (const { what, house, fields, rejection } of cases) {
    const before = fundsOf(house);
    const context = knownCaller(house);
    t.match(admit(context, chatCall(fields), house.listener), rejection, what);
    t.same(fundsOf(house), before, what);
    t.equal(house.listener.channel.inFlight, 0, what);
    t.equal(context.admission, undefined, what);
  }
  t.end();
});

void t.test('a long model name is not repeated whole', (t) => {
  const house = openHouse();
  const rejection = admit(knownCaller(house), chatCall({ model: 'x'.repeat(100_000) }), house.listener);
  t.ok(rejection!.message.length < 300);
  t.end();
});

void t.test('the day: its last call, its refusal, and what gives a call back', (t) => {
  const house = openHouse();
  const admitted = Array.from({ length: 3 }, () => {
    const context = knownCaller(house);
    t.equal(admit(context, chatCall({}), house.listener), undefined);
    return context;
  });
  const rejection = admit(knownCaller(house), chatCall({}), house.listener);
  t.match(rejection, { code: 'daily_limit_exceeded', retryAfterSeconds: SECONDS_TO_MIDNIGHT });
  t.match(rejection!.message, `${SECONDS_TO_MIDNIGHT} seconds`);

  release(admitted[0]!, { code: 'provider_unavailable', message: '' }, house.listener);
  t.match(fundsOf(house), { dayCalls: 2, spent: '0.00' }, 'a 502 is given back');
  release(admitted[1]!, { code: 'invalid_parameters', message: '' }, house.listener);
  t.match(fundsOf(house), { dayCalls: 2, spent: '0.00' }, 'what a provider refused costs nothing and counts');
  settle(admitted[2]!, USAGE, house.listener);
  t.match(fundsOf(house), { dayCalls: 2, held: '0.00', spent: '0.000018' });
  for (const context of admitted) {
    for (const code of ['provider_unavailable', 'invalid_parameters'] as const)
      t.throws(() => release(context, { code, message: '' }, house.listener), /once/, 'a second end');
    t.throws(() => settle(context, USAGE, house.listener), /once/);
  }
  t.match(fundsOf(house), { dayCalls: 2, held: '0.00', spent: '0.000018' }, 'and it changes nothing');
  t.same(
    house.records().map(({ outcome, charged }) => [outcome, charged]),
    [
      ['provider_unavailable', 0n],
      ['invalid_parameters', 0n],
      ['served', 18_000_000n],
    ],
    'one record for each',
  );
  t.end();
});

void t.test('the day of a key that has its own', (t) => {
  const house = openHouse({ durability: 'commit' });
  const limit = { requestsPerMinute: undefined, callsPerDay: 1 };
  house.listener.ledger.keys.open(house.keyIndex, limit);
  const ask = () => {
    const context = knownCaller(house, {}, limit);
    return { context, rejection: admit(context, chatCall({}), house.listener) };
  };
  const first = ask();
  t.equal(first.rejection, undefined);
  const before = fundsOf(house);
  const { rejection } = ask();
  t.match(rejection, { code: 'daily_limit_exceeded', retryAfterSeconds: SECONDS_TO_MIDNIGHT });
  t.match(rejection!.message, /^This key allows 1 calls per day/);
  t.same(fundsOf(house), before, 'a refusal has taken nothing');
  t.equal(house.listener.channel.inFlight, 1);

  const settled = settle(first.context, USAGE, house.listener);
  t.match(ask().rejection, { code: 'daily_limit_exceeded' }, 'a served call counts');
  reverse(first.context, settled, house.listener);
  const second = ask();
  t.equal(second.rejection, undefined, 'one that was taken back does not');
  release(second.context, { code: 'internal_error', message: '' }, house.listener);
  const third = ask();
  t.equal(third.rejection, undefined, 'nor one that failed');
  release(third.context, { code: 'invalid_parameters', message: '' }, house.listener);
  t.match(ask().rejection, { code: 'daily_limit_exceeded' }, 'what a provider refused counts');
  t.end();
});

void t.test('clamp lowers max_tokens to what the balance affords, and no further than the prompt', (t) => {
  const house = openHouse({ credit: '0.0002', lowBalance: 'clamp' });
  const context = knownCaller(house);
  const call = chatCall({});
  t.equal(admit(context, call, house.listener), undefined);
  const affordable = Math.floor((200 - call.bodyBytes) / 2);
  t.equal((JSON.parse(context.admission!.call.body) as { max_tokens: number }).max_tokens, affordable);
  t.equal(
    Number(fundsOf(house).available),
    ((200 - call.bodyBytes) % 2) / 1e6,
    'what is left would not pay a token',
  );

  const poor = openHouse({ credit: '0.00001', lowBalance: 'clamp' });
  t.match(admit(knownCaller(poor), call, poor.listener), { code: 'insufficient_quota' });
  t.equal(poor.listener.channel.inFlight, 0);
  t.end();
});

void t.test('who lacks money is told to lower the output only if that helps', (t) => {
  const call = chatCall({ max_tokens: 100 });
  const adviceFor = (credit: number, least = 1): string => {
    const house = openHouse({ credit: `0.${String(credit).padStart(6, '0')}` });
    const rejection = admit(knownCaller(house), { ...call, outputTokensMin: least }, house.listener);
    t.match(rejection, { code: 'insufficient_quota' });
    return /Top up the account, or (.*)\.$/.exec(rejection!.message)![1]!;
  };
  const prompt = call.bodyBytes;
  for (const credit of [prompt + 2, prompt + 20]) t.equal(adviceFor(credit), 'lower max_tokens');
  for (const credit of [1, prompt - 1, prompt, prompt + 1]) t.equal(adviceFor(credit), 'shorten the request');
  t.equal(adviceFor(prompt + 31, 16), 'shorten the request', 'upstreams accept no lower bound');
  t.equal(adviceFor(prompt + 32, 16), 'lower max_tokens');
  t.end();
});

void t.test('who lacks the price of a cached response is told to top up alone', (t) => {
  const house = openHouse({ credit: '0.000001' });
  const models = CATALOG.models.map((model) => ({
    ...model,
    price: { ...model.price, cachedResponsePicoUnits: picoUnitsOf('0.01')! },
  }));
  const catalog = { ...CATALOG, models };
  const listener = { ...house.listener, catalog, access: new ModelAccess(catalog) };
  const context = knownCaller(house);
  context.hit = {} as NonNullable<CallContext['hit']>;
  const rejection = admit(context, chatCall({ max_tokens: 100 }), listener);
  t.match(rejection, { code: 'insufficient_quota' });
  t.match(rejection?.message, /cost up to 0\.01 and .* Top up the account\.$/);
  t.end();
});

void t.test('a plan bounds what a call may ask for, and what one gets that asks for nothing', (t) => {
  const cases: readonly [fields: object, refused: string | undefined, held: number, sent: object][] = [
    [{ max_tokens: 50 }, undefined, 50, { max_tokens: 50 }],
    [{ max_tokens: 51 }, 'max_tokens', 0, {}],
    [{ max_completion_tokens: 51 }, 'max_completion_tokens', 0, {}],
    [{ max_tokens: 51, max_completion_tokens: 7 }, 'max_tokens', 0, {}],
    [{ max_tokens: 7, max_completion_tokens: 51 }, 'max_completion_tokens', 0, {}],
    [{ max_tokens: 51, model: 'nope' }, 'max_tokens', 0, {}],
    [{}, undefined, 50, { max_tokens: 50 }],
    [{ max_tokens: null }, undefined, 50, { max_tokens: 50 }],
    [{ n: 3 }, undefined, 150, { n: 3, max_tokens: 50 }],
  ];
  for (const [fields, refused, held, sent] of cases) {
    const house = openHouse();
    const context = knownCaller(house, { outputTokensMax: 50 });
    const call = chatCall(fields);
    const rejection = admit(context, call, house.listener);
    const what = JSON.stringify(fields);
    if (refused !== undefined) {
      t.same(
        rejection,
        { code: 'invalid_parameters', message: `${refused} must be at most 50 on the plan plan, got 51` },
        what,
      );
      t.match(fundsOf(house), { held: '0.00', dayCalls: 0 }, what);
      continue;
    }
    t.equal(rejection, undefined, what);
    const hold = BigInt(call.bodyBytes) * 1_000_000n + BigInt(held) * 2_000_000n;
    t.equal(fundsOf(house).held, decimalOf(hold), what);
    const body = JSON.parse(context.admission!.call.body) as object;
    const messages = [{ role: 'user', content: 'hi' }];
    t.same(body, { model: 'priced', messages, ...sent }, what);
  }
  t.end();
});

void t.test('a plan that allows more than the model changes nothing', (t) => {
  const house = openHouse();
  const call = chatCall({});
  const context = knownCaller(house, { outputTokensMax: 1_000 });
  t.equal(admit(context, call, house.listener), undefined);
  t.equal(context.admission?.call, call);
  t.end();
});

void t.test('a balance below the bound of the plan is clamped further', (t) => {
  const house = openHouse({ credit: '0.0002', lowBalance: 'clamp' });
  const context = knownCaller(house, { outputTokensMax: 500 });
  const call = chatCall({});
  t.equal(admit(context, call, house.listener), undefined);
  const sent = JSON.parse(context.admission!.call.body) as { max_tokens: number };
  t.equal(sent.max_tokens, Math.floor((200 - call.bodyBytes) / 2));
  t.end();
});

/** The catalogue with `free` and `dearer` as fallbacks of `priced`; all are on the plan. */
function withFallbacks(house: ReturnType<typeof openHouse>): ListenerContext {
  const [priced, free] = CATALOG.models;
  const dearer = {
    ...priced!,
    id: 'dearer',
    aliases: [],
    outputTokensMax: 4_000,
    price: tokenPriceOf({
      inputPicoUnits: asPicoUnits(2_000_000n),
      outputPicoUnits: asPicoUnits(3_000_000n),
      cacheWrite1hPicoUnits: asPicoUnits(4_000_000n),
      reasoningPicoUnits: asPicoUnits(6_000_000n),
    }),
  };
  const catalog = {
    ...CATALOG,
    models: [{ ...priced!, fallbacks: [1, 2] }, free!, dearer],
    plans: CATALOG.plans.map((plan) => ({ ...plan, modelIndices: [0, 1, 2] })),
  };
  return { ...house.listener, catalog, access: new ModelAccess(catalog) };
}

void t.test('the hold covers the dearest model that may answer, the charge is at its price', (t) => {
  const house = openHouse({ credit: '10.00' });
  const listener = withFallbacks(house);
  const context = knownCaller(house);
  const call = chatCall({});
  t.equal(admit(context, call, listener), undefined);
  t.equal(fundsOf(house).held, decimalOf(BigInt(call.bodyBytes) * 4_000_000n + 4_000n * 6_000_000n));
  t.same(
    context.models.slice(1).map(({ modelIndex, model }) => [modelIndex, model.id]),
    [
      [1, 'free'],
      [2, 'dearer'],
    ],
  );
  const usage = { ...USAGE, cacheWriteTokens: 3, cacheWrite1hTokens: 1, reasoningTokens: 2 };
  settle(context, usage, listener, context.models[2]);
  // 3 + 4 + 2 at 2, 1 at 4, 3 at 3, 2 at 6 millionths.
  t.match(fundsOf(house), {
    held: '0.00',
    spent: decimalOf((9n * 2n + 4n + 3n * 3n + 2n * 6n) * 1_000_000n),
  });
  t.match(house.records(), [{ model: 2, requested: 0, cacheWrite1hTokens: 1, reasoningTokens: 2 }]);
  t.end();
});

void t.test('a balance clamps to what the dearest leaves', (t) => {
  const house = openHouse({ credit: '0.001', lowBalance: 'clamp' });
  const listener = { ...withFallbacks(house), lowBalance: 'clamp' as const };
  const context = knownCaller(house);
  const call = chatCall({});
  t.equal(admit(context, call, listener), undefined);
  const sent = JSON.parse(context.admission!.call.body) as { max_tokens: number };
  t.equal(sent.max_tokens, Math.floor((1_000 - 4 * call.bodyBytes) / 6));
  t.end();
});

/** The catalogue with `long` in the price of its first model. */
function withLongPrices(listener: ListenerContext, aboveTokens: number): ListenerContext {
  const [priced, ...others] = CATALOG.models;
  const price = tokenPriceOf({
    ...priced!.price,
    long: [
      { inputPicoUnits: asPicoUnits(3_000_000n), outputPicoUnits: asPicoUnits(5_000_000n), aboveTokens },
    ],
  });
  const catalog = { ...CATALOG, models: [{ ...priced!, price }, ...others] };
  return { ...listener, catalog, access: new ModelAccess(catalog) };
}

void t.test('a call holds a long price if its prompt may be so long, and pays it if it was', (t) => {
  const house = openHouse({ credit: '10.00', slots: 8 });
  const call = chatCall({ messages: [{ role: 'user', content: 'x'.repeat(500) }] });
  const { bodyBytes } = call;
  const held = (aboveTokens: number, promptTokens: number) => {
    const listener = withLongPrices(house.listener, aboveTokens);
    const context = knownCaller(house, { callsPerDay: 100 });
    t.equal(admit(context, call, listener), undefined);
    const { held: hold, spent: before } = fundsOf(house);
    settle(context, { ...USAGE, promptTokens, cachedTokens: 0, completionTokens: 10 }, listener);
    return [hold, decimalOf(picoUnitsOf(fundsOf(house).spent)! - picoUnitsOf(before)!)];
  };
  const [short, long] = [
    decimalOf(BigInt(bodyBytes) * 1_000_000n + 1_000n * 2_000_000n),
    decimalOf(BigInt(bodyBytes) * 3_000_000n + 1_000n * 5_000_000n),
  ];
  t.same(held(bodyBytes + 4_096, 120), [short, decimalOf(140_000_000n)]);
  t.same(held(bodyBytes + 4_095, 120), [long, decimalOf(140_000_000n)]);
  t.same(held(120, 120), [long, decimalOf(140_000_000n)]);
  t.same(held(119, 120), [long, decimalOf(410_000_000n)]);
  t.end();
});

void t.test('no usage within its bounds costs a call more than it holds, whatever its prices', (t) => {
  const seed = newSeed();
  const random = randomOf(seed);
  const upTo = (most: number) => random(most + 1);
  const tokenPrices = () => ({
    inputPicoUnits: asPicoUnits(BigInt(upTo(10 ** 8))),
    outputPicoUnits: asPicoUnits(BigInt(upTo(10 ** 8))),
    ...(random(2) === 0 && { cachedInputPicoUnits: asPicoUnits(BigInt(upTo(10 ** 8))) }),
    ...(random(2) === 0 && { cacheWrite1hPicoUnits: asPicoUnits(BigInt(upTo(10 ** 8))) }),
    ...(random(2) === 0 && { reasoningPicoUnits: asPicoUnits(BigInt(upTo(10 ** 8))) }),
  });
  const house = openHouse({ credit: '1000000.00' });
  const [priced, free, hidden] = CATALOG.models;
  for (let run = 0; run < 500; run++) {
    const priceOf = () => {
      const aboves = [...new Set([upTo(12_000), upTo(12_000), upTo(12_000)])].sort((a, b) => a - b);
      const long = aboves.slice(upTo(3)).map((aboveTokens) => ({ ...tokenPrices(), aboveTokens }));
      return tokenPriceOf({ ...tokenPrices(), callPicoUnits: asPicoUnits(BigInt(upTo(99))), long });
    };
    const catalog = {
      ...CATALOG,
      models: [{ ...priced!, price: priceOf(), fallbacks: [1] }, { ...free!, price: priceOf() }, hidden!],
    };
    const listener = { ...house.listener, catalog, access: new ModelAccess(catalog) };
    const context = knownCaller(house, { callsPerDay: 1_000 });
    const call = chatCall({
      messages: [{ role: 'user', content: 'x'.repeat(upTo(12_000)) }],
      ...(random(2) === 0 && { max_tokens: 1 + upTo(2_000) }),
      n: 1 + upTo(2),
    });
    const rejection = admit(context, call, listener);
    if (rejection !== undefined) t.fail(`seed ${seed}: ${rejection.message}`);
    const held = picoUnitsOf(fundsOf(house).held)!;
    const promptTokens = upTo(call.bodyBytes);
    const cachedTokens = upTo(promptTokens);
    const cacheWriteTokens = upTo(promptTokens - cachedTokens);
    const completionTokens = upTo(Math.min(call.outputTokensMax ?? 1_000, 1_000) * call.choices);
    const usage = {
      promptTokens,
      cachedTokens,
      cacheWriteTokens,
      cacheWrite1hTokens: upTo(cacheWriteTokens),
      completionTokens,
      reasoningTokens: upTo(completionTokens),
      source: 'reported' as const,
    };
    const { charged, uncovered } = settle(context, usage, listener, context.models[upTo(1)]);
    if (charged > held || uncovered !== 0n)
      t.fail(`seed ${seed}: ${JSON.stringify(usage)} cost ${charged} of ${held}`);
    house.records();
    listener.channel.release(context.admission!.slot);
  }
  t.equal(fundsOf(house).held, '0.00', `seed ${seed}`);
  t.end();
});

void t.test('a balance clamps to what a long price leaves', (t) => {
  const house = openHouse({ credit: '0.003', lowBalance: 'clamp' });
  const context = knownCaller(house);
  const call = chatCall({ n: 2 });
  t.equal(admit(context, call, withLongPrices(house.listener, 4_096)), undefined);
  const sent = JSON.parse(context.admission!.call.body) as { max_tokens: number };
  t.equal(sent.max_tokens, Math.floor((3_000 - 3 * call.bodyBytes) / 10));
  t.end();
});

void t.test('an alias is admitted as its model', (t) => {
  const house = openHouse();
  const context = knownCaller(house);
  t.equal(admit(context, chatCall({ model: 'also-free' }), house.listener), undefined);
  t.match(context.admission, { modelIndex: 1, model: { id: 'free' } });
  // Whatever the workers' settings say of aliases meanwhile.
  t.equal(context.admission?.call.body, chatCall({ model: 'free' }).body, 'and sent under its id');
  t.match(admit(knownCaller(house), chatCall({ model: 'also-hidden' }), house.listener), {
    code: 'model_not_found',
  });
  t.end();
});

void t.test('a free model needs no balance', (t) => {
  const house = openHouse({ credit: '0' });
  t.equal(admit(knownCaller(house), chatCall({ model: 'free' }), house.listener), undefined);
  t.end();
});

void t.test('an account has so many calls in flight and no more, however they end', (t) => {
  const house = openHouse({ slots: 4 });
  const known = () => knownCaller(house, { callsInFlightMax: 2 });
  const contexts = [known(), known(), known()];
  t.equal(admit(contexts[0]!, chatCall({}), house.listener), undefined);
  t.equal(admit(contexts[1]!, chatCall({}), house.listener), undefined);
  const before = fundsOf(house);
  const rejection = admit(contexts[2]!, chatCall({}), house.listener);
  t.match(rejection, { code: 'overloaded', retryAfterSeconds: 1 });
  t.match(rejection!.message, 'The account has');
  t.same(fundsOf(house), before, 'a refusal has taken nothing');
  t.equal(house.listener.channel.inFlight, 2);
  settle(contexts[0]!, USAGE, house.listener);
  t.equal(admit(known(), chatCall({}), house.listener), undefined, 'a settled call makes room');
  release(contexts[1]!, { code: 'provider_unavailable', message: '' }, house.listener);
  t.equal(admit(known(), chatCall({}), house.listener), undefined, 'and a released one');
  t.match(admit(known(), chatCall({}), house.listener), { code: 'overloaded' });
  t.end();
});

void t.test('calls that were admitted before `commit` came by a reload have one record each', (t) => {
  const house = openHouse({ slots: 20, credit: '1000.00' });
  const listener: ListenerContext = { ...house.listener, durability: 'interval' };
  const contexts = Array.from({ length: 16 }, () => {
    const context = knownCaller(house, { callsInFlightMax: 20, callsPerDay: 100 });
    t.equal(admit(context, chatCall({}), listener), undefined);
    return context;
  });
  const reloaded: ListenerContext = { ...listener, durability: 'commit' };
  const settled = contexts.map((context) => settle(context, USAGE, reloaded));
  // As a response that waits for the disk does if the store fails.
  contexts.forEach((context, index) => {
    if (settled[index]!.taken !== undefined) reverse(context, settled[index]!, reloaded);
  });
  t.equal(house.records().length, 16, 'the ring is full, and nothing waits to be taken back');
  t.end();
});

void t.test('the journal keeps room for every record that a call may still append', (t) => {
  // 16 records in all; with `commit` a call may append two.
  for (const [durability, admitted] of [
    ['interval', 16],
    ['commit', 8],
  ] as const) {
    const house = openHouse({ slots: 20, credit: '1000.00' });
    const listener: ListenerContext = { ...house.listener, durability };
    const contexts: CallContext[] = [];
    let rejection: ErrorRecord | undefined;
    while (rejection === undefined) {
      const context = knownCaller(house, { callsInFlightMax: 20, callsPerDay: 100 });
      rejection = admit(context, chatCall({}), listener);
      if (rejection === undefined) contexts.push(context);
    }
    t.match(rejection.message, 'behind with its books', durability);
    t.equal(contexts.length, admitted, durability);
    const settled = contexts.map((context) => settle(context, USAGE, listener));
    if (durability === 'commit')
      contexts.forEach((context, index) => reverse(context, settled[index]!, listener));
    t.equal(house.records().length, 16, 'each of them found its place');
  }
  t.end();
});
