/** What `tollgate mock-upstream` prints is the address at which it answers. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import t from 'tap';
import { runCommand } from '../../support/command.js';

async function canListen(host: string): Promise<boolean> {
  const server = createServer();
  server.listen(0, host);
  const can = await once(server, 'listening').then(
    () => true,
    () => false,
  );
  server.close();
  return can;
}

for (const host of ['127.0.0.1', 'localhost', '::1'])
  void t.test(`on ${host}`, { skip: !(await canListen(host)) && `no ${host} here` }, async (t) => {
    const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
    const mock = spawn(process.execPath, [main, 'mock-upstream', '--host', host], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.teardown(() => mock.kill('SIGKILL'));
    const [line] = (await once(mock.stdout, 'data')) as [Buffer];
    const [, origin] = /^mock upstream on (http:\/\/\S+)\n$/.exec(String(line)) ?? [];
    t.equal((await fetch(`${origin}/mock/stats`)).status, 200, String(line));
    mock.kill('SIGTERM');
    t.same(await once(mock, 'exit'), [0, null]);
  });

void t.test('a wrong port is a wrong command line', async (t) => {
  for (const port of ['-1', '65536', '1.5', 'x', ''])
    t.match(await runCommand(t.testdir(), ['mock-upstream', `--port=${port}`]), {
      code: 2,
      stdout: '',
      stderr: /^error: port wants an integer from 0 to 65535, got /,
    });
});
