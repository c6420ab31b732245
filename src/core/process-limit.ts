/**
 * The limits that the system sets to this process and those that it starts (`ulimit`). store/environment.ts
 * asks before it maps a file, wasm.ts before it makes a memory, gateway-start.ts for open files, and
 * supervisor/gateway-process.ts to explain an end. Any thread; reads a file at each call. Tests:
 * test/unit/cli/program.test.ts.
 */
import { readFileSync } from 'node:fs';

/** The soft limit by its name in Linux; Infinity without one, and on other systems. */
export function processLimit(name: 'Max address space' | 'Max open files'): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'latin1');
    return Number(new RegExp(`^${name} +(\\d+)`, 'm').exec(limits)?.[1] ?? Infinity);
  } catch {
    return Infinity;
  }
}

/** Bytes of addresses that the system still leaves to this process; Infinity without a limit. */
export function addressesLeft(): number {
  const limit = processLimit('Max address space');
  if (limit === Infinity) return Infinity;
  const usedKib = /^VmSize:\s+(\d+) kB/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1];
  return limit - Number(usedKib) * 1_024;
}
