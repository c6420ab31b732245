/**
 * CPU and memory of processes, from /proc. Linux.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';

/** USER_HZ, which Linux fixes at 100 for what it shows to processes. */
const TICKS_PER_SECOND = 100;
const MICROS_PER_TICK = 1_000_000 / TICKS_PER_SECOND;
const UTIME = 11;
const STIME = 12;

/** The process and all that it started, directly or not, that live. */
export function processTree(pid: number): number[] {
  const tree = [pid];
  for (const parent of tree) {
    let threads: string[];
    try {
      threads = readdirSync(`/proc/${parent}/task`);
    } catch {
      continue; // It has ended meanwhile.
    }
    for (const thread of threads) {
      try {
        const children = readFileSync(`/proc/${parent}/task/${thread}/children`, 'utf8');
        tree.push(...children.split(' ').filter(Boolean).map(Number));
      } catch {
        // The thread has ended meanwhile.
      }
    }
  }
  return tree;
}

/** User and system time of all threads of these processes so far, in µs, in steps of 10,000. */
export function cpuMicros(pids: readonly number[]): number {
  let ticks = 0;
  for (const pid of pids) {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the name in parentheses and may hold anything; the fields after it are numbers.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    ticks += Number(fields[UTIME]) + Number(fields[STIME]);
  }
  return ticks * MICROS_PER_TICK;
}

/**
 * The same of the threads that live, in ns, as the scheduler counts it: for spans that are short beside those
 * steps.
 */
export function threadsCpuNanos(pids: readonly number[]): number {
  let nanos = 0;
  for (const pid of pids) {
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      try {
        nanos += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]);
      } catch {
        // The thread has ended meanwhile.
      }
    }
  }
  return nanos;
}

/** Resident memory of one process. */
export function rssBytes(pid: number): number {
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  if (match === null) throw new Error(`process ${pid} has no memory`);
  return Number(match[1]) * 1024;
}

/** Written to clear_refs, makes the present resident size the peak; see proc(5). */
const RESET_PEAK = '5';

/**
 * Begins a new peak of resident memory; where the kernel does not let us, the peak stays that since the
 * process began.
 */
export function resetPeaks(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      writeFileSync(`/proc/${pid}/clear_refs`, RESET_PEAK);
    } catch {
      // Another user's process, or a container that forbids it.
    }
  }
}

/** Sum of the peaks of resident memory; what processes share is counted in each. */
export function peakBytes(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const match = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return sum + (match === null ? 0 : Number(match[1]) * 1024);
  }, 0);
}
