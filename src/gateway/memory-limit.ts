/**
 * Finds how much memory this process may use, how much of that the bodies of calls in flight get, and whether
 * the kernel has killed processes for memory. On the main thread of a gateway process
 * settings-records.ts calls `bodiesInWorkBytesOf` at the start and at each reload, stats.ts for each scrape.
 * gateway-process.ts and exit-cause.ts of supervisor/ call `memoryKills`. `containerMemoryBytes` is exported
 * for tests.
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
 * service sets it: the lowest limit of its own control group and those around it. Without a limit that is
 * Infinity, or with version 1 a number beyond any machine's memory. `process.constrainedMemory()` reads only
 * the process's own. `root` is `/` outside tests; `proc` and `sys` are read below that folder.
 */
export function containerMemoryBytes(root = '/'): number {
  let lowest = Infinity;
  for (const { folder, isV1 } of memoryCgroups(root)) {
    for (const file of isV1 ? FILES_V1 : FILES_V2) lowest = Math.min(lowest, limitOf(join(folder, file)));
  }
  return lowest;
}

export interface MemoryKills {
  /** The file in which the kernel counts the kills of a control group, for operators to look at. */
  readonly file: string;
  /** How many processes of the control group the kernel has killed for memory. */
  readonly count: number;
}

/**
 * Returns the kills in this process's own control group. If the folder of that has no count, as in a
 * container that sees its own control group at another path, the next one around it counts. Undefined if none
 * has a count, as with old kernels.
 */
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
    // In a hybrid hierarchy version 1 has the controller of memory, and version 2 is mounted elsewhere
    // (`unified`): then the folders of version 2 that are yielded have no files of memory.
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

/**
 * Infinity for `max`, for a missing file, and for 0, which would leave nothing for bodies. Version 1 writes
 * "no limit" as a number beyond any machine's memory, which is returned as it is.
 */
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
/**
 * Enough for 200 bodies of 10 MiB, of which each counts BODY_MEMORY_FACTOR times. An operator who expects
 * more sets the limit.
 */
const DEFAULT_BODIES_BYTES_MAX = 4 * 1024 * 1024 * 1024;

/**
 * Returns how many bytes the bodies of calls in work may take in one process. `limits.bodies_in_work_bytes`
 * holds for one process; by default the gateway processes share the memory in equal parts.
 */
export function bodiesInWorkBytesOf({ limits, processes }: Settings): number {
  const { bodies_in_work_bytes: setBytes } = limits;
  if (setBytes !== undefined) return setBytes;
  return Math.min(
    DEFAULT_BODIES_BYTES_MAX,
    Math.floor((Math.min(containerMemoryBytes(), totalmem()) / processes) * BODIES_SHARE),
  );
}
