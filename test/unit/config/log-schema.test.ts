/** The logs' settings: what is kept by default; of the usage log a path of the file's folder, and bounds. */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CONTENTS_BATCH_BYTES } from '#src/call-log/contents-writer.js';
import { removeOldSegments } from '#src/call-log/segment-files.js';
import { settingsDeclaration } from '#src/config/schema.js';
import { CONTENTS_MESSAGE_BYTES } from '#src/request/call-contents.js';
import { CONTENTS_HEAD_BYTES } from '#src/telemetry/contents-layout.js';
import { SOUND_YAML, worldOf, type World } from './support.js';

const worldWith = (t: Test, usageLog: object | undefined): World =>
  worldOf(t, {
    // JSON is YAML.
    'tollgate.yaml':
      usageLog === undefined ? SOUND_YAML : `${SOUND_YAML}\nusage_log: ${JSON.stringify(usageLog)}\n`,
  });

void t.test('no call is logged where nobody asked for it', (t) => {
  const {
    usage_log: usageLog,
    access_log: accessLog,
    call_log: callLog,
  } = worldWith(t, undefined).load().settings;
  t.equal(usageLog, undefined);
  t.match(accessLog, { enabled: false });
  t.match(callLog, { contents: 'none' });
  t.end();
});

void t.test('by default there is no access log, calls are recorded, and nothing of their contents', (t) => {
  const { access_log: accessLog, call_log: callLog } = worldWith(t, undefined).load().settings;
  t.match(accessLog, { enabled: false, path: undefined, sample_percent: 100 });
  t.match(callLog, { enabled: true, contents: 'none' });
  t.end();
});

void t.test('the least space keeps what was written last, with the most processes and longest texts', (t) => {
  const { properties = {} } = settingsDeclaration.properties!.call_log!;
  const least = (name: string): number => properties[name]!.minimum!;
  const textBytes = properties.contents_body_bytes!.maximum!;
  const processes = settingsDeclaration.properties!.processes!.maximum!;
  // As gateway/gateway-logs.ts has it.
  const contentsBytes = CONTENTS_BATCH_BYTES + CONTENTS_MESSAGE_BYTES + 2 * (textBytes + CONTENTS_HEAD_BYTES);
  for (const [kind, keepBytes, block] of [
    ['calls', least('keep_bytes'), {}],
    ['contents', least('contents_keep_bytes'), { blockBytes: contentsBytes }],
  ] as const) {
    const folder = t.testdir({ '0000000001.x': '' });
    const file = join(folder, `0000000002.${kind}`);
    writeFileSync(file, Buffer.alloc(2 * textBytes));
    const retention = { keepHours: 1, keepBytes, processes, ...block };
    removeOldSegments(folder, kind, retention, -Infinity);
    t.ok(existsSync(file), kind);
    // A call more for each process would not be kept: the bounds belong together.
    removeOldSegments(folder, kind, { ...retention, keepBytes: keepBytes / 4 }, -Infinity);
    t.notOk(existsSync(file), kind);
  }
  t.end();
});

void t.test('a path is enough; it is of the folder of the configuration', (t) => {
  const world = worldWith(t, { path: 'logs/usage.ndjson' });
  t.same(world.load().settings.usage_log, {
    path: join(world.folder, 'logs/usage.ndjson'),
    rotate_bytes: 104_857_600,
    keep: 10,
  });
  const given = { path: '/var/log/usage', rotate_bytes: 1_048_576, keep: 1 };
  t.same(worldWith(t, given).load().settings.usage_log, given);
  t.end();
});

void t.test('what is wrong is named', (t) => {
  const faultOf = (usageLog: object): string => worldWith(t, usageLog).faults().join('\n');
  t.match(faultOf({}), 'usage_log.path: missing, want the path of a file');
  t.match(
    faultOf({ path: 'u', rotate_bytes: 1_048_575 }),
    'usage_log.rotate_bytes: got 1048575, want a whole number of bytes from 1048576 to 1099511627776',
  );
  t.match(
    faultOf({ path: 'u', keep: 0 }),
    'usage_log.keep: got 0, want a whole number of files from 1 to 1000',
  );
  t.match(faultOf({ path: 'u', size: 5 }), 'usage_log.size: unknown setting');
  t.end();
});
