/** The admin interface passes from one gateway of a group to another, and back. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { AdminService, type AdminServiceOptions } from '#src/gateway/admin-service.js';
import { eventually } from '../../support/gateway.js';
import { ListLog, openHouse } from '../store/support.js';

const HOST = '127.0.0.1';

/**
 * A service whose gateway has a registry, and a history in memory; its other parts are not called, but for
 * `parts`. `accounts` is the second of the two reads that are recorded.
 */
function openService(
  t: Test,
  port: number,
  accounts: () => Promise<[]> = () => Promise.resolve([]),
  parts: object = {},
) {
  const data = t.testdir({});
  const { store, registry } = openHouse(data);
  const log = new ListLog();
  const reads = { status: 0 };
  const written: unknown[] = [];
  const history = { read: () => [], readAccounts: () => [], put: (...rows: unknown[]) => written.push(rows) };
  const service = new AdminService({
    settings: { data, admin: { host: HOST, port, hosts: [] } },
    live: { settings: { admin: {} } },
    accounting: {
      base: { store: { history } },
      registry,
      sharing: {},
      cache: { clear: () => undefined },
    },
    stats: {
      status: () => Promise.resolve({ calls_in_flight: 0, reads: (reads.status += 1) }),
      accounts,
    },
    log,
    ...parts,
  } as unknown as AdminServiceOptions);
  t.teardown(async () => {
    service.close();
    await store.close();
  });
  return { service, log, reads, written };
}

const until = (isTrue: () => boolean): Promise<true> => eventually('it', () => isTrue() || undefined);

void t.test('a gateway that has the interface again records the history again', async (t) => {
  const { service, reads } = openService(t, 0);
  await service.open({ checksPort: false });
  service.follow();
  t.equal(await service.lead(), true);
  t.ok(await until(() => reads.status > 0));
});

void t.test('at the end the connections of an earlier interface are closed too', async (t) => {
  const { service } = openService(t, 0);
  const socket = connect(await service.open({ checksPort: false }), HOST);
  socket.write(`GET /healthz HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`);
  await once(socket, 'data');
  service.follow();
  t.equal(await service.lead(), true);
  service.close();
  const timeout = AbortSignal.timeout(5_000);
  await t.resolves(once(socket, 'close', { signal: timeout }), 'at once, not when it has been idle for long');
});

void t.test('a try to open the interface ends at the next order', async (t) => {
  const holder = createServer().listen(0, HOST);
  await once(holder, 'listening');
  const { port } = holder.address() as AddressInfo;
  const { service, log } = openService(t, port);
  const first = service.lead();
  t.ok(await until(() => log.lines.length > 0), 'it cannot be opened');
  service.follow();
  const second = service.lead();
  holder.close();
  await once(holder, 'close');
  t.same(await Promise.all([first, second]), [false, true]);
  t.equal((await fetch(`http://${HOST}:${port}/healthz`)).status, 200);
  service.follow();
  await t.rejects(fetch(`http://${HOST}:${port}/healthz`, { headers: { connection: 'close' } }));
});

void t.test('what operators do is logged at every level', async (t) => {
  const done = () => undefined;
  const view = { level: 'error', access_log: 'off', sample_percent: 100 };
  const { service, log } = openService(t, 0, undefined, {
    logs: { changeSwitch: () => view },
    supervisor: { broadcast: done },
    carryOut: done,
  });
  // As with `log.level: error`.
  log.info = done;
  const port = await service.open({ checksPort: false });
  const send = async (method: string, path: string, body: object): Promise<void> => {
    const headers = { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' };
    const url = `http://${HOST}:${port}/admin/v1${path}`;
    const response = await fetch(url, { method, headers, body: JSON.stringify(body) });
    t.equal(response.status, 200, await response.text());
  };
  await send('PUT', '/log', { level: 'error' });
  await send('POST', '/upstreams/reset', {});
  await send('POST', '/cache/clear', {});
  for (const line of [/changed what is logged/, /had upstreams called again/, /cleared the response cache/])
    t.match(log.lines.join('\n'), line);
});

void t.test('a gateway that gives the interface away ends its live streams', async (t) => {
  const { service } = openService(t, 0);
  const port = await service.open({ checksPort: false });
  const headers = { authorization: `Bearer ${service.token}` };
  const stream = await fetch(`http://${HOST}:${port}/admin/v1/live`, { headers });
  t.equal(stream.status, 200);
  const ended = stream.text().catch(() => undefined);
  service.follow();
  await ended;
  t.pass('it does not stand still');
});

void t.test('an interface that opens after the gateway was closed does not stay open', async (t) => {
  const { service } = openService(t, 0);
  const opening = service.open({ checksPort: true });
  service.close();
  const port = await opening;
  await t.rejects(fetch(`http://${HOST}:${port}/healthz`, { headers: { connection: 'close' } }));
});

void t.test('a gateway that gives the interface away records nothing that it reads later', async (t) => {
  const waiting: ((reports: []) => void)[] = [];
  const { service, written } = openService(t, 0, () => new Promise((resolve) => void waiting.push(resolve)));
  await service.open({ checksPort: false });
  t.ok(await until(() => waiting.length > 0));
  service.follow();
  waiting[0]!([]);
  await sleep(10);
  t.same(written, []);
});

void t.test('of the interfaces that were opened the last few are kept', async (t) => {
  const { service } = openService(t, 0);
  const socket = connect(await service.open({ checksPort: false }), HOST);
  socket.write(`GET /healthz HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`);
  await once(socket, 'data');
  // Without an answer its connection stays: the next response would end it.
  const closed = once(socket, 'close', { signal: AbortSignal.timeout(5_000) });
  for (let turns = 0; turns < 4; turns++) {
    service.follow();
    t.equal(await service.lead(), true);
  }
  await t.resolves(closed, 'at once, not when it has been idle for long');
});
