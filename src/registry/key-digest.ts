/**
 * API keys: their form, their making and the digest by which they are known. The key itself is kept nowhere. Any thread.
 */
import { hash, randomBytes } from 'node:crypto';
import { invariant } from '../core/errors.js';

/*
 * Random bytes of the operating system's generator, drawn many at a time: asked for 16 alone, Node takes 3.5 µs, nearly all of it
 * for the asking. Main thread.
 */

/** Some hundred ids and keys. */
const BLOCK_BYTES = 4_096;

let block = Buffer.alloc(0);

/** `count` bytes, at most a block, that are given to nobody else. They stay as they are. */
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
/** Of every key. */
export const KEY_CHARS = KEY_PREFIX.length + 43;

export const DIGEST_BYTES = 32;

/** Whether `text` could be a key at all; what is not is refused without a look at the table. */
export function isWellFormedKey(text: string): boolean {
  return WELL_FORMED.test(text);
}

/** A new key: `sk-` and 256 random bits. */
export function generateKey(): string {
  return KEY_PREFIX + takeRandomBytes(KEY_BYTES).toString('base64url');
}

/** SHA-256 of the key's text, 32 bytes. No salt and no stretching: there are 256 random bits to guess. About 1 µs. */
export function digestOf(key: string): Buffer {
  // Over a string of bytes: asked for a buffer, `hash` takes nearly twice as long.
  return Buffer.from(hash('sha256', key, 'binary'), 'binary');
}
