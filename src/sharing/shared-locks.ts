/**
 * Which calls with an `Idempotency-Key` the processes of one host have in progress: a row in the file of leases from the
 * claim until the call's answer is on disk, where all find it, or the lock is abandoned. Main thread.
 *
 * The row of a process that has ended is void. One that could not be removed is tried again, and is void with its process.
 */
import { Type } from 'typebox';
import { Check } from 'typebox/value';
import { invariant } from '../core/errors.js';
import type { LockRequest } from '../channel/idempotency-channel.js';
import { nameOfResponse, type ResponseKey } from '../registry/stored-response.js';
import { identityOf, isRunning } from '../store/process-identity.js';
import type { LeaseFile } from './lease-file.js';

const LockRow = Type.Object({
  /** Of the process, see store/process-identity.ts. */
  process: Type.String(),
  bodyDigest: Type.String(),
});

/** Rows that are looked at in one transaction at the start: some 10 ms in which no process can lease. */
const SWEPT_MAX = 1_000;

interface LockFile {
  readonly environment: Pick<LeaseFile['environment'], 'write'>;
  readonly claims: LeaseFile['claims'];
}

export class SharedLocks {
  readonly #file: LockFile;
  readonly #process: string;
  /** Rows that are to be removed: at most one for each call in flight. */
  readonly #ended = new Map<string, ResponseKey>();

  /** Removes rows of processes that have ended. Throws what LMDB throws. */
  constructor(file: LockFile) {
    const process = identityOf(globalThis.process.pid);
    invariant(process !== undefined, '/proc tells who this process is');
    this.#file = file;
    this.#process = process;
    this.#sweep();
  }

  /**
   * Takes the key; or tells the digest of the body with which another process has it. Costs 20 µs, and 30 more where another
   * has it. Throws what LMDB throws.
   */
  take({ account, key, bodyDigest }: LockRequest): string | undefined {
    const { environment, claims: locks } = this.#file;
    return environment.write(() => {
      const row = locks.get([account, key]);
      if (Check(LockRow, row) && row.process !== this.#process && isRunning(row.process))
        return row.bodyDigest;
      locks.putSync([account, key], { process: this.#process, bodyDigest });
      this.#ended.delete(nameOfResponse({ account, key }));
      return undefined;
    });
  }

  /** The calls are over, and their responses on disk where they have any. One transaction; none where nothing was taken. */
  giveBack(keys: Iterable<ResponseKey>): void {
    for (const { account, key } of keys) this.#ended.set(nameOfResponse({ account, key }), { account, key });
    if (this.#ended.size === 0) return;
    const { environment, claims: locks } = this.#file;
    try {
      environment.write(() => {
        for (const { account, key } of this.#ended.values()) {
          const row = locks.get([account, key]);
          if (Check(LockRow, row) && row.process === this.#process) locks.removeSync([account, key]);
        }
      });
      this.#ended.clear();
    } catch {
      // Tried again with the next; until then another process is told that the call runs.
    }
  }

  #sweep(): void {
    const { environment, claims: locks } = this.#file;
    environment.write(() => {
      for (const { key, value: row } of Array.from(locks.getRange({ limit: SWEPT_MAX }))) {
        if (!Check(LockRow, row) || !isRunning(row.process)) locks.removeSync(key);
      }
    });
  }
}
