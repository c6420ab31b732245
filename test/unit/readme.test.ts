/**
 * The README is short, what it and docs/ link to is there, and the pages that the code writes are what it
 * would write.
 */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';

/** What is longer is not read to its end. */
const README_LINES_MAX = 200;
const MADE = ['configuration', 'errors', 'commands', 'metrics'];
const PAGES = [
  ...['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md', 'bench/README.md', 'examples/README.md'],
  ...readdirSync('docs').map((name) => join('docs', name)),
].filter((path) => path.endsWith('.md'));

void t.test('the pages that the code writes are up to date', async (t) => {
  const script = join(process.cwd(), 'scripts/write-docs.mjs');
  await t.resolves(
    promisify(execFile)(process.execPath, [script, '--check']),
    'npm run docs changes nothing',
  );
  for (const name of MADE) {
    t.match(readFileSync(`docs/${name}.md`, 'utf8'), /: written by npm run docs -->/, `${name} is written`);
  }
});

void t.test('the README can be read', (t) => {
  const { length } = readFileSync('README.md', 'utf8').trimEnd().split('\n');
  t.ok(length <= README_LINES_MAX, `${length} lines`);
  t.end();
});

void t.test('links lead to what is there', (t) => {
  let seen = 0;
  for (const page of PAGES) {
    const text = readFileSync(page, 'utf8').replace(/^```[^]*?^```/gm, '');
    for (const [, link, source] of text.matchAll(/\]\(([^)\s]+)\)|<img src="([^"]+)"/g)) {
      const [path, anchor] = (link ?? source)!.split('#') as [string, string?];
      if (/^https?:|^mailto:/.test(path)) continue;
      seen += 1;
      const target = path === '' ? page : join(dirname(page), path);
      if (!t.ok(existsSync(target), `${page}: ${link ?? source}`) || anchor === undefined) continue;
      t.ok(anchorsOf(target).includes(anchor), `${page}: ${link} is a heading`);
    }
  }
  t.ok(seen > 10, `${seen} links`);
  t.end();
});

void t.test('every page of docs/ is reached from the README', (t) => {
  const text = readFileSync('README.md', 'utf8');
  for (const page of PAGES.filter((path) => path.startsWith('docs/'))) {
    t.ok(text.includes(`(${page})`), page);
  }
  t.end();
});

void t.test('folders and files of the tree that pages name are there', (t) => {
  let seen = 0;
  for (const page of PAGES.filter((path) => path !== 'CHANGELOG.md')) {
    for (const [, path] of readFileSync(page, 'utf8').matchAll(
      /`((?:src|test|deploy|examples)\/[\w./-]*)`/g,
    )) {
      seen += 1;
      t.ok(existsSync(path!), `${page}: ${path}`);
    }
  }
  t.ok(seen > 10, `${seen} paths`);
  t.end();
});

/** As GitHub makes them of headings. */
function anchorsOf(path: string): string[] {
  return [...readFileSync(path, 'utf8').matchAll(/^#{1,6} (.+)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
}
