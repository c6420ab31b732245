/** Signing in to the console at a real provider, from the first address to the session. */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import type { OidcSettings } from '#src/admin/oidc-claims.js';
import { pageOf, SignInError } from '#src/admin/oidc-failures.js';
import {
  CLIENT_ID,
  CLIENT_SECRET,
  type People,
  signInAt,
  signOutAt,
  startProvider,
} from '../../support/oidc-world.js';
import { type Visit, Visitor } from '../../support/visitor.js';
import { type AdminHouse, startAdminHouse } from './support.js';

const PEOPLE: People = {
  ann: { email: 'ann@example.com', groups: ['everybody', 'tollgate-admins'] },
  ben: { email: 'ben@example.com', email_verified: false, groups: ['tollgate-finance', 'tollgate-support'] },
  cem: { email: 'cem@example.com', groups: 'tollgate-support' },
  dot: { email: 'dot@example.com', groups: ['everybody'] },
  eve: { email: 'eve@example.com' },
  fay: { email: 'fay\nadmin@example.com', resource_access: { 'a.b': { roles: ['boss'] } } },
};

const ROLES = {
  'tollgate-support': 'support',
  'tollgate-finance': 'finance',
  'tollgate-admins': 'admin',
  boss: 'viewer',
} as const;

interface World {
  readonly house: AdminHouse;
  readonly start: string;
  readonly visitor: Visitor;
  set(more: Partial<OidcSettings>): void;
  signIn(name: string): Promise<Visit>;
  /** What the console is told of the session of `visitor`. */
  session(): Promise<Record<string, unknown>>;
}

async function worldOf(t: Test, provider: { client?: object; conform?: boolean } = {}): Promise<World> {
  const house = await startAdminHouse(t);
  const origin = `http://127.0.0.1:${house.port}`;
  const redirectUrl = `${origin}/admin/session/oidc/callback`;
  const issuer = await startProvider(t, { people: PEOPLE, redirectUrls: [redirectUrl], ...provider });
  const visitor = new Visitor();
  const world: World = {
    house,
    visitor,
    start: `${origin}/admin/session/oidc`,
    set: (more) => {
      house.oidc = { ...house.oidc!, ...more };
    },
    signIn: async (name) => visitor.ask(await signInAt(visitor, world.start, name)),
    session: async () => (await visitor.ask(`${origin}/admin/session`)).json() as Record<string, unknown>,
  };
  house.oidc = {
    issuer,
    client_id: CLIENT_ID,
    client_secret: CLIENT_SECRET,
    redirect_url: redirectUrl,
    scopes: ['profile'],
    role_claim: 'groups',
    roles: ROLES,
    name_claim: 'email',
    clock_tolerance_seconds: 30,
    timeout_seconds: 10,
  };
  return world;
}

