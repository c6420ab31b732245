/** Reloads one after the other; what a wrong file leaves behind. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { ConfigError } from '#src/config/config-error.js';
import type { Settings } from '#src/config/schema.js';
import { Reloads } from '#src/supervisor/reloads.js';
import { SOUND_YAML, worldOf } from '../config/support.js';

const APPLY = { dryRun: false, restart: false };
const DRY = { dryRun: true, restart: false };
const RESTART = { dryRun: false, restart: true };

function houseOf(t: Test) {
  const world = worldOf(t, { 'tollgate.yaml': SOUND_YAML });
  const { settings } = world.load();
  const house = {
    /** What the next reading finds. */
    file: settings as Settings | Error,
    reads: 0,
    applied: [] as { settings: Settings; dryRun: boolean }[],
    problems: [] as string[],
    rejection: undefined as string | undefined,
    /** Thrown where the settings are applied. */
    fault: undefined as Error | undefined,
    replaced: [] as Settings[],
    /** Ends the replacement that has begun. */
    endReplace: (() => undefined) as (failure: string | undefined) => void,
    lines: [] as string[],
    settings,
    reloads: undefined as unknown as Reloads,
  };
  const write = (message: string, fields: object = {}) =>
    house.lines.push(`${message} ${JSON.stringify(fields)}`);
  house.reloads = new Reloads({
    settings,
    load: () => {
      house.reads++;
      return house.file instanceof Error ? Promise.reject(house.file) : Promise.resolve(house.file);
    },
    apply: async (next, { dryRun }) => {
      house.applied.push({ settings: next, dryRun });
      await nextTurn();
      if (house.fault !== undefined) throw house.fault;
      return house.problems;
    },
    replaceProblem: () => house.rejection,
    replace: (next) => {
      house.replaced.push(next);
      return { count: 3, done: new Promise((resolve) => (house.endReplace = resolve)) };
    },
    log: { info: write, warn: write, error: write, record: write },
  });
  return house;
}

const changed = (settings: Settings, change: Partial<Settings>): Settings => ({ ...settings, ...change });

void t.test('applied, told and logged; what needs a restart is told every time', async (t) => {
  const house = houseOf(t);
  house.file = changed(house.settings, { low_balance: 'clamp', workers: 2 });
  t.same(await house.reloads.reload('test', DRY), {
    applied: ['low_balance'],
    restartNeeded: ['workers'],
    changes: [
      { setting: 'low_balance', before: 'refuse', after: 'clamp' },
      { setting: 'workers', before: '1', after: '2' },
    ],
    problems: [],
    replacing: 0,
  });
  house.applied.length = 0;
  t.same(await house.reloads.reload('test', APPLY), {
    applied: ['low_balance'],
    restartNeeded: ['workers'],
    changes: [{ setting: 'low_balance', before: 'refuse', after: 'clamp' }],
    problems: [],
    replacing: 0,
  });
  t.same(await house.reloads.reload('test', APPLY), {
    applied: [],
    restartNeeded: ['workers'],
    changes: [],
    problems: [],
    replacing: 0,
  });
  t.equal(house.reloads.settings.low_balance, 'clamp');
  t.equal(house.reloads.settings.workers, 1, 'what runs');
  t.match(
    house.lines[0],
    /^settings reloaded .*"origin":"test","applied":"low_balance","restartNeeded":"workers"/,
  );
});

void t.test('a dry run changes nothing and logs nothing', async (t) => {
  const house = houseOf(t);
  house.file = changed(house.settings, { low_balance: 'clamp' });
  t.same((await house.reloads.reload('test', DRY)).applied, ['low_balance']);
  t.same((await house.reloads.reload('test', DRY)).applied, ['low_balance'], 'still to be applied');
  t.ok(house.applied.every(({ dryRun }) => dryRun));
  t.same(house.lines, []);
});

void t.test('a wrong file is refused whole, logged once, and the old settings stay', async (t) => {
  const house = houseOf(t);
  house.file = new ConfigError(['tollgate.yaml:3: a', 'tollgate.yaml:9: b']);
  t.same(await house.reloads.reload('test', APPLY), {
    applied: [],
    restartNeeded: [],
    problems: ['tollgate.yaml:3: a', 'tollgate.yaml:9: b'],
    replacing: 0,
  });
  t.same(house.applied, []);
  t.equal(house.lines.length, 1);
  t.match(house.lines[0], /old ones stay.*tollgate.yaml:3: a/);
  house.file = changed(house.settings, { low_balance: 'clamp' });
  house.problems = ['a plan is in use'];
  t.same((await house.reloads.reload('test', APPLY)).problems, ['a plan is in use']);
  t.equal(house.reloads.settings.low_balance, 'refuse');
  house.problems = [];
  t.same((await house.reloads.reload('test', APPLY)).applied, ['low_balance'], 'the next one applies it');
});

