/** The usage log and the access log in files of each other. */
import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { SOUND_YAML, type World, worldOf } from './support.js';

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

void t.test('no file is one of both logs by way of links', (t) => {
  const worldWith = (links: Readonly<Record<string, string>>, usage: string, access: string): World => {
    const world = worldOf(t, { 'tollgate.yaml': logs(usage, access) });
    mkdirSync(join(world.folder, 'logs'));
    for (const [path, target] of Object.entries(links)) symlinkSync(target, join(world.folder, path));
    return world;
  };
  for (const [what, links, usage, access] of [
    ['a file that is not there yet', { calls: 'logs/calls' }, 'calls', 'logs/calls'],
    ['a link to a link', { a: 'b', b: 'logs/calls' }, 'logs/calls', 'a'],
    ['a folder', { linked: 'logs' }, 'linked/calls', 'logs/calls'],
    ['a folder that is not there yet', { linked: 'logs' }, 'linked/new/calls', 'logs/new/calls.p1'],
    ['an older file', { linked: 'logs' }, 'linked/calls', 'logs/calls.1'],
    ['an older file beside the link', { calls: 'logs/usage' }, 'calls', 'calls.1'],
  ] as const)
    t.equal(worldWith(links, usage, access).faults().length, 1, what);
  for (const [what, links, usage, access] of [
    ['a link to itself', { calls: 'calls' }, 'calls', 'logs/calls'],
    ['other files', { linked: 'logs' }, 'linked/calls', 'logs/access'],
  ] as const)
    t.ok(worldWith(links, usage, access).load(), what);
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
