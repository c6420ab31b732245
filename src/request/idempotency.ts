/**
 * A call with an `Idempotency-Key`: claims its key, collects its response, hands it over to be kept. Listener thread.
 *
 *     new → claimed → kept            the response is whole and charged
 *       │           → given up        refused, failed, or the client has left: a repeat is a new call
 *       → replaying → given up        the response of an earlier call is on its way
 */
import { createHash, hash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { LockRequest, LockReply, IdempotencyChannel } from '../channel/idempotency-channel.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { joinedBytes } from '../core/joined-bytes.js';
import { IDEMPOTENCY_KEY_CHARS_MAX, IDEMPOTENCY_KEY_PATTERN } from '../core/limits.js';
import type { AccountIndex } from '../core/units.js';

const PRINTABLE = new RegExp(IDEMPOTENCY_KEY_PATTERN);

const WRONG_KEY: ErrorRecord = {
  code: 'invalid_parameters',
  message: `the header Idempotency-Key must be 1 to ${IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters`,
};

/** Why a lock was refused, by its state. */
const REJECTIONS = {
  in_progress: {
    code: 'request_in_progress',
    message:
      'A request with this Idempotency-Key is still running. Retry after 1 second to get its answer, or send another key.',
    retryAfterSeconds: 1,
  },
  other_body: {
    code: 'invalid_parameters',
    message:
      'the header Idempotency-Key was used before with another request body. Send the same body, or another key.',
  },
  not_kept: {
    code: 'invalid_parameters',
    message:
      'the request with this Idempotency-Key was answered and charged, and its answer could not be kept. Send another key to make a new call.',
  },
  busy: {
    code: 'overloaded',
    message:
      'The gateway has as many requests with an Idempotency-Key in work as it may. Retry after 1 second.',
    retryAfterSeconds: 1,
  },
} as const satisfies Record<string, ErrorRecord>;

/** A response to be given again. */
export interface EarlierResponse {
  readonly stream: boolean;
  readonly bytes: Uint8Array;
}

/** What a lock comes to: exactly one of the two, or neither where the call is to be made. */
export interface LockResult {
  readonly refusal?: ErrorRecord;
  readonly earlier?: EarlierResponse;
}

type State = 'new' | 'claimed' | 'kept' | 'replaying' | 'given_up';

/** A refusal where the header's text is no key. */
export function checkIdempotencyKey(key: string): ErrorRecord | undefined {
  return key.length <= IDEMPOTENCY_KEY_CHARS_MAX && PRINTABLE.test(key) ? undefined : WRONG_KEY;
}

/** SHA-256 of a body, as `claim` wants it. About 1 µs and 0.6 ms a megabyte. */
export function bodyDigestOf(bytes: Uint8Array): string {
  return hash('sha256', bytes, 'hex');
}

export class KeyedCall {
  readonly #key: string;
  readonly #channel: IdempotencyChannel;
  #state: State = 'new';
  #lock: LockRequest | undefined;
  /** Of the response so far; undefined once it is too long. */
  #pieces: Uint8Array[] | undefined = [];
  #bytes = 0;

  /** `key` was checked. */
  constructor(key: string, channel: IdempotencyChannel) {
    this.#key = key;
    this.#channel = channel;
  }

  /** Asks once. Rejects with `AskRefused`. */
  async lock(account: AccountIndex, bodyDigest: string): Promise<LockResult> {
    this.#lock = { account, key: this.#key, bodyDigest };
    const answer: LockReply = await this.#channel.lock(this.#lock);
    switch (answer.state) {
      case 'new':
        this.#state = 'claimed';
        return {};
      case 'finished':
        this.#state = 'replaying';
        this.#bytes = answer.bytes.length;
        return { earlier: answer };
      default:
        return { refusal: REJECTIONS[answer.state] };
    }
  }

  /** A piece of the response; it is copied. */
  collect(bytes: Uint8Array): void {
    if (this.#pieces === undefined) return;
    if (this.#bytes + bytes.length > this.#channel.answerBytesMax || !this.#channel.take(bytes.length)) {
      this.#dropPieces();
      return;
    }
    // They are of memory that is soon used again.
    this.#pieces.push(new Uint8Array(bytes));
    this.#bytes += bytes.length;
  }

  /** The response is whole with `last`; its charge will be at `position` of the journal, and is appended after this. */
  keep(last: Uint8Array, stream: boolean, position: number): void {
    invariant(
      this.#state === 'claimed' && this.#lock !== undefined,
      'who keeps an answer has claimed its key',
    );
    this.#state = 'kept';
    this.collect(last);
    const bytes = this.#pieces && joinedBytes(this.#pieces, this.#bytes);
    this.#channel.tell({ kind: 'keep', lock: this.#lock, stream, bytes, position });
    this.#dropPieces();
  }

  /** What was kept is not to be given to anybody: its charge is taken back at `position` of the journal, after this. */
  forget(position: number): void {
    invariant(this.#state === 'kept' && this.#lock !== undefined, 'what is forgotten was kept');
    this.#channel.tell({ kind: 'forget', lock: this.#lock, position });
  }

  /** The call has ended, or nothing will come of it: gives back what it holds. May be called again. */
  giveUp(): void {
    if (this.#state === 'claimed' && this.#lock !== undefined) {
      this.#channel.tell({ kind: 'abandon', lock: this.#lock });
      this.#dropPieces();
    } else if (this.#state === 'replaying') {
      this.#channel.tell({ kind: 'replayed', bytes: this.#bytes });
    }
    if (this.#state !== 'kept') this.#state = 'given_up';
  }

  #dropPieces(): void {
    this.#channel.giveBack(this.#bytes);
    this.#bytes = 0;
    this.#pieces = undefined;
  }
}

/*
 * The digest of a large body, without keeping the listener's other calls waiting. Listener thread.
 */

/** Between two turns of the event loop: about half a millisecond. */
const STEP_BYTES = 1024 * 1024;

/** As `bodyDigestOf` of the pieces joined. */
export async function bodyDigestOfPieces(pieces: readonly Uint8Array[]): Promise<string> {
  const digest = createHash('sha256');
  let stepBytes = 0;
  for (const piece of pieces) {
    digest.update(piece);
    stepBytes += piece.length;
    if (stepBytes < STEP_BYTES) continue;
    stepBytes = 0;
    await nextTurn();
  }
  return digest.digest('hex');
}
