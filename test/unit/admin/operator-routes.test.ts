/** Operators over the interface: their tokens, their sessions, and when these end. */
import t, { type Test } from 'tap';
import { checkError } from '../../support/error-answer.js';
import type { Answer, RequestOptions } from '../../support/http.js';
import { type AdminHouse, startAdminHouse, TOKEN } from './support.js';

const ROOT = '/admin/v1';
const OWN = { 'x-tollgate-console': '1' };

interface Created {
  readonly id: string;
  readonly token: string;
}

async function create(t: Test, house: AdminHouse, body: object): Promise<Created> {
  const answer = await house.send('POST', `${ROOT}/operators`, body);
  t.equal(answer.status, 200, answer.body);
  return answer.json() as Created;
}

const as = (token: string): Partial<RequestOptions> => ({ headers: { authorization: `Bearer ${token}` } });

async function signIn(house: AdminHouse, token: string): Promise<{ answer: Answer; cookie: string }> {
  const answer = await house.send('POST', '/admin/session', { token }, { headers: OWN });
  return { answer, cookie: /^[^;]+/.exec(answer.headers['set-cookie']?.[0] ?? '')?.[0] ?? '' };
}

void t.test('operators are made, shown, changed and deleted', async (t) => {
  const house = await startAdminHouse(t);
  const { id, token } = await create(t, house, { name: 'ann', role: 'support', expires_in: 3_600 });
  const nowSeconds = Math.floor(house.clock.wallMs() / 1_000);
  const view = {
    id,
    name: 'ann',
    role: 'support',
    active: true,
    created: nowSeconds,
    expires: nowSeconds + 3_600,
    expired: false,
    last_used: null,
  };
  t.same((await house.send('GET', `${ROOT}/operators/ann`)).json(), view, 'neither token nor digest');
  t.same((await house.send('GET', `${ROOT}/operators`)).json(), { data: [view], next: null });
  t.equal((await house.send('GET', `${ROOT}/accounts`, undefined, as(token))).status, 200);
  t.match((await house.send('GET', `${ROOT}/operators/${id}`)).json(), { last_used: nowSeconds });

  const denied = await house.send('GET', `${ROOT}/operators`, undefined, as(token));
  t.match(
    checkError(t, denied, 'insufficient_role', 'support'),
    /needs the role admin.*has the role support/,
  );
  t.match((await house.send('POST', `${ROOT}/operators/ann/set-role`, { role: 'admin' })).json(), {
    role: 'admin',
  });
  t.equal((await house.send('GET', `${ROOT}/operators`, undefined, as(token))).status, 200, 'now admin');

  const rotated = (await house.send('POST', `${ROOT}/operators/ann/rotate`, {})).json() as Created;
  checkError(t, await house.send('GET', `${ROOT}/status`, undefined, as(token)), 'invalid_api_key', 'former');
  t.equal((await house.send('GET', `${ROOT}/status`, undefined, as(rotated.token))).status, 200);
  t.same((await house.send('DELETE', `${ROOT}/operators/ann`)).json(), { id, deleted: true });
  const gone = await house.send('GET', `${ROOT}/status`, undefined, as(rotated.token));
  t.match(checkError(t, gone, 'invalid_api_key', 'deleted'), 'admits nobody');
  for (const [body, code] of [
    [{ name: 'b', role: 'root' }, 'invalid_parameters'],
    [{ name: 'oidc:b', role: 'admin' }, 'invalid_parameters'],
    [{ name: 'b' }, 'invalid_parameters'],
  ] as const) {
    checkError(t, await house.send('POST', `${ROOT}/operators`, body), code, JSON.stringify(body));
  }
  checkError(t, await house.send('POST', `${ROOT}/operators/ann/disable`), 'not_found', 'ann');
});

