/**
 * The pieces of a body joined to one array of `length` bytes, the sum of their lengths. Pure; any thread.
 *
 * Buffer.concat may return a part of Node's pool. This never does: the bytes have memory of their own, so the
 * caller can transfer them to another thread.
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
