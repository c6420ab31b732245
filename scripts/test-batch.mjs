/**
 * Runs the test files that TEST_FILES names, one after the other in this process, and prints their TAP. The
 * last test of each is `the end of FILE`, which shows that its tests ran; then comes a line `# N ms FILE`.
 * scripts/test.mjs starts it for the unit tests of one folder: a process of its own for each file would load
 * tap and the folder's modules once more.
 *
 * The process ends LINGER_MS after the last test at the latest: a socket that a test has left may be open
 * for as long as the other side likes.
 */
import { pathToFileURL } from 'node:url';
// The one that tests find (scripts/bundle-tap.mjs).
import t from '../build/test/node_modules/tap/index.js';

const LINGER_MS = 5_000;
// After a `teardown` beside all tests tap ends as soon as no test is left. There is none while the next file
// is loaded, whose tests would not run then.
t.teardown = (...teardown) => t.after(...teardown);
const files = process.env.TEST_FILES.split(' ');
// Neither the tests nor the programs that they start are to see it.
delete process.env.TEST_FILES;
for (const file of files) {
  const begin = performance.now();
  await import(pathToFileURL(file));
  // Tests of one process run in their order, so this one waits for all that the file has begun.
  await t.test(`the end of ${file}`, (t) => t.end());
  // Not by `console`, whose lines may overtake those of tap.
  t.comment(`${(performance.now() - begin).toFixed(0)} ms ${file}`);
}
t.end();
setTimeout(() => process.exit(), LINGER_MS).unref();
