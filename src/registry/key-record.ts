/**
 * What is kept of a key: its digest and never the key. Plain record; main thread.
 */
import type { AccountIndex, KeyIndex, WallMs } from '../core/units.js';

export interface KeyRecord {
  /** The key's slot in the key table; free again when the key has been deleted. */
  readonly index: KeyIndex;
  /** `key_` and 16 characters. */
  readonly id: string;
  readonly accountIndex: AccountIndex;
  readonly accountId: string;
  /** For people; need not be unique. */
  readonly name: string;
  /** SHA-256 of the key, 32 bytes. */
  readonly digest: Buffer;
  /** The key's beginning, so that its owner knows it again: `sk-` and four of its 43 characters. */
  readonly prefix: string;
  readonly active: boolean;
  readonly createdMs: WallMs;
}

const PREFIX_CHARS = 7;

/** The part of a key that may be shown: it leaves 232 of the 256 random bits unknown. */
export function prefixOf(key: string): string {
  return key.slice(0, PREFIX_CHARS);
}
