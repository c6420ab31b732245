/**
 * The messages between a listener (request/response-cache.ts) and the main thread (gateway/cache-service.ts)
 * about cached responses. The main thread has the responses on disk, and sees to single flight over all
 * listeners of a process.
 *
 *     listener → main   Question<ResponseKey>   asks for a response; the reply is a CacheReply
 *                       CacheMessage            how the leader's call ended; no reply
 *
 * Must hold: a listener that got `lead` sends exactly one `keep` or `abandon` for the key. Until then equal
 * questions of other listeners wait (test/fuzz/stored-responses.test.ts). If the listener's thread dies, the
 * main thread takes that for `abandon`.
 */
import type { ResponseKey } from '../registry/stored-response.js';

/** One response of the cache; its key travels beside it. */
export interface CachedResponse {
  readonly stream: boolean;
  /** When the call ended that made it: wall clock. */
  readonly endedMs: number;
  readonly bytes: Uint8Array;
}

export type CacheReply =
  /** The listener is the leader: it makes the call, and sends a CacheMessage at its end. */
  | { readonly state: 'lead' }
  /** The leader has failed, or its response cannot be kept. The listener makes its call without the cache. */
  | { readonly state: 'alone' }
  | { readonly state: 'found'; readonly response: CachedResponse };

export type CacheMessage =
  | { readonly kind: 'keep'; readonly key: ResponseKey; readonly response: CachedResponse }
  /** The leader's call has failed, or its response cannot be kept: listeners that wait get `alone`. */
  | { readonly kind: 'abandon'; readonly key: ResponseKey };
