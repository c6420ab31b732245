/**
 * The load bench at its smallest size: it runs, every answer has the status it should have, and every line is printed.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';

const run = promisify(execFile);

void t.test('bench:load --smoke', async (t) => {
  const script = new URL('../../bench/load/run.js', import.meta.url).pathname;
  const { stdout } = await run(process.execPath, [script, '--smoke'], { timeout: 90_000 });
  for (const name of ['whole', 'stream of 20 chunks', '401 unknown key', '429 over the limit']) {
    t.match(stdout, new RegExp(`^${name} +gateway +[1-9]\\d* +\\d+\\.\\d +\\d+ +\\d+$`, 'm'), name);
  }
  t.match(stdout, /^whole +upstream /m);
});