void t.test('from the first address to the session', async (t) => {
  const world = await worldOf(t);
  const { house, visitor } = world;
  const told = await world.session();
  t.match(told, { signed_in: false, oidc: { issuer: new URL(house.oidc!.issuer).host, url: world.start } });

  const begun = await visitor.ask(world.start);
  t.equal(begun.status, 303);
  t.match(
    begun.headers['set-cookie']?.[0],
    new RegExp(
      `^tollgate-sign-in-${house.port}=\\d+\\.[\\w-]{43}; Path=/; Max-Age=600; HttpOnly; SameSite=Lax$`,
    ),
  );
  t.equal(begun.headers['cache-control'], 'no-store');
  const sent = new URL(begun.headers.location!);
  t.equal(sent.origin, house.oidc!.issuer);
  t.match(Object.fromEntries(sent.searchParams), {
    response_type: 'code',
    client_id: CLIENT_ID,
    redirect_uri: house.oidc!.redirect_url,
    scope: 'openid profile',
    code_challenge_method: 'S256',
    code_challenge: /^[\w-]{43}$/,
    state: /^[\w-]{43}$/,
    nonce: /^[\w-]{43}$/,
  });

  const done = await world.signIn('ann');
  t.match(done, { status: 303, headers: { location: '/', 'referrer-policy': 'no-referrer' }, body: '' });
  const [session = '', pending = '', ...more] = done.headers['set-cookie'] ?? [];
  t.match(session, /^tollgate-session-\d+=[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/);
  t.match(pending, /^tollgate-sign-in-\d+=; Path=\/; Max-Age=0; HttpOnly; SameSite=Lax$/);
  t.same(more, []);
  t.match(await world.session(), { signed_in: true, who: 'oidc:ann@example.com', role: 'admin' });
  t.equal((await visitor.ask(new URL('/', world.start))).status, 200, 'the console');
  t.equal((await visitor.ask(new URL('/admin/v1/plans', world.start))).status, 200);
  t.same(house.log.lines, ['info an operator signed in at the OpenID Connect provider']);
  t.same(house.log.fields, [{ who: 'oidc:ann@example.com', role: 'admin', sub: 'ann', from: '127.0.0.1' }]);
  t.equal((await visitor.ask(done.url)).status, 400, 'the same address again');
});

void t.test('who gets which role, by which name', async (t) => {
  const world = await worldOf(t);
  const cases: readonly [string, Partial<OidcSettings>, string, string][] = [
    ['ben', {}, 'oidc:ben', 'finance'],
    ['cem', {}, 'oidc:cem@example.com', 'support'],
    ['dot', { default_role: 'viewer' }, 'oidc:dot@example.com', 'viewer'],
    ['ann', { default_role: 'viewer', name_claim: 'sub' }, 'oidc:ann', 'admin'],
    [
      'ann',
      { role_claim: 'email', roles: { 'ann@example.com': 'viewer' } },
      'oidc:ann@example.com',
      'viewer',
    ],
    ['fay', { role_claim: 'resource_access.a.b.roles' }, 'oidc:fay', 'viewer'],
  ];
  const before = { ...world.house.oidc! };
  for (const [name, more, who, role] of cases) {
    world.set({ ...before, ...more });
    const visitor = new Visitor();
    const done = await visitor.ask(await signInAt(visitor, world.start, name));
    t.equal(done.status, 303, done.body);
    const told = await visitor.ask(new URL('/admin/session', world.start));
    t.match(told.json(), { signed_in: true, who, role }, `${name} ${JSON.stringify(more)}`);
  }
});

void t.test('who has no role is not let in, and told whom to ask', async (t) => {
  const world = await worldOf(t);
  const cases: readonly [string, Partial<OidcSettings>, string][] = [
    ['dot', {}, 'dot@example.com has groups everybody'],
    ['eve', {}, 'eve@example.com has no groups'],
    // Anybody may write any address into an account that does not verify it.
    ['ben', { role_claim: 'email', roles: { 'ben@example.com': 'admin' } }, 'ben has no email'],
    ['eve', { role_claim: 'toString', roles: { eve: 'admin' } }, 'eve@example.com has no toString'],
    ['cem', { roles: { 'TOLLGATE-SUPPORT': 'admin' } }, 'cem@example.com has groups tollgate-support'],
  ];
  const before = { ...world.house.oidc! };
  for (const [name, more, detail] of cases) {
    world.set({ ...before, ...more });
    const visitor = new Visitor();
    const done = await visitor.ask(await signInAt(visitor, world.start, name));
    t.equal(done.status, 403);
    t.equal(done.headers['content-type'], 'text/html; charset=utf-8');
    t.match(done.headers['content-security-policy'], "default-src 'none'");
    t.match(done.body, 'Ask whoever runs the provider for a group');
    t.match(done.body, detail);
    t.notOk(done.headers['set-cookie'], 'no session');
    t.match(world.house.log.fields.at(-1), { failure: 'no_role', detail });
  }
});

void t.test('a session follows the settings', async (t) => {
  const world = await worldOf(t);
  await world.signIn('ann');
  t.match(await world.session(), { role: 'admin' });
  world.set({ roles: { ...ROLES, 'tollgate-admins': 'viewer' } });
  t.match(await world.session(), { role: 'viewer' }, 'of another role');
  world.set({ roles: {} });
  t.match(await world.session(), { signed_in: false, role: null }, 'of none');
  world.set({ roles: ROLES });
  await world.signIn('ann');
  world.house.oidc = undefined;
  const told = await world.session();
  t.match(told, { signed_in: false });
  t.notOk('oidc' in told, 'no such sign-in');
  const visit = await world.visitor.ask(world.start);
  t.equal(visit.status, 404);
  t.match(visit.body, 'it needs the setting admin.oidc');
});

void t.test('a session that the settings have ended stays ended', async (t) => {
  const world = await worldOf(t);
  const { oidc } = world.house;
  for (const change of ['by the clock', 'by a change'] as const) {
    await world.signIn('ann');
    world.house.oidc = undefined;
    // Nobody asks with the session meanwhile. The settings were changed by this request, or by a signal.
    if (change === 'by a change') await world.house.send('POST', '/admin/v1/reload', {});
    else await sleep(1_500);
    world.house.oidc = oidc;
    t.match(await world.session(), { signed_in: false }, change);
  }
});

void t.test('signing out here, then at the provider', async (t) => {
  const world = await worldOf(t);
  const { house, visitor } = world;
  const signOut = async (): Promise<{ sign_out?: { issuer: string; url: string } }> => {
    const cookie = visitor.cookiesFor(new URL('/', world.start));
    const headers = { cookie, 'x-tollgate-console': '1' };
    return (await house.send('DELETE', '/admin/session', undefined, { headers })).json() as object;
  };
  t.equal((await world.signIn('ann')).status, 303);
  const { sign_out: offered } = await signOut();
  t.match(await world.session(), { signed_in: false });
  t.notOk('sign_out' in (await signOut()), 'to whom is signed in alone');
  t.equal((await world.signIn('nobody')).status, 303, 'the provider still knows ann, and does not ask');
  t.match(await world.session(), { who: 'oidc:ann@example.com' });

  t.equal(offered!.issuer, new URL(house.oidc!.issuer).host);
  const url = new URL(offered!.url);
  t.equal(url.origin, house.oidc!.issuer);
  const { id_token_hint: hint, ...sent } = Object.fromEntries(url.searchParams);
  t.same(sent, { client_id: CLIENT_ID, post_logout_redirect_uri: new URL('/', world.start).href });
  t.match(JSON.parse(Buffer.from(hint!.split('.')[1]!, 'base64url').toString()), { sub: 'ann' });
  t.equal((await signOutAt(visitor, offered!.url)).href, new URL('/', world.start).href, 'and back');
  t.equal((await world.signIn('cem')).status, 303, 'now it asks who it is');
  t.match(await world.session(), { who: 'oidc:cem@example.com' });
  t.notMatch(JSON.stringify(house.log.fields), hint!.slice(0, 40), 'the token is not logged');
});

void t.test('clients and providers of other kinds', async (t) => {
  await t.test('a public client', async (t) => {
    const world = await worldOf(t, { client: { token_endpoint_auth_method: 'none' } });
    world.house.oidc = Object.fromEntries(
      Object.entries(world.house.oidc!).filter(([name]) => name !== 'client_secret'),
    ) as OidcSettings;
    t.equal((await world.signIn('ann')).status, 303);
  });
  await t.test('claims in userinfo alone', async (t) => {
    const world = await worldOf(t, { conform: true });
    t.equal((await world.signIn('ann')).status, 303);
    t.match(await world.session(), { who: 'oidc:ann@example.com', role: 'admin' });
  });
  await t.test('a wrong secret', async (t) => {
    const world = await worldOf(t);
    world.set({ client_secret: 'wrong-secret' });
    const done = await world.signIn('ann');
    t.equal(done.status, 502);
    t.match(
      done.body,
      'admin.oidc.client_id and client_secret must be as they are registered at the provider',
    );
    t.notMatch(done.body, 'wrong-secret');
  });
  await t.test('a person who does not agree', async (t) => {
    const world = await worldOf(t);
    const begun = await world.visitor.ask(world.start);
    const { state } = Object.fromEntries(new URL(begun.headers.location!).searchParams);
    const back = new URL(world.house.oidc!.redirect_url);
    const said = '<script>alert(1)</script>';
    back.search = new URLSearchParams({
      error: 'access_denied',
      error_description: said,
      state: state!,
      iss: world.house.oidc!.issuer,
    }).toString();
    const done = await world.visitor.ask(back);
    t.equal(done.status, 403);
    t.match(done.body, '<q>access_denied: &lt;script&gt;alert(1)&lt;/script&gt;</q>');
  });
});

void t.test('one that somebody else began, or nobody, or too long ago', async (t) => {
  const world = await worldOf(t);
  const { house, visitor } = world;
  const refused = async (who: Visitor, back: string | URL, name: string): Promise<void> => {
    house.clock.nowMs += 1_000;
    const visit = await who.ask(back);
    t.equal(visit.status, 400, name);
    t.match(visit.body, 'This browser has not begun this sign-in here', name);
    t.notOk(visit.headers['set-cookie'], name);
  };
  const stranger = new Visitor();
  const back = await signInAt(visitor, world.start, 'ann');
  await refused(stranger, back, 'without a cookie: another browser is not signed in as somebody else');
  await stranger.ask(world.start);
  await refused(stranger, back, 'with a cookie of its own');
  for (const state of ['', 'x', 'ü'.repeat(43), 'A'.repeat(43), `${back.searchParams.get('state')!}A`]) {
    const changed = new URL(back);
    changed.searchParams.set('state', state);
    await refused(visitor, changed, `state ${state}`);
  }
  const twice = new URL(back);
  twice.searchParams.append('state', back.searchParams.get('state')!);
  await refused(visitor, twice, 'two states');
  twice.searchParams.delete('state');
  await refused(visitor, twice, 'no state');
  t.equal((await visitor.ask(back)).status, 303, 'who began it finishes it');

  const again = await signInAt(visitor, world.start, 'ann');
  const pending = visitor.cookiesFor(again);
  house.clock.nowMs += 600_000;
  await refused(visitor, again, 'ten minutes later');
  // Who makes the cookie younger makes another state.
  const [, seconds, rest] = /=(\d+)(\..*)$/.exec(pending)!;
  const younger = await house.send('GET', again.pathname + again.search, undefined, {
    headers: { cookie: `tollgate-sign-in-${house.port}=${Number(seconds) + 600}${rest}` },
  });
  t.equal(younger.status, 400);
});

void t.test('a fault of the provider is for those to mend who run it or the gateway', (t) => {
  for (const failure of ['bad_answer', 'wrong_time'] as const)
    t.match(pageOf(new SignInError(failure)).body, '<p>Tell whoever runs this gateway or the provider: ');
  t.end();
});

void t.test('codes and states are good for once', async (t) => {
  const world = await worldOf(t);
  const { house, visitor } = world;
  const back = await signInAt(visitor, world.start, 'ann');
  const cookie = visitor.cookiesFor(back);
  const replay = (target: URL) =>
    house.send('GET', target.pathname + target.search, undefined, { headers: { cookie } });
  t.equal((await replay(back)).status, 303);
  const second = await replay(back);
  t.equal(second.status, 400);
  t.match(second.body, 'This sign-in has been finished already');

  const next = await signInAt(visitor, world.start, 'ann');
  next.searchParams.set('code', back.searchParams.get('code')!);
  const old = await visitor.ask(next);
  t.equal(old.status, 400);
  t.match(old.body, 'The provider does not take the code');
  t.match(old.body, 'invalid_grant');
});

void t.test('addresses, methods and hosts', async (t) => {
  const world = await worldOf(t);
  const { house } = world;
  for (const path of ['/admin/session/oidc', '/admin/session/oidc/callback']) {
    for (const method of ['POST', 'DELETE', 'HEAD', 'PUT']) {
      t.equal((await house.send(method, path)).status, 405, `${method} ${path}`);
    }
    const rebound = await house.send('GET', path, undefined, { headers: { host: 'evil.example' } });
    t.equal(rebound.status, 400);
    t.match(rebound.body, 'does not answer under the Host');
  }
  // A page of another site may send a browser here: it gets no further than its own sign-in.
  const linked = await house.send(
    'GET',
    '/admin/session/oidc?return=https://evil.example/&issuer=x',
    undefined,
    {
      headers: { 'sec-fetch-site': 'cross-site' },
    },
  );
  t.equal(linked.status, 303);
  t.notMatch(linked.headers.location, 'evil');
  const named = { host: `console.example:${house.port}` };
  const open = () => house.send('GET', '/admin/session', undefined, { headers: named });
  t.equal((await open()).status, 400);
  world.set({ redirect_url: 'https://Console.example/admin/session/oidc/callback' });
  t.equal((await open()).status, 200, 'the host of redirect_url is allowed');
  const secure = await house.send('GET', '/admin/session/oidc', undefined, { headers: named });
  const [pair = ''] = secure.headers['set-cookie'] ?? [];
  t.match(pair, /^__Host-[^;]+; Path=\/; .*; SameSite=Lax; Secure$/);
  // Another host of the domain may set a cookie for all hosts, but none of that name.
  const { searchParams: sent } = new URL(secure.headers.location!);
  const end = (cookie: string) => {
    house.clock.nowMs += 1_000;
    const path = `/admin/session/oidc/callback?code=x&state=${sent.get('state')!}`;
    return house.send('GET', path, undefined, { headers: { ...named, cookie } });
  };
  t.match((await end(/^__Host-([^;]+)/.exec(pair)![1]!)).body, 'has not begun this sign-in here');
  t.notMatch((await end(/^[^;]+/.exec(pair)![0])).body, 'has not begun this sign-in here');
});
