/** What a Node or a system that cannot serve is told. */
import { execFileSync, spawnSync, type SpawnSyncReturns } from 'node:child_process';
import t from 'tap';
import {
  runtimeFacts,
  unsupportedNode,
  unsupportedRuntime,
  type RuntimeFacts,
} from '#src/cli/runtime-support.js';

const ABIS = ['115', '127', '137'];
const DEBIAN_13: RuntimeFacts = {
  node: '24.21.0',
  abi: '137',
  platform: 'linux',
  arch: 'x64',
  glibc: '2.41',
  binaries: ['linux_x64', 'linux_arm64', 'darwin_arm64'].flatMap((system) =>
    ABIS.map((abi) => `uws_${system}_${abi}.node`),
  ),
  glibcWanted: '2.38',
};

void t.test('releases of Node', (t) => {
  for (const node of ['20.18.0', '20.20.2', '22.0.0', '24.21.0', '26.10.0', '100.1.0']) {
    t.equal(unsupportedNode(node), undefined, node);
  }
  for (const node of ['8.9.0', '18.20.4', '20.0.0', '20.17.9']) {
    t.match(unsupportedNode(node), new RegExp(`needs Node 20\\.18 .* is Node ${node}\\. Install`), node);
  }
  t.end();
});

void t.test('systems', (t) => {
  const cases: readonly (readonly [string, Partial<RuntimeFacts>, RegExp | undefined])[] = [
    ['Debian 13', {}, undefined],
    ['just new enough', { glibc: '2.38' }, undefined],
    ['Debian 12', { glibc: '2.36' }, /need glibc 2\.38 .* has 2\.36\. Use a newer system/],
    ['2.4 is older than 2.38', { glibc: '2.4' }, /has 2\.4\./],
    [
      'Debian 12 with Node 20',
      { node: '20.20.2', abi: '115', glibc: '2.36', glibcWanted: '2.27' },
      undefined,
    ],
    [
      'Node 26',
      { node: '26.10.0', abi: '147', glibcWanted: undefined },
      /Node 26\.10\.0: .* are for Node 20, 22, 24\. /,
    ],
    ['a build for Node 26', { node: '26.10.0', abi: '147', binaries: ['uws_linux_x64_147.node'] }, undefined],
    ['Alpine', { glibc: undefined }, /need glibc, .*\(musl on Alpine\)/],
    ['another processor', { arch: 'riscv64', glibcWanted: undefined }, /cannot serve on linux riscv64/],
    ['macOS', { platform: 'darwin', arch: 'arm64', glibc: undefined, glibcWanted: undefined }, undefined],
    ['none for this system', { binaries: [], glibcWanted: undefined }, /cannot serve on linux x64/],
    [
      'no package',
      { binaries: undefined, glibcWanted: undefined },
      /uWebSockets\.js, .* not installed for this Node 24\.21\.0 \(linux x64, glibc 2\.41\)\. Run "npm ci/,
    ],
  ];
  for (const [name, facts, expected] of cases) {
    const told = unsupportedRuntime({ ...DEBIAN_13, ...facts });
    if (expected === undefined) t.equal(told, undefined, name);
    else t.match(told, expected, name);
  }
  t.end();
});

void t.test('this system serves, and its facts are what other programs say', (t) => {
  const facts = runtimeFacts();
  t.equal(unsupportedRuntime(facts), undefined, 'these tests run on it');
  if (process.platform === 'linux') {
    const glibc = execFileSync('getconf', ['GNU_LIBC_VERSION'], { encoding: 'utf8' });
    t.equal(`glibc ${facts.glibc}`, glibc.trim(), 'as getconf has it');
    t.match(facts.glibcWanted, /^2\.\d+$/, 'the binary names what it wants');
  }
  t.end();
});

const MAIN = new URL(import.meta.resolve('#src/cli/main.js')).pathname;

/** Runs the program after `code`. */
function runWith(
  code: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, ['--import', `data:text/javascript,${code}`, MAIN, ...args], {
    encoding: 'utf8',
    env: { ...process.env, ...env },
    timeout: 60_000,
  });
}

void t.test('the command says it before anything is loaded', (t) => {
  // A Node that says it is another one: what decides is read from process.versions.
  const pretend = (versions: object): ReturnType<typeof spawnSync> => {
    const value = `{...process.versions,...${JSON.stringify(versions)}}`;
    return runWith(`Object.defineProperty(process,'versions',{value:${value}})`, ['serve']);
  };
  for (const [versions, expected] of [
    [
      { node: '18.20.4', modules: '108' },
      /^Tollgate needs Node 20\.18 or newer and this is Node 18\.20\.4\.[^\n]+\n$/,
    ],
    [{ node: '26.10.0', modules: '147' }, /^Tollgate cannot serve on Node 26\.10\.0:[^\n]+\n$/],
  ] as const) {
    const { status, stdout, stderr } = pretend(versions);
    t.equal(status, 1);
    t.equal(stdout, '');
    t.match(stderr, expected, 'one sentence and no stack');
  }
  t.end();
});

void t.test('every command that loads a native package says it, and prints no stack', (t) => {
  const data = t.testdir();
  const create = ['groups', 'create', 'research', '--data', data];
  t.equal(runWith('', create).status, 0, 'on this system: it makes the books');
  const riscv = "Object.defineProperty(process,'arch',{value:'riscv64'})";
  const noBooks = /^Tollgate cannot open its books on linux riscv64 with Node [\d.]+:[^\n]+\n$/;
  for (const [args, expected] of [
    [['mock-upstream'], /^Tollgate cannot serve on linux riscv64:[^\n]+\n$/],
    [['accounts', 'list', '--data', data], noBooks],
    [['usage', '--data', data], noBooks],
    [['audit', '--data', data], noBooks],
  ] as const) {
    const { status, stdout, stderr } = runWith(riscv, args);
    t.equal(status, 1, args.join(' '));
    t.equal(stdout, '');
    t.match(stderr, expected, args.join(' '));
  }
  t.end();
});

void t.test('a binary that is damaged: what the package says is shown', (t) => {
  const damaged = "process.dlopen=()=>{throw%20new%20Error('uws.node:%20invalid%20ELF%20header')}";
  for (const command of ['serve', 'mock-upstream']) {
    const { status, stdout, stderr } = runWith(damaged, [command]);
    t.equal(status, 1, command);
    t.equal(stdout, '');
    t.match(stderr, /This version of uWS\.js supports only [^]+uws\.node: invalid ELF header/, command);
  }
  t.end();
});

void t.test('a start without a binary of the books is refused in the same words', (t) => {
  // What loads lmdb's binary takes the processor from here: µWebSockets.js is as it is.
  const env = { npm_config_arch: 'riscv64' };
  const { status, stdout, stderr } = runWith('', ['serve', '--data', t.testdir()], env);
  t.equal(status, 1);
  t.equal(stdout, '');
  t.match(stderr, /^Tollgate cannot open its books on [^\n]+\n$/);
  t.end();
});
