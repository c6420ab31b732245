/**
 * What passes between a listener and the main thread about calls with an `Idempotency-Key`. Both ends import this file.
 *
 *     listener → main   Question<Claim>   before the call is admitted; answered by a ClaimAnswer
 *                       ClaimNote         what became of it; not answered
 *
 * A listener says `keep` before it appends the call's charge to its journal, and all notes before the client can know:
 * so who sees the charge finds the note in the port, and so does who serves a client that has seen the answer.
 */
import type { AnswerKey } from '../registry/answer-record.js';

/** Of `Question.ask`. */
export interface Claim extends AnswerKey {
  /** SHA-256 of the request's body, as hex digits. */
  readonly bodyDigest: string;
}

export type ClaimAnswer =
  /** The caller has the key now, until it says `keep` or `abandon`. */
  | { readonly state: 'new' }
  | { readonly state: 'in_progress' }
  /** The key was used with another body. */
  | { readonly state: 'other_body' }
  /** The call has ended and its answer could not be kept. */
  | { readonly state: 'not_kept' }
  /** More calls or answers are on their way than may be. */
  | { readonly state: 'busy' }
  /** The answer of the first call; `replayed` is owed when its bytes are no longer held. */
  | { readonly state: 'finished'; readonly stream: boolean; readonly bytes: Uint8Array };

export type ClaimNote =
  /** The call has ended well. */
  | {
      readonly kind: 'keep';
      readonly claim: Claim;
      readonly stream: boolean;
      /** Undefined where they were too many. */
      readonly bytes: Uint8Array | undefined;
      /** Where its charge will be in the listener's journal. */
      readonly position: number;
    }
  /** The call was refused, or failed, or its client left: the next one with the key is a new call. */
  | { readonly kind: 'abandon'; readonly claim: Claim }
  /** The charge of a kept answer is taken back, by the record that will be at `position`. */
  | { readonly kind: 'forget'; readonly claim: Claim; readonly position: number }
  | { readonly kind: 'replayed'; readonly bytes: number };
