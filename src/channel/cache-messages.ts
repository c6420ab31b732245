/**
 * Types of the messages about cached responses on the port between a listener (request/response-cache.ts) and
 * the main thread (gateway/cache-service.ts). The main thread has the responses on disk, and makes sure that
 * of equal calls one is made over all listeners of a process (single flight). Question and Withdrawal are
 * those of core/ask-port.ts.
 *
 *     listener → main   Question<ResponseKey>   asks for a response; the reply is a CacheReply
 *                       Withdrawal              after WAIT_MS_MAX (response-cache.ts)
 *                       CacheMessage            how a call ended; no reply
 *
 * Must hold: a listener that got `lead` ends the wait of the other listeners for that key, by a `keep` or an
 * `abandon`. Until then their equal questions wait on the main thread; equal requests of the same listener
 * wait in its response-cache.ts. If the leader's thread dies, the main thread acts as after an `abandon`
 * (test/unit/request/response-cache.test.ts, test/fuzz/stored-responses.test.ts).
 *
 * Whoever withdraws a question makes its call alone. AskPort (core/ask-port.ts) drops the reply, which may be
 * a `lead` that was under way. So the main thread treats the withdrawal of a question that got `lead` as an
 * `abandon`. To other withdrawn questions it replies `alone`, because a port needs a reply to each question.
 *
 * A `keep` may also come without `lead`, from a call that was made alone, or after `abandon`, because the
 * client was slow. Then the main thread only keeps the response.
 */
import type { ResponseKey } from '../registry/stored-response.js';

/** One response of the cache, without its key: the question has the key, or the `keep`. */
export interface CachedResponse {
  /** Whether it is a stream of server-sent events, whole. */
  readonly stream: boolean;
  /** When the call that brought the response ended, by the wall clock. */
  readonly endedMs: number;
  /** The body as callers get it. A message copies the bytes, and the sender keeps its own. */
  readonly bytes: Uint8Array;
}

/** What the main thread replies to a question. */
export type CacheReply =
  /** The listener is the leader: it makes the call, and sends a CacheMessage. */
  | { readonly state: 'lead' }
  /**
   * The listener makes its own call: the leader has abandoned, the question was withdrawn, or an operator or
   * a reload has cleared the cache. The response of a call that began before a clearing is not kept.
   */
  | { readonly state: 'alone' }
  /** The response was kept, or the leader's call has just brought it. */
  | { readonly state: 'found'; readonly response: CachedResponse };

/** How a call of the listener ended. */
export type CacheMessage =
  /**
   * The response is to be written to disk; listeners that wait for this leader get it. `beganMs`: when the
   * call began, by the wall clock, because the main thread may have cleared the cache since, and the listener
   * may not know yet.
   */
  | {
      readonly kind: 'keep';
      readonly key: ResponseKey;
      readonly response: CachedResponse;
      readonly beganMs: number;
    }
  /**
   * The leader's call has failed, or its response cannot be kept, or its client is slow to read it. Listeners
   * that wait get `alone`.
   */
  | { readonly kind: 'abandon'; readonly key: ResponseKey };
