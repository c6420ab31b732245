/**
 * What a measurement was made on: printed above every one.
 */
import { arch, cpus, loadavg, release, totalmem, type } from 'node:os';

/** One line: processor, cores, memory, system, Node, load at this moment. */
export function machineLine(): string {
  const processors = cpus();
  const memoryGib = (totalmem() / 2 ** 30).toFixed(1);
  const load = loadavg()
    .map((value) => value.toFixed(2))
    .join(' ');
  return [
    `${processors[0]?.model.trim() ?? 'unknown processor'} × ${processors.length}`,
    `${memoryGib} GiB`,
    `${type()} ${release()} ${arch()}`,
    `Node ${process.version}`,
    `load ${load}`,
  ].join(', ');
}
