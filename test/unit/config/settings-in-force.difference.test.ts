/** What differs, what of it can take effect now, and that nothing else does. */
import t from 'tap';
import type { Settings } from '#src/config/schema.js';
import { adoptLive } from '#src/config/settings-adoption.js';
import { differenceOf } from '#src/config/settings-in-force.js';
import { worldOf } from './support.js';

const FILE = `
models:
  - id: m1
    price: { input: "1", output: "2" }
    upstreams: [{ url: "echo:" }, { url: "http://h/v1", key: "\${KEY}", headers: { x-a: "1" } }]
  - id: m2
    upstreams: [{ url: "echo:" }]
plans:
  - { id: p1, requests_per_minute: 60, calls_per_day: 1000 }
  - { id: p2, requests_per_minute: 60, calls_per_day: 1000, models: [m1] }
limits: { body_bytes: 2000, accounts: 10 }
`;

/** The file with changes to its text. */
const settingsOf = (t: Parameters<typeof worldOf>[0], ...changes: [string, string][]): Settings => {
  const text = changes.reduce((before, [from, to]) => {
    t.ok(before.includes(from), `the file has ${from}`);
    return before.replace(from, to);
  }, FILE);
  return worldOf(t, { 'tollgate.yaml': text }).load({ data: '/d' }, { KEY: 'sk-1', OTHER: 'sk-2' }).settings;
};

void t.test('the same settings do not differ', (t) => {
  t.same(differenceOf(settingsOf(t), settingsOf(t)), { applied: [], restartNeeded: [] });
  t.end();
});

for (const [what, changes, applied, restartNeeded] of [
  ['a price', [['input: "1"', 'input: "1.5"']], ['models.m1.price'], []],
  ['a key', [['${KEY}', '${OTHER}']], ['models.m1.upstreams[1].key'], []],
  ['a header', [['x-a: "1"', 'x-a: "2"']], ['models.m1.upstreams[1].headers'], []],
  [
    'one upstream more',
    [['[{ url: "echo:" }, ', '[{ url: "echo:" }, { url: "echo:" }, ']],
    ['models.m1.upstreams'],
    [],
  ],
  ['another id', [['id: m2', 'id: m3']], ['models.m2 (removed)', 'models.m3 (added)'], []],
  [
    'a plan',
    [['60, calls_per_day: 1000 }', '61, calls_per_day: 9 }']],
    ['plans.p1.requests_per_minute', 'plans.p1.calls_per_day'],
    [],
  ],
  ['models of a plan', [['models: [m1]', 'models: [m2]']], ['plans.p2.models'], []],
  [
    'limits of both kinds',
    [['body_bytes: 2000, accounts: 10', 'body_bytes: 3000, accounts: 11']],
    ['limits.body_bytes'],
    ['limits.accounts'],
  ],
  [
    'a port and a port',
    [['limits:', 'listen: { port: 1 }\nadmin: { port: 2 }\nlimits:']],
    [],
    ['listen.port', 'admin.port'],
  ],
  ['a section that was not there', [['limits:', 'usage_log: { path: u }\nlimits:']], [], ['usage_log']],
  [
    'single settings',
    [['limits:', 'durability: commit\nworkers: 2\nwatch: true\nlimits:']],
    ['durability', 'watch'],
    ['workers'],
  ],
] as [string, [string, string][], string[], string[]][]) {
  void t.test(`${what}: told by its path`, (t) => {
    const current = settingsOf(t);
    const next = settingsOf(t, ...changes);
    const { applied: live, restartNeeded: later } = differenceOf(current, next);
    t.same(new Set(live), new Set(applied));
    t.same(new Set(later), new Set(restartNeeded));
    t.notOk(/sk-[12]/.test([...live, ...later].join()), 'no value');
    const adopted = adoptLive(current, next);
    t.same(differenceOf(adopted, next).applied, [], 'all of it can be adopted');
    t.same(new Set(differenceOf(current, adopted).restartNeeded), new Set(), 'and nothing else was');
    t.same(new Set(differenceOf(adopted, next).restartNeeded), new Set(restartNeeded), 'which is told again');
    t.end();
  });
}

void t.test('the order of models and plans is no change', (t) => {
  const current = settingsOf(t);
  const turned = { ...current, models: [...current.models].reverse(), plans: [...current.plans].reverse() };
  t.same(differenceOf(current, turned), { applied: [], restartNeeded: [] });
  t.end();
});
