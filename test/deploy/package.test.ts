/**
 * The package as npm makes it: what it installs is what was tested here, version by version, and it serves.
 */
import { execFile } from 'node:child_process';
import { cpSync, existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { startGateway } from '../support/gateway.js';

const run = promisify(execFile);
const NPM_MS_MAX = 300_000;

interface Lock {
  readonly packages: Readonly<Record<string, { readonly version?: string; readonly dev?: boolean }>>;
}

async function registryAnswers(): Promise<boolean> {
  try {
    await run('npm', ['ping', '--fetch-retries=0'], { timeout: 30_000 });
    return true;
  } catch {
    return false;
  }
}

const skip = (await registryAnswers()) ? false : 'npm reaches no registry';

void t.test('packed, installed, started', { skip, timeout: NPM_MS_MAX }, async (t) => {
  const folder = t.testdir({ source: {}, prefix: {} });
  const source = join(folder, 'source');
  // Packed from a copy: packing builds, and other tests run what is built here.
  for (const name of [
    'dist',
    'deploy',
    'docs',
    'examples',
    'CHANGELOG.md',
    'SECURITY.md',
    'README.md',
    'LICENSE',
    'package-lock.json',
  ]) {
    cpSync(name, join(source, name), { recursive: true });
  }
  const { scripts, ...manifest } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    readonly scripts: Readonly<Record<string, string>>;
  };
  const { prepack, postpack } = scripts;
  writeFileSync(
    join(source, 'package.json'),
    JSON.stringify({ ...manifest, scripts: { prepack, postpack } }),
  );
  await run('npm', ['pack', '--silent'], { cwd: source, timeout: NPM_MS_MAX });
  t.notOk(existsSync(join(source, 'npm-shrinkwrap.json')), 'made for the package alone');
  const archive = readdirSync(source).find((name) => name.endsWith('.tgz'))!;
  const prefix = join(folder, 'prefix');
  await run(
    'npm',
    ['install', '--global', '--prefix', prefix, '--no-audit', '--no-fund', join(source, archive)],
    {
      timeout: NPM_MS_MAX,
    },
  );

  const installed = join(prefix, 'lib/node_modules/tollgate');
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as Lock;
  let compared = 0;
  for (const [path, { version, dev }] of Object.entries(packages)) {
    if (path === '' || !existsSync(join(installed, path))) continue;
    const own = JSON.parse(readFileSync(join(installed, path, 'package.json'), 'utf8')) as {
      version: string;
    };
    t.equal(own.version, version, path);
    t.notOk(dev, `${path} is not for development alone`);
    compared += 1;
  }
  t.ok(compared >= 40, `${compared} packages are of the lock file's versions`);
  const found = readdirSync(join(installed, 'node_modules'), { recursive: true, encoding: 'utf8' });
  const strangers = found.filter(
    (path) =>
      /^(@[^/]+\/)?[^/@]+\/package\.json$/.test(path) && !(`node_modules/${path.slice(0, -13)}` in packages),
  );
  t.same(strangers, [], 'and no others');

  // What docs/operations.md says can be deleted.
  const uws = join(installed, 'node_modules/uWebSockets.js');
  for (const name of readdirSync(uws)) {
    const own = `uws_${process.platform}_${process.arch}_${process.versions.modules}.node`;
    if (name.endsWith('.node') && name !== own) rmSync(join(uws, name));
  }
  const gateway = await startGateway(t, { main: join(installed, 'dist/cli/main.js') });
  t.ok(gateway.port > 0, 'serves without the binaries of other systems');
});
