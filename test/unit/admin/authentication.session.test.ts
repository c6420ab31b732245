/** Signing in to the console: what a session opens, for whom, and for how long. */
import t from 'tap';
import { checkError } from '../../support/error-answer.js';
import type { Answer, RequestOptions } from '../../support/http.js';
import { QUOTA_TIMEZONE, TOKEN, startAdminHouse, type AdminHouse } from './support.js';

const SESSION = '/admin/session';
const OWN = { 'x-tollgate-console': '1' };
const HOURS_12_MS = 12 * 3_600_000;

async function openSession(house: AdminHouse, more: Readonly<Record<string, string>> = {}): Promise<Answer> {
  return house.send('POST', SESSION, { token: TOKEN }, { headers: { ...OWN, ...more } });
}

const cookieOf = (answer: Answer): string =>
  /^[^;]+/.exec(answer.headers['set-cookie']?.[0] ?? '')?.[0] ?? '';

void t.test('a session does what the token does', async (t) => {
  const house = await startAdminHouse(t);
  const opened = await openSession(house);
  t.same(opened.json(), {
    signed_in: true,
    seconds_left: 43_200,
    who: 'bootstrap',
    role: 'admin',
    quota_timezone: QUOTA_TIMEZONE,
  });
  const [header = ''] = opened.headers['set-cookie'] ?? [];
  t.match(
    header,
    new RegExp(
      `^tollgate-session-${house.port}=[\\w-]{43}; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict$`,
    ),
  );
  const cookie = cookieOf(opened);
  const headers = { cookie: `other=1; ${cookie}` };
  t.equal((await house.send('GET', '/admin/v1/accounts', undefined, { headers })).status, 200);
  t.same((await house.send('GET', SESSION, undefined, { headers })).json(), {
    signed_in: true,
    seconds_left: 43_200,
    who: 'bootstrap',
    role: 'admin',
    quota_timezone: QUOTA_TIMEZONE,
  });
  const made = await house.send(
    'POST',
    '/admin/v1/accounts',
    { name: 'a', plan: 'free' },
    { headers: { ...headers, ...OWN } },
  );
  t.equal(made.status, 200);

  house.clock.nowMs += HOURS_12_MS - 1;
  t.equal((await house.send('GET', '/admin/v1/accounts', undefined, { headers })).status, 200, 'to the last');
  house.clock.nowMs += 1;
  const ended = await house.send('GET', '/admin/v1/accounts', undefined, { headers });
  t.match(checkError(t, ended, 'missing_api_key', 'after 12 hours'), 'Sign in again');
  t.same((await house.send('GET', SESSION, undefined, { headers })).json(), {
    signed_in: false,
    seconds_left: 0,
    who: null,
    role: null,
  });

  const secure = await openSession(house, { 'x-forwarded-proto': 'https' });
  t.match(secure.headers['set-cookie']?.[0], /^__Host-[^;]+; Path=\/; .*; Secure$/, 'by a proxy with TLS');
});

void t.test('a cookie that another host of the domain has set signs nobody in', async (t) => {
  const house = await startAdminHouse(t);
  const https = { 'x-forwarded-proto': 'https' };
  const strange = cookieOf(await openSession(house));
  const own = cookieOf(await openSession(house, https));
  const status = async (cookie: string, headers: object): Promise<number> =>
    (await house.send('GET', '/admin/v1/status', undefined, { headers: { cookie, ...headers } })).status;
  t.equal(await status(own, https), 200);
  t.equal(await status(strange, https), 401);
  await house.send('DELETE', SESSION, undefined, {
    headers: { cookie: `${strange}; ${own}`, ...https, ...OWN },
  });
  t.equal(await status(own, https), 401, 'its own session has ended');
  t.equal(await status(strange, {}), 200);
});

