/**
 * How much memory the process may have by its control groups, as a container, a pod or a service of systemd has them. Main thread, once.
 *
 * Not process.constrainedMemory(): it looks at the process's own group alone, and a limit often stands above it, on the pod, the slice or
 * the container within which a group of its own was made.
 */
import { readFileSync } from 'node:fs';
import { join, posix } from 'node:path';

/** `memory.high` kills nobody, but beyond it a group is slowed down until it hardly runs. */
const FILES_V2 = ['memory.max', 'memory.high'];
const FILES_V1 = ['memory.limit_in_bytes'];

/**
 * The least limit of the process's group and of those around it; Infinity where there is none. `root` stands for `/`, and has the two
 * folders `proc` and `sys`.
 */
export function containerMemoryBytes(root = '/'): number {
  let least = Infinity;
  // Lines are `hierarchy:controllers:path`; version 2 has 0 and no controllers.
  for (const line of textOf(join(root, 'proc/self/cgroup')).split('\n')) {
    const [, hierarchy, controllers, path] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined) continue;
    const isV1 = controllers!.split(',').includes('memory');
    if (!isV1 && hierarchy !== '0') continue;
    const mount = join(root, isV1 ? 'sys/fs/cgroup/memory' : 'sys/fs/cgroup');
    // A container may see its own group as the mount's root while the path is the host's: then only the walk's last step is there.
    for (let group = posix.normalize(path); ; group = posix.dirname(group)) {
      for (const file of isV1 ? FILES_V1 : FILES_V2)
        least = Math.min(least, limitOf(join(mount, group, file)));
      if (group === '/') break;
    }
  }
  return least;
}

/** `max`, and a file that is not there, are no limit; version 1 writes a number beyond any machine's memory. */
function limitOf(file: string): number {
  const text = textOf(file).trim();
  return /^[1-9]\d*$/.test(text) ? Number(text) : Infinity;
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
