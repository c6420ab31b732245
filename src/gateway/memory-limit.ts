/**
 * Finds how much memory this process may use, how much of that the bodies of calls in flight get, and whether
 * the kernel has killed processes for memory. settings-records.ts asks at the start and at each reload,
 * stats.ts for each scrape, on the main thread of a gateway process. supervisor/gateway-process.ts asks for
 * the kills.
 *
 * Must hold: the limits of all control groups around the process count, not only of its own, because a pod's
 * limit is often set on the control group above (test/unit/gateway/memory-limit.test.ts).
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join, posix } from 'node:path';
import type { Settings } from '../config/schema.js';

/** The files with limits in version 2 of control groups. Beyond `memory.high` the kernel slows a process. */
const FILES_V2 = ['memory.max', 'memory.high'];
const FILES_V1 = ['memory.limit_in_bytes'];

/**
 * Returns the bytes of memory that control groups allow this process, as a container, a pod or a systemd
 * service sets it: the lowest limit of its own control group and those around it, or Infinity.
 * `process.constrainedMemory()` reads only the process's own. `root` is `/` outside tests; `proc` and `sys`
 * are read below that folder.
 */
export function containerMemoryBytes(root = '/'): number {
  let lowest = Infinity;
  for (const { folder, isV1 } of memoryCgroups(root)) {
    for (const file of isV1 ? FILES_V1 : FILES_V2) lowest = Math.min(lowest, limitOf(join(folder, file)));
  }
  return lowest;
}

/** The file in which the kernel counts the processes of a control group that it has killed for memory. */
export interface MemoryKills {
  readonly file: string;
  readonly count: number;
}

/** Returns the kills in this process's own control group; undefined if no file can be read. */
export function memoryKills(root = '/'): MemoryKills | undefined {
  for (const { folder, isV1 } of memoryCgroups(root)) {
    const file = join(folder, isV1 ? 'memory.oom_control' : 'memory.events');
    const [, count] = /^oom_kill (\d+)$/m.exec(textOf(file)) ?? [];
    if (count !== undefined) return { file, count: Number(count) };
  }
  return undefined;
}

/** Yields the folders of the control groups that this process is in, its own before those around it. */
function* memoryCgroups(root: string): Generator<{ readonly folder: string; readonly isV1: boolean }> {
  // A line is `hierarchy:controllers:path`. Version 2 has hierarchy 0 and no controllers.
  for (const line of textOf(join(root, 'proc/self/cgroup')).split('\n')) {
    const [, hierarchy, controllers, path] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? [];
    // The last line is empty. Without such a file the text is empty too, and nothing limits the process.
    if (path === undefined) continue;
    const isV1 = controllers!.split(',').includes('memory');
    if (!isV1 && hierarchy !== '0') continue;
    const mount = join(root, isV1 ? 'sys/fs/cgroup/memory' : 'sys/fs/cgroup');
    // A container may see its own control group as the root of the mount, while the path is the host's. Then
    // only the last step of this loop, `/`, exists.
    for (let cgroup = posix.normalize(path); ; cgroup = posix.dirname(cgroup)) {
      yield { folder: join(mount, cgroup), isV1 };
      if (cgroup === '/') break;
    }
  }
}

/** Infinity for `max` and for a missing file. Version 1 has a number beyond any machine's memory instead. */
function limitOf(file: string): number {
  const text = textOf(file).trim();
  return /^[1-9]\d*$/.test(text) ? Number(text) : Infinity;
}

/** Empty if the file cannot be read. */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/**
 * The share of memory that bodies get by default. Three more such shares remain for the threads with the
 * accounting, for responses, and for garbage.
 */
const BODIES_SHARE = 1 / 4;
/** Enough for 200 bodies of 10 MiB, each counted twice. An operator who expects more sets the limit. */
const DEFAULT_BODIES_BYTES_MAX = 4 * 1024 * 1024 * 1024;

/** Returns how many bytes the bodies of calls in work may take in one process. */
export function bodiesInWorkBytesOf({ limits, processes }: Settings): number {
  const { bodies_in_work_bytes: setBytes } = limits;
  if (setBytes !== undefined) return setBytes;
  return Math.min(
    DEFAULT_BODIES_BYTES_MAX,
    Math.floor((Math.min(containerMemoryBytes(), totalmem()) / processes) * BODIES_SHARE),
  );
}
