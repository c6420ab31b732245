/**
 * Pieces of bytes as one. Pure; any thread.
 *
 * Not Buffer.concat, which may give a part of a pool: what is handed to another thread must be memory of its
 * own.
 */
export function joinedBytes(pieces: readonly Uint8Array[], length: number): Uint8Array {
  const joined = new Uint8Array(length);
  let end = 0;
  for (const piece of pieces) {
    joined.set(piece, end);
    end += piece.length;
  }
  return joined;
}
