/**
 * Limits of memory from trees of control groups as they stand in containers, pods and services, of both
 * versions.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import t, { type Test } from 'tap';
import { containerMemoryBytes, memoryKills } from '#src/gateway/memory-limit.js';
import { temporaryFolder } from '../../support/gateway.js';
import { MemoryCgroup } from '../../support/memory-cgroup.js';
import { startChild } from '../../../bench/support/child.js';

const MIB = 1024 * 1024;
const mib = (count: number): string => `${count * MIB}\n`;
/** What version 1 says where there is no limit. */
const HUGE = '9223372036854771712\n';
const V1 = 'sys/fs/cgroup/memory';
const V2 = 'sys/fs/cgroup';

const CASES: readonly [what: string, mib: number, cgroup: string, files: Readonly<Record<string, string>>][] =
  [
    ['no groups', Infinity, '', {}],
    ['version 2, a container with a namespace', 384, '0::/\n', { [`${V2}/memory.max`]: mib(384) }],
    ['version 2, max', Infinity, '0::/\n', { [`${V2}/memory.max`]: 'max\n', [`${V2}/memory.high`]: 'max\n' }],
    ['version 2, high', 300, '0::/\n', { [`${V2}/memory.max`]: mib(384), [`${V2}/memory.high`]: mib(300) }],
    [
      'version 2, a service of systemd',
      512,
      '0::/system.slice/tollgate.service\n',
      {
        [`${V2}/system.slice/memory.max`]: 'max\n',
        [`${V2}/system.slice/tollgate.service/memory.max`]: mib(512),
        [`${V2}/system.slice/tollgate.service/memory.high`]: 'max\n',
      },
    ],
    [
      'version 2, the limit on the slice around it',
      256,
      '0::/limited.slice/inner.slice/tollgate.service\n',
      {
        [`${V2}/limited.slice/memory.max`]: mib(256),
        [`${V2}/limited.slice/inner.slice/memory.max`]: 'max\n',
        [`${V2}/limited.slice/inner.slice/tollgate.service/memory.max`]: mib(1_024),
      },
    ],
    [
      "version 2, a pod's limit above the container's",
      700,
      '0::/kubepods.slice/pod1.slice/cri-containerd-1.scope\n',
      {
        [`${V2}/kubepods.slice/memory.max`]: mib(9_000),
        [`${V2}/kubepods.slice/pod1.slice/memory.max`]: mib(700),
        [`${V2}/kubepods.slice/pod1.slice/cri-containerd-1.scope/memory.max`]: 'max\n',
      },
    ],
    [
      'version 2, a group outside of the namespace',
      384,
      '0::/../../other\n',
      { [`${V2}/memory.max`]: mib(384) },
    ],
    [
      "version 2, the host's path without a namespace",
      384,
      '0::/docker/0123abcd\n',
      { [`${V2}/memory.max`]: mib(384) },
    ],
    [
      'version 1',
      384,
      '9:pids:/docker/1\n8:memory:/docker/1\n0::/docker/1\n',
      { [`${V1}/memory.limit_in_bytes`]: HUGE, [`${V1}/docker/1/memory.limit_in_bytes`]: mib(384) },
    ],
    [
      'version 1 without a limit',
      9223372036854771712 / MIB,
      '8:memory:/\n',
      { [`${V1}/memory.limit_in_bytes`]: HUGE },
    ],
    [
      "version 1, the host's path without a namespace, two controllers",
      384,
      '8:cpuset,memory:/docker/0123abcd\n',
      { [`${V1}/memory.limit_in_bytes`]: mib(384) },
    ],
    [
      'version 1, the limit on the group around it',
      256,
      '8:memory:/outer/inner\n',
      {
        [`${V1}/outer/memory.limit_in_bytes`]: mib(256),
        [`${V1}/outer/inner/memory.limit_in_bytes`]: HUGE,
      },
    ],
    [
      'both: version 2 has no controller for memory',
      384,
      '8:memory:/a\n1:name=systemd:/\n0::/a\n',
      { [`${V1}/a/memory.limit_in_bytes`]: mib(384), [`${V2}/unified/a/cgroup.procs`]: '1\n' },
    ],
    ['nonsense', Infinity, 'x\n0:\n\n0::no-path\n', { [`${V2}/memory.max`]: 'nonsense\n' }],
    ['zero is no limit', Infinity, '0::/\n', { [`${V2}/memory.max`]: '0\n' }],
  ];