void t.test('another site cannot use it', async (t) => {
  const house = await startAdminHouse(t);
  const cookie = cookieOf(await openSession(house));
  const host = `127.0.0.1:${house.port}`;
  const own: Readonly<Record<string, string>> = { cookie, ...OWN };
  const create = (headers: Readonly<Record<string, string>>): Promise<Answer> =>
    house.send('POST', '/admin/v1/accounts', { name: 'a', plan: 'free' }, { headers });
  const foreign: readonly [string, Readonly<Record<string, string>>][] = [
    ['without the header of the console', { cookie }],
    ['from another origin', { ...own, origin: 'https://evil.example' }],
    ['from another port of this host', { ...own, origin: 'http://127.0.0.1:1' }],
    ['from a document without an origin', { ...own, origin: 'null' }],
    ['from another site, as the browser says', { ...own, 'sec-fetch-site': 'cross-site' }],
    ['from a neighbour', { ...own, 'sec-fetch-site': 'same-site' }],
  ];
  for (const [name, headers] of foreign) {
    checkError(t, await create(headers), 'invalid_parameters', name);
    if (name.startsWith('from')) {
      checkError(
        t,
        await house.send('GET', '/admin/v1/accounts', undefined, { headers }),
        'invalid_parameters',
        name,
      );
      const signedIn = await house.send('POST', SESSION, { token: TOKEN }, { headers });
      checkError(t, signedIn, 'invalid_parameters', `signing in ${name}`);
      checkError(t, await house.send('DELETE', SESSION, undefined, { headers }), 'invalid_parameters', name);
    }
  }
  t.equal(house.registry.accounts.list(0, 1).items.length, 0, 'nothing was done');
  t.equal((await create({ ...own, origin: `http://${host}`, 'sec-fetch-site': 'same-origin' })).status, 200);
  const plain = { headers: { authorization: `Bearer ${TOKEN}`, origin: 'https://tool.example' } };
  t.equal(
    (await house.send('GET', '/admin/v1/accounts', undefined, plain)).status,
    200,
    'the token binds nobody',
  );
});

void t.test('signing in and out', async (t) => {
  const house = await startAdminHouse(t);
  const post = (body: unknown, more: Partial<RequestOptions> = {}): Promise<Answer> =>
    house.send('POST', SESSION, body, { headers: OWN, ...more });
  for (const body of ['', '{', 'null', '{}', '{"token":1}', JSON.stringify({ token: 'x'.repeat(600) })]) {
    t.match(checkError(t, await post(body), 'invalid_parameters', body.slice(0, 20)), 'token');
  }
  for (let count = 0; count < 5; count++)
    checkError(t, await post({ token: 'wrong' }), 'invalid_api_key', 'wrong');
  const limited = await post({ token: 'wrong' });
  checkError(t, limited, 'rate_limit_exceeded', 'the sixth');
  t.equal(limited.headers['retry-after'], '1');
  t.equal((await post({ token: TOKEN })).status, 200, 'the right one is taken');

  const cookie = cookieOf(await openSession(house));
  const out = await house.send('DELETE', SESSION, undefined, { headers: { cookie, ...OWN } });
  t.match(out.headers['set-cookie']?.[0], /=; Path=\/; Max-Age=0;/);
  checkError(
    t,
    await house.send('GET', '/admin/v1/status', undefined, { headers: { cookie } }),
    'missing_api_key',
    'out',
  );
  t.same((await house.send('GET', SESSION, undefined, { headers: {} })).json(), {
    signed_in: false,
    seconds_left: 0,
    who: null,
    role: null,
  });
});

void t.test('sessions are bounded: the oldest goes', async (t) => {
  const house = await startAdminHouse(t);
  const first = cookieOf(await openSession(house));
  const second = cookieOf(await openSession(house));
  for (let count = 0; count < 199; count++) await openSession(house);
  const open = async (cookie: string): Promise<boolean> =>
    (await house.send('GET', '/admin/v1/status', undefined, { headers: { cookie } })).status === 200;
  t.same([await open(first), await open(second)], [false, true]);
});

void t.test('a session behind a proxy with basic authentication', async (t) => {
  const house = await startAdminHouse(t);
  const basic = { authorization: 'Basic bWU6c2VzYW1l' };
  const cookie = cookieOf(await openSession(house, basic));
  const headers = { cookie, ...basic };
  const get = (more: object) =>
    house.send('GET', '/admin/v1/accounts', undefined, { headers: { ...headers, ...more } });
  t.equal((await get({})).status, 200);
  checkError(t, await get({ 'sec-fetch-site': 'cross-site' }), 'invalid_parameters', 'of another site');
  checkError(t, await get({ authorization: 'Bearer wrong' }), 'invalid_api_key', 'a token is taken first');
  const account = { name: 'a', plan: 'free' };
  const bare = await house.send('POST', '/admin/v1/accounts', account, { headers });
  checkError(t, bare, 'invalid_parameters', 'without the header of the console');
  const made = await house.send('POST', '/admin/v1/accounts', account, { headers: { ...headers, ...OWN } });
  t.equal(made.status, 200);
  checkError(t, await get({ cookie: '' }), 'missing_api_key', 'the proxy alone admits nobody');
});
