/**
 * The minute's limit under 50 connections at once, with two listeners and two workers: exact, and true about
 * when to return.
 */
import OpenAI from 'openai';
import t from 'tap';
import { setTimeout as sleep } from 'node:timers/promises';
import { startBed } from '../support/bed.js';
import { checkError } from '../support/error-answer.js';
import { keepAliveAgent, type Answer } from '../support/http.js';

const LIMIT = 100;
const REQUESTS = 2_000;
const CONNECTIONS = 50;
/** Before the limit is free again, so that a busy machine is still refused once. */
const EARLY_MS = 8_000;
/** The package's own timer, and the call after it. */
const LATE_MS_MAX = 20_000;

void t.test('2,000 requests at a limit of 100 a minute', async (t) => {
  const { gateway } = await startBed(t, {
    listen: { listeners: 2 },
    workers: 2,
    plans: [
      { id: 'hundred', requests_per_minute: LIMIT, calls_per_day: 1_000_000 },
      { id: 'one', requests_per_minute: 1, calls_per_day: 1_000_000 },
    ],
  });
  const { key, accountId } = await gateway.admin.customer({ plan: 'hundred' });
  const agent = keepAliveAgent(CONNECTIONS);
  t.teardown(() => agent.destroy());

  const beganMs = Date.now();
  const answers: Answer[] = [];
  let left = REQUESTS;
  await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      while (left > 0) {
        left -= 1;
        const body = { model: 'mock-model', messages: [{ role: 'user', content: 'Hello' }] };
        answers.push(await gateway.request(key, { body, agent }));
      }
    }),
  );
  const tookMs = Date.now() - beganMs;
  t.ok(tookMs < 50_000, `within one minute: ${tookMs} ms`);

  t.equal(answers.length, REQUESTS);
  t.equal(answers.filter(({ status }) => status === 200).length, LIMIT, 'exactly the limit');
  const refused = answers.filter(({ status }) => status === 429);
  t.equal(refused.length, REQUESTS - LIMIT, 'and all others refused');
  const wrong = refused.filter(
    ({ headers, body }) =>
      headers['x-ratelimit-remaining'] !== '0' ||
      headers['x-ratelimit-limit'] !== String(LIMIT) ||
      !/^[1-9]\d?$/.test(headers['retry-after'] ?? '') ||
      !body.includes(`${headers['retry-after']} second`),
  );
  t.same(
    wrong.map(({ headers, body }) => ({ headers, body })).slice(0, 3),
    [],
    'each with remaining 0 and the seconds to wait',
  );
  const remaining = answers
    .filter(({ status }) => status === 200)
    .map(({ headers }) => Number(headers['x-ratelimit-remaining']))
    .sort((a, b) => a - b);
  t.same(
    remaining,
    Array.from({ length: LIMIT }, (_, index) => index),
    'every admitted call saw its own remainder',
  );
  t.equal(
    (await gateway.admin.account(accountId)).calls_today,
    LIMIT,
    'refused ones are not calls of the day',
  );

  /** Refused now; resolves at Reset minus `earlyMs`. */
  const untilReset = async (key: string, earlyMs: number): Promise<void> => {
    const refusal = await gateway.chat(key, 'Hello');
    checkError(t, refusal, 'rate_limit_exceeded', 'still');
    const resetMs = Number(refusal.headers['x-ratelimit-reset']) * 1_000;
    t.ok(resetMs - Date.now() <= 63_000, 'a minute, a sub-bucket and a rounding ahead at most');
    await sleep(Math.max(0, resetMs - earlyMs - Date.now()));
  };

  const waiting = async (): Promise<void> => {
    await untilReset(key, 0);
    t.equal((await gateway.chat(key, 'Hello')).status, 200, 'whoever waits until Reset is admitted');
  };

  // The openai package retries a 429 after the seconds of Retry-After: one retry must be enough.
  const retrying = async (): Promise<void> => {
    const one = await gateway.admin.customer({ plan: 'one' });
    t.equal((await gateway.chat(one.key, 'Hello')).status, 200);
    await untilReset(one.key, EARLY_MS);
    const seen: { status: number; atMs: number; retryAfter: number }[] = [];
    const client = new OpenAI({
      baseURL: `${gateway.url}/v1`,
      apiKey: one.key,
      maxRetries: 1,
      fetch: async (input, init) => {
        const answer = await fetch(input, init);
        const retryAfter = Number(answer.headers.get('retry-after') ?? 0);
        seen.push({ status: answer.status, atMs: performance.now(), retryAfter });
        return answer;
      },
    });
    const messages = [{ role: 'user' as const, content: 'Hello' }];
    const completion = await client.chat.completions.create({ model: 'mock-model', messages });
    t.equal(completion.object, 'chat.completion');
    t.same(
      seen.map(({ status }) => status),
      [429, 200],
    );
    const waitedMs = seen[1]!.atMs - seen[0]!.atMs;
    const reportedMs = seen[0]!.retryAfter * 1_000;
    t.ok(
      waitedMs >= reportedMs && waitedMs < reportedMs + LATE_MS_MAX,
      `told ${reportedMs} ms, waited ${waitedMs} ms`,
    );
  };

  await Promise.all([waiting(), retrying()]);
  t.equal(await gateway.stop(), 0);
});
