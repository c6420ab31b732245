/**
 * The stored response of a call with an `Idempotency-Key`, and a response in the response cache. Plain
 * records of the idempotency service, the cache service, the store and listeners; any thread. Each kind has
 * tables and maps of its own, so a key of one kind may equal a key of the other.
 *
 * Must hold: only the account that called finds a response, unless the settings share it. Tests:
 * test/unit/gateway/idempotency-service.test.ts, test/unit/request/response-cache.test.ts.
 */
import { asAccountIndex, type AccountIndex, type WallMs } from '../core/units.js';

/** A key belongs to its account: two accounts may use one text. `cacheKeyOf` makes keys of the cache. */
export interface ResponseKey {
  readonly account: AccountIndex;
  /** The header's value, printable ASCII; in the cache, model and digest. */
  readonly key: string;
}

export interface ResponseRecord extends ResponseKey {
  /** SHA-256 of the request's body in hex: a request with the same key and another body is rejected. */
  readonly bodyDigest: string;
  /** When the call ended. */
  readonly endedMs: WallMs;
  readonly stream: boolean;
  /** The id of the fallback that answered; undefined if the model that the call named did. */
  readonly fallback?: string | undefined;
  /** The response's body; undefined if it was too long to be stored, or the disk took nothing. */
  readonly bytes: Uint8Array | undefined;
}

/** Joins both parts of a key, for maps. An account is a number, so different keys give different texts. */
export function nameOfResponse({ account, key }: ResponseKey): string {
  return `${account}/${key}`;
}

/**
 * Stands for the account in the key of a cached response that all accounts may get, if the model's cache is
 * shared. No account has this slot: ACCOUNTS_MAX of core/limits.ts is far below it.
 */
export const ALL_ACCOUNTS = asAccountIndex(2 ** 32 - 1);

/**
 * Bytes that memory budgets count for a cached response besides its body, so that the budgets bound short
 * responses too. A rough figure for its key and its objects.
 */
export const CACHED_ROW_BYTES = 512;

/** The cache's key of a response; `digest` is 64 hex digits (protocol/request-digest.ts). */
export function cacheKeyOf(account: AccountIndex, modelId: string, digest: string): ResponseKey {
  return { account, key: `${modelId}/${digest}` };
}

/** The model id in a key of `cacheKeyOf`. The last slash ends it: only the digest has no slashes. */
export function modelOfCacheKey({ key }: ResponseKey): string {
  return key.slice(0, key.lastIndexOf('/'));
}
