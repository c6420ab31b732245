/**
 * Types of the messages about cached responses on the port between a listener (request/response-cache.ts) and
 * the main thread (gateway/cache-service.ts). The port is no channel of the glossary, which joins a listener
 * and a worker. The main thread has the responses on disk, and makes sure that of equal calls one is made
 * over all listeners of a process (single flight).
 *
 *     listener → main   Question<ResponseKey>   asks for a response; the reply is a CacheReply
 *                       Withdrawal              after WAIT_MS_MAX (response-cache.ts); a question that waits
 *                                               then gets the reply `alone`
 *                       CacheMessage            how a call ended; no reply
 *
 * Must hold: a listener that got `lead` ends the wait of the other listeners for that key, by a `keep` or an
 * `abandon`. Until then their equal questions wait on the main thread; equal requests of the same listener
 * wait in its response-cache.ts. If the leader's thread dies, the main thread acts as after an `abandon`
 * (test/unit/request/response-cache.test.ts, test/fuzz/stored-responses.test.ts).
 *
 * A `keep` may also come without `lead`, or after `abandon`. Then the main thread only keeps the response.
 *
 * A `lead` may come just after the listener has withdrawn its question. Then AskPort drops the reply, and the
 * listener makes its call alone. The main thread treats the withdrawal of a question that got `lead` as an
 * `abandon`, so that no other listener waits for this one.
 */
import type { ResponseKey } from '../registry/stored-response.js';

/** One response of the cache. A message has the response's key in another member. */
export interface CachedResponse {
  /** Whether it is a stream of server-sent events, whole. */
  readonly stream: boolean;
  /** When the call that brought the response ended, by the wall clock. */
  readonly endedMs: number;
  /** The body as callers get it. A message has a copy, because nothing is transferred. */
  readonly bytes: Uint8Array;
}

/** What the main thread replies to a question. */
export type CacheReply =
  /** The listener is the leader: it makes the call, and sends a CacheMessage. */
  | { readonly state: 'lead' }
  /** The listener makes its own call: the wait brought nothing (`abandon`, withdrawal, a cleared cache). */
  | { readonly state: 'alone' }
  | { readonly state: 'found'; readonly response: CachedResponse };

/** How a call of the listener ended. */
export type CacheMessage =
  | { readonly kind: 'keep'; readonly key: ResponseKey; readonly response: CachedResponse }
  /**
   * The leader's call has failed, or its response cannot be kept, or its client is slow to read it. Listeners
   * that wait get `alone`.
   */
  | { readonly kind: 'abandon'; readonly key: ResponseKey };
