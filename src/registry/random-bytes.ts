/**
 * Random bytes of the operating system's generator, drawn many at a time: asked for 16 alone, Node takes 3.5 µs, nearly all of it
 * for the asking. Main thread.
 */
import { randomBytes } from 'node:crypto';
import { invariant } from '../core/errors.js';

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
