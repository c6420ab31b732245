/**
 * A call with an `Idempotency-Key`: KeyedCall takes the lock of the key, collects the response, and sends the
 * response to the main thread to be stored. replay.ts sends the stored response of an earlier call. intake.ts
 * and delivery.ts use KeyedCall; listener thread. On the main thread gateway/idempotency-service.ts has the
 * locks. Here a _key_ is always an idempotency key.
 *
 *     new → locked → kept            the response is whole and charged
 *       │          → given up        rejected, failed, or the client left: the key may be used again
 *       → replaying → given up       the response of an earlier call is being sent to the client
 *
 * Must hold: a call that has the lock gives it back, by `keep` or `giveUp`; otherwise each replay is
 * rejected, because the call seems to run. A stored response is charged, or `forget` removes it as its charge
 * is taken back (further test: test/e2e/idempotency.test.ts).
 */
import { createHash, hash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { EndedResponse, IdempotencyChannel, LockRequest } from '../channel/idempotency-channel.js';
import { DOOR_PATHS } from '../core/door-names.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { IDEMPOTENCY_KEY_CHARS_MAX, IDEMPOTENCY_KEY_PATTERN } from '../core/limits.js';
import type { AccountIndex } from '../core/units.js';
import { CollectedPieces, type CollectBudget, type StorableCall } from './collected-response.js';
import { LOCK_REJECTIONS, WRONG_IDEMPOTENCY_KEY } from './rejections.js';

const KEY_PATTERN = new RegExp(IDEMPOTENCY_KEY_PATTERN);
/** Bytes of a large body that are hashed in one turn of the event loop: about half a millisecond. */
const HASH_STEP_BYTES = 1024 * 1024;

/** The response of an earlier call: stored, or in the response cache. */
export type EarlierResponse = EndedResponse & { readonly bytes: Uint8Array };

/** How `lock` ended. If neither member is set, the call has the lock and is to be made. */
interface LockResult {
  readonly rejection?: ErrorRecord;
  readonly earlier?: EarlierResponse;
}

/** Returns the rejection if the header's text is no valid key. */
export function checkIdempotencyKey(key: string): ErrorRecord | undefined {
  const isKey = key.length <= IDEMPOTENCY_KEY_CHARS_MAX && KEY_PATTERN.test(key);
  return isKey ? undefined : WRONG_IDEMPOTENCY_KEY;
}

/** SHA-256 of a body, in hex. About 1 µs, and 0.6 ms a megabyte. */
export function bodyDigestOf(bytes: Uint8Array): string {
  return hash('sha256', bytes, 'hex');
}

/** As bodyDigestOf, of the joined pieces, in steps between which the listener serves other calls. */
export async function bodyDigestOfPieces(pieces: readonly Uint8Array[]): Promise<string> {
  const digest = createHash('sha256');
  let stepBytes = 0;
  for (const piece of pieces) {
    // A piece is cut into steps too, because a body with Content-Length is one piece of its whole length.
    for (let start = 0; start < piece.length; start += HASH_STEP_BYTES) {
      const step = piece.subarray(start, start + HASH_STEP_BYTES);
      digest.update(step);
      stepBytes += step.length;
      if (stepBytes < HASH_STEP_BYTES) continue;
      stepBytes = 0;
      await nextTurn();
    }
  }
  return digest.digest('hex');
}

/**
 * Returns the digest that tells whether a request is a replay: the same body at another door is another
 * request. Chat completions keep the plain digest, because responses on disk were stored by it.
 */
export function digestAtDoor(bodyDigest: string, path: string): string {
  return path === DOOR_PATHS.chat ? bodyDigest : bodyDigestOf(Buffer.from(path + bodyDigest));
}

/** A call with an idempotency key. intake.ts makes a KeyedCall once it has read the header. */
export class KeyedCall implements StorableCall {
  readonly #idempotencyKey: string;
  readonly #channel: IdempotencyChannel;
  #state: 'new' | 'locked' | 'kept' | 'replaying' | 'given_up' = 'new';
  #lockRequest: LockRequest | undefined;
  readonly #pieces: CollectedPieces;
  /** Length of the stored response, while it is being sent to the client. */
  #replayedBytes = 0;

  /** `key` is used only if `checkIdempotencyKey` accepts it. `budget`: of responses that are collected. */
  constructor(key: string, channel: IdempotencyChannel, budget: CollectBudget) {
    this.#idempotencyKey = key;
    this.#channel = channel;
    this.#pieces = new CollectedPieces(budget, channel.responseBytesMax);
  }

  /**
   * Called once. Rejects with AskRejected if the store cannot be read. If `giveUp` was called meanwhile, the
   * caller must call `giveUp` again, because the lock may have been granted after the first time.
   */
  async lock(account: AccountIndex, bodyDigest: string): Promise<LockResult> {
    this.#lockRequest = { account, key: this.#idempotencyKey, bodyDigest };
    const reply = await this.#channel.ask(this.#lockRequest);
    switch (reply.state) {
      case 'new':
        this.#state = 'locked';
        return {};
      case 'finished':
        this.#state = 'replaying';
        this.#replayedBytes = reply.bytes.length;
        return { earlier: reply };
      default:
        // The compiler checks that LOCK_REJECTIONS has each other state of a LockReply.
        return { rejection: LOCK_REJECTIONS[reply.state] };
    }
  }

  collect(bytes: Uint8Array): void {
    this.#pieces.add(bytes);
  }

  keep(last: Uint8Array, stream: boolean, position: number, fallback?: string): void {
    invariant(
      this.#state === 'locked' && this.#lockRequest !== undefined,
      'a response is kept by the holder of its lock',
    );
    this.#state = 'kept';
    this.collect(last);
    const bytes = this.#pieces.take();
    this.#channel.send({ kind: 'keep', lock: this.#lockRequest, stream, fallback, bytes, position });
  }

  publish(): void {
    // The main thread sees in the journal when the charge is safe.
  }

  forget(position: number): void {
    invariant(this.#state === 'kept' && this.#lockRequest !== undefined, 'what is forgotten was kept');
    this.#channel.send({ kind: 'forget', lock: this.#lockRequest, position });
  }

  giveUp(): void {
    if (this.#state === 'locked' && this.#lockRequest !== undefined) {
      this.#channel.send({ kind: 'abandon', lock: this.#lockRequest });
      this.#pieces.drop();
    } else if (this.#state === 'replaying') {
      // So that the main thread no longer counts these bytes as being sent.
      this.#channel.send({ kind: 'replayed', bytes: this.#replayedBytes });
    }
    if (this.#state !== 'kept') this.#state = 'given_up';
  }
}
