/**
 * Listeners that are upstream workers too (`workers: 0`): other tests, with such gateways. What a listener
 * that fails takes with it is in thread-failure.test.ts.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';

const FILES = ['fallbacks', 'leaving-clients', 'money', 'reload', 'shutdown', 'upstream-reset'];

for (const name of FILES) {
  void t.test(name, async (t) => {
    const file = new URL(`./${name}.test.js`, import.meta.url).pathname;
    const env = { ...process.env, TOLLGATE_TEST_WORKERS: '0' };
    const ended = await promisify(execFile)(process.execPath, [file], {
      env,
      maxBuffer: 64 * 1024 * 1024,
    }).catch((error: { stdout?: string }) => error);
    const failed = (ended.stdout ?? '').split('\n').filter((line) => /^ *not ok /.test(line));
    t.notOk(ended instanceof Error, [String(ended), ...failed].join('\n'));
  });
}
