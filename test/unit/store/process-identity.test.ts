/** Whether a process runs, also while this one has no file descriptor left to ask `/proc`. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';
import { identityOf, isRunning } from '#src/store/process-identity.js';

const run = promisify(execFile);

void t.test('a process that runs, one that has ended, none', async (t) => {
  const own = identityOf(process.pid)!;
  t.ok(isRunning(own));
  t.notOk(isRunning(own.replace(/ \d+ /, ' 1 ')), 'another one had the pid');
  const { stdout } = await run('sh', ['-c', 'echo $$']);
  t.equal(identityOf(Number(stdout)), undefined);
  t.notOk(isRunning(own.replace(/^\d+/, stdout.trim())));
  for (const damaged of ['', 'x', '1.5 2 3', `${own} more`]) t.notOk(isRunning(damaged), damaged);
});

void t.test('no descriptor is left: nobody is taken for ended', async (t) => {
  const module = new URL(import.meta.resolve('#src/store/process-identity.js'));
  const script = `
    import { openSync } from 'node:fs';
    import { identityOf, isRunning } from ${JSON.stringify(module.href)};
    const own = identityOf(process.pid);
    const outcomes = [];
    try { for (;;) openSync('/dev/null'); } catch (error) { outcomes.push(error.code); }
    outcomes.push(isRunning(own));
    try { outcomes.push(identityOf(process.pid)); } catch (error) { outcomes.push(error.code); }
    process.stdout.write(JSON.stringify(outcomes));
  `;
  const { stdout } = await run('sh', [
    '-c',
    'ulimit -n 64; exec "$0" --input-type=module --eval "$1"',
    process.execPath,
    script,
  ]);
  t.same(JSON.parse(stdout), ['EMFILE', true, 'EMFILE']);
});
