/**
 * Limits of memory from trees of control groups as they stand in containers, pods and services, of both
 * versions.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { containerMemoryBytes } from '#src/gateway/memory-limit.js';
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

for (const [what, expected, cgroup, files] of CASES) {
  void t.test(what, (t) => {
    const root = temporaryFolder(t);
    for (const [file, text] of Object.entries({ 'proc/self/cgroup': cgroup, ...files })) {
      mkdirSync(dirname(join(root, file)), { recursive: true });
      writeFileSync(join(root, file), text);
    }
    t.equal(containerMemoryBytes(root) / MIB, expected);
    t.end();
  });
}

void t.test("a real group's limit, of a process in it", async (t) => {
  const group = MemoryCgroup.create(t, 384 * MIB);
  if (group === undefined) {
    t.pass('no memory cgroup can be made on this machine', { skip: 'needs root and a memory cgroup' });
    return;
  }
  const entry = import.meta.resolve('#src/gateway/memory-limit.js');
  const script = `import { containerMemoryBytes } from ${JSON.stringify(entry)}; console.log('bytes', containerMemoryBytes());`;
  const child = await startChild({
    name: 'reader',
    args: ['--input-type=module', '--eval', script],
    launcher: group.launcher,
    ready: /bytes (\d+)/,
    readyTimeoutMs: 60_000,
  });
  t.equal(Number(child.ready[1]), 384 * MIB);
  await child.exit;
});
