/**
 * How much memory the bodies of calls in work may take where no setting says it. Main thread.
 */
import { totalmem } from 'node:os';
import type { Settings } from '../config/schema.js';

/** A rest of the same size is for threads and books, one for the answers, and one for what is not collected yet. */
const SHARE_OF_MEMORY = 1 / 4;
/** 400 of the longest bodies in their first half second: who has them knows, and sets it. */
const DEFAULT_BYTES_MAX = 4 * 1024 * 1024 * 1024;

/** For one process. */
export function bodiesInWorkBytesOf({ limits, processes }: Settings): number {
  const { bodies_in_work_bytes: given } = limits;
  if (given !== undefined) return given;
  return Math.min(DEFAULT_BYTES_MAX, Math.floor((memoryBytes() / processes) * SHARE_OF_MEMORY));
}

/** What the container may have; the machine's where it has no limit, which is told as 0 or as more than there is. */
function memoryBytes(): number {
  const machine = totalmem();
  const container = process.constrainedMemory();
  return container > 0 ? Math.min(container, machine) : machine;
}