void t.test('a variable that only the shell of an operator has: the reload says whose count', async (t) => {
  const house = houseOf(t);
  const world = worldOf(t, { 'tollgate.yaml': SOUND_YAML + 'sharing: { url: "redis://${NOT_SET_HERE}" }\n' });
  house.file = new ConfigError(world.faults());
  const { problems } = await house.reloads.reload('test', APPLY);
  t.match(problems, [/ NOT_SET_HERE is not set$/, /variables that the gateway was started with/]);
  t.match((await house.reloads.reload('test', DRY)).problems[1], /started with/);
  t.match(house.lines[0], /started with/);
});

void t.test(
  'reloads wait for each other, those that wait read once, and the last content wins',
  async (t) => {
    const house = houseOf(t);
    const first = house.reloads.reload('first', APPLY);
    await nextTurn();
    const waiting = Array.from({ length: 50 }, (_, at) =>
      house.reloads.reload(at % 2 === 0 ? 'even' : 'odd', APPLY),
    );
    const dry = house.reloads.reload('dry', DRY);
    house.file = changed(house.settings, { flush_interval_ms: 77 });
    await Promise.all([first, ...waiting, dry]);
    t.equal(house.reads, 3, 'the first, the fifty, the dry one');
    t.equal(house.applied.at(1)?.settings.flush_interval_ms, 77, 'read when its turn came');
    t.equal(house.reloads.settings.flush_interval_ms, 77);
    t.match(house.lines[1], /"origin":"even, odd"/, 'the log names all who asked');
  },
);

void t.test('with a restart: what is live at once, then the gateways; ports and data stay', async (t) => {
  const house = houseOf(t);
  house.file = changed(house.settings, { low_balance: 'clamp', workers: 2, data: '/elsewhere' });
  t.same(await house.reloads.reload('test', RESTART), {
    applied: ['workers', 'low_balance'],
    restartNeeded: ['data'],
    changes: [
      { setting: 'workers', before: '1', after: '2' },
      { setting: 'low_balance', before: 'refuse', after: 'clamp' },
    ],
    problems: [],
    replacing: 3,
  });
  t.equal(house.applied.length, 1);
  t.equal(house.replaced.length, 1);
  t.equal(house.reloads.settings.workers, 1, 'what runs, until all are replaced');
  house.file = changed(house.file, { low_balance: 'refuse' });
  t.same((await house.reloads.reload('test', APPLY)).applied, ['low_balance'], 'a reload meanwhile');
  house.endReplace(undefined);
  await nextTurn();
  t.equal(house.reloads.settings.workers, 2);
  t.equal(house.reloads.settings.low_balance, 'refuse', 'and what was reloaded meanwhile');
  t.match(house.lines.at(-1), /^gateways are replaced .*"count":3/);
});

void t.test('a replacement that is refused changes nothing; one that fails is told', async (t) => {
  const house = houseOf(t);
  house.file = changed(house.settings, { low_balance: 'clamp', workers: 2 });
  house.rejection = 'there is but one';
  t.same((await house.reloads.reload('test', RESTART)).problems, ['there is but one']);
  t.same(house.applied, []);
  t.same(house.replaced, []);
  house.rejection = undefined;
  await house.reloads.reload('test', RESTART);
  house.endReplace('it did not serve');
  await nextTurn();
  t.match(house.lines.at(-1), /^gateways are not all replaced.*it did not serve/);
  t.equal(house.reloads.settings.workers, 1);
});

void t.test('a fault while settings are applied is told, and the next reload runs', async (t) => {
  const house = houseOf(t);
  house.fault = new Error('no gateway');
  const [first, joined] = await Promise.all([
    house.reloads.reload('one', APPLY),
    house.reloads.reload('two', APPLY),
  ]);
  t.match(first.problems[0], /no gateway/);
  t.equal(joined, first);
  house.fault = undefined;
  t.same((await house.reloads.reload('three', APPLY)).problems, []);
});
