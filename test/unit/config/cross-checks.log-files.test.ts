/** The usage log and the access log in files of each other. */
import { join } from 'node:path';
import t from 'tap';
import { SOUND_YAML, worldOf } from './support.js';

const logs = (usage: string, access: string): string =>
  `${SOUND_YAML}usage_log: { path: "${usage}" }\naccess_log: { path: "${access}" }\n`;

void t.test('no file is one of both logs', (t) => {
  for (const [usage, access] of [
    ['calls', 'calls'],
    ['logs/../calls', './calls'],
    ['calls', 'calls.1'],
    ['calls.12', 'calls'],
    ['calls', 'calls.p3'],
    ['calls.p3.2', 'calls'],
  ] as const) {
    const world = worldOf(t, { 'tollgate.yaml': logs(usage, access) });
    const file = join(world.folder, access);
    t.same(world.faults(), [
      `tollgate.yaml:8: access_log.path: got "${file}", want a file that is none of usage_log, also no older one or another process's`,
    ]);
  }
  const world = worldOf(t, { 'tollgate.yaml': SOUND_YAML });
  const mixed = logs(join(world.folder, 'calls'), 'calls');
  t.equal(world.faults({ text: mixed }).length, 1, 'also if one of them is absolute');
  t.end();
});

void t.test('names that are only alike are taken', (t) => {
  for (const [usage, access] of [
    ['calls', 'calls.access'],
    ['calls.usage', 'calls.access'],
    ['calls.ndjson', 'calls'],
    ['calls', 'calls1'],
    ['calls.1', 'calls.2'],
  ] as const) {
    const { settings } = worldOf(t, { 'tollgate.yaml': logs(usage, access) }).load();
    t.ok(settings.access_log.path?.endsWith(access), `${usage} ${access}`);
  }
  t.end();
});
