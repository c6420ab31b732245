/**
 * Idempotency locks that the processes of one host share: a row in the lease file (lease-file.ts) for each
 * call with an `Idempotency-Key` in progress. The row is there from the lock until the response is on disk,
 * where all processes find it, or until the lock is abandoned. gateway/idempotency-service.ts calls it. Main
 * thread of a gateway process.
 *
 * The row of a process that has ended is void. If a row could not be removed, the next release tries again.
 *
 * Must hold: of two processes one has the lock, until its response is on disk or the process has ended; else
 * a call with one key is made and charged twice.
 */
import { Type } from 'typebox';
import { invariant } from '../core/errors.js';
import { schemaCheck } from '../core/schema-check.js';
import type { LockRequest } from '../channel/idempotency-channel.js';
import { nameOfResponse, type ResponseKey } from '../registry/stored-response.js';
import { identityOf, isRunning } from '../store/process-identity.js';
import type { LeaseFile } from './lease-file.js';

const LockRow = Type.Object({
  /** Identity of the process that has the lock, see store/process-identity.ts. */
  process: Type.String(),
  /** LockRequest.bodyDigest. */
  bodyDigest: Type.String(),
});
const isLock = schemaCheck('LockRow', LockRow);

/** Rows that are checked in one transaction at the start: some 10 ms in which no process can lease. */
const SWEPT_MAX = 1_000;

interface LockFile {
  readonly environment: Pick<LeaseFile['environment'], 'write'>;
  readonly claims: LeaseFile['claims'];
}

export class SharedLocks {
  readonly #file: LockFile;
  readonly #process: string;
  /** The keys of rows to be removed, by `nameOfResponse`: at most one for each call in flight. */
  readonly #released = new Map<string, ResponseKey>();

  /** Removes rows of processes that have ended. Throws what LMDB throws. */
  constructor(file: LockFile) {
    const process = identityOf(globalThis.process.pid);
    invariant(process !== undefined, '/proc tells who this process is');
    this.#file = file;
    this.#process = process;
    this.#sweep();
  }

  /**
   * Takes the lock and returns undefined. If another process has the lock, returns the digest of its
   * request's body. The idempotency service knows the locks of this process, and asks for no key that has
   * one. Takes 20 to 50 µs. Throws what LMDB throws.
   */
  take({ account, key, bodyDigest }: LockRequest): string | undefined {
    const { environment, claims: locks } = this.#file;
    return environment.write(() => {
      const row = locks.get([account, key]);
      if (isLock(row) && row.process !== this.#process && isRunning(row.process)) return row.bodyDigest;
      locks.putSync([account, key], { process: this.#process, bodyDigest });
      this.#released.delete(nameOfResponse({ account, key }));
      return undefined;
    });
  }

  /** Releases the locks of calls that are over, whose responses are on disk. One transaction, or none. */
  giveBack(keys: Iterable<ResponseKey>): void {
    for (const { account, key } of keys)
      this.#released.set(nameOfResponse({ account, key }), { account, key });
    if (this.#released.size === 0) return;
    const { environment, claims: locks } = this.#file;
    try {
      environment.write(() => {
        for (const { account, key } of this.#released.values()) {
          const row = locks.get([account, key]);
          if (isLock(row) && row.process === this.#process) locks.removeSync([account, key]);
        }
      });
      this.#released.clear();
    } catch {
      // Tried again with the next release. Until then other processes find that the call still runs.
    }
  }

  /** Removes void rows, of the first SWEPT_MAX. `take` ignores any others. */
  #sweep(): void {
    const { environment, claims: locks } = this.#file;
    environment.write(() => {
      for (const { key, value: row } of Array.from(locks.getRange({ limit: SWEPT_MAX }))) {
        if (!isLock(row) || !isRunning(row.process)) locks.removeSync(key);
      }
    });
  }
}
