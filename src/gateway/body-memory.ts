/**
 * How much memory the bodies of calls in work may take where no setting says it. Main thread.
 */
import { totalmem } from 'node:os';
import type { Settings } from '../config/schema.js';
import { containerMemoryBytes } from './container-memory.js';

/** A rest of the same size is for threads and books, one for the answers, and one for what is not collected yet. */
const SHARE_OF_MEMORY = 1 / 4;
/** 400 of the longest bodies in their first half second: who has them knows, and sets it. */
const DEFAULT_BYTES_MAX = 4 * 1024 * 1024 * 1024;

/** For one process. */
export function bodiesInWorkBytesOf({ limits, processes }: Settings): number {
  const { bodies_in_work_bytes: given } = limits;
  if (given !== undefined) return given;
  return Math.min(
    DEFAULT_BYTES_MAX,
    Math.floor((Math.min(containerMemoryBytes(), totalmem()) / processes) * SHARE_OF_MEMORY),
  );
}
