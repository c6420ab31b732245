/** The order in which settings reach the threads, and who may not be left behind. */
import t, { type Test } from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { Settings } from '#src/config/schema.js';
import { catalogOf } from '#src/gateway/catalog-records.js';
import { UpstreamNames } from '#src/telemetry/upstream-names.js';
import { GATEWAY_STOPS, LiveSettings, type ReloadContext } from '#src/gateway/reload.js';
import { NO_PLAN_INDEX } from '#src/registry/catalog.js';
import { recover } from '#src/store/recovery.js';
import { worldOf } from '../config/support.js';
import { ACCOUNTS_MAX, KEYS_MAX, ListLog, openHouse, GROUPS_MAX } from '../store/support.js';

const settingsOf = (t: Test, models: readonly string[], plans: readonly string[], extra = ''): Settings =>
  worldOf(t, {
    'tollgate.yaml': [
      'models:',
      ...models.map((id) => `  - { id: ${id}, upstreams: [{ url: "echo:" }] }`),
      'plans:',
      ...plans.map((id) => `  - { id: ${id}, requests_per_minute: 1, calls_per_day: 1 }`),
      extra,
    ].join('\n'),
  }).load().settings;

function houseOf(t: Test, settings: Settings) {
  const house = openHouse(t.testdir(), catalogOf(settings));
  t.teardown(() => house.store.close());
  const told: { kind: string; models: readonly string[]; plans: readonly string[] }[] = [];
  const late = { workers: [] as number[], listeners: [] as number[] };
  const closing = { isClosing: false };
  const log = new ListLog();
  const live = new LiveSettings(settings, new UpstreamNames());
  const openPlans = (): string[] => {
    const open = ['a', 'b', 'c'].filter((plan) => {
      try {
        house.registry.accounts.create({ name: 'never', planId: plan, credit: asPicoUnits(-1n) });
      } catch (error) {
        return String(error).includes('credit must not be negative');
      }
      return false;
    });
    return open;
  };
  const parts: ReloadContext = {
    ledger: house.ledger,
    groupNames: house.groupNames,
    registry: house.registry,
    store: house.store,
    replaceRoutes: (routes) => {
      told.push({
        kind: 'workers',
        models: routes.map(({ id, retired }) => (retired ? `${id}†` : id)),
        plans: openPlans(),
      });
      return Promise.resolve(late.workers);
    },
    replaceListenerSettings: ({ catalog }) => {
      told.push({
        kind: 'listeners',
        models: catalog.models.map(({ id, retired }) => (retired ? `${id}†` : id)),
        plans: openPlans(),
      });
      return Promise.resolve(late.listeners);
    },
    isClosing: () => closing.isClosing,
    log,
  };
  return { ...house, live, parts, told, late, closing, log, openPlans };
}

void t.test('workers first, then listeners, then accounts; what goes is closed before all', async (t) => {
  const { live, parts, told, openPlans } = houseOf(t, settingsOf(t, ['m', 'n'], ['a', 'b']));
  const next = settingsOf(t, ['o', 'm'], ['c', 'a']);
  t.same(await live.replace(next, parts), []);
  t.same(told, [
    { kind: 'workers', models: ['m', 'n†', 'o'], plans: ['a'] },
    { kind: 'listeners', models: ['m', 'n†', 'o'], plans: ['a'] },
  ]);
  t.same(openPlans(), ['a', 'c']);
  t.equal(live.settings, next);
  t.same(
    live.routes.map(({ id }) => id),
    live.catalog.models.map(({ id }) => id),
  );
});

void t.test('a plan that accounts are on stays, and the refusal names plan and number', async (t) => {
  const { live, parts, told, registry } = houseOf(t, settingsOf(t, ['m'], ['a', 'b', 'c']));
  for (const name of ['one', 'two']) registry.accounts.create({ name, planId: 'b', credit: asPicoUnits(0n) });
  registry.accounts.setActive('two', false);
  const next = settingsOf(t, ['m'], ['a']);
  const [problem, ...more] = live.problemsOf(next, parts);
  t.match(problem, /^plans: b is not there any more, and accounts are on it \(2\)/);
  t.same(more, [], 'nobody is on c');
  t.same(await live.replace(next, parts), [problem]);
  t.same(told, []);
  for (const name of ['one', 'two']) registry.accounts.setPlan(name, 'a');
  t.same(await live.replace(next, parts), []);
});

void t.test('a stuck worker stops the reload, and accounts may be put on every plan again', async (t) => {
  const { live, parts, told, late, openPlans } = houseOf(t, settingsOf(t, ['m'], ['a', 'b']));
  late.workers = [1];
  t.match(await live.replace(settingsOf(t, ['m'], ['a', 'c']), parts), [/^upstream workers 1 are stuck/]);
  t.same(
    told.map(({ kind }) => kind),
    ['workers'],
  );
  t.same(openPlans(), ['a', 'b']);
});

void t.test('a stuck listener does not', async (t) => {
  const { live, parts, late, log, openPlans } = houseOf(t, settingsOf(t, ['m'], ['a', 'b']));
  late.listeners = [0];
  t.same(await live.replace(settingsOf(t, ['m'], ['a', 'c']), parts), []);
  t.match(log.lines.join(), /listeners are stuck/);
  t.same(openPlans(), ['a', 'c']);
});

