/**
 * Listeners that are upstream workers too (`workers: 0`): other tests, with such gateways. What a listener
 * that fails takes with it is in thread-failure.test.ts.
 */
import { execFile } from 'node:child_process';
import t from 'tap';

const FILES = ['fallbacks', 'leaving-clients', 'money', 'reload', 'shutdown', 'traces', 'upstream-reset'];
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

/** Resolves with the failed assertions of the file, and with the reason if it failed. */
function failuresOf(name: string): Promise<string[]> {
  const file = new URL(`./${name}.test.js`, import.meta.url).pathname;
  const env = { ...process.env, TOLLGATE_TEST_WORKERS: '0' };
  return new Promise((resolve) => {
    execFile(process.execPath, [file], { env, maxBuffer: OUTPUT_BYTES_MAX }, (error, output) => {
      const failed = output.split('\n').filter((line) => /^ *not ok /.test(line));
      resolve(error === null ? failed : [...failed, error.message]);
    });
  });
}

for (const name of FILES) void t.test(name, async (t) => t.same(await failuresOf(name), []));
