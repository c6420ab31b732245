/**
 * The listener's side of claims: its port to the main thread, and the bound on what is collected. Listener thread.
 */
import type { MessagePort } from 'node:worker_threads';
import type { ResponseKey } from '../registry/stored-response.js';
import { AskPort } from './ask-port.js';

/*
 * What passes between a listener and the main thread about calls with an `Idempotency-Key`. Both ends import this file.
 *
 *     listener → main   Question<Claim>   before the call is admitted; answered by a ClaimAnswer
 *                       ClaimNote         what became of it; not answered
 *
 * A listener says `keep` before it appends the call's charge to its journal, and all notes before the client can know:
 * so who sees the charge finds the note in the port, and so does who serves a client that has seen the response.
 */

/** Of `Question.ask`. */
export interface LockRequest extends ResponseKey {
  /** SHA-256 of the request's body, as hex digits. */
  readonly bodyDigest: string;
}

export type LockReply =
  /** The caller has the key now, until it says `keep` or `abandon`. */
  | { readonly state: 'new' }
  | { readonly state: 'in_progress' }
  /** The key was used with another body. */
  | { readonly state: 'other_body' }
  /** The call has ended and its response could not be kept. */
  | { readonly state: 'not_kept' }
  /** More calls or responses are on their way than may be. */
  | { readonly state: 'busy' }
  /** The response of the first call; `replayed` is owed when its bytes are no longer held. */
  | { readonly state: 'finished'; readonly stream: boolean; readonly bytes: Uint8Array };

export type LockMessage =
  /** The call has ended well. */
  | {
      readonly kind: 'keep';
      readonly lock: LockRequest;
      readonly stream: boolean;
      /** Undefined where they were too many. */
      readonly bytes: Uint8Array | undefined;
      /** Where its charge will be in the listener's journal. */
      readonly position: number;
    }
  /** The call was refused, or failed, or its client left: the next one with the key is a new call. */
  | { readonly kind: 'abandon'; readonly lock: LockRequest }
  /** The charge of a stored response is taken back, by the record that will be at `position`. */
  | { readonly kind: 'forget'; readonly lock: LockRequest; readonly position: number }
  | { readonly kind: 'replayed'; readonly bytes: number };

/** Bytes of responses that a listener collects at a time, of all its calls: what comes beyond is served and not kept. */
const COLLECTED_BYTES_MAX = 256 * 1024 * 1024;

export class IdempotencyChannel {
  /** A longer answer is not kept. */
  readonly answerBytesMax: number;
  readonly #port: MessagePort;
  readonly #asks: AskPort<LockRequest, LockReply>;
  #collectedBytes = 0;

  constructor(port: MessagePort, replyBytesMax: number) {
    this.answerBytesMax = replyBytesMax;
    this.#port = port;
    this.#asks = new AskPort(port);
  }

  /** Rejects with `AskRefused` where the books cannot be read. */
  lock(lock: LockRequest): Promise<LockReply> {
    return this.#asks.ask(lock);
  }

  /** Hands over the buffer of a note's `bytes`. */
  tell(note: LockMessage): void {
    const transfer =
      note.kind === 'keep' && note.bytes !== undefined ? [note.bytes.buffer as ArrayBuffer] : [];
    this.#port.postMessage(note, transfer);
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
