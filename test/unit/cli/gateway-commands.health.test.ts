import t from 'tap';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { writeGatewayFile } from '#src/admin/gateway-file.js';
import { runCommand } from '../../support/command.js';

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

void t.test('as /readyz answers', async (t) => {
  let status = 200;
  const asked: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url);
    response.writeHead(status).end('{}');
  });
  const adminPort = await listening(server);
  const data = t.testdir();
  writeGatewayFile(data, { pid: 42, adminHost: '0.0.0.0', adminPort });

  t.match(await runCommand(data, ['health', '--data', data]), { code: 0, stdout: 'ready\n', stderr: '' });
  t.same(asked, ['/readyz']);
  status = 503;
  const draining = await runCommand(data, ['health', '--data', data]);
  t.match(draining, { code: 1, stdout: '', stderr: /answers 503: the gateway starts or drains\.\n$/ });

  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  const gone = await runCommand(data, ['health', '--data', data]);
  t.match(gone, { code: 1, stderr: /does not answer/ });
});

void t.test('the data directory is that of the option, the environment or the configuration', async (t) => {
  const folder = t.testdir();
  const named = (name: string) => ({ code: 1, stderr: new RegExp(`No gateway serves from \\S*${name}:`) });
  t.match(await runCommand(folder, ['health', '--data', 'given']), named('given'));
  t.match(await runCommand(folder, ['health'], { TOLLGATE_DATA: 'environment' }), named('environment'));
  mkdirSync(join(folder, 'settings'));
  const file = join(folder, 'settings', 'tollgate.yaml');
  const models = [
    { id: 'm', owned_by: 'o', price: { input: '1', output: '1' }, upstreams: [{ url: 'echo:' }] },
  ];
  const plans = [{ id: 'p', requests_per_minute: 1, calls_per_day: 1 }];
  writeFileSync(file, JSON.stringify({ data: './books', models, plans }));
  t.match(await runCommand(folder, ['health', '--config', file]), named('settings/books'));
});
