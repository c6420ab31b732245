/**
 * What is run is bundled: nothing that a bundle names beside itself is missing, and what is inside comes with
 * its licence.
 */
import { execFileSync, spawnSync, type SpawnSyncReturns } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync, readdirSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';

const FOLDER = join(process.cwd(), 'dist');

interface Bundle {
  readonly files: readonly string[];
  readonly packages: readonly string[];
  readonly loadedByName: readonly string[];
}

const bundle = JSON.parse(readFileSync(join(FOLDER, 'bundle.json'), 'utf8')) as Bundle;

void t.test('files beside a bundle are where it looks for them', (t) => {
  const named: string[] = [];
  for (const file of bundle.files) {
    const path = join(FOLDER, file);
    for (const [, target] of readFileSync(path, 'utf8').matchAll(
      /new URL\("([^"]+)", import\.meta\.url\)/g,
    )) {
      named.push(target!);
      t.ok(existsSync(new URL(target!, pathToFileURL(path))), `${target} of ${file}`);
    }
  }
  for (const entry of [
    'gateway/main.js',
    'gateway/listener-with-worker.thread.js',
    'request/listener.thread.js',
    'upstream/upstream.worker.cjs',
  ]) {
    t.ok(named.includes(`../${entry}`), `${entry} is named by who starts it`);
  }
  t.end();
});

void t.test('packages are inside or loaded by name, and those inside have their licences', (t) => {
  const licences = readFileSync(join(FOLDER, 'licences.txt'), 'utf8');
  const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    dependencies: Record<string, string>;
  };
  for (const name of Object.keys(dependencies)) {
    t.ok(bundle.packages.includes(name) !== bundle.loadedByName.includes(name), name);
  }
  t.match(licences, /^uwebsockets \S+ \(Apache-2\.0\)$/m, 'as its licence file has it');
  for (const name of [...bundle.packages, ...bundle.loadedByName]) {
    const own = JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8')) as {
      readonly name: string;
      readonly version: string;
    };
    t.ok(licences.includes(`${own.name} ${own.version} (`), `the licence of ${name}`);
  }
  t.end();
});

void t.test('packages of clouds and of providers are loaded by the gateways that need them', (t) => {
  const sourceOf = (file: string): string => readFileSync(join(FOLDER, file), 'utf8');
  const loaders = bundle.files.filter((file) =>
    /from "(?:google-auth-library|@aws-sdk\/)|node_modules\/openid-client\//.test(sourceOf(file)),
  );
  // The first two are in the gateway's bundle, and in that of the commands, which check upstreams too.
  const names = loaders.map((path) => path.replace(/^chunks\/|-[^-]+\.js$/g, ''));
  t.same([...new Set(names)].sort(), ['aws-source', 'google-source', 'oidc-provider']);
  for (const loader of loaders) {
    const name = loader.replace(/^.*\//, '');
    for (const file of bundle.files)
      if (new RegExp(`(?:from|import) "[^"]*${name}"`).test(sourceOf(file))) t.fail(`${file} loads ${name}`);
  }
  t.end();
});

void t.test('a process or thread loads at its start only the packages that it needs', (t) => {
  const imports = /^(?:import|export)(?: [^;"']* from)? "([^"]+)";$|\b__require\("([^"]+)"\)/gm;
  const packagesOf = (entry: string): string[] => {
    const found = new Set<string>();
    const seen = new Set([entry]);
    for (const file of seen) {
      const text = readFileSync(join(FOLDER, file), 'utf8');
      for (const [, imported, required] of text.matchAll(imports)) {
        const target = (imported ?? required)!;
        if (target.startsWith('.')) seen.add(join(file, '..', target));
        else if (!isBuiltin(target)) found.add(target);
      }
      for (const [, name] of text.matchAll(/^\/\/ node_modules\/((?:@[^/\n]+\/)?[^/\n]+)/gm))
        found.add(name!);
    }
    return [...found].sort();
  };
  // The supervisor, which stays as long as the gateway serves: cli/main.js loads one or the other.
  const [serve, ...others] = bundle.files.filter((file) => /^chunks\/serve-[^-]+\.js$/.test(file));
  t.same(others, []);
  t.same(packagesOf(serve!), []);
  t.same(packagesOf('cli/main.js'), []);
  // Every command, and the reading of the settings at each start: what formats tables takes 0.05 s to load.
  const [program] = bundle.files.filter((file) => /^chunks\/program-[^-]+\.js$/.test(file));
  t.same(packagesOf(program!), ['commander']);
  t.same(packagesOf('request/listener.thread.js'), ['uWebSockets.js']);
  t.same(packagesOf('upstream/upstream-task.js'), []);
  // And lmdb, as it opens the store (store/environment.ts).
  t.same(packagesOf('gateway/main.js'), ['msgpackr', 'piscina', 'typebox', 'uWebSockets.js']);
  t.end();
});

void t.test('of TypeBox only what makes schemas is inside', (t) => {
  // `Type.Record`, and `Type` itself as a value, bring its interpreter of types: 190 KB for each process.
  const interpreter = 'node_modules/typebox/build/type/engine/instantiate.mjs';
  t.ok(existsSync(interpreter));
  for (const file of bundle.files)
    if (readFileSync(join(FOLDER, file), 'utf8').includes(interpreter)) t.fail(`it is in ${file}`);
  t.end();
});

void t.test('installed binaries are held against releases', { skip: !hasGit() && 'no git' }, (t) => {
  const releases = t.testdir();
  const git = (...args: string[]): string =>
    execFileSync('git', ['-C', releases, '-c', 'user.name=t', '-c', 'user.email=t', ...args], {
      encoding: 'utf8',
    });
  const binaries = readdirSync('node_modules/uWebSockets.js').filter((name) => name.endsWith('.node'));
  const compare = (): SpawnSyncReturns<string> =>
    spawnSync(
      process.execPath,
      ['scripts/compare-binaries.mjs', 'v1', 'v2', '--from', `file://${releases}`],
      {
        encoding: 'utf8',
      },
    );
  git('init', '--quiet');
  git('config', 'uploadpack.allowFilter', 'true');
  t.equal(compare().status, 2, 'no such release');
  const release = (tag: string, names: readonly string[]): void => {
    for (const name of names) copyFileSync(join('node_modules/uWebSockets.js', name), join(releases, name));
    git('add', '.');
    git('commit', '--quiet', '--message', tag);
    git('tag', tag);
  };
  release('v1', binaries.slice(0, 2));
  release('v2', binaries.slice(2, -1));
  const some = compare();
  t.equal(some.status, 1);
  t.match(some.stdout, `${binaries[0]!}: v`);
  t.match(some.stdout, `${binaries.at(-1)!}: none`);
  git('tag', '--delete', 'v2');
  release('v2', binaries.slice(-1));
  t.equal(compare().status, 0, compare().stdout);
  t.end();
});

function hasGit(): boolean {
  return spawnSync('git', ['--version']).status === 0;
}
