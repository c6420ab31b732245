/**
 * The messages between a listener's response cache and that of the main thread, which has the responses on
 * disk and knows which calls of other listeners are in work. Both ends import them.
 *
 *     listener → main   Question<ResponseKey>   a request that the listener has no response for
 *                       CacheMessage            what became of its call; no reply
 */
import type { ResponseKey } from '../registry/stored-response.js';

/** A response of the cache, without its key. */
export interface CachedResponse {
  readonly stream: boolean;
  /** When the call ended that made it: wall clock. */
  readonly endedMs: number;
  readonly bytes: Uint8Array;
}

export type CacheReply =
  /** The listener makes the call, and tells what became of it. */
  | { readonly state: 'lead' }
  /** An equal call of another listener has failed, or its response can't be kept. */
  | { readonly state: 'alone' }
  | { readonly state: 'found'; readonly response: CachedResponse };

export type CacheMessage =
  | { readonly kind: 'keep'; readonly key: ResponseKey; readonly response: CachedResponse }
  /** The call failed, or its response can't be kept. */
  | { readonly kind: 'abandon'; readonly key: ResponseKey };
