/**
 * `POST /v1/messages` as other clients call it: the package `anthropic` for Python; thinking that is asked
 * for by a budget; and calls that the packages repeat by themselves, which are billed once.
 */
import Anthropic from '@anthropic-ai/sdk';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import t from 'tap';
import { eventually, startGateway } from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';

const PYTHON = 'build/tools/judges-python/bin/python';
const PYTHON_MS_MAX = 60_000;
const USAGE = { input_tokens: 10, output_tokens: 5 };
const MESSAGE = {
  ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'm', stop_reason: 'end_turn' },
  ...{ content: [{ type: 'text', text: 'Hello' }], usage: USAGE },
};
const ask = (content: string): Anthropic.MessageParam[] => [{ role: 'user', content }];

void t.test('other clients', async (t) => {
  // Every other answer is an error: 529, then 503.
  let asked = 0;
  const flaky = createServer((request, response) => {
    request.resume().on('end', () => {
      asked++;
      const status = asked % 2 === 0 ? 200 : asked % 4 === 1 ? 529 : 503;
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(status === 200 ? MESSAGE : { type: 'error', error: { type: 'x' } }));
    });
  });
  flaky.listen(0, '127.0.0.1');
  await once(flaky, 'listening');
  t.teardown(() => flaky.close());
  const openai = await startMock(t);
  const claude = await startMock(t, ['--provider', 'anthropic']);
  const price = { input: '1', output: '2' };
  const at = (port: number) => ({
    ...{ provider: 'anthropic', url: `http://127.0.0.1:${port}`, key: '${KEY}' },
  });
  const gateway = await startGateway(t, {
    config: {
      models: [
        { id: 'translated', price, upstreams: [{ url: openai.url }] },
        { id: 'passed', price, upstreams: [at(Number(new URL(claude.origin).port))] },
        { id: 'flaky', price, upstreams: [at((flaky.address() as AddressInfo).port)] },
      ],
      plans: [
        { id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000 },
        { id: 'single', requests_per_minute: 1_000, calls_per_day: 1_000, calls_in_flight: 1 },
      ],
    },
    env: { KEY: 'sk-upstream-0123456789' },
  });
  const clientOf = (apiKey: string, maxRetries: number): Anthropic =>
    new Anthropic({ apiKey, baseURL: gateway.url, maxRetries });

  for (const [model, mock] of [
    ['translated', openai],
    ['passed', claude],
  ] as const)
    await t.test(`thinking, ${model}`, async (t) => {
      const { key } = await gateway.admin.customer();
      const client = clientOf(key, 0);
      const thinking = { type: 'enabled', budget_tokens: 3_000 } as const;
      const body = { model, max_tokens: 4_000, thinking, messages: ask(steered('thinking_bytes=60')) };
      for (const message of [
        await client.messages.create(body),
        await client.messages.stream(body).finalMessage(),
      ]) {
        const [thought, said] = message.content;
        t.match(thought, { type: 'thinking', thinking: /^w0 / });
        t.equal(said?.type, 'text');
      }
      const { last } = await mock.stats();
      const sent = JSON.parse(last!.body) as object;
      t.match(sent, model === 'passed' ? { thinking } : { reasoning_effort: 'medium' });
    });

  const booked = (accountId: string, wanted: { calls?: number; prompt_tokens?: number }) =>
    eventually(`${JSON.stringify(wanted)} in the books`, async () => {
      const row = await gateway.admin.usageOf(accountId);
      const isThere = Object.entries(wanted).every(([name, value]) => row?.[name as 'calls'] === value);
      return isThere ? row : undefined;
    });

  await t.test('a call that failed is repeated by the package, and billed once', async (t) => {
    const { key, accountId } = await gateway.admin.customer();
    for (let calls = 1; calls <= 2; calls++) {
      const before = asked;
      await clientOf(key, 2).messages.create({ model: 'flaky', max_tokens: 9, messages: ask('Hello') });
      t.equal(asked - before, 2);
      const { cost } = await booked(accountId, { prompt_tokens: calls * USAGE.input_tokens });
      // 10 tokens at 1 and 5 at 2 a million.
      t.equal(Number(cost), calls * 0.00002);
    }
  });

  await t.test('529 with Retry-After: the package waits, and each call is billed once', async (t) => {
    const { key, accountId } = await gateway.admin.customer({ plan: 'single' });
    const refusals: unknown[] = [];
    const client = new Anthropic({
      apiKey: key,
      baseURL: gateway.url,
      // One a second: on a busy machine the first call takes longer than a few.
      maxRetries: 60,
      fetch: async (input, init) => {
        const response = await fetch(input, init);
        if (!response.ok) refusals.push([response.status, response.headers.get('retry-after')]);
        return response;
      },
    });
    const slow = { model: 'passed', max_tokens: 9, messages: ask(steered('first_byte_ms=900')) };
    const startedMs = performance.now();
    await Promise.all([client.messages.create(slow), client.messages.create(slow)]);
    // A second refusal, if the machine is so busy that the first call takes longer than its second.
    t.same([...new Set(refusals.map((refusal) => JSON.stringify(refusal)))], ['[529,"1"]']);
    t.ok(performance.now() - startedMs >= 1_000, 'it waited');
    await booked(accountId, { calls: 2 });
  });

  const skip = existsSync(PYTHON) ? false : 'no Python of the judges: test/setup-tools.sh judges';
  await t.test('the Python package', { skip }, async (t) => {
    const { key } = await gateway.admin.customer();
    const { stdout } = await promisify(execFile)(
      PYTHON,
      ['test/judges/messages_client.py', gateway.url, key, 'flaky', 'translated', 'passed'],
      { timeout: PYTHON_MS_MAX },
    );
    t.equal(stdout.trim(), 'ok');
  });
  await gateway.stop();
});