/** A folder with these files, and with the text that names the groups of a process. */
function rootWith(t: Test, cgroup: string, files: Readonly<Record<string, string>>): string {
  const root = temporaryFolder(t);
  for (const [file, text] of Object.entries({ 'proc/self/cgroup': cgroup, ...files })) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), text);
  }
  return root;
}

for (const [what, expected, cgroup, files] of CASES) {
  void t.test(what, (t) => {
    const root = rootWith(t, cgroup, files);
    t.equal(containerMemoryBytes(root) / MIB, expected);
    t.end();
  });
}

/** What a process finds of the processes that the kernel has killed in its group. */
const KILLS: readonly [
  what: string,
  cgroup: string,
  files: Readonly<Record<string, string>>,
  kills: object | undefined,
][] = [
  ['no groups', '', {}, undefined],
  ['version 2, the root of the machine', '0::/\n', {}, undefined],
  [
    'version 2, its own group before that around it',
    '0::/a/b\n',
    {
      [`${V2}/a/memory.events`]: 'oom 9\noom_kill 9\n',
      [`${V2}/a/b/memory.events`]: 'oom 2\noom_kill 1\noom_group_kill 0\n',
    },
    { file: `${V2}/a/b/memory.events`, count: 1 },
  ],
  [
    "version 2, the host's path without a namespace",
    '0::/docker/0123abcd\n',
    { [`${V2}/memory.events`]: 'oom_kill 3\n' },
    { file: `${V2}/memory.events`, count: 3 },
  ],
  [
    'version 1',
    '8:memory:/docker/1\n0::/\n',
    { [`${V1}/docker/1/memory.oom_control`]: 'oom_kill_disable 0\nunder_oom 0\noom_kill 2\n' },
    { file: `${V1}/docker/1/memory.oom_control`, count: 2 },
  ],
  [
    'version 1 of an old kernel',
    '8:memory:/\n',
    { [`${V1}/memory.oom_control`]: 'under_oom 0\n' },
    undefined,
  ],
];

for (const [what, cgroup, files, kills] of KILLS) {
  void t.test(`kills: ${what}`, (t) => {
    const root = rootWith(t, cgroup, files);
    const found = memoryKills(root);
    t.strictSame(found && { ...found, file: relative(root, found.file) }, kills);
    t.end();
  });
}

/** Runs a script in a group of that size, which has these functions. Resolves with the number it prints. */
async function numberIn(t: Test, bytes: number, script: string): Promise<number | undefined> {
  const group = MemoryCgroup.create(t, bytes);
  if (group === undefined) return undefined;
  const entry = import.meta.resolve('#src/gateway/memory-limit.js');
  const head = `import { containerMemoryBytes, memoryKills } from ${JSON.stringify(entry)};
    import { spawnSync } from 'node:child_process';`;
  const child = await startChild({
    name: 'reader',
    args: ['--input-type=module', '--eval', `${head} ${script}`],
    launcher: group.launcher,
    ready: /number (\d+)/,
    readyTimeoutMs: 60_000,
  });
  await child.exit;
  return Number(child.ready[1]);
}

const NEEDS_CGROUP = { skip: 'needs root and a memory cgroup' };

void t.test("a real group's limit, of a process in it", async (t) => {
  const limit = await numberIn(t, 384 * MIB, "console.log('number', containerMemoryBytes());");
  if (limit === undefined) t.pass('no memory cgroup can be made on this machine', NEEDS_CGROUP);
  else t.equal(limit, 384 * MIB);
});

void t.test('the kills in a real group, of a process whose child was killed', async (t) => {
  const script = `
    const before = memoryKills().count;
    const hog = 'for (const kept = []; ; ) kept.push(Buffer.alloc(1e6, 1));';
    const { signal } = spawnSync(process.execPath, ['--eval', hog]);
    if (signal === 'SIGKILL') console.log('number', memoryKills().count - before);`;
  const kills = await numberIn(t, 128 * MIB, script);
  if (kills === undefined) t.pass('no memory cgroup can be made on this machine', NEEDS_CGROUP);
  else t.equal(kills, 1);
});
