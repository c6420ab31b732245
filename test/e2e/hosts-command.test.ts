/** `tollgate hosts …` at gateways that are two hosts, and at one that shares with nobody. */
import { checkError } from '../support/error-answer.js';
import t from 'tap';
import type { HostView } from '#src/admin/views.js';
import { runCommand, type CommandEnd } from '../support/command.js';
import { startGateway, testSettings } from '../support/gateway.js';
import { NO_REDIS, startRedis } from '../support/redis-server.js';

void t.test('hosts are listed, and one that is alive is not forgotten', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const config = testSettings('echo:', { sharing: { url: redis.url } });
  const [here, there] = await Promise.all([startGateway(t, { config }), startGateway(t, { config })]);
  const run = (...args: string[]): Promise<CommandEnd> => runCommand(here.folder, ['hosts', ...args]);

  const list = await run('list', '--json');
  t.equal(list.code, 0, list.stderr);
  const { data } = list.json() as { data: readonly HostView[] };
  t.match(data, [{ last_heard: Number }, { last_heard: Number }]);
  const other = data.find(({ self }) => !self)!;
  t.match(await run('forget', other.id), { code: 2, stderr: /Nobody is here to confirm: give --yes/ });
  // By now it may have been idle for long: a host that says something is alive.
  const { key } = await there.admin.customer({ credit: '1.00' });
  t.equal((await there.chat(key, 'Hello')).status, 200);
  t.match(await run('forget', other.id, '--yes'), {
    code: 1,
    stderr: /host .* is alive, the server heard it/,
  });
});

void t.test('a gateway that shares with no other host', async (t) => {
  const gateway = await startGateway(t, { config: testSettings('echo:') });
  for (const [method, path] of [
    ['GET', '/admin/v1/hosts'],
    ['DELETE', '/admin/v1/hosts/other'],
  ] as const)
    checkError(t, await gateway.admin.send(method, path), 'conflict', `${method} ${path}`);
  const end = await runCommand(gateway.folder, ['hosts', 'list']);
  t.match(end, { code: 1, stderr: /this gateway shares with no other host: its settings have no sharing/ });
});
