/**
 * The listener's side of idempotency locks: its port to the main thread, and the bound on the responses that
 * it collects. Both ends import the messages.
 *
 *     listener → main   Question<LockRequest>   before the call is admitted; the reply is a LockReply
 *                       LockMessage             what became of the call; no reply
 *
 * A listener sends `keep` before it appends the call's charge to its journal, and every LockMessage before
 * the client can know of it. So whoever sees the charge finds the message in the port, and so does whoever
 * serves a client that has seen the response.
 */
import type { MessagePort } from 'node:worker_threads';
import { AskPort } from '../core/ask-port.js';
import type { ResponseKey } from '../registry/stored-response.js';

export interface LockRequest extends ResponseKey {
  /** SHA-256 of the request's body, as hex digits. */
  readonly bodyDigest: string;
}

export type LockReply =
  /** The caller holds the lock now, until it sends `keep` or `abandon`. */
  | { readonly state: 'new' }
  | { readonly state: 'in_progress' }
  /** The key was used with another body. */
  | { readonly state: 'other_body' }
  /** The call has ended and its response could not be kept. */
  | { readonly state: 'not_kept' }
  /** More calls or responses are on their way than may be. */
  | { readonly state: 'busy' }
  /** The response of the first call; the caller sends `replayed` when its bytes are no longer held. */
  | {
      readonly state: 'finished';
      readonly stream: boolean;
      /** See ResponseRecord. */
      readonly fallback?: string | undefined;
      readonly bytes: Uint8Array;
    };

export type LockMessage =
  /** The call has ended well. */
  | {
      readonly kind: 'keep';
      readonly lock: LockRequest;
      readonly stream: boolean;
      /** See ResponseRecord. */
      readonly fallback?: string | undefined;
      /** Undefined if they were too many. */
      readonly bytes: Uint8Array | undefined;
      /** Where its charge will be in the listener's journal. */
      readonly position: number;
    }
  /** The call was rejected, or failed, or its client left: the next one with the key is a new call. */
  | { readonly kind: 'abandon'; readonly lock: LockRequest }
  /** The charge of a stored response is taken back, by the record that will be at `position`. */
  | { readonly kind: 'forget'; readonly lock: LockRequest; readonly position: number }
  | { readonly kind: 'replayed'; readonly bytes: number };

/**
 * Bytes of responses that a listener collects at a time, of all its calls; responses beyond are served and
 * not stored.
 */
const COLLECTED_BYTES_MAX = 256 * 1024 * 1024;

export class IdempotencyChannel {
  /** A longer response is not stored. */
  readonly responseBytesMax: number;
  readonly #asks: AskPort<LockRequest, LockReply, LockMessage>;
  #collectedBytes = 0;

  constructor(port: MessagePort, replyBytesMax: number) {
    this.responseBytesMax = replyBytesMax;
    this.#asks = new AskPort(port);
  }

  /** Rejects with `AskRefused` if the stored responses cannot be read. */
  lock(lock: LockRequest): Promise<LockReply> {
    return this.#asks.ask(lock);
  }

  /** The buffer of `bytes` in a `keep` is transferred. */
  tell(message: LockMessage): void {
    const bytes = message.kind === 'keep' ? message.bytes : undefined;
    this.#asks.tell(message, bytes === undefined ? [] : [bytes.buffer as ArrayBuffer]);
  }

  /** Whether so many bytes more may be collected; they count until `giveBack`. */
  take(bytes: number): boolean {
    if (this.#collectedBytes + bytes > COLLECTED_BYTES_MAX) return false;
    this.#collectedBytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#collectedBytes -= bytes;
  }
}
