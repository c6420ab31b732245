/**
 * Views of bytes, bytes that are joined, and the end of their memory. Most folders use the first two; request
 * bodies, responses and posted frames are freed (http1/body-memory.ts, upstream/response-reader.ts,
 * upstream/chat-session.ts, channel/frame-port.ts). protocol/request-bytes.ts calls `withoutSpare`. Any
 * thread.
 *
 * Must hold (test/unit/core/bytes.test.ts):
 * - `joinedBytes` alone returns memory of its own, which may be transferred to another thread and outlives
 *   what it was made of. `asBuffer` shares the memory of its argument, `joinedChunks` that of a single chunk
 *   or, as Buffer.concat may, that of Node's pool.
 * - Memory is freed by whom it belongs to, and nobody reads it later: a reader would find no bytes. A socket
 *   that still writes it would send what took its place, so request bodies are freed by `freeBody` alone.
 */

import { invariant } from './errors.js';

/** A Buffer over the same memory. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * The chunks of a response as one Buffer. The caller gives the chunks up: most responses come in one, which
 * is not copied; the memory of several is freed.
 */
export function joinedChunks(chunks: readonly Uint8Array[]): Buffer {
  if (chunks.length === 1) return asBuffer(chunks[0]!);
  const joined = Buffer.concat(chunks);
  for (const chunk of chunks) freeBytes(chunk);
  return joined;
}

/** `transfer` moves the memory to another buffer, and copies it if the length changes. Node 20 lacks it. */
type TransferableBuffer = ArrayBufferLike & { transfer?(lengthBytes: number): ArrayBuffer };

/** Bytes that `disposable` was called for. */
const disposables = new WeakSet<Uint8Array>();

/**
 * Returns `bytes`, which nobody needs but the reader that gets them. That reader does not know where they
 * come from, and calls `freeDisposable`. Only this object is marked, and no other view of the memory.
 */
export function disposable<Bytes extends Uint8Array>(bytes: Bytes): Bytes {
  if (ownsMemory(bytes)) disposables.add(bytes);
  return bytes;
}

/** Calls `freeBytes` if `disposable` was called for `bytes`. */
export function freeDisposable(bytes: Uint8Array): void {
  if (disposables.has(bytes)) freeBytes(bytes);
}

/** Whether the memory holds `bytes` alone. Not so of small Buffers, which share Node's pool. */
function ownsMemory({ length, buffer }: Uint8Array): boolean {
  return length > 0 && length === buffer.byteLength;
}

/**
 * The first `length` bytes, in memory that `freeBytes` frees. The caller gives `bytes` up, which must have
 * memory of their own. If some are left out, the others are copied; but not on Node 20, which frees nothing.
 */
export function withoutSpare(bytes: Uint8Array, length: number): Uint8Array {
  const { buffer } = bytes as { readonly buffer: TransferableBuffer };
  if (length === bytes.length || buffer.transfer === undefined) return bytes.subarray(0, length);
  return new Uint8Array(buffer.transfer(length));
}

/**
 * Frees the memory of `bytes`, whose length is 0 from then on. To be called by the last who needs it. V8
 * counts such memory outside of its heap, and collects the whole heap each time that it has grown by some 20
 * to 60 MB (docs/benchmarks.md, "Large bodies"). Does nothing if the memory holds more than `bytes`, if it
 * was freed or transferred before, and on Node 20, which has no means to free it.
 */
export function freeBytes(bytes: Uint8Array): void {
  const { buffer } = bytes as { readonly buffer: TransferableBuffer };
  if (ownsMemory(bytes)) buffer.transfer?.(0);
}

/** A copy of the pieces in memory of its own. Throws if `length` is not the sum of their lengths. */
export function joinedBytes(pieces: readonly Uint8Array[], length: number): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(length);
  let end = 0;
  for (const piece of pieces) {
    joined.set(piece, end);
    end += piece.length;
  }
  invariant(end === length, 'joined bytes are as long as their pieces');
  return joined;
}
