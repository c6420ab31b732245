/**
 * Providers that lie, are slow, flood or lead elsewhere, and browsers that bring what they should not have:
 * nobody is let in, each is told what is wrong, and no secret is in what is told or logged.
 */
import t, { type Test } from 'tap';
import {
  answering,
  type FalseProvider,
  flooding,
  hanging,
  startFalseProvider,
} from '../support/false-provider.js';
import { type Visit, Visitor } from '../support/visitor.js';
import { type AdminHouse, startAdminHouse, TOKEN } from '../unit/admin/support.js';

const SECRET = 'client-secret-0123456789';
const CODE = 'an-authorization-code';
const DOCUMENT = '/.well-known/openid-configuration';
const KIB_64 = Buffer.alloc(64 * 1024, ' ');
/** A timeout of a second, on a loaded machine. */
const SOON_MS = 20_000;

interface World {
  readonly house: AdminHouse;
  readonly provider: FalseProvider;
  /** A whole sign-in: `query` over what a sound provider sends back. */
  signIn(query?: Readonly<Record<string, string>>): Promise<Visit>;
}

async function worldOf(t: Test): Promise<World> {
  const house = await startAdminHouse(t);
  const provider = await startFalseProvider(t);
  const start = `http://127.0.0.1:${house.port}/admin/session/oidc`;
  house.oidc = {
    issuer: provider.issuer,
    client_id: 'tollgate',
    client_secret: SECRET,
    redirect_url: `${start}/callback`,
    scopes: [],
    role_claim: 'groups',
    roles: { admins: 'admin' },
    name_claim: 'email',
    clock_tolerance_seconds: 30,
    timeout_seconds: 1,
  };
  const signIn = async (query: Readonly<Record<string, string>> = {}): Promise<Visit> => {
    // Failures of one sender are counted by the second.
    house.clock.nowMs += 1_000;
    const visitor = new Visitor();
    const begun = await visitor.ask(start);
    if (begun.status !== 303) return begun;
    const sent = Object.fromEntries(new URL(begun.headers.location!).searchParams);
    provider.nonce = sent.nonce!;
    const back = new URLSearchParams({ code: CODE, state: sent.state!, iss: provider.issuer, ...query });
    for (const [name, value] of Object.entries(query)) if (value === '') back.delete(name);
    return visitor.ask(`${start}/callback?${back.toString()}`);
  };
  return { house, provider, signIn };
}

/** That a sign-in fails with `failure`, for a reason that matches `detail`, and that nothing leaks. */
async function refused(
  t: Test,
  { house, provider }: World,
  visit: Visit,
  failure: string,
  detail: RegExp,
  name: string,
): Promise<void> {
  t.not(visit.status, 303, name);
  t.notOk(visit.headers['set-cookie'], `${name}: no session`);
  const fields = house.log.fields.at(-1) as { readonly failure: string; readonly detail: string };
  t.equal(fields.failure, failure, `${name}: ${JSON.stringify(fields)}`);
  t.match(fields.detail, detail, name);
  const told = `${visit.body} ${JSON.stringify(house.log.fields)}`;
  for (const secret of [
    SECRET,
    CODE,
    TOKEN,
    'an-access-token',
    provider.token().slice(0, 60),
    provider.nonce,
  ]) {
    if (secret !== '') t.notOk(told.includes(secret), `${name}: a secret is told`);
  }
  await Promise.resolve();
}

void t.test('a sound one signs in', async (t) => {
  const world = await worldOf(t);
  t.equal((await world.signIn()).status, 303);
  t.same(world.provider.asked, [DOCUMENT, '/token', '/keys']);
  t.equal((await world.signIn()).status, 303);
  t.same(world.provider.asked.slice(3), ['/token'], 'document and keys are kept');
  world.house.clock.nowMs += 3_600_000;
  t.equal((await world.signIn()).status, 303);
  t.same(world.provider.asked.slice(4), [DOCUMENT, '/token', '/keys'], 'and renewed');
});

void t.test('no address to sign out at harms: the sign-in is one, and nothing else is offered', async (t) => {
  const cases: readonly [unknown, object, RegExp | undefined][] = [
    ['/out', {}, /\/out\?post_logout_redirect_uri=[^&]+&id_token_hint=[^&]+&client_id=tollgate$/],
    ['/out?a=b', {}, /\/out\?a=b&post_logout/],
    ['/out', { filler: 'x'.repeat(6_000) }, /\/out\?post_logout_redirect_uri=[^&]+&client_id=tollgate$/],
    [undefined, {}, undefined],
    ['javascript:alert(1)', {}, undefined],
    ['data:text/html,x', {}, undefined],
    ['no address', {}, undefined],
    [7, {}, undefined],
    [null, {}, undefined],
  ];
  for (const [address, claims, wanted] of cases) {
    const world = await worldOf(t);
    const { house, provider } = world;
    const endpoint =
      typeof address === 'string' && address.startsWith('/') ? provider.issuer + address : address;
    provider.document = { end_session_endpoint: endpoint };
    provider.claims = claims;
    const visit = await world.signIn();
    t.equal(visit.status, 303, visit.body);
    const cookie = visit.headers['set-cookie']![0]!.split(';')[0]!;
    const headers = { cookie, 'x-tollgate-console': '1' };
    const out = await house.send('DELETE', '/admin/session', undefined, { headers });
    const { sign_out: offered } = out.json() as { sign_out?: { url: string } };
    if (wanted === undefined) t.equal(offered, undefined, String(address));
    else t.match(offered?.url, wanted, `${String(address)} ${JSON.stringify(claims).slice(0, 20)}`);
  }
});

