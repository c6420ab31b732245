/**
 * The messages by which listeners share the response cache of the main thread: single flight over all
 * listeners of a process. The main thread has the responses on disk, and knows which equal calls of other
 * listeners are in flight. Imported by request/response-cache.ts, the listener's end, and
 * gateway/cache-service.ts, the main thread's.
 *
 *     listener → main   Question<ResponseKey>   asks for a response; the reply is a CacheReply
 *                       CacheMessage            how the leader's call ended; no reply
 *
 * Must hold: a listener that got `lead` sends exactly one `keep` or `abandon` for the key. Until then equal
 * questions of other listeners wait; the death of the listener's thread counts as `abandon`.
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
  /** The leader's call has failed, or its response cannot be kept: those who wait get `alone`. */
  | { readonly kind: 'abandon'; readonly key: ResponseKey };
