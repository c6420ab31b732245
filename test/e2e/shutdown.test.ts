/**
 * How a gateway ends: asked to, killed, or left alone by its supervisor.
 */
import t from 'tap';
import { startBed } from '../support/bed.js';
import { TEST_MODEL, eventually, startGateway, type Gateway } from '../support/gateway.js';
import { request } from '../support/http.js';
import { steered } from '../support/mock.js';
import { chunksOf, eventData, isWholeText, openStream, readRest, textOf } from '../support/sse.js';

const readiness = async (gateway: Gateway): Promise<number> =>
  (await request({ port: gateway.admin.port, path: '/readyz' })).status;

const lives = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

void t.test('SIGTERM: not ready, calls finish, charges are kept', async (t) => {
  // A flush that never comes by itself within the test: what is on disk after it came from the end.
  const { gateway } = await startBed(t, { flush_interval_ms: 60_000 });
  const { key, accountId } = await gateway.admin.customer();
  t.equal(await readiness(gateway), 200);
  t.equal((await request({ port: gateway.admin.port, path: '/healthz' })).status, 200);
  for (let call = 0; call < 10; call += 1) t.equal((await gateway.chat(key, 'Hello')).status, 200);

  const { incoming } = await openStream(gateway.port, key, {
    model: TEST_MODEL,
    messages: [
      { role: 'user', content: steered('chunks=40&chunk_ms=50&prompt_tokens=4&completion_tokens=40') },
    ],
    stream: true,
  });
  const before = await gateway.admin.account(accountId);
  const rest = readRest(incoming);
  const stopped = gateway.stop();
  t.equal(
    await eventually('readyz to fail', async () => {
      const status = await readiness(gateway);
      return status === 200 ? undefined : status;
    }),
    503,
  );
  // The listeners hear of it a little later. Until then a call on a new connection is served.
  let late = 0;
  await eventually('new connections to be refused', async () => {
    const response = await gateway.chat(key, 'Hello').catch(() => undefined);
    if (response === undefined) return true;
    t.equal(response.status, 200);
    late += 1;
    return undefined;
  });
  const body = await rest;
  t.ok(isWholeText(textOf(chunksOf(body)), 40), 'the stream finished');
  t.equal(eventData(body).at(-1), '[DONE]');
  t.equal(await stopped, 0, 'exit status');
  t.throws(() => gateway.pid(), 'its file is gone');

  const again = await startGateway(t, {
    folder: gateway.folder,
    args: ['--config', `${gateway.folder}/tollgate.yaml`],
  });
  const after = await again.admin.account(accountId);
  t.equal(after.held, '0.00');
  t.equal(after.calls_today, 11 + late);
  t.ok(Number(after.spent) > Number(before.spent), 'with the charge of the last stream');
  t.equal((await again.chat(key, 'Hello')).status, 200, 'the key is still good');
  t.equal(await again.stop(), 0);
});

void t.test(
  'kill -9 of the gateway: the supervisor starts another on the same port; then of the supervisor',
  async (t) => {
    const { gateway } = await startBed(t, { flush_interval_ms: 20 });
    const { key, accountId } = await gateway.admin.customer();
    t.equal((await gateway.chat(key, 'Hello')).status, 200);
    const killed = gateway.pid();
    process.kill(killed, 'SIGKILL');
    await eventually('its end', () => (lives(killed) ? undefined : true));
    const status = await eventually('service', async () => (await gateway.chat(key, 'Hello')).status);
    t.equal(status, 200, 'the same address and key');
    t.not(gateway.pid(), killed);
    const account = await gateway.admin.send('GET', `/admin/v1/accounts/${accountId}`).catch(() => undefined);
    if (account !== undefined) t.match(account.json(), { credited: '100.00' });
    t.match(gateway.child.stderr(), /"level":"warn"[^\n]*gateway ended unasked/, 'it is in the log');

    const pid = gateway.pid();
    await gateway.child.stop('SIGKILL', 60_000);
    await eventually('the end of the gateway', () => (lives(pid) ? undefined : true));
    t.pass('without its supervisor it ends by itself');
  },
);

void t.test('SIGTERM with a call that does not end: cut off after drain_timeout_ms', async (t) => {
  const { gateway } = await startBed(t, { drain_timeout_ms: 500 });
  const { key } = await gateway.admin.customer();
  const { incoming } = await openStream(gateway.port, key, {
    model: TEST_MODEL,
    messages: [{ role: 'user', content: steered('fault=stall-mid') }],
    stream: true,
  });
  const rest = readRest(incoming).catch(() => '');
  const beganMs = performance.now();
  t.equal(await gateway.stop(), 0);
  t.ok(performance.now() - beganMs < 30_000, 'and not after the minutes that a call may take');
  t.notOk(eventData(await rest).includes('[DONE]'));
});
