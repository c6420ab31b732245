/**
 * Nobody is served on credit by addresses: an image or a video is some bytes in the request and many tokens
 * in the provider's report. With `media_part_tokens` a call is admitted only if the balance covers them, so
 * that no charge is uncovered, however many calls come at once; and a client that leaves before the report
 * pays for them too.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import type { AccountView, Customer } from '../support/admin-client.js';
import { eventually, startGateway, TEST_MODEL, testSettings, type Gateway } from '../support/gateway.js';
import { SlowReader } from '../support/slow-reader.js';

const CALLS = 60;
/** What the provider reports of each image, and what the model takes it for. */
const IMAGE_TOKENS = 500_000;
/** Pays for one call with an image: at TEST_PRICE it is 0.75, and the rest of its hold some thousandths. */
const CREDIT = '0.80';
const INPUT = 1_500_000n;

const body = (stream: boolean): object => ({
  model: TEST_MODEL,
  stream,
  max_tokens: 1,
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'look' },
        { type: 'image_url', image_url: { url: 'https://images.example/1' } },
      ],
    },
  ],
});

/** Whole answers tell their usage; streams send one word, and nothing after it. */
async function startProvider(t: Test): Promise<{ url: string; calls: () => number }> {
  let calls = 0;
  const server = createServer((request, response) => {
    let text = '';
    request.on('data', (piece: Buffer) => (text += piece.toString()));
    request.on('end', () => {
      calls += 1;
      if ((JSON.parse(text) as { stream: boolean }).stream) {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        const choices = [{ index: 0, delta: { content: 'Hello' }, finish_reason: null }];
        const chunk = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices };
        response.write(`data: ${JSON.stringify(chunk)}\n\n`);
        return;
      }
      // After all calls have come, so that none is settled before the last is admitted.
      setTimeout(() => {
        response.writeHead(200, { 'content-type': 'application/json' });
        const usage = {
          prompt_tokens: IMAGE_TOKENS,
          completion_tokens: 1,
          total_tokens: IMAGE_TOKENS + 1,
        };
        const message = { role: 'assistant', content: 'Hello' };
        const choices = [{ index: 0, message, finish_reason: 'stop' }];
        const answer = { id: 'c', object: 'chat.completion', created: 1, model: 'm', choices, usage };
        response.end(JSON.stringify(answer));
      }, 500);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, calls: () => calls };
}

const settled = (gateway: Gateway, { accountId }: Customer): Promise<AccountView> =>
  eventually('nothing held', async () => {
    const account = await gateway.admin.account(accountId);
    return account.held === '0.00' && account.spent !== '0.00' ? account : undefined;
  });

void t.test('sixty calls at once, each with an image by its address', async (t) => {
  for (const mediaPartTokens of [0, IMAGE_TOKENS]) {
    const provider = await startProvider(t);
    const model = { media_part_tokens: mediaPartTokens };
    const gateway = await startGateway(t, { config: testSettings(provider.url, { model }) });
    const customer = await gateway.admin.customer({ credit: CREDIT });
    const answers = await Promise.all(
      Array.from({ length: CALLS }, () =>
        gateway.request(customer.key, {
          method: 'POST',
          path: '/v1/chat/completions',
          body: body(false),
        }),
      ),
    );
    const served = answers.filter(({ status }) => status === 200).length;
    const account = await settled(gateway, customer);
    if (mediaPartTokens === 0) {
      t.equal(served, CALLS, 'without the setting all are served');
      t.not(account.uncovered, '0.00', 'and most of what they cost is lost');
      continue;
    }
    t.equal(served, 1, 'the balance pays for one');
    t.equal(provider.calls(), 1);
    t.equal(answers.filter(({ status }) => status === 403).length, CALLS - 1);
    t.equal(account.uncovered, '0.00');
    t.equal(picoUnitsOf(account.spent), BigInt(IMAGE_TOKENS) * INPUT + 2_250_000n);
  }
});

void t.test('a client that leaves before the report pays for the image', async (t) => {
  const provider = await startProvider(t);
  const model = { media_part_tokens: IMAGE_TOKENS };
  const gateway = await startGateway(t, { config: testSettings(provider.url, { model }) });
  const customer = await gateway.admin.customer({ credit: CREDIT });
  const reader = new SlowReader(gateway.port, customer.key, body(true), 1_000_000, true);
  await eventually('the first word', () =>
    Buffer.concat(reader.parts).includes('Hello') ? true : undefined,
  );
  reader.leave();
  const { spent, uncovered } = await settled(gateway, customer);
  const tokens = Number(picoUnitsOf(spent)! / INPUT);
  t.ok(tokens > IMAGE_TOKENS && tokens < IMAGE_TOKENS + 50, `${tokens} tokens`);
  t.equal(uncovered, '0.00');
});
