/**
 * Tells operators how a gateway process ended, what may have caused it, and where to look. GatewayProcess
 * (gateway-process.ts) calls it once for each exit, in the supervisor process. The texts are for the log.
 */
import { processLimit } from '../core/process-limit.js';
import { memoryKills } from '../gateway/memory-limit.js';

interface EndedProcess {
  /** As in the event `exit` of ChildProcess: exactly one of the two is null. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Whether it had served. LMDB ends a process by SIGSEGV or SIGBUS as it opens its files, so before. */
  readonly hasServed: boolean;
  /** The setting `data`. */
  readonly dataPath: string;
  /** What `memoryKills` returned when the process was started. */
  readonly killsBefore: ReturnType<typeof memoryKills>;
}

/** Returns `exit code 1`, or `signal SIGABRT` with what may have caused it, as one line. */
export function exitText({ code, signal, hasServed, dataPath, killsBefore }: EndedProcess): string {
  if (signal === null) return `exit code ${code ?? 0}`;
  if (signal === 'SIGKILL') return `signal ${signal}${memoryText(killsBefore?.count)}`;
  const isOfDisk = ['SIGSEGV', 'SIGBUS'].includes(signal) && !hasServed;
  const diskText = isOfDisk ? `; perhaps the disk of ${dataPath} is full, or cannot map files to memory` : '';
  return `signal ${signal}${diskText}${addressesText(signal)}`;
}

/**
 * Returns advice for a process that may have ended because it had too few addresses; empty otherwise. If V8
 * can reserve none, such as the 0.6 GiB of a thread, it prints a dump and ends the process by one of these
 * signals. The gateway has the limit of this process.
 */
function addressesText(signal: NodeJS.Signals): string {
  const limit = processLimit('Max address space');
  if (limit === Infinity || !['SIGTRAP', 'SIGABRT', 'SIGSEGV', 'SIGILL'].includes(signal)) return '';
  return `; it may have ${(limit / 1024 ** 3).toFixed(1)} GiB of addresses, perhaps too few: lift the limit (ulimit -v unlimited, LimitAS=infinity)`;
}

/**
 * Nothing tells a process who has sent SIGKILL. The kernel counts what it kills for memory in each control
 * group; that of a gateway is the supervisor's. `killsBefore`: the count when the gateway was started.
 */
function memoryText(killsBefore: number | undefined): string {
  const kills = memoryKills();
  const count = kills === undefined || killsBefore === undefined ? 0 : kills.count - killsBefore;
  if (kills !== undefined && count > 0)
    return `; since it started the kernel has killed ${count} for memory (oom_kill in ${kills.file}): allow more memory, or lower limits.bodies_in_work_bytes`;
  return "; perhaps the kernel killed it for memory: see the kernel's log (dmesg), and oom_kill in memory.events of its control group";
}
