/**
 * Reads the limits that the system sets to this process and to those that it starts (`ulimit`).
 * store/environment.ts calls it before it maps a file, core/shared-memory.ts before it makes a memory,
 * gateway/gateway-start.ts to compare the limit of open files, and supervisor/exit-cause.ts to explain
 * why a gateway ended. Any thread; each call reads a file. Tests, of programs with such limits:
 * test/unit/cli/program.test.ts, test/unit/store/environment.test.ts, test/unit/core/shared-memory.test.ts.
 *
 * Must hold: nothing here throws, and what cannot be read is Infinity. A gateway that could start must not
 * fail because nobody can say why it might not.
 */
import { readFileSync } from 'node:fs';

/** Returns the soft limit of that name in Linux; Infinity if there is none, and on other systems. */
export function processLimit(name: 'Max address space' | 'Max open files'): number {
  return numberIn('/proc/self/limits', new RegExp(`^${name} +(\\d+)`, 'm'));
}

/** Returns how many bytes of addresses this process may still take; Infinity without a limit. */
export function addressesLeft(): number {
  const limit = processLimit('Max address space');
  if (limit === Infinity) return Infinity;
  const usedKib = numberIn('/proc/self/status', /^VmSize:\s+(\d+) kB/m);
  return usedKib === Infinity ? Infinity : limit - usedKib * 1_024;
}

/** The number that `pattern` finds in the file; Infinity if it finds none, or there is no such file. */
function numberIn(path: string, pattern: RegExp): number {
  try {
    return Number(pattern.exec(readFileSync(path, 'latin1'))?.[1] ?? Infinity);
  } catch {
    return Infinity;
  }
}
