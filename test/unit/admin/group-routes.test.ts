/** Groups, their limits, and the limits of keys, over the interface. */
import t, { type Test } from 'tap';
import { checkError, type ErrorName } from '../../support/error-answer.js';
import { type AdminHouse, startAdminHouse } from './support.js';

const ROOT = '/admin/v1';

interface Group {
  readonly id: string;
  readonly name: string;
  readonly path: readonly string[];
}

async function answered(house: AdminHouse, method: string, path: string, body?: object): Promise<unknown> {
  const answer = await house.send(method, `${ROOT}${path}`, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.body}`);
  return answer.json();
}

async function checkRefusals(
  t: Test,
  house: AdminHouse,
  rows: readonly (readonly [string, string, unknown, ErrorName, RegExp])[],
): Promise<void> {
  for (const [method, path, body, code, message] of rows) {
    const answer = await house.send(method, `${ROOT}${path}`, body);
    t.match(checkError(t, answer, code, `${method} ${path} ${JSON.stringify(body)}`), message);
  }
}

const ALL_LIMITS = {
  requests_per_minute: 60,
  tokens_per_minute: 5_000,
  calls_in_flight: 7,
  calls_per_day: 1_000,
  tokens_per_day: 100_000,
  calls_per_month: 20_000,
  tokens_per_month: 1_000_000_000_000,
  spend_per_day: '10.00',
  spend_per_month: '0.000000001',
};

/** What nobody has used yet. */
const unused = (limits: Readonly<Record<string, number | string>>) =>
  Object.fromEntries(
    Object.entries(limits).map(([name, limit]) => {
      const none = typeof limit === 'string' ? '0.00' : 0;
      return [name, { limit, used: none, held: none, left: limit }];
    }),
  );

void t.test('groups: create, show, list, tree', async (t) => {
  const house = await startAdminHouse(t);
  const create = async (name: string, more: object = {}) =>
    (await answered(house, 'POST', '/groups', { name, ...more })) as Group;
  const research = await create('research', ALL_LIMITS);
  t.match(research, {
    id: /^grp_[0-9a-z]{16}$/,
    name: 'research',
    parent: null,
    path: ['research'],
    accounts: 0,
    groups: 0,
    quotas: unused(ALL_LIMITS),
    created: house.clock.nowMs / 1_000,
  });
  const { quotas } = research as unknown as { quotas: Record<string, { resets_at: number | null }> };
  t.same(Object.keys(quotas), Object.keys(ALL_LIMITS), 'every quota has a limit');
  for (const [name, { resets_at: resets }] of Object.entries(quotas)) {
    const isStock = name.endsWith('_day') || name.endsWith('_month');
    t.equal(resets !== null, isStock, name);
    if (isStock) t.ok(resets! > house.clock.nowMs / 1_000 && resets! % 3_600 === 0, `${name} ${resets}`);
  }
  const vision = await create('vision', { parent: 'research', tokens_per_day: 5 });
  t.match(vision, { parent: research.id, path: ['research', 'vision'], groups: 0 });
  t.match(vision, { quotas: unused({ tokens_per_day: 5 }) });
  await create('sales');
  await create('speech', { parent: research.id });
  await create('edge', { parent: 'vision' });
  t.match(await answered(house, 'GET', '/groups/research'), { id: research.id, groups: 2 });
  t.match(await answered(house, 'GET', `/groups/${vision.id}`), { name: 'vision', groups: 1 });
  t.same(((await answered(house, 'GET', '/groups/sales')) as { quotas: object }).quotas, {});

  const names = async (path: string) =>
    ((await answered(house, 'GET', path)) as { data: Group[] }).data.map(({ path: names }) =>
      names.join('/'),
    );
  const tree = ['research', 'research/speech', 'research/vision', 'research/vision/edge', 'sales'];
  t.same(await names('/group-tree'), tree);
  t.same(await names('/group-tree?root=vision'), ['research/vision', 'research/vision/edge']);
  t.same((await names('/groups')).toSorted(), tree, 'all');
  t.same(await names('/groups?parent=research'), ['research/vision', 'research/speech'], 'as they were made');
  for (const path of ['/groups', '/group-tree']) {
    const all = await names(path);
    const paged: string[] = [];
    let cursor: string | null = '0';
    while (cursor !== null) {
      const page = (await answered(house, 'GET', `${path}?limit=2&cursor=${cursor}`)) as {
        data: Group[];
        next: string | null;
      };
      t.ok(page.data.length <= 2);
      paged.push(...page.data.map(({ path: names }) => names.join('/')));
      cursor = page.next;
    }
    t.same(paged, all, path);
  }

  await create('fourth', { parent: 'edge' });
  await checkRefusals(t, house, [
    ['POST', '/groups', { name: 'fifth', parent: 'fourth' }, 'invalid_parameters', /^parent .*4/],
    ['POST', '/groups', { name: 'research' }, 'invalid_parameters', /^name must be unique, and grp_/],
    ['POST', '/groups', { name: '' }, 'invalid_parameters', /^name must have 1 to 100 characters/],
    ['POST', '/groups', {}, 'invalid_parameters', /^name must be given$/],
    [
      'POST',
      '/groups',
      { name: 'x', parent: 'reserch' },
      'not_found',
      /^parent: .*reserch.*nearest.*research/,
    ],
    ['GET', '/groups/reserch', undefined, 'not_found', /^there is no group reserch.*nearest.*research/],
    ['GET', '/groups?parent=nobody', undefined, 'not_found', /^parent: there is no group nobody/],
    ['GET', '/group-tree?root=nobody', undefined, 'not_found', /^root: there is no group nobody/],
    ['DELETE', '/groups/vision', undefined, 'conflict', /vision.*group/],
    ['PUT', '/groups/vision', {}, 'method_not_allowed', /GET|DELETE/],
  ]);
});

void t.test('limits: the rule of each is told', async (t) => {
  const house = await startAdminHouse(t);
  await answered(house, 'POST', '/groups', { name: 'g', ...ALL_LIMITS });
  await answered(house, 'POST', '/accounts', { name: 'acme', plan: 'free' });
  const key = await answered(house, 'POST', '/keys', { account: 'acme', name: 'k', ...ALL_LIMITS });
  t.match(key, { quotas: unused(ALL_LIMITS), requests_per_minute: 60, calls_per_day: 1_000 });
  const paths = ['/groups/g/set-limits', '/keys/k/set-limits'];
  for (const path of paths) {
    const change = (body: object) => answered(house, 'POST', path, body);
    t.match(await change({ tokens_per_day: 7, spend_per_month: '500' }), {
      quotas: unused({ ...ALL_LIMITS, tokens_per_day: 7, spend_per_month: '500.00' }),
    });
    const rest = Object.keys(ALL_LIMITS).filter(
      (name) => !['tokens_per_day', 'spend_per_day'].includes(name),
    );
    const taken = (await change({ tokens_per_day: null, spend_per_day: null })) as { quotas: object };
    t.same(Object.keys(taken.quotas), rest, 'null takes a limit away');
    t.same(await change({}), taken, 'nothing');
    t.same(await answered(house, 'GET', path.replace('/set-limits', '')), taken, 'and it stays so');
  }
  for (const path of ['/groups', '/keys', ...paths]) {
    const refused = async (body: object) =>
      checkError(t, await house.send('POST', `${ROOT}${path}`, body), 'invalid_parameters', path);
    const more = path === '/keys' ? { account: 'acme', name: 'x' } : path === '/groups' ? { name: 'x' } : {};
    const wholes = Object.entries(ALL_LIMITS).filter(([, limit]) => typeof limit === 'number');
    for (const [name] of wholes) {
      for (const wrong of [0, -1, 1.5, '5', 1e16, true]) {
        t.match(
          await refused({ ...more, [name]: wrong }),
          new RegExp(`^${name} must be a whole number from 1 to [0-9]+, got `),
        );
      }
    }
    for (const name of ['spend_per_day', 'spend_per_month']) {
      for (const wrong of ['', 'ten', '-', '3000000.01', '1.0000000000001'])
        t.match(await refused({ ...more, [name]: wrong }), new RegExp(`^${name} must be a decimal amount`));
      for (const wrong of ['0', '-1', '0.000000000999'])
        t.match(
          await refused({ ...more, [name]: wrong }),
          new RegExp(`^${name} must be at least 0.000000001,`),
        );
      t.match(await refused({ ...more, [name]: 5 }), new RegExp(`^${name} must be (a )?decimal text|string`));
    }
    t.match(
      await refused({ ...more, tokens_per_mounth: 5 }),
      /^unknown field tokens_per_mounth, the nearest known one is tokens_per_month$/,
    );
    t.match(
      await refused({ ...more, rpm_limit: 5 }),
      /^unknown field rpm_limit, the nearest known one is requests_per_minute$/,
    );
  }
  const bulk = await house.send('POST', `${ROOT}/bulk`, {
    accounts: [{ name: 'b', plan: 'free', keys: [{ name: 'x', spend_per_day: '0' }] }],
  });
  t.match(
    checkError(t, bulk, 'invalid_parameters', 'bulk'),
    /^accounts\[0\]\.keys\[0\]\.spend_per_day must be at least 0.000000001/,
  );
});

void t.test('accounts in groups: create, move, filter, bulk', async (t) => {
  const house = await startAdminHouse(t);
  const ids = new Map<string, string>();
  for (const [name, parent] of [['research'], ['vision', 'research'], ['sales']] as const) {
    const group = (await answered(house, 'POST', '/groups', { name, parent })) as Group;
    ids.set(name, group.id);
  }
  const acme = await answered(house, 'POST', '/accounts', { name: 'acme', plan: 'free', group: 'vision' });
  t.match(acme, { group: ids.get('vision'), group_name: 'vision' });
  await answered(house, 'POST', '/bulk', {
    accounts: [
      { name: 'b1', plan: 'free', group: 'research', keys: [{ name: 'k', tokens_per_day: 5 }] },
      { name: 'b2', plan: 'paid', group: ids.get('sales') },
    ],
  });
  const inGroup = async (query: string) =>
    ((await answered(house, 'GET', `/accounts?${query}`)) as { data: { name: string }[] }).data.map(
      ({ name }) => name,
    );
  t.same(await inGroup('group=research'), ['acme', 'b1'], 'and those below it');
  t.same(await inGroup('group=vision'), ['acme']);
  t.same(await inGroup(`group=${ids.get('sales')}&plan=free`), []);
  t.match(await answered(house, 'GET', '/groups/research'), { accounts: 1, groups: 1 });
  t.match(await answered(house, 'GET', '/keys/k'), { quotas: unused({ tokens_per_day: 5 }) });

  t.match(await answered(house, 'POST', '/accounts/acme/set-group', { group: 'sales' }), {
    group_name: 'sales',
  });
  t.same(await inGroup('group=research'), ['b1']);
  t.match(await answered(house, 'GET', '/groups/sales'), { accounts: 2 });
  t.match(await answered(house, 'POST', '/accounts/acme/set-group', { group: null }), {
    group: null,
    group_name: null,
  });
  t.match(await answered(house, 'GET', '/groups/sales'), { accounts: 1 });
  await checkRefusals(t, house, [
    [
      'POST',
      '/accounts',
      { name: 'x', plan: 'free', group: 'reserch' },
      'not_found',
      /^group: .*reserch.*research/,
    ],
    ['POST', '/accounts/acme/set-group', { group: 'reserch' }, 'not_found', /^group: .*reserch.*research/],
    ['POST', '/accounts/acme/set-group', {}, 'invalid_parameters', /^group must be given$/],
    ['POST', '/accounts/acme/set-group', { group: 5 }, 'invalid_parameters', /^group must be .*got 5$/],
    ['POST', '/accounts/nobody/set-group', { group: 'sales' }, 'not_found', /^there is no account nobody/],
    ['GET', '/accounts?group=nobody', undefined, 'not_found', /^group: there is no group nobody/],
    ['DELETE', '/groups/sales', undefined, 'conflict', /sales.*account/],
    [
      'POST',
      '/bulk',
      { accounts: [{ name: 'c', plan: 'free', group: 'reserch' }] },
      'not_found',
      /^accounts\[0\]: .*reserch/,
    ],
  ]);
  t.match(await answered(house, 'DELETE', '/groups/vision'), { id: ids.get('vision'), deleted: true });
  await checkRefusals(t, house, [
    ['GET', '/groups/vision', undefined, 'not_found', /^there is no group vision/],
  ]);
  t.match(await answered(house, 'GET', '/groups/research'), { groups: 0 });
});
