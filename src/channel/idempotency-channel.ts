/**
 * The listener's side of idempotency locks: its port to the main thread. request/idempotency.ts calls it;
 * gateway/idempotency-service.ts is the other end. For a lock that it got (`new`) the listener sends either
 * `keep` or `abandon`, and after `keep` perhaps `forget`. For a `finished` reply it sends `replayed` once,
 * when it no longer keeps the bytes. If a listener dies, the service releases its locks.
 *
 *     listener → main   Question<LockRequest>   before the call is admitted; the reply is a LockReply
 *                       LockMessage             how the call ended; no reply
 *
 * Must hold: a listener sends `keep` before it appends the call's charge to its journal, and every
 * LockMessage before the client can see how its call ended. The service reads all pending messages before it
 * decides on a lock. So it knows the response when the client sends the key again, at whichever listener;
 * otherwise the call is made and charged again (test/unit/gateway/idempotency-service.test.ts).
 */
import type { MessagePort } from 'node:worker_threads';
import { AskPort } from '../core/ask-port.js';
import { invariant } from '../core/errors.js';
import type { ResponseKey } from '../registry/stored-response.js';

export interface LockRequest extends ResponseKey {
  /** SHA-256 of the request's body, as hex digits. */
  readonly bodyDigest: string;
}

/** What a message says of the first call's response besides its bytes. */
export interface EndedResponse {
  /** Whether the response is a stream of server-sent events, whole. */
  readonly stream: boolean;
  /** The id of the fallback that answered; undefined if the model that the call named did. */
  readonly fallback?: string | undefined;
}

export type LockReply =
  /** The listener's call holds the lock now, until the listener sends `keep` or `abandon`. */
  | { readonly state: 'new' }
  /** Another call holds the lock: 409. */
  | { readonly state: 'in_progress' }
  /** The key was used with another body: 400. */
  | { readonly state: 'other_body' }
  /** The call was made and charged, and its response could not be stored: 400. */
  | { readonly state: 'not_stored' }
  /** More calls hold locks, or more bytes of responses are being replayed, than the service allows: 503. */
  | { readonly state: 'busy' }
  /** The response of the first call. Its bytes count toward a bound until `replayed`. */
  | (EndedResponse & { readonly state: 'finished'; readonly bytes: Uint8Array });

export type LockMessage =
  /** The call has ended well. */
  | (EndedResponse & {
      readonly kind: 'keep';
      readonly lock: LockRequest;
      /** The response's body; undefined if it was too long to collect. */
      readonly bytes: Uint8Array | undefined;
      /** The position in the journal of the call's charge, whose record is appended next. */
      readonly position: number;
    })
  /** The call was rejected, or failed, or its client left. The next request with the key is a new call. */
  | { readonly kind: 'abandon'; readonly lock: LockRequest }
  /** The charge of a stored response is taken back, by the journal's record that will be at `position`. */
  | { readonly kind: 'forget'; readonly lock: LockRequest; readonly position: number }
  /** The listener no longer keeps the bytes of a `finished` reply. `bytes` is their number. */
  | { readonly kind: 'replayed'; readonly bytes: number };

/**
 * `ask` rejects with AskRejected if the stored responses cannot be read. A question for a lock cannot be
 * withdrawn: if the client leaves before the reply `new` comes, the KeyedCall then sends `abandon`.
 */
export class IdempotencyChannel extends AskPort<LockRequest, LockReply, LockMessage> {
  /** A response of more bytes is not stored. */
  readonly responseBytesMax: number;

  constructor(port: MessagePort, responseBytesMax: number) {
    super(port);
    this.responseBytesMax = responseBytesMax;
  }

  /** Transfers the buffer of the `bytes` in a `keep`. Throws if the buffer holds anything else. */
  override send(message: LockMessage): void {
    const bytes = message.kind === 'keep' ? message.bytes : undefined;
    if (bytes !== undefined)
      invariant(
        bytes.length === bytes.buffer.byteLength,
        'a response that is transferred has its own memory',
      );
    super.send(message, bytes === undefined ? [] : [bytes.buffer as ArrayBuffer]);
  }
}
