/** What is run is bundled: nothing that a bundle names beside itself is missing, and what is inside comes with its licence. */
import { existsSync, readFileSync } from 'node:fs';
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
  for (const entry of ['gateway/main.js', 'listener/listener.thread.js', 'upstream/upstream.worker.cjs']) {
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
  for (const name of bundle.packages) {
    const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8')) as {
      version: string;
    };
    t.ok(licences.includes(`${name} ${version} (`), `the licence of ${name}`);
  }
  t.end();
});
