/**
 * Lets a thread give way to the others. Counter thread.
 */
import { setPriority } from 'node:os';

/** A third of the weight of the threads that serve: where cores are short, a long count takes longer and streams go on. */
const NICENESS = 5;
/** Linux knows priorities of threads and takes 0 for the calling one. */
const THIS_THREAD = 0;

/** Lowers the priority of the calling thread, for good. Where a sandbox forbids it, the system shares its cores evenly. */
export function giveWay(): void {
  try {
    setPriority(THIS_THREAD, NICENESS);
  } catch {
    // Forbidden.
  }
}
