/**
 * API keys: their form, their making, and the digest by which they are known. The key itself is kept nowhere.
 * Any thread.
 *
 * Must hold: no byte of the random source is used twice. Test: unit/registry/key-digest.random-bytes.
 */
import { hash, randomBytes } from 'node:crypto';
import { invariant } from '../core/errors.js';

/*
 * Bytes drawn from the operating system at once, enough for some hundred ids and keys. Asking for 16 bytes
 * alone takes 3.5 µs, nearly all of it for the asking.
 */

const BLOCK_BYTES = 4_096;

let block = Buffer.alloc(0);

/**
 * Returns `count` random bytes, at most a block, that nobody else gets. They stay as they are. Main thread.
 */
export function takeRandomBytes(count: number): Buffer {
  invariant(count <= BLOCK_BYTES, 'a block has the bytes that are asked for');
  if (block.length < count) block = randomBytes(BLOCK_BYTES);
  const taken = block.subarray(0, count);
  block = block.subarray(count);
  return taken;
}

const KEY_PREFIX = 'sk-';
const KEY_BYTES = 32;
/** 256 bits are 43 characters of base64url. */
export const WELL_FORMED = /^sk-[A-Za-z0-9_-]{43}$/;
/** Length of every key. */
export const KEY_CHARS = KEY_PREFIX.length + 43;

export const DIGEST_BYTES = 32;

/** Whether `text` could be a key at all. If not, it is rejected without a search of the table. */
export function isWellFormedKey(text: string): boolean {
  return WELL_FORMED.test(text);
}

/** Returns a new key: `sk-` and 256 random bits. */
export function generateKey(): string {
  return KEY_PREFIX + takeRandomBytes(KEY_BYTES).toString('base64url');
}

/**
 * Returns the SHA-256 of the key's text, 32 bytes. No salt and no stretching: there are 256 random bits to
 * guess. About 1 µs.
 */
export function digestOf(key: string): Buffer {
  // By way of a string of bytes: asked for a buffer, `hash` takes nearly twice as long.
  return Buffer.from(hash('sha256', key, 'binary'), 'binary');
}
