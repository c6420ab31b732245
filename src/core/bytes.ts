/**
 * Views of bytes, and bytes that are joined. Most folders use it. Pure; any thread.
 *
 * Must hold: `joinedBytes` alone returns memory of its own, which may be transferred to another thread and
 * outlives what it was made of. What the others return may share the memory of their argument.
 */

/** A Buffer over the same memory. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * The chunks of a response as one Buffer; `length` is the sum of their lengths. Most responses come in one
 * chunk, which is not copied.
 */
export function joinedChunks(chunks: readonly Uint8Array[], length: number): Buffer {
  return chunks.length === 1 ? asBuffer(chunks[0]!) : Buffer.concat(chunks, length);
}

/**
 * A copy of the pieces as one array, in memory of its own: Buffer.concat may return a part of Node's pool.
 * `length` is the sum of the pieces' lengths. A RangeError is thrown if it is less.
 */
export function joinedBytes(pieces: readonly Uint8Array[], length: number): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(length);
  let end = 0;
  for (const piece of pieces) {
    joined.set(piece, end);
    end += piece.length;
  }
  return joined;
}
