/**
 * Joins the pieces of a body to one array. `length` is the sum of their lengths in bytes: a RangeError is
 * thrown if it is less. request/read-body.ts, idempotency.ts and call-contents.ts call it. Listener thread.
 *
 * Must hold: the result has memory of its own, because callers transfer it to other threads. Buffer.concat
 * may return a part of Node's pool (test/unit/request/idempotency.test.ts).
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
