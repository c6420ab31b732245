/** One Sentinel that watches a master under the name `main`, and takes it for dead within half a second. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from './free-port.js';
import { eventually, temporaryFolder } from './gateway.js';
import type { Scope } from './mock.js';
import { rawCommand } from './redis-server.js';

interface Sentinel {
  readonly port: number;
  /** The port of the master that it names now. */
  masterPort(): Promise<number>;
}

/** Resolves when it knows a replica of the master. */
export async function startSentinel(t: Scope, firstMasterPort: number): Promise<Sentinel> {
  const folder = temporaryFolder(t);
  const config = join(folder, 'sentinel.conf');
  const port = await freePort();
  writeFileSync(
    config,
    [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor main 127.0.0.1 ${firstMasterPort} 1`,
      'sentinel down-after-milliseconds main 500',
      'sentinel failover-timeout main 2000',
      '',
    ].join('\n'),
  );
  const child = spawn('redis-server', [config, '--sentinel'], { stdio: 'ignore' });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  });
  await eventually('a replica that Sentinel knows', async () => {
    const replicas = await rawCommand(port, ['SENTINEL', 'REPLICAS', 'main']);
    return /^\*[1-9]/.test(replicas) ? true : undefined;
  });
  return {
    port,
    masterPort: async () => {
      const info = await rawCommand(port, ['INFO', 'sentinel']);
      return Number(/name=main,.*?address=[^,]*:(\d+)/.exec(info)?.[1]);
    },
  };
}
