/**
 * Identifiers of requests: unique over threads, processes and restarts, cheap to make. The main thread gives each listener
 * a prefix, the listener counts.
 */
import { randomBytes } from 'node:crypto';

/** 72 random bits a thread, then a count: no two threads of a fleet meet in a lifetime. */
const PREFIX_BYTES = 9;

/** For one life of a listener thread. */
export function createRequestPrefix(): string {
  return `req_${randomBytes(PREFIX_BYTES).toString('base64url')}-`;
}

/** Such as `req_3fQx0aZcW8Lk-1c`; costs one string concatenation. */
export function requestIdOf(prefix: string, request: number): string {
  return prefix + request.toString(36);
}
