/**
 * What a measurement was made on: printed above every one.
 */
import { readFileSync } from 'node:fs';
import { arch, cpus, loadavg, release, totalmem, type } from 'node:os';

/** Place in the first line of /proc/stat, after its name; the two behind it are parts of others. */
const STEAL = 7;

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

/**
 * What others had of a virtual machine's processors while `work` ran, as `12.3 %`, behind what `work`
 * resolves to: latencies of such a time are theirs. Linux.
 */
export async function withSteal<Result>(
  work: () => Promise<Result>,
): Promise<{ readonly result: Result; readonly steal: string }> {
  const before = processorTicks();
  const result = await work();
  const spent = processorTicks().map((ticks, at) => ticks - before[at]!);
  const all = spent.reduce((sum, ticks) => sum + ticks, 0);
  return { result, steal: `${((100 * spent[STEAL]!) / Math.max(1, all)).toFixed(1)} %` };
}

/** By what they were spent on, all processors together, idle among it. */
function processorTicks(): number[] {
  const [line] = readFileSync('/proc/stat', 'utf8').split('\n', 1);
  return line!
    .split(/ +/)
    .slice(1, STEAL + 2)
    .map(Number);
}
