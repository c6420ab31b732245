/**
 * Which calls with an `Idempotency-Key` the processes of one host have in progress: a row in the file of leases from the
 * claim until the call's answer is on disk, where all find it, or the claim is abandoned. Main thread.
 *
 * The row of a process that has ended is void. One that could not be removed is tried again, and is void with its process.
 */
import { Type } from 'typebox';
import { Check } from 'typebox/value';
import { invariant } from '../core/errors.js';
import type { Claim } from '../channel/idempotency-channel.js';
import { nameOfAnswer, type AnswerKey } from '../registry/stored-response.js';
import { identityOf, isRunning } from '../store/process-identity.js';
import type { LeaseFile } from './lease-file.js';

const ClaimRow = Type.Object({
  /** Of the process, see store/process-identity.ts. */
  process: Type.String(),
  bodyDigest: Type.String(),
});

/** Rows that are looked at in one transaction at the start: some 10 ms in which no process can lease. */
const SWEPT_MAX = 1_000;

interface ClaimFile {
  readonly environment: Pick<LeaseFile['environment'], 'write'>;
  readonly claims: LeaseFile['claims'];
}

export class SharedClaims {
  readonly #file: ClaimFile;
  readonly #process: string;
  /** Rows that are to be removed: at most one for each call in flight. */
  readonly #ended = new Map<string, AnswerKey>();

  /** Removes rows of processes that have ended. Throws what LMDB throws. */
  constructor(file: ClaimFile) {
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
  take({ account, key, bodyDigest }: Claim): string | undefined {
    const { environment, claims } = this.#file;
    return environment.write(() => {
      const row = claims.get([account, key]);
      if (Check(ClaimRow, row) && row.process !== this.#process && isRunning(row.process))
        return row.bodyDigest;
      claims.putSync([account, key], { process: this.#process, bodyDigest });
      this.#ended.delete(nameOfAnswer({ account, key }));
      return undefined;
    });
  }

  /** The calls are over, and their answers on disk where they have any. One transaction; none where nothing was taken. */
  giveBack(keys: Iterable<AnswerKey>): void {
    for (const { account, key } of keys) this.#ended.set(nameOfAnswer({ account, key }), { account, key });
    if (this.#ended.size === 0) return;
    const { environment, claims } = this.#file;
    try {
      environment.write(() => {
        for (const { account, key } of this.#ended.values()) {
          const row = claims.get([account, key]);
          if (Check(ClaimRow, row) && row.process === this.#process) claims.removeSync([account, key]);
        }
      });
      this.#ended.clear();
    } catch {
      // Tried again with the next; until then another process is told that the call runs.
    }
  }

  #sweep(): void {
    const { environment, claims } = this.#file;
    environment.write(() => {
      for (const { key, value: row } of Array.from(claims.getRange({ limit: SWEPT_MAX }))) {
        if (!Check(ClaimRow, row) || !isRunning(row.process)) claims.removeSync(key);
      }
    });
  }
}
