/**
 * One kind of upstream worker alone: other tests, with gateways whose calls all go to the workers' threads,
 * and with gateways that have no such threads. By itself a gateway in a test has time for all its calls in
 * the listener's thread. What a listener or worker that fails takes with it is in thread-failure.test.ts.
 */
import { execFile } from 'node:child_process';
import t from 'tap';

const THREADS = { workers_from_load_percent: 0 };
const LISTENERS = { workers: 0 };

/**
 * And their tests that are left out, by the beginnings of their names: they set `workers` themselves, or are
 * of what happens beside the threads, so that they would be run twice in the same way.
 */
const FILES: Readonly<Record<string, readonly string[]>> = {
  fallbacks: [],
  'leaving-clients': [],
  money: [],
  reload: ['a plan raised and lowered', 'the command: what changes first', 'watch: a file that is replaced'],
  shutdown: ['kill -9 of the gateway'],
  traces: ['an endpoint that is no address'],
  'upstream-reset': ['a pause of a minute ends', 'without a gateway the command says so'],
};
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

/** Of the file: its failed assertions, and the reason if it failed; and how many tests it left out. */
function resultOf(
  name: string,
  settings: object,
  leftOut: readonly string[],
): Promise<{ failures: string[]; skipped: number }> {
  const file = new URL(`./${name}.test.js`, import.meta.url).pathname;
  const filter = leftOut.length === 0 ? {} : { TAP_GREP: `^(${leftOut.join('|')})`, TAP_INVERT: '1' };
  const env = { ...process.env, TOLLGATE_TEST_WORKERS: JSON.stringify(settings), ...filter };
  return new Promise((resolve) => {
    execFile(process.execPath, [file], { env, maxBuffer: OUTPUT_BYTES_MAX }, (error, output) => {
      const lines = output.split('\n');
      const failed = lines.filter((line) => /^ *not ok /.test(line));
      resolve({
        failures: error === null ? failed : [...failed, error.message],
        skipped: lines.filter((line) => /^ok .* # SKIP filter/.test(line)).length,
      });
    });
  });
}

const RUNS = [
  ...Object.keys(FILES).map((name) => [name, THREADS] as const),
  ...['money', 'reload', 'shutdown'].map((name) => [name, LISTENERS] as const),
];

for (const [name, settings] of RUNS)
  void t.test(`${name}, ${JSON.stringify(settings)}`, async (t) => {
    const leftOut = FILES[name]!;
    const { failures, skipped } = await resultOf(name, settings, leftOut);
    t.same(failures, []);
    t.equal(skipped, leftOut.length, 'each that is left out is there');
  });
