/**
 * Upstreams that are set to finish if a client leaves: who reads the text and leaves before the usage comes
 * pays for the thoughts that nobody saw. Such calls keep nobody else waiting, and none outlives its gateway.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { LEFT_CALLS_OF_ACCOUNT_MAX } from '#src/core/limits.js';
import { picoUnitsOf } from '#src/core/money.js';
import { eventually, startGateway, TEST_MODEL, testSettings } from '../support/gateway.js';
import { SlowReader } from '../support/slow-reader.js';

const THOUGHTS = 20_000;
const PROMPT = 7;
const VISIBLE = 3;
const QUICK = 1e9;
/** In pico-units, at the prices of testSettings: a whole call. */
const WHOLE = PROMPT * 1_500_000 + (THOUGHTS + VISIBLE) * 2_250_000;
const LEAVERS = 2 * LEFT_CALLS_OF_ACCOUNT_MAX;
/** Below the bounds of a call's time, which are minutes. A busy machine needs seconds for a stop. */
const SOON_MS = 40_000;

const eventOf = (members: object): string =>
  `data: ${JSON.stringify({ object: 'chat.completion.chunk', choices: [], ...members })}\n\n`;
const choiceOf = (content: string, reason: string | null) => ({
  choices: [{ index: 0, delta: { content }, finish_reason: reason }],
});
const TEXT = eventOf(choiceOf('the whole answer', null));
const END =
  eventOf(choiceOf('', 'stop')) +
  eventOf({
    usage: {
      prompt_tokens: PROMPT,
      completion_tokens: THOUGHTS + VISIBLE,
      completion_tokens_details: { reasoning_tokens: THOUGHTS },
    },
  }) +
  'data: [DONE]\n\n';

/** The upstream sends the text and waits; `quick` in the prompt: it ends at once. */
async function start(t: Test, settings: object = {}) {
  const open = new Set<ServerResponse>();
  const upstream = createServer((request, response) => {
    let body = '';
    request.on('data', (piece: Buffer) => (body += piece.toString()));
    request.on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(TEXT);
      if (body.includes('quick')) response.end(END);
      else open.add(response);
    });
    response.on('close', () => open.delete(response));
  });
  upstream.listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.teardown(() => {
    upstream.closeAllConnections();
    upstream.close();
  });
  const url = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/v1`;
  const gateway = await startGateway(t, {
    config: testSettings(url, {
      // The bound of an account is a worker's.
      workers: 1,
      workers_from_load_percent: 0,
      upstream: { when_client_leaves: 'finish' },
      model: { max_output_tokens: 100_000 },
      ...settings,
    }),
  });
  const call = (key: string, content: string, headers: Readonly<Record<string, string>> = {}): SlowReader => {
    const body = { model: TEST_MODEL, messages: [{ role: 'user', content }], stream: true };
    return new SlowReader(gateway.port, key, body, QUICK, true, headers);
  };
  const settled = (accountId: string) =>
    eventually('nothing held', async () => {
      const account = await gateway.admin.account(accountId);
      return account.held === '0.00' ? account : undefined;
    });
  return { open, gateway, call, settled };
}

const hasText = (reader: SlowReader) => () => (reader.text().includes('answer') ? true : undefined);

void t.test('who leaves after the last text pays the thoughts', async (t) => {
  const { open, gateway, call, settled } = await start(t);
  const { key, accountId } = await gateway.admin.customer({ credit: '10.00' });
  const reader = call(key, 'think', { 'idempotency-key': 'one' });
  await eventually('the text', hasText(reader));
  reader.leave();
  // The call of the same Idempotency-Key is a new one, and does not wait for the end of the first.
  const repeat = await eventually('the key is free', async () => {
    const again = call(key, 'think', { 'idempotency-key': 'one' });
    await eventually('a response', () => (again.readBytes > 0 ? true : undefined));
    if (again.text().startsWith('HTTP/1.1 200')) return again;
    again.leave();
    return undefined;
  });
  t.equal(open.size, 2, 'the upstream was not aborted');
  t.not((await gateway.admin.account(accountId)).held, '0.00');
  for (const response of open) response.end(END);
  await eventually('the whole of the second', () => (repeat.text().includes('[DONE]') ? true : undefined));
  repeat.leave();
  const { spent } = await settled(accountId);
  t.equal(Number(picoUnitsOf(spent)), 2 * WHOLE);
  const left = await eventually('its record', async () => {
    const { body } = await gateway.admin.send('GET', `/admin/v1/calls?account=${accountId}&code=client_gone`);
    const { data } = JSON.parse(body) as { data: { attempts: object[] }[] };
    return data.find(({ attempts }) => attempts.length > 0);
  });
  t.match(left, { reasoning_tokens: THOUGHTS, source: 'reported' });
  t.match(left.attempts, [{ status: 200, code: null, error: null }], 'finished, not cancelled');
  const metrics = (await gateway.admin.send('GET', '/metrics')).body;
  t.match(metrics, /tollgate_upstream_clients_left_total\{[^}]*end="finished"[^}]*\} 1\n/);
  t.equal(await gateway.stop(), 0);
});

void t.test('many who leave at once do not keep others from being served', async (t) => {
  const { open, gateway, call, settled } = await start(t);
  const leaver = await gateway.admin.customer({ credit: '1000.00' });
  const other = await gateway.admin.customer({ credit: '10.00' });
  const readers = Array.from({ length: LEAVERS }, () => call(leaver.key, 'think'));
  for (const reader of readers) await eventually('the text', hasText(reader));
  for (const reader of readers) reader.leave();
  await eventually('those beyond the share are aborted', () =>
    open.size === LEFT_CALLS_OF_ACCOUNT_MAX ? true : undefined,
  );
  const startMs = performance.now();
  for (let count = 0; count < 10; count += 1) {
    const served = call(other.key, 'quick');
    await eventually('a whole response', () => (served.text().includes('[DONE]') ? true : undefined));
    served.leave();
  }
  t.ok(performance.now() - startMs < SOON_MS);
  t.equal(Number(picoUnitsOf((await settled(other.accountId)).spent)), 10 * WHOLE);
  t.equal(open.size, LEFT_CALLS_OF_ACCOUNT_MAX);
  for (const response of open) response.end(END);
  const { spent } = await settled(leaver.accountId);
  t.ok(Number(picoUnitsOf(spent)) > LEFT_CALLS_OF_ACCOUNT_MAX * WHOLE);
  t.equal(await gateway.stop(), 0);
});

void t.test('a gateway that stops does not wait for them, and charges what came', async (t) => {
  const { open, gateway, call } = await start(t, { drain_timeout_ms: 60_000 });
  const { key, accountId } = await gateway.admin.customer({ credit: '10.00' });
  const reader = call(key, 'think');
  await eventually('the text', hasText(reader));
  reader.leave();
  await eventually('it holds', async () =>
    (await gateway.admin.account(accountId)).held === '0.00' ? undefined : true,
  );
  t.equal(open.size, 1);
  const startMs = performance.now();
  t.equal(await gateway.stop(), 0);
  t.ok(performance.now() - startMs < SOON_MS, `${(performance.now() - startMs).toFixed(0)} ms`);
  t.equal(open.size, 0);
  const after = await startGateway(t, {
    folder: gateway.folder,
    args: ['--config', `${gateway.folder}/tollgate.yaml`],
  });
  const { held, spent } = await after.admin.account(accountId);
  t.equal(held, '0.00');
  const charged = Number(picoUnitsOf(spent));
  t.ok(charged > 0 && charged < WHOLE, `charged ${charged}`);
  t.equal(await after.stop(), 0);
});
