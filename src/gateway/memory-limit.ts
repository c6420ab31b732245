/**
 * How much memory this process may use, and how much of it the bodies of calls in flight get. snapshot.ts
 * asks at the start and at each reload, stats.ts for the metrics, on the main thread of a gateway process.
 *
 * Must hold: the limits of all control groups around the process count, not only of its own, because a pod's
 * limit is often set on the group above (test/unit/gateway/memory-limit.test.ts).
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join, posix } from 'node:path';
import type { Settings } from '../config/schema.js';

/** `memory.high` counts too: beyond it the kernel slows the group down until it hardly runs. */
const FILES_V2 = ['memory.max', 'memory.high'];
const FILES_V1 = ['memory.limit_in_bytes'];

/**
 * Returns the bytes of memory that control groups allow this process, as a container, a pod or a systemd
 * service sets it: the lowest limit of its own group and the groups around it, or Infinity.
 * `process.constrainedMemory()` reads only the process's own group. `root` is `/` outside tests; `proc` and
 * `sys` are read in it.
 */
export function containerMemoryBytes(root = '/'): number {
  let least = Infinity;
  // A line is `hierarchy:controllers:path`. Version 2 has hierarchy 0 and no controllers.
  for (const line of textOf(join(root, 'proc/self/cgroup')).split('\n')) {
    const [, hierarchy, controllers, path] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined) continue;
    const isV1 = controllers!.split(',').includes('memory');
    if (!isV1 && hierarchy !== '0') continue;
    const mount = join(root, isV1 ? 'sys/fs/cgroup/memory' : 'sys/fs/cgroup');
    // A container may see its own group as the root of the mount, while the path is the host's. Then only the
    // last step of the walk, `/`, exists.
    for (let group = posix.normalize(path); ; group = posix.dirname(group)) {
      for (const file of isV1 ? FILES_V1 : FILES_V2)
        least = Math.min(least, limitOf(join(mount, group, file)));
      if (group === '/') break;
    }
  }
  return least;
}

/** `max` and a missing file mean no limit. Version 1 writes a number beyond the memory of any machine. */
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

/**
 * The bodies' share of memory by default. Threads with accounting, responses, and garbage take a share each.
 */
const SHARE_OF_MEMORY = 1 / 4;
/** 400 of the longest bodies in their first half second. An operator who expects more sets the limit. */
const DEFAULT_BYTES_MAX = 4 * 1024 * 1024 * 1024;

/** Returns how many bytes the bodies of calls in work may take in one process. */
export function bodiesInWorkBytesOf({ limits, processes }: Settings): number {
  const { bodies_in_work_bytes: given } = limits;
  if (given !== undefined) return given;
  return Math.min(
    DEFAULT_BYTES_MAX,
    Math.floor((Math.min(containerMemoryBytes(), totalmem()) / processes) * SHARE_OF_MEMORY),
  );
}
