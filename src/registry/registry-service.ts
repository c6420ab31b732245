/**
 * How the admin interface comes to the registry: of a process that has it alone, at once; of processes that share it, by way
 * of those (sharing/shared-registry.ts). Main thread; or a command, on the store alone, while no gateway runs.
 */
import type { Registry } from './registry.js';

/** `work` is synchronous. Where the registry is shared it may be run several times, and what it wrote be undone before. */
export interface RegistryService {
  /** What `work` reads, of accounts with what all processes use of them now. */
  read<Result>(work: (registry: Registry) => Result): Result | Promise<Result>;
  /**
   * Changes the registry by one transaction: durable, and in force in every process of this host, when the result is there. Where some
   * of them did not take it over in time, `onBehind` is told how many; they do as soon as they can.
   */
  change<Result>(
    work: (registry: Registry) => Result,
    onBehind?: (processes: number) => void,
  ): Result | Promise<Result>;
}

/** The service of the only process. */
export function ownRegistryService(registry: Registry): RegistryService {
  return { read: (work) => work(registry), change: (work) => work(registry) };
}
