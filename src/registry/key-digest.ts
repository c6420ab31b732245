/**
 * API keys: their form, their making, and the SHA-256 digest by which they are found. The key itself is kept
 * nowhere. Listener threads check and hash keys (request/authenticate.ts); the registry makes keys, ids and
 * tokens on the main thread.
 *
 * Must hold: no random byte is used twice (test/unit/registry/key-digest.random-bytes.test.ts). WELL_FORMED
 * accepts what `generateKey` makes, and `digestOf` finds it, for ever: callers have such keys, and the store
 * has their digests (the test has one of each).
 */
import { hash, randomBytes } from 'node:crypto';
import { invariant } from '../core/errors.js';

/** Bytes of a block, which the system makes at once for some hundred ids and keys, in 3.5 µs. */
const BLOCK_BYTES = 4_096;

/** The bytes of the last block that nobody has taken yet. */
let block = Buffer.alloc(0);

/** Returns `count` random bytes, at most BLOCK_BYTES, that no other caller gets. Main thread. */
export function takeRandomBytes(count: number): Buffer {
  invariant(count <= BLOCK_BYTES, 'a block has the bytes that are asked for');
  if (block.length < count) block = randomBytes(BLOCK_BYTES);
  const bytes = block.subarray(0, count);
  block = block.subarray(count);
  return bytes;
}

const KEY_PREFIX = 'sk-';
const KEY_BYTES = 32;
/** A character of base64url has 6 bits. */
const SECRET_CHARS = Math.ceil((8 * KEY_BYTES) / 6);
/** The prefix, and 256 bits in 43 characters of base64url. */
export const WELL_FORMED = new RegExp(`^${KEY_PREFIX}[A-Za-z0-9_-]{${SECRET_CHARS}}$`);
/** How many characters a text has that WELL_FORMED accepts. */
export const KEY_CHARS = KEY_PREFIX.length + SECRET_CHARS;

export const DIGEST_BYTES = 32;

/** Whether `text` has the form of a key. Any other text is rejected without a search of the key table. */
export function isWellFormedKey(text: string): boolean {
  return WELL_FORMED.test(text);
}

/** Returns a new key: `sk-` and 256 random bits. */
export function generateKey(): string {
  return KEY_PREFIX + takeRandomBytes(KEY_BYTES).toString('base64url');
}

/** Returns the SHA-256 of the key's text, in 1 µs. It needs no salt: a key has 256 random bits. */
export function digestOf(key: string): Buffer {
  // By way of a text, because `hash` takes nearly twice as long if it makes the buffer itself.
  return Buffer.from(hash('sha256', key, 'binary'), 'binary');
}
