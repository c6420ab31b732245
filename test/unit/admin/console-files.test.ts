/** The console's files: few bytes, a strict policy, names that change with their content. */
import { gunzipSync } from 'node:zlib';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startAdminHouse } from './support.js';

const FOLDER = join(process.cwd(), 'dist/console');
/** Of the issue: all of it, compressed. */
const GZIP_BYTES_MAX = 150_000;

void t.test('all of it is small', (t) => {
  const compressed = readdirSync(FOLDER).filter((name) => name.endsWith('.gz'));
  const bytes = compressed.reduce((sum, name) => sum + statSync(join(FOLDER, name)).size, 0);
  t.comment(`${bytes} bytes compressed`);
  t.ok(bytes > 10_000 && bytes < GZIP_BYTES_MAX, String(bytes));
  t.end();
});

void t.test('compressed only for a client that accepts it', async (t) => {
  const house = await startAdminHouse(t);
  const cases: readonly (readonly [accepts: string, isCompressed: boolean])[] = [
    ['gzip', true],
    ['br, GZIP', true],
    ['gzip;q=0.5, br', true],
    ['br;q=0.1,gzip ; q=0.001', true],
    ['gzip;q=0', false],
    ['gzip; q=0.000, br', false],
    ['br, gzip ; q=0', false],
    ['br', false],
    [`gzip${' '.repeat(3_000)}x`, false],
    ['identity', false],
  ];
  for (const [accepts, isCompressed] of cases) {
    const { headers, status } = await house.send('HEAD', '/', undefined, {
      headers: { 'accept-encoding': accepts },
    });
    t.equal(status, 200);
    t.equal(headers['content-encoding'], isCompressed ? 'gzip' : undefined, accepts);
  }
});

void t.test('the page and what it names are served without a token, and nothing else', async (t) => {
  const house = await startAdminHouse(t);
  const open = { headers: {} };
  const page = await house.send('GET', '/', undefined, open);
  t.match(page, {
    status: 200,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-cache',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
    },
  });
  const policy = String(page.headers['content-security-policy']);
  t.match(policy, "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'");
  t.match(policy, "; img-src 'self'; ");
  t.notMatch(policy, 'unsafe');
  t.notMatch(page.body, / style=|<script>|https?:\/\//, 'nothing inline, nothing from elsewhere');
  const named = [...page.body.matchAll(/\/console\/[\w.-]+/g)].map(([path]) => path);
  t.equal(named.length, 3);
  for (const path of named) {
    const plain = await house.send('GET', path, undefined, open);
    t.match(plain, {
      status: 200,
      headers: { 'cache-control': /immutable/, 'content-security-policy': policy },
    });
    t.match(path, /-[0-9a-f]{12}\./, 'a digest in its name');
    const response = await fetch(`http://127.0.0.1:${house.port}${path}`, {
      headers: { 'accept-encoding': 'gzip' },
    });
    t.equal(response.headers.get('content-encoding'), 'gzip');
    t.equal(await response.text(), plain.body, 'the same in both forms');
    const head = await house.send('HEAD', path, undefined, open);
    t.match(head, {
      status: 200,
      body: '',
      headers: { 'content-length': String(Buffer.byteLength(plain.body)) },
    });
  }
  for (const path of [
    '/console/',
    '/console/../api.js',
    '/console/%2e%2e/api.js',
    '/index.html',
    `${named[0]}.gz`,
  ]) {
    t.equal((await house.send('GET', path, undefined, open)).status, 401, path);
  }
  t.equal((await house.send('POST', '/', {}, open)).status, 401);
  t.throws(() => gunzipSync(Buffer.from(page.body)), 'plain where nobody asked for less');
});
