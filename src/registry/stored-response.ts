/**
 * The stored response of a call with an `Idempotency-Key`, and the keys under which the response cache has
 * responses. Plain records of the idempotency service, the cache service and the store; any thread.
 *
 * Must hold: only the account that called finds a response, unless the settings share it. Tests:
 * test/unit/gateway/idempotency-service.test.ts, test/unit/request/response-cache.test.ts.
 */
import { asAccountIndex, type AccountIndex, type WallMs } from '../core/units.js';

/** A key belongs to its account: two accounts may use the same text. */
export interface ResponseKey {
  readonly account: AccountIndex;
  /** The header's value: printable ASCII. */
  readonly key: string;
}

export interface ResponseRecord extends ResponseKey {
  /** SHA-256 of the request's body in hex: a request with the same key and another body is rejected. */
  readonly bodyDigest: string;
  /** When the call ended. */
  readonly endedMs: WallMs;
  readonly stream: boolean;
  /** The id of the model that answered; undefined if it was the one that the call named. */
  readonly fallback?: string | undefined;
  /** The response's body; undefined if it was too long to be stored, or the disk took nothing. */
  readonly bytes: Uint8Array | undefined;
}

/** Joins both parts of a key, for maps. */
export function nameOfResponse({ account, key }: ResponseKey): string {
  return `${account}/${key}`;
}

/** Stands for the account in the key of a cached response that all accounts may get. */
export const ALL_ACCOUNTS = asAccountIndex(2 ** 32 - 1);

/** About how many bytes a cached response takes besides its body. */
export const CACHED_ROW_BYTES = 512;

/** The key under which the response cache has a response; `digest` is 64 hex digits (request-digest.ts). */
export function cacheKeyOf(account: AccountIndex, modelId: string, digest: string): ResponseKey {
  return { account, key: `${modelId}/${digest}` };
}

export function modelOfCacheKey({ key }: ResponseKey): string {
  return key.slice(0, key.lastIndexOf('/'));
}
