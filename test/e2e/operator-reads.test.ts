/**
 * What an operator reads right after a call has that call in it, of one process or of several: the audit of
 * the books on disk beside the gateway.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { startBed } from '../support/bed.js';
import { runCommand } from '../support/command.js';

const CALLS = 3;

for (const processes of [1, 2]) {
  void t.test(`the audit beside a gateway of processes: ${processes}`, async (t) => {
    const { gateway } = await startBed(t, { processes, flush_interval_ms: 60_000 });
    const { key, accountId } = await gateway.admin.customer();
    for (let calls = 1; calls <= CALLS; calls += 1) {
      t.equal((await gateway.chat(key, 'Hello')).status, 200);
      const end = await runCommand(gateway.folder, ['audit', '--json']);
      t.equal(end.stderr, '');
      const account = (await gateway.admin.send('GET', `/admin/v1/accounts/${accountId}`)).json();
      const { spent } = account as { readonly spent: string };
      t.not(spent, '0.00');
      t.match(end.json(), { ok: true, spent }, `call ${calls}`);
    }
    t.equal(await gateway.stop(), 0);
  });
}

void t.test(
  'a gateway that cannot be asked is told of, and the books are audited all the same',
  async (t) => {
    const { gateway } = await startBed(t);
    const end = await runCommand(gateway.folder, ['audit'], {
      TOLLGATE_ADMIN_TOKEN: 'a token of another gateway, long enough',
    });
    t.match(end, {
      code: 0,
      stdout: /The books balance\./,
      stderr: /^Calls of the last moments may be missing/,
    });
    t.equal(await gateway.stop(), 0);
  },
);

void t.test('status --watch prints again and again, and says when the gateway is gone', async (t) => {
  const { gateway } = await startBed(t);
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const child = spawn(process.execPath, [main, 'status', '--watch', '1'], { cwd: gateway.folder });
  t.teardown(() => child.kill('SIGKILL'));
  let text = '';
  const seen = (pattern: RegExp): Promise<void> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (!pattern.test(text)) return;
        child.stdout.off('data', look);
        resolve();
      };
      child.stdout.on('data', look);
      look();
    });
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  await seen(/^Tollgate .*\n[^]*\n\nTollgate .* ready .*\n/);
  t.match(text, /\ncalls +0 +0 /, 'a rate from the first print on');
  t.equal(await gateway.stop(), 0);
  await seen(/\nThe gateway does not answer\. Trying again every 1 s; Ctrl-C ends\.\n/);
  child.kill('SIGINT');
  t.end();
});

void t.test('status --watch says what a gateway that rejects the token says', async (t) => {
  const { gateway } = await startBed(t);
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const child = spawn(process.execPath, [main, 'status', '--watch', '1'], {
    cwd: gateway.folder,
    env: { ...process.env, TOLLGATE_ADMIN_TOKEN: 'a-token-that-admits-nobody' },
  });
  t.teardown(() => child.kill('SIGKILL'));
  const [chunk] = (await once(child.stdout, 'data')) as [Buffer];
  t.match(chunk.toString(), /^This token admits nobody: .*\. Trying again every 1 s; Ctrl-C ends\.\n$/);
  child.kill('SIGINT');
  t.equal(await gateway.stop(), 0);
});
