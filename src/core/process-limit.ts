/**
 * Reads the limits that the system sets to this process and to those that it starts (`ulimit`).
 * store/environment.ts calls it before it maps a file, core/shared-memory.ts before it makes a memory,
 * gateway/gateway-start.ts to compare the limit of open files, and supervisor/exit-cause.ts to explain
 * why a gateway ended. Any thread; each call reads a file. Tests, of programs with such limits:
 * test/unit/cli/program.test.ts, test/unit/store/environment.test.ts, test/unit/core/shared-memory.test.ts.
 */
import { readFileSync } from 'node:fs';

/** Returns the soft limit of that name in Linux; Infinity if there is none, and on other systems. */
export function processLimit(name: 'Max address space' | 'Max open files'): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'latin1');
    return Number(new RegExp(`^${name} +(\\d+)`, 'm').exec(limits)?.[1] ?? Infinity);
  } catch {
    return Infinity;
  }
}

/** Returns how many bytes of addresses this process may still take; Infinity without a limit. */
export function addressesLeft(): number {
  const limit = processLimit('Max address space');
  if (limit === Infinity) return Infinity;
  const usedKib = /^VmSize:\s+(\d+) kB/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1];
  return limit - Number(usedKib) * 1_024;
}