void t.test('a session is of its operator, and ends with it', async (t) => {
  const house = await startAdminHouse(t);
  const ends: readonly (readonly [string, (house: AdminHouse) => unknown])[] = [
    ['disabled', () => house.send('POST', `${ROOT}/operators/disabled/disable`)],
    ['deleted', () => house.send('DELETE', `${ROOT}/operators/deleted`)],
    ['rotated', () => house.send('POST', `${ROOT}/operators/rotated/rotate`, {})],
    ['expired', () => (house.clock.nowMs += 3_600_000)],
  ];
  for (const [name, end] of ends) {
    const { token } = await create(t, house, { name, role: 'viewer', expires_in: 3_600 });
    const { answer, cookie } = await signIn(house, token);
    t.match(answer.json(), { signed_in: true, who: name, role: 'viewer' });
    const headers = { cookie, ...OWN };
    const send = (method: string, path: string) => house.send(method, path, undefined, { headers });
    t.match((await send('GET', '/admin/session')).json(), { who: name, role: 'viewer' });
    t.equal((await send('GET', `${ROOT}/accounts`)).status, 200);
    checkError(t, await send('POST', `${ROOT}/cache/clear`), 'insufficient_role', name);
    checkError(t, await send('POST', '/admin/playground'), 'insufficient_role', name);
    await end(house);
    checkError(t, await send('GET', `${ROOT}/accounts`), 'missing_api_key', name);
    t.match((await send('GET', '/admin/session')).json(), { signed_in: false, who: null, role: null });
    checkError(t, (await signIn(house, token)).answer, 'invalid_api_key', `${name}: no new session`);
    house.clock.nowMs += 1_000;
  }
  t.match((await signIn(house, TOKEN)).answer.json(), { who: 'bootstrap', role: 'admin' });
});

void t.test('a session that was ended stays ended, and to look at it is no use of the token', async (t) => {
  const house = await startAdminHouse(t);
  const { token } = await create(t, house, { name: 'ann', role: 'viewer' });
  const { cookie } = await signIn(house, token);
  const operator = async () => (await house.send('GET', `${ROOT}/operators/ann`)).json();
  const { last_used: lastUsed } = (await operator()) as { last_used: number };
  house.clock.nowMs += 60_000;
  await house.send('POST', `${ROOT}/operators/ann/set-role`, { role: 'support' });
  t.match(await operator(), { last_used: lastUsed });
  // No request of the session comes in between.
  for (const verb of ['disable', 'enable'])
    t.equal((await house.send('POST', `${ROOT}/operators/ann/${verb}`)).status, 200);
  const headers = { cookie, ...OWN };
  t.match((await house.send('GET', '/admin/session', undefined, { headers })).json(), { signed_in: false });
});

void t.test('nobody signs the others out', async (t) => {
  const house = await startAdminHouse(t);
  const { token } = await create(t, house, { name: 'ann', role: 'viewer' });
  const admin = (await signIn(house, TOKEN)).cookie;
  const first = (await signIn(house, token)).cookie;
  for (let count = 0; count < 201; count++) await signIn(house, token);
  const statusOf = async (cookie: string): Promise<number> =>
    (await house.send('GET', `${ROOT}/status`, undefined, { headers: { cookie } })).status;
  t.same([await statusOf(admin), await statusOf(first)], [200, 401]);
});

void t.test('wrong tokens of the form of an operator count as others do', async (t) => {
  const house = await startAdminHouse(t);
  const { token } = await create(t, house, { name: 'ann', role: 'viewer' });
  const wrong = (): Promise<Answer> =>
    house.send('GET', `${ROOT}/status`, undefined, as(`tgop_${'A'.repeat(43)}`));
  for (let count = 0; count < 5; count++) checkError(t, await wrong(), 'invalid_api_key', 'wrong');
  checkError(t, await wrong(), 'rate_limit_exceeded', 'the sixth');
  t.equal((await house.send('GET', `${ROOT}/status`, undefined, as(token))).status, 200, 'the right one');
});
