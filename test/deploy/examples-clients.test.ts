/** The clients of examples/, as they stand, against a gateway. */
import { execFile } from 'node:child_process';
import { cpSync, existsSync, symlinkSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { startBed } from '../support/bed.js';
import { TEST_MODEL } from '../support/gateway.js';

const run = promisify(execFile);
/** Importing LangChain alone takes seconds on a machine that has other work. */
const CLIENT_MS_MAX = 120_000;
const CHUNKS = 4;

const python = resolve('build/tools/examples-python/bin/python');
const NO_PYTHON = existsSync(resolve('build/tools/examples-python/installed.txt'))
  ? {}
  : { skip: 'no Python with the packages: test/setup-tools.sh examples' };

/** The mock's text: its words are numbered. */
const TEXT = 'w0 ';

const CLIENTS = [
  {
    name: 'TypeScript',
    command: process.execPath,
    file: 'build/examples/typescript/client.js',
    hasAll: true,
    options: {},
  },
  { name: 'Python', command: python, file: 'examples/python/client.py', hasAll: true, options: NO_PYTHON },
  {
    name: 'LangChain',
    command: python,
    file: 'examples/python/langchain_client.py',
    hasAll: false,
    options: NO_PYTHON,
  },
];

void t.test('TypeScript compiles in a folder of its own, by its own package.json', async (t) => {
  const folder = t.testdir();
  cpSync('examples/typescript', folder, { recursive: true });
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'));
  const tsc = resolve('node_modules/@typescript/native/bin/tsc');
  await t.resolves(run(process.execPath, [tsc, '-p', folder], { timeout: CLIENT_MS_MAX }));
});

for (const { name, command, file, hasAll, options } of CLIENTS) {
  void t.test(name, options, async (t) => {
    const { gateway, mock } = await startBed(t, {}, { mockArgs: ['--chunks', String(CHUNKS)] });
    const { key } = await gateway.admin.customer();
    const { stdout } = await run(command, [resolve(file)], {
      timeout: CLIENT_MS_MAX,
      env: {
        PATH: process.env.PATH,
        HOME: t.testdir(),
        OPENAI_BASE_URL: `${gateway.url}/v1`,
        OPENAI_API_KEY: key,
        MODEL: TEST_MODEL,
      },
    });
    t.comment(stdout);
    t.match(stdout, new RegExp(`^whole: ${TEXT}`, 'm'));
    t.match(stdout, new RegExp(`^stream: ${TEXT}`, 'm'));
    t.match(stdout, /^tokens: [1-9]\d*$/m);
    const { requests } = await mock.stats();
    if (hasAll) {
      t.match(stdout, /^replayed: true$/m);
      t.match(stdout, /^error: invalid_parameters - .*temperature must be between 0 and 2, got 3/m);
      t.equal(requests, 3, 'a whole one, a stream, and one that was repeated');
    } else {
      t.equal(requests, 2, 'a whole one and a stream');
    }
  });
}