void t.test('tokens that are not for this sign-in', async (t) => {
  const now = Math.floor(Date.now() / 1_000);
  const cases: readonly [string, Partial<FalseProvider>, string, RegExp][] = [
    ['of another issuer', { claims: { iss: 'https://evil.example' } }, 'wrong_token', /"iss"/],
    ['for another client', { claims: { aud: 'other' } }, 'wrong_token', /"aud"/],
    [
      'for several, by another',
      { claims: { aud: ['tollgate', 'other'], azp: 'other' } },
      'wrong_token',
      /"azp"/,
    ],
    ['of another sign-in', { claims: { nonce: 'another' } }, 'wrong_token', /"nonce"/],
    ['without a nonce', { claims: { nonce: undefined } }, 'bad_answer', /"nonce"/],
    ['of nobody', { claims: { sub: undefined } }, 'bad_answer', /"sub"/],
    ['that has expired', { claims: { exp: now - 40 } }, 'wrong_time', /"exp"/],
    ['that never expires', { claims: { exp: undefined } }, 'bad_answer', /"exp"/],
    ['that is not valid yet', { claims: { nbf: now + 45 } }, 'wrong_time', /"nbf"/],
    ['unsigned', { alg: 'none' }, 'bad_answer', /"alg"/],
    ['signed with the public key', { alg: 'HS256' }, 'bad_answer', /"alg"/],
    ['signed by somebody else', { alg: 'strange' }, 'bad_answer', /signature/],
  ];
  for (const [name, more, failure, detail] of cases) {
    const world = await worldOf(t);
    Object.assign(world.provider, more);
    await refused(t, world, await world.signIn(), failure, detail, name);
  }
  await t.test('also if the provider allows such signatures', async (t) => {
    for (const alg of ['none', 'HS256'] as const) {
      const world = await worldOf(t);
      world.provider.document = { id_token_signing_alg_values_supported: ['RS256', alg] };
      world.provider.alg = alg;
      await refused(t, world, await world.signIn(), 'wrong_token', /unsupported/, alg);
    }
  });
});

void t.test('clocks that differ', async (t) => {
  const world = await worldOf(t);
  for (const tolerance of [0, 30, 300]) {
    world.house.oidc = { ...world.house.oidc!, clock_tolerance_seconds: tolerance };
    for (const [behind, lets] of [
      [tolerance - 5, true],
      [tolerance + 5, false],
    ] as const) {
      const now = Math.floor(Date.now() / 1_000);
      for (const claims of [{ exp: now - behind }, { nbf: now + behind }]) {
        if (behind < 0) continue;
        world.provider.claims = claims;
        const visit = await world.signIn();
        const name = `${JSON.stringify(claims)} at ${now} with a tolerance of ${tolerance}`;
        if (lets) t.equal(visit.status, 303, name);
        else await refused(t, world, visit, 'wrong_time', /"(?:exp|nbf)"/, name);
      }
    }
  }
});

void t.test('answers of the browser that another provider made', async (t) => {
  const world = await worldOf(t);
  for (const [name, query, detail] of [
    ['another iss', { iss: 'https://evil.example' }, /"iss"/],
    ['no iss', { iss: '' }, /"iss" \(issuer\) missing/],
    ['no code', { code: '' }, /code/],
    ['a token of its own', { id_token: 'a.b.c' }, /unsupported/],
    ['a signed response', { response: 'a.b.c' }, /JARM/],
  ] as const) {
    const failure = name === 'a token of its own' ? 'wrong_token' : 'bad_answer';
    await refused(t, world, await world.signIn(query), failure, detail, name);
  }
  t.notOk(world.provider.asked.includes('/token'), 'no code was sent anywhere');
});

void t.test('documents of another issuer, and of all tenants', async (t) => {
  for (const issuer of [
    'https://evil.example',
    'https://login.microsoftonline.com/{tenantid}/v2.0',
    7,
    undefined,
  ]) {
    const world = await worldOf(t);
    world.provider.document = { issuer };
    const failure = typeof issuer === 'string' ? 'wrong_provider' : 'bad_answer';
    await refused(t, world, await world.signIn(), failure, /issuer/, String(issuer));
  }
  const world = await worldOf(t);
  world.provider.document = { authorization_endpoint: undefined };
  await refused(t, world, await world.signIn(), 'bad_answer', /authorization_endpoint/, 'no address');

  // The client library makes an exception for Entra ID: /common signs in the people of every tenant.
  const tenants = await worldOf(t);
  const { fetch } = globalThis;
  t.teardown(() => {
    globalThis.fetch = fetch;
  });
  const issuer = 'https://login.microsoftonline.com/{tenantid}/v2.0';
  tenants.house.oidc = { ...tenants.house.oidc!, issuer: 'https://login.microsoftonline.com/common/v2.0' };
  globalThis.fetch = () =>
    Promise.resolve(Response.json({ issuer, authorization_endpoint: 'https://x.example/' }));
  await refused(t, tenants, await tenants.signIn(), 'wrong_provider', /\{tenantid\}/, 'every tenant');
});

