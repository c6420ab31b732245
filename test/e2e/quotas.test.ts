/**
 * What callers see of quotas: which code, message and headers each quota of each scope refuses with, whole
 * and streamed; which calls are told that they can never fit; that calls in flight together never exceed a
 * quota; and that what is counted at the end is what the answers say was used.
 */
import OpenAI from 'openai';
import t from 'tap';
import type { Test } from 'tap';
import { QUOTA_NAMES, type QuotaName } from '#src/core/quotas.js';
import type { QuotaUseView } from '#src/admin/views.js';
import { startBed } from '../support/bed.js';
import { checkError, type ErrorName } from '../support/error-answer.js';
import { TEST_MODEL, eventually, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { steered } from '../support/mock.js';
import { openStream } from '../support/sse.js';

const AMPLE = { requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 };
/** What the calls here use and may use. */
const USED = { prompt: 60, completion: 10 };
const MAX_TOKENS = 12;
const PROMPT = steered(`prompt_tokens=${USED.prompt}&completion_tokens=${USED.completion}&bytes=40`);
const bodyOf = (prompt = PROMPT, more: object = {}) => ({
  model: TEST_MODEL,
  messages: [{ role: 'user', content: prompt }],
  max_tokens: MAX_TOKENS,
  ...more,
});
const bytesOf = (body: object) => Buffer.byteLength(JSON.stringify(body));
const HELD = bytesOf(bodyOf(PROMPT, { stream: true })) + MAX_TOKENS;
const PICO = 1_000_000n;
const decimal = (pico: bigint) => `${pico / 10n ** 12n}.${String(pico % 10n ** 12n).padStart(12, '0')}`;
/** Of TEST_PRICE. */
const HELD_PICO = BigInt(HELD - MAX_TOKENS) * ((3n * PICO) / 2n) + BigInt(MAX_TOKENS) * ((9n * PICO) / 4n);

/** One call fits, and a second no more. */
const TIGHT: Readonly<Record<QuotaName, number | string>> = {
  requests_per_minute: 1,
  tokens_per_minute: HELD + 20,
  calls_in_flight: 1,
  calls_per_day: 1,
  tokens_per_day: HELD + 20,
  calls_per_month: 1,
  tokens_per_month: HELD + 20,
  spend_per_day: decimal(HELD_PICO + 20n * PICO),
  spend_per_month: decimal(HELD_PICO + 20n * PICO),
};
const CODES: Readonly<Record<QuotaName, ErrorName>> = {
  requests_per_minute: 'rate_limit_exceeded',
  tokens_per_minute: 'rate_limit_exceeded',
  calls_in_flight: 'overloaded',
  calls_per_day: 'daily_limit_exceeded',
  tokens_per_day: 'daily_limit_exceeded',
  calls_per_month: 'budget_exceeded',
  tokens_per_month: 'budget_exceeded',
  spend_per_day: 'budget_exceeded',
  spend_per_month: 'budget_exceeded',
};
const idOf = (quota: QuotaName) => quota.replaceAll('_', '-');
const PLANS = QUOTA_NAMES.flatMap((quota) => [
  { id: `plan-${idOf(quota)}`, ...AMPLE, [quota]: TIGHT[quota] },
]);

/** The scopes of a call. Each makes a caller who has the quota, and tells how the message begins. */
const SCOPES: Readonly<
  Record<string, (gateway: Gateway, quota: QuotaName, limit: number | string) => Promise<[string, string]>>
> = {
  key: async ({ admin }, quota, limit) => [
    (await admin.customer({ limits: { [quota]: limit } })).key,
    'This key',
  ],
  plan: async ({ admin }, quota) => {
    const plan = `plan-${idOf(quota)}`;
    return [
      (await admin.customer({ plan })).key,
      quota === 'calls_in_flight' ? 'The account' : `The plan ${plan}`,
    ];
  },
  group: async ({ admin }, quota, limit) => {
    const group = await admin.group({ [quota]: limit });
    return [(await admin.customer({ group })).key, `The group ${group}`];
  },
  'group above': async ({ admin }, quota, limit) => {
    const above = await admin.group({ [quota]: limit });
    const group = await admin.group({ parent: await admin.group({ parent: above }) });
    return [(await admin.customer({ group })).key, `The group ${above}`];
  },
};

const call = (gateway: Gateway, key: string, stream: boolean, more: object = {}): Promise<Answer> =>
  gateway.request(key, { body: bodyOf(PROMPT, { stream, ...more }) });

async function checkRefusal(
  t: Test,
  gateway: Gateway,
  name: string,
  quota: QuotaName,
  stream: boolean,
): Promise<void> {
  const [key, whose] = await SCOPES[name]!(gateway, quota, TIGHT[quota]);
  const of = `${quota} of ${name}${stream ? ', streamed' : ''}`;
  let open;
  if (quota === 'calls_in_flight') {
    open = await openStream(gateway.port, key, bodyOf(steered('chunk_ms=100&chunks=1000'), { stream: true }));
  } else {
    t.equal((await call(gateway, key, stream)).status, 200, of);
  }
  const answer = await call(gateway, key, stream);
  const message = checkError(t, answer, CODES[quota], of);
  t.ok(message.startsWith(whose), `${of}: ${message}`);
  const seconds = answer.headers['retry-after']!;
  t.match(message, new RegExp(`Retry after ${seconds} second`), of);
  if (quota.includes('minute')) t.ok(Number(seconds) <= 63, `${of}: ${seconds} s`);
  if (quota === 'requests_per_minute') {
    t.match(answer.headers, { 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0' }, of);
    const aheadSeconds = Number(answer.headers['x-ratelimit-reset']) - Date.now() / 1_000;
    t.ok(Math.abs(aheadSeconds - Number(seconds)) <= 5, `${of}: reset ${aheadSeconds} s ahead`);
  }
  if (quota === 'tokens_per_minute') {
    const headers = {
      'x-ratelimit-limit-tokens': String(TIGHT[quota]),
      'x-ratelimit-reset-tokens': /^(1m)?[\d.]+m?s$/,
    };
    t.match(answer.headers, headers, of);
  }
  open?.outgoing.destroy();
}

void t.test('quotas', async (t) => {
  // Of the calls that fail on purpose the last ones end last, by their retries: a breaker would open.
  const { gateway } = await startBed(t, { plans: PLANS, upstream: { breaker_failures: 0 } });
  const { admin } = gateway;

  for (const name of Object.keys(SCOPES)) {
    await t.test(`each quota of a ${name}`, async (t) => {
      for (const [at, quota] of QUOTA_NAMES.entries()) {
        await checkRefusal(t, gateway, name, quota, at % 2 === 0);
        await checkRefusal(t, gateway, name, quota, at % 2 !== 0);
      }
    });
  }

  await t.test('the headers of tokens, as the package openai has them', async (t) => {
    // For two calls, of which the first has ended by then.
    const LIMIT = HELD + USED.prompt + USED.completion + 30;
    const { key } = await admin.customer({ limits: { tokens_per_minute: LIMIT } });
    const client = new OpenAI({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries: 0 });
    const body = bodyOf() as OpenAI.ChatCompletionCreateParamsNonStreaming;
    const before = await gateway.request(key, { body: '{' });
    t.match(
      before.headers,
      { 'x-ratelimit-remaining-tokens': String(LIMIT) },
      'of a refusal before the model is known',
    );
    const { response, data } = await client.chat.completions.create(body).withResponse();
    const held = bytesOf(body) + MAX_TOKENS;
    t.equal(response.headers.get('x-ratelimit-limit-tokens'), String(LIMIT));
    t.equal(
      response.headers.get('x-ratelimit-remaining-tokens'),
      String(LIMIT - held),
      'with the call itself',
    );
    t.match(response.headers.get('x-ratelimit-reset-tokens'), /^(1m)?[\d.]+s$/);
    t.match(response.headers.get('x-ratelimit-limit'), /^\d+$/);
    t.equal(data.usage?.total_tokens, USED.prompt + USED.completion);
    const streamed = await client.chat.completions.create({ ...body, stream: true }).withResponse();
    const heldStreamed = bytesOf({ ...body, stream: true }) + MAX_TOKENS;
    t.equal(
      streamed.response.headers.get('x-ratelimit-remaining-tokens'),
      String(LIMIT - data.usage!.total_tokens - heldStreamed),
      'what the first held and did not use is back',
    );
    await streamed.data.toReadableStream().pipeTo(new WritableStream());
    const error = await client.chat.completions.create(body).then(
      () => t.fail('a third call fits'),
      (reason: unknown) => reason,
    );
    t.ok(error instanceof OpenAI.RateLimitError);
    const { headers } = error as { headers: Headers };
    t.equal(headers.get('x-ratelimit-remaining-tokens'), String(LIMIT - 2 * data.usage!.total_tokens));
    const none = await call(gateway, (await admin.customer()).key, false);
    t.notHas(none.headers, 'x-ratelimit-limit-tokens', 'no quota, no header');
  });

  await t.test('of five concurrent calls as many are admitted as fit', async (t) => {
    const slow = steered(`prompt_tokens=1&completion_tokens=1&bytes=4&first_byte_ms=3000`, '');
    const short = bodyOf(slow, { max_tokens: 1 });
    const held = bytesOf(short) + 1;
    for (const [limit, fit] of [
      [100 + held, Math.floor((100 + held) / held)],
      [3 * held, 3],
    ] as const) {
      const group = await admin.group({ tokens_per_minute: limit });
      const keys = await Promise.all([1, 2, 3].map(async () => (await admin.customer({ group })).key));
      const answers = await Promise.all(
        [0, 1, 2, 3, 4].map((n) => gateway.request(keys[n % 3]!, { body: short })),
      );
      t.equal(answers.filter(({ status }) => status === 200).length, fit, `${limit} of ${held} each`);
      t.equal(answers.filter(({ status }) => status === 429).length, 5 - fit);
      const next = await gateway.request(keys[0]!, { body: short });
      t.equal(next.status, 200, 'once they have ended, what they did not use is free');
    }
  });

  await t.test('what can never fit is told so at once, with what would', async (t) => {
    for (const quota of QUOTA_NAMES.filter((name) => /tokens|spend/.test(name))) {
      const limit = TIGHT[quota];
      const group = await admin.group({ [quota]: limit, calls_in_flight: 1 });
      const { key } = await admin.customer({ group });
      const open = await openStream(
        gateway.port,
        key,
        bodyOf(steered('chunk_ms=100&chunks=1000', ''), { stream: true, max_tokens: 1 }),
      );
      const answer = await call(gateway, key, false, { max_tokens: 900 });
      const message = checkError(t, answer, 'invalid_parameters', quota);
      t.match(message, `the group ${group} allows`, quota);
      const [, most] = /Set max_tokens to at most (\d+)\./.exec(message) ?? [];
      t.ok(Number(most) >= MAX_TOKENS, message);
      open.outgoing.destroy();
      await eventually('the stream has ended', async () =>
        (await call(gateway, key, false, { max_tokens: 900 })).status === 400 &&
        (await admin.groupQuotas(group)).calls_in_flight?.held === 0
          ? true
          : undefined,
      );
      // The shorter number makes the body a byte shorter than the one that was refused.
      const above = await call(gateway, key, false, { max_tokens: Number(most) + 2 });
      checkError(t, above, 'invalid_parameters', `${quota}, one token more`);
      const huge = await gateway.chat(key, 'x'.repeat(2_000), { max_tokens: 1 });
      t.match(checkError(t, huge, 'invalid_parameters', quota), /Shorten the messages\.$/);
    }
  });

  await t.test('what is counted is what the answers say was used', async (t) => {
    const group = await admin.group({
      tokens_per_minute: 1_000_000,
      tokens_per_month: 1_000_000_000,
      spend_per_month: '1000.00',
      calls_per_month: 1_000_000,
      calls_in_flight: 100,
    });
    const { key, accountId } = await admin.customer({ group });
    const uses = { tokens: 0, calls: 0 };
    const one = async (n: number): Promise<void> => {
      const [prompt, completion] = [20 + n, 1 + (n % MAX_TOKENS)];
      const usage = `prompt_tokens=${prompt}&completion_tokens=${completion}&bytes=4`;
      const headers = { 'idempotency-key': `call-${n}` };
      const kind = n % 6;
      if (kind === 0)
        t.equal(
          (await gateway.chat(key, steered(`${usage}&status=500`), { max_tokens: MAX_TOKENS })).status,
          502,
        );
      if (kind === 1)
        t.equal(
          (await gateway.chat(key, steered(`${usage}&fault=reset-mid`), { max_tokens: MAX_TOKENS })).status,
          502,
        );
      if (kind === 2) {
        t.equal((await gateway.chat(key, steered(`status=400`), { max_tokens: MAX_TOKENS })).status, 400);
        uses.calls += 1;
      }
      if (kind < 3) return;
      const body = bodyOf(steered(usage), { stream: kind === 4 });
      t.equal((await gateway.request(key, { body, headers })).status, 200);
      // A repeat is answered from what was kept, and uses nothing.
      if (kind === 5) t.equal((await gateway.request(key, { body, headers })).status, 200);
      uses.calls += 1;
      uses.tokens += prompt + completion;
    };
    await Promise.all(Array.from({ length: 60 }, (_, n) => one(n)));
    // Of a client that leaves, the prompt and what was relayed are counted.
    const left = await openStream(
      gateway.port,
      key,
      bodyOf(steered('chunk_ms=50&chunks=200'), { stream: true }),
    );
    await new Promise<void>((resolve) => {
      left.incoming.on('data', (part: Buffer) => {
        if (/"content":"[^"]/.test(String(part))) resolve();
      });
    });
    left.outgoing.destroy();
    uses.calls += 1;
    const quotas = await eventually('all calls have ended', async () => {
      const now = await admin.groupQuotas(group);
      return now.calls_in_flight?.held === 0 && now.tokens_per_month?.held === 0 ? now : undefined;
    });
    const books = await eventually('all calls in the books', async () => {
      const found = await admin.usageOf(accountId);
      return found?.calls === 61 ? found : undefined;
    });
    const booked = books.prompt_tokens + books.completion_tokens;
    t.ok(booked > uses.tokens, 'the books have the answers, and what the client that left was sent');
    t.match(quotas, {
      tokens_per_minute: { used: booked, held: 0 },
      tokens_per_month: { used: booked, held: 0 },
      calls_per_month: { used: uses.calls, held: 0 },
      spend_per_month: { used: books.cost, held: '0.00' },
    } satisfies Record<string, Partial<QuotaUseView>>);
  });

  await t.test('the metric of refusals names the quota', async (t) => {
    const page = await (await fetch(`http://127.0.0.1:${admin.port}/metrics`)).text();
    for (const reason of [
      'tokens_per_minute',
      'tokens_per_day',
      'spend_per_month',
      'group_calls_in_flight',
      'beyond_quota',
    ]) {
      t.match(page, new RegExp(`tollgate_refusals_total\\{[^}]*reason="${reason}"[^}]*\\} [1-9]`), reason);
    }
  });

  t.equal(await gateway.stop(), 0);
});

void t.test('token_quota: settle admits while there is room; cached input may be free', async (t) => {
  const { gateway } = await startBed(t, { token_quota: 'settle', quota_cached_input: 'free' });
  const { admin } = gateway;
  const group = await admin.group({ tokens_per_day: 100 });
  const { key } = await admin.customer({ group });
  const usage = 'prompt_tokens=60&cached_tokens=20&completion_tokens=10&bytes=40&first_byte_ms=3000';
  const body = bodyOf(steered(usage), { max_tokens: 900 });
  const answers = await Promise.all([1, 2, 3].map(() => gateway.request(key, { body })));
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200],
    'nothing was used when they came',
  );
  t.match(await admin.groupQuotas(group), { tokens_per_day: { limit: 100, used: 150, held: 0, left: 0 } });
  const message = checkError(t, await gateway.request(key, { body }), 'daily_limit_exceeded', 'then');
  t.match(message, /allows 100 tokens per day and they are used up\./);
  t.equal(await gateway.stop(), 0);
});

void t.test('low_balance: clamp lowers max_tokens to what a budget affords', async (t) => {
  const { gateway } = await startBed(t, { low_balance: 'clamp' });
  const { admin } = gateway;
  const group = await admin.group({ spend_per_month: TIGHT.spend_per_month });
  const { key } = await admin.customer({ group });
  const sent = async (): Promise<number> => {
    const answer = await gateway.chat(key, steered('echo'), { max_tokens: 900 });
    t.equal(answer.status, 200, answer.body);
    const { choices } = answer.json() as { choices: [{ message: { content: string } }] };
    const { body } = JSON.parse(choices[0].message.content) as { body: string };
    return (JSON.parse(body) as { max_tokens: number }).max_tokens;
  };
  const first = await sent();
  t.ok(first >= MAX_TOKENS && first < 900, `${first} tokens`);
  t.equal(await gateway.stop(), 0);
});
