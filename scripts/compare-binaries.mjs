/**
 * Holds the installed binaries of µWebSockets.js against the author's releases: each is the author's file,
 * byte for byte, or it is not. Downloads no binary: git names a file by a hash of its content, and a
 * release's list of names is some KB.
 *
 * usage: node scripts/compare-binaries.mjs TAG… [--from REPOSITORY]
 *
 * TAG is one or more releases of REPOSITORY, by default the author's. Prints a line for each installed
 * binary: the tag whose file it is, or `none`. Exit code 0 if all are files of the releases, 1 if one is not,
 * 2 if they could not be compared.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';

const { positionals: tags, values } = parseArgs({
  allowPositionals: true,
  options: { from: { type: 'string', default: 'https://github.com/uNetworking/uWebSockets.js.git' } },
});
if (tags.length === 0) {
  process.stderr.write('name the releases to compare with, such as v20.41.0\n');
  process.exit(2);
}

/** As git names a file. */
function blobName(path) {
  const content = readFileSync(path);
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex');
}

/** Blob names of the binaries of a release, with `name@tag`. */
function released(tag, into) {
  const folder = mkdtempSync(join(tmpdir(), 'uws-release-'));
  const git = (...args) =>
    execFileSync('git', ['-C', folder, ...args], { encoding: 'utf8', timeout: 120_000 });
  try {
    git('init', '--quiet');
    git('fetch', '--quiet', '--depth=1', '--filter=blob:none', values.from, `refs/tags/${tag}`);
    for (const line of git('ls-tree', 'FETCH_HEAD').split('\n')) {
      const [, name, file] = /^\d+ blob ([0-9a-f]{40})\t(.+\.node)$/.exec(line) ?? [];
      if (name !== undefined) into.set(`${name} ${file}`, tag);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const releases = new Map();
try {
  for (const tag of tags) released(tag, releases);
} catch (error) {
  process.stderr.write(`the releases could not be read: ${error.stderr || error.message}\n`);
  process.exit(2);
}
const folder = dirname(createRequire(join(process.cwd(), 'package.json')).resolve('uWebSockets.js'));
for (const file of readdirSync(folder).filter((name) => name.endsWith('.node'))) {
  const tag = releases.get(`${blobName(join(folder, file))} ${file}`);
  if (tag === undefined) process.exitCode = 1;
  process.stdout.write(`${file}: ${tag ?? 'none'}\n`);
}