void t.test('slow, endless and broken answers', async (t) => {
  const cases: readonly [string, Parameters<FalseProvider['instead']['set']>[1], string, RegExp][] = [
    ['never', hanging(false), 'unreachable', /timed out/],
    ['a head alone', hanging(true), 'unreachable', /timed out/],
    ['a flood', flooding(KIB_64), 'bad_answer', /has more than 1048576 bytes/],
    ['an error', answering(500, '{}'), 'bad_answer', /status/],
    ['no JSON', answering(200, '<html>'), 'bad_answer', /pars/],
    ['another type', answering(200, '{}', { 'content-type': 'text/html' }), 'bad_answer', /must be|missing/],
    ['a token cut off', answering(200, `{"id_token":"${'secret-'.repeat(9)}`), 'bad_answer', /JSON$/],
    ['a token out of place', answering(200, `{"id_token":secret-0123456789}`), 'bad_answer', /JSON$/],
    ['a list', answering(200, '[]'), 'bad_answer', /object/],
    ['null', answering(200, 'null'), 'bad_answer', /object/],
    ['nothing', answering(200, ''), 'bad_answer', /pars/],
    ['a redirect to itself', answering(302, '', { location: '/token' }), 'bad_answer', /status/],
    ['a redirect elsewhere', answering(307, '', { location: 'http://127.0.0.1:1/' }), 'bad_answer', /status/],
    ['a broken connection', (response) => response.destroy(), 'unreachable', /fetch failed|terminated/],
  ];
  for (const path of [DOCUMENT, '/token', '/keys', '/userinfo'] as const) {
    for (const [what, respond, failure, detail] of cases) {
      const name = `${path}: ${what}`;
      const world = await worldOf(t);
      if (path === '/userinfo') {
        world.provider.document = { userinfo_endpoint: `${world.provider.issuer}/userinfo` };
        world.provider.claims = { groups: undefined };
      }
      world.provider.instead.set(path, respond);
      const startMs = performance.now();
      await refused(t, world, await world.signIn(), failure, detail, name);
      t.ok(performance.now() - startMs < SOON_MS, name);
      t.equal(world.provider.asked.filter((asked) => asked === path).length, 1, `${name}: asked once`);
      world.provider.instead.delete(path);
      world.provider.claims = {};
      t.equal((await world.signIn()).status, 303, `${name}: and the next one is let in`);
    }
  }
});

void t.test('userinfo of somebody else', async (t) => {
  const world = await worldOf(t);
  const { provider } = world;
  provider.document = { userinfo_endpoint: `${provider.issuer}/userinfo` };
  provider.claims = { groups: undefined, sub: 'eve' };
  provider.instead.set('/userinfo', answering(200, '{"sub":"ann","groups":["admins"]}'));
  await refused(t, world, await world.signIn(), 'bad_answer', /"sub"/, 'another sub');
  provider.instead.set('/userinfo', answering(200, '{"sub":"eve","groups":["admins"],"iss":"x"}'));
  t.equal((await world.signIn()).status, 303);
});

void t.test('a provider that is not there', async (t) => {
  const world = await worldOf(t);
  const { house } = world;
  house.oidc = { ...house.oidc!, issuer: 'http://127.0.0.1:1' };
  const visit = await world.signIn();
  await refused(t, world, visit, 'unreachable', /ECONNREFUSED|fetch failed/, 'refused');
  t.match(visit.body, 'or use the admin token');
  const own = { 'x-tollgate-console': '1' };
  const signedIn = await house.send('POST', '/admin/session', { token: TOKEN }, { headers: own });
  t.equal(signedIn.status, 200, 'the token signs in all the same');
});

void t.test('floods', async (t) => {
  const world = await worldOf(t);
  const { house, provider } = world;
  const path = '/admin/session/oidc';
  const lines = (): number => house.log.lines.length;
  for (let at = 0; at < 50; at++) await house.send('GET', `${path}/callback?state=x`);
  t.equal(lines(), 5, 'five failures of one sender are told in a second');
  t.equal((await house.send('GET', `${path}/callback`)).status, 429);
  t.equal((await house.send('GET', path)).status, 303, 'who begins is let in');
  house.clock.nowMs += 1_000;

  house.oidc = { ...house.oidc! };
  provider.instead.set(DOCUMENT, hanging(false));
  const before = provider.asked.length;
  const all = await Promise.all(Array.from({ length: 40 }, () => house.send('GET', path)));
  t.same(new Set(all.map(({ status }) => status)), new Set([429, 502]));
  t.equal(provider.asked.length - before, 1, 'one request for the document at a time');
  t.equal((await house.send('GET', '/admin/v1/plans')).status, 200, 'others are served');
});
