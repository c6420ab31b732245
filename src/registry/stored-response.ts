/**
 * What is kept of a call that came with an `Idempotency-Key`, so that its repeat gets the same response. Plain records; any
 * thread.
 */
import type { AccountIndex, WallMs } from '../core/units.js';

/** Keys are the account's own: two accounts may use the same text. */
export interface ResponseKey {
  readonly account: AccountIndex;
  /** The header's text: printable ASCII. */
  readonly key: string;
}

export interface ResponseRecord extends ResponseKey {
  /** SHA-256 of the request's body, as hex digits: the same key with another body is a mistake. */
  readonly bodyDigest: string;
  /** When the call ended. */
  readonly endedMs: WallMs;
  readonly stream: boolean;
  /** All that was sent after the head; undefined where it could not be kept: too long, or the disk took nothing. */
  readonly bytes: Uint8Array | undefined;
}

/** One text for both parts of a key, for maps. */
export function nameOfResponse({ account, key }: ResponseKey): string {
  return `${account}/${key}`;
}
