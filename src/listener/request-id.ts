/**
 * Identifiers of requests: unique over threads, processes and restarts, cheap to make. Listener thread.
 */
import { randomBytes } from 'node:crypto';

/** 72 random bits a thread, then a count: no two threads of a fleet meet in a lifetime. */
const PREFIX_BYTES = 9;

/** A source of identifiers such as `req_3fQx0aZcW8Lk-1c`; each costs one string concatenation. */
export function createRequestIds(): () => string {
  const prefix = `req_${randomBytes(PREFIX_BYTES).toString('base64url')}-`;
  let count = 0;
  return () => prefix + (count += 1).toString(36);
}
