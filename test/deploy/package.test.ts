/**
 * The package as npm makes it: what it installs is what was tested here, version by version, and it serves.
 * It comes from a registry, because npm reads the npm-shrinkwrap.json of no other packages.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
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

/** A scope of its own, so that all other packages come from the registry that npm is set up for. */
const SCOPE = '@packed';
const NAME = `${SCOPE}/tollgate`;

/** Serves the package as npm's registry would; returns the address. */
async function startRegistry(
  t: Test,
  manifest: { readonly version: string },
  archive: Buffer,
): Promise<string> {
  const server = createServer((request, response) => {
    if (request.url?.endsWith('.tgz') === true) {
      response.end(archive);
      return;
    }
    const integrity = `sha512-${createHash('sha512').update(archive).digest('base64')}`;
    const dist = { tarball: `${address}/tollgate.tgz`, integrity };
    const version = { ...manifest, _hasShrinkwrap: true, dist };
    const { version: latest } = manifest;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ name: NAME, 'dist-tags': { latest }, versions: { [latest]: version } }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.teardown(() => server.close());
  return address;
}

/** Every installed package is of the lock file's version. */
function checkVersions(t: Test, packages: Lock['packages'], installed: string): void {
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
}

void t.test('is not published without the address of its repository', async (t) => {
  const folder = t.testdir({});
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    readonly scripts: Readonly<Record<string, string>>;
  };
  const publish = (repository?: object): Promise<unknown> => {
    const manifest = { name: 'tollgate', version: '0.0.0', repository, scripts };
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
    return run('npm', ['run', '--silent', 'prepublishOnly'], { cwd: folder });
  };
  const refusal = { code: 1, stderr: /package\.json has no repository\.url: give the address/ };
  await t.rejects(publish(), refusal);
  await t.rejects(publish({ type: 'git' }), refusal);
  await publish({ type: 'git', url: 'git+https://git.example/you/tollgate.git' });
});

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
  const { scripts, ...rest } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    readonly version: string;
    readonly scripts: Readonly<Record<string, string>>;
  };
  const { prepack, postpack } = scripts;
  const manifest = { ...rest, name: NAME, scripts: { prepack, postpack } };
  writeFileSync(join(source, 'package.json'), JSON.stringify(manifest));
  await run('npm', ['pack', '--silent'], { cwd: source, timeout: NPM_MS_MAX });
  t.notOk(existsSync(join(source, 'npm-shrinkwrap.json')), 'made for the package alone');
  const archive = readdirSync(source).find((name) => name.endsWith('.tgz'))!;
  const registry = await startRegistry(t, manifest, readFileSync(join(source, archive)));
  const prefix = join(folder, 'prefix');
  const options = ['--prefix', prefix, `--${SCOPE}:registry=${registry}`, '--no-audit', '--no-fund'];
  await run('npm', ['install', '--global', ...options, NAME], { timeout: NPM_MS_MAX });

  const installed = join(prefix, 'lib/node_modules', NAME);
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as Lock;
  checkVersions(t, packages, installed);

  // As docs/operations.md says.
  const unpacked = join(folder, 'unpacked');
  mkdirSync(unpacked);
  await run('tar', ['-xzf', join(source, archive), '-C', unpacked, '--strip-components=1']);
  await run('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'], {
    cwd: unpacked,
    timeout: NPM_MS_MAX,
  });
  checkVersions(t, packages, unpacked);
  t.match((await run('node', ['dist/cli/main.js', '--version'], { cwd: unpacked })).stdout, /^\d/);

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
