/**
 * Collects a request's body, bounded. Listener thread.
 */
import type { HttpResponse } from 'uWebSockets.js';

/**
 * Calls exactly one of the two, unless the client leaves first. `onBody`'s bytes are valid during the call only: a body
 * that came in one piece, nearly all of them, is never copied.
 */
export function readBody(
  res: HttpResponse,
  bodyBytesMax: number,
  onBody: (bytes: Uint8Array) => void,
  onTooLarge: () => void,
): void {
  const pieces: Uint8Array[] = [];
  let bytesSeen = 0;
  let tooLarge = false;
  res.onData((chunk, isLast) => {
    if (tooLarge) return;
    bytesSeen += chunk.byteLength;
    if (bytesSeen > bodyBytesMax) {
      tooLarge = true;
      onTooLarge();
      return;
    }
    if (isLast && pieces.length === 0) {
      onBody(new Uint8Array(chunk));
      return;
    }
    // The chunk's memory is µWS's and is gone when this callback returns.
    pieces.push(new Uint8Array(chunk.slice(0)));
    if (isLast) onBody(Buffer.concat(pieces, bytesSeen));
  });
}