void t.test('the end of the gateway stops a reload, and is no error', async (t) => {
  for (const waiting of ['workers', 'listeners'] as const) {
    const house = houseOf(t, settingsOf(t, ['m'], ['a', 'b']));
    const { live, told, late, closing, log } = house;
    // As in a gateway that has closed: the threads do not reply, and the store is closed.
    late[waiting] = [0];
    const close = async (): Promise<void> => {
      closing.isClosing = true;
      await house.store.close();
    };
    const parts: ReloadContext = {
      ...house.parts,
      replaceRoutes: async (routes) => {
        const stuck = await house.parts.replaceRoutes(routes);
        if (waiting === 'workers') await close();
        return stuck;
      },
      replaceListenerSettings: async (settings) => {
        const stuck = await house.parts.replaceListenerSettings(settings);
        await close();
        return stuck;
      },
    };
    const next = settingsOf(t, ['m'], ['a', 'c']);
    const problems = await Promise.all([live.replace(next, parts), live.replace(next, parts)]);
    t.same(problems, [[GATEWAY_STOPS], [GATEWAY_STOPS]], 'nor does the next reload begin');
    t.same(
      told.map(({ kind }) => kind),
      waiting === 'workers' ? ['workers'] : ['workers', 'listeners'],
    );
    t.same(log.lines, [], waiting);
  }
});

void t.test('more models than ever fit: a restart is asked for', async (t) => {
  const { live, parts } = houseOf(t, settingsOf(t, ['m'], ['a']));
  for (let round = 0; round < 4; round++) {
    const models = Array.from({ length: 1_000 }, (_, n) => `m${round}-${n}`);
    t.same(await live.replace(settingsOf(t, models, ['a']), parts), []);
  }
  const models = Array.from({ length: 100 }, (_, n) => `last-${n}`);
  t.match(await live.replace(settingsOf(t, models, ['a']), parts), [
    /^models: 4101 since the start.*restart/,
  ]);
});

void t.test('accounts whose plan had gone before the start get it back', async (t) => {
  const both = settingsOf(t, ['m'], ['a', 'b']);
  const path = t.testdir();
  const before = openHouse(path, catalogOf(both));
  for (const [name, planId] of [
    ['x', 'a'],
    ['y', 'b'],
    ['z', 'b'],
    ['grouped', 'b'],
  ] as const)
    before.registry.accounts.create({ name, planId, credit: asPicoUnits(0n) });
  before.registry.accounts.setActive('z', false);
  const group = before.registry.groups.create({ name: 'g' }).record;
  before.registry.accounts.setGroup('grouped', group.id);
  await before.store.close();

  const one = settingsOf(t, ['m'], ['a']);
  const house = openHouse(path, catalogOf(one));
  t.teardown(() => house.store.close());
  const log = new ListLog();
  const live = new LiveSettings(one, new UpstreamNames());
  recover({
    ...house,
    accountsMax: ACCOUNTS_MAX,
    keysMax: KEYS_MAX,
    groupsMax: GROUPS_MAX,
    catalog: live.catalog,
    log,
  });
  // As on a host whose limits.groups is lower than that of the host that made the group.
  house.groupNames.set(group.index, '');
  const standing = () =>
    ['x', 'y', 'z', 'grouped'].map((name) => {
      const { index } = house.store.findAccountByName(name)!;
      return [house.ledger.planIndexOf(index), house.ledger.isActive(index)];
    });
  t.same(standing(), [
    [0, true],
    [NO_PLAN_INDEX, false],
    [NO_PLAN_INDEX, false],
    [NO_PLAN_INDEX, false],
  ]);
  const taken = () => Promise.resolve([]);
  const parts: ReloadContext = {
    ...house,
    replaceRoutes: taken,
    replaceListenerSettings: taken,
    isClosing: () => false,
    log,
  };
  t.same(live.problemsOf(settingsOf(t, ['m'], ['b']), parts).length, 1, 'those without a plan are on none');
  t.same(await live.replace(both, parts), []);
  t.same(
    standing(),
    [
      [0, true],
      [1, true],
      [1, false],
      [1, false],
    ],
    'who was disabled by hand stays so, and whose group is not here',
  );
});

void t.test('a reload that takes another back waits for it, and is the last', async (t) => {
  const before = settingsOf(t, ['m'], ['a']);
  const { live, parts } = houseOf(t, before);
  const order: string[] = [];
  let go: () => void = () => undefined;
  const slow: ReloadContext = {
    ...parts,
    replaceRoutes: async () => {
      order.push('slow begins');
      await new Promise<void>((resolve) => (go = resolve));
      order.push('slow ends');
      return [];
    },
  };
  const next = live.replace(settingsOf(t, ['m', 'n'], ['a']), slow);
  const back = live.replace(before, {
    ...parts,
    replaceRoutes: () => {
      order.push('back');
      return Promise.resolve([]);
    },
  });
  await new Promise((resolve) => setImmediate(resolve));
  go();
  t.same(await Promise.all([next, back]), [[], []]);
  t.same(order, ['slow begins', 'slow ends', 'back']);
  t.equal(live.settings, before);
});

void t.test('a call may not become longer than the expiry of a node that is in force', (t) => {
  const sharing = (seconds: number): string =>
    `sharing: { url: "redis://h", node_expiry_seconds: ${seconds} }`;
  const settings = settingsOf(t, ['m'], ['a'], sharing(700));
  const { live, parts } = houseOf(t, settings);
  const [model] = settingsOf(t, ['m'], ['a']).models;
  const nextOf = (ms: number): Settings => {
    const upstreams = model!.upstreams.map((upstream) => ({ ...upstream, total_timeout_ms: ms }));
    return { ...settings, models: [{ ...model!, upstreams }] };
  };
  t.same(live.problemsOf(nextOf(700_000), parts), []);
  t.match(live.problemsOf(nextOf(700_001), parts), [
    /^models: total_timeout_ms of 700001 is longer .* 700: restart$/,
  ]);
  t.end();
});
