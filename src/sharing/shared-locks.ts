/**
 * Idempotency locks that the processes of one host share: a row for each call in progress that has an
 * `Idempotency-Key`. The rows are a table of the lease file (lease-file.ts): one transaction acquires or
 * releases a lock. A process releases a lock when the response is on disk, where all processes find it, or
 * when the call leaves no response to store. gateway/idempotency-service.ts calls it. Main thread.
 *
 * Must hold: of two processes one has the lock, until its response is on disk or the process has ended, which
 * voids its rows; else a call with one key is made and charged twice. A row that cannot be read (damaged, or
 * of another version) holds no lock. Test: test/unit/sharing/shared-locks.test.ts.
 */
import * as Type from 'typebox';
import { invariant } from '../core/errors.js';
import { schemaCheck } from '../core/schema-check.js';
import type { LockRequest } from '../channel/idempotency-channel.js';
import { nameOfResponse, type ResponseKey } from '../registry/stored-response.js';
import { identityOf, isRunning } from '../store/process-identity.js';
import type { LeaseFile } from './lease-file.js';

const LockRow = Type.Object({
  /** The process that has the lock, as `identityOf` names it. */
  process: Type.String(),
  /** LockRequest.bodyDigest. */
  bodyDigest: Type.String(),
});
const isLockRow = schemaCheck('LockRow', LockRow);

/** How many rows one transaction checks at the start. For some 10 ms no other process can write the file. */
const SWEPT_ROWS_MAX = 1_000;

interface LockFile {
  readonly environment: Pick<LeaseFile['environment'], 'write'>;
  readonly locks: LeaseFile['locks'];
}

export class SharedLocks {
  readonly #file: LockFile;
  readonly #identity: string;
  /**
   * Locks to be released. They stay here while the transaction fails. Then `acquire` fails too, so there are
   * never more of them than the locks that this process had when that began.
   */
  readonly #toRelease = new Map<string, ResponseKey>();

  /** Removes rows of processes that have ended. Throws what LMDB throws. */
  constructor(file: LockFile) {
    const identity = identityOf(globalThis.process.pid);
    invariant(identity !== undefined, '/proc tells who this process is');
    this.#file = file;
    this.#identity = identity;
    this.#sweep();
  }

  /**
   * Takes the lock and returns undefined. If another process has the lock, returns the digest of its
   * request's body. A lock that this process has is given to it again, as if it were free. So the idempotency
   * service, which knows the calls in progress here, does not ask for their keys. Takes 20 to 50 µs. Throws
   * what LMDB throws; the service then rejects the call.
   */
  acquire({ account, key, bodyDigest }: LockRequest): string | undefined {
    const { environment, locks } = this.#file;
    return environment.write(() => {
      const row = locks.get([account, key]);
      if (isLockRow(row) && row.process !== this.#identity && isRunning(row.process)) return row.bodyDigest;
      locks.putSync([account, key], { process: this.#identity, bodyDigest });
      // Otherwise a release that has failed, and is tried again, would remove this row.
      this.#toRelease.delete(nameOfResponse({ account, key }));
      return undefined;
    });
  }

  /** Releases the locks of calls that are over, whose responses are on disk. One transaction, or none. */
  release(keys: Iterable<ResponseKey>): void {
    for (const { account, key } of keys)
      this.#toRelease.set(nameOfResponse({ account, key }), { account, key });
    if (this.#toRelease.size === 0) return;
    const { environment, locks } = this.#file;
    try {
      environment.write(() => {
        for (const { account, key } of this.#toRelease.values()) {
          const row = locks.get([account, key]);
          if (isLockRow(row) && row.process === this.#identity) locks.removeSync([account, key]);
        }
      });
      this.#toRelease.clear();
    } catch {
      // The next release tries again: the idempotency service calls this after each flush. Until then other
      // processes take the call for one that still runs. It is not logged here, because `acquire`, which uses
      // the same file, fails too, and the service logs that.
    }
  }

  /** Removes void rows, of the first SWEPT_ROWS_MAX. `acquire` ignores any others. */
  #sweep(): void {
    const { environment, locks } = this.#file;
    environment.write(() => {
      for (const { key, value: row } of Array.from(locks.getRange({ limit: SWEPT_ROWS_MAX }))) {
        if (!isLockRow(row) || !isRunning(row.process)) locks.removeSync(key);
      }
    });
  }
}
