/**
 * Collects a request's body, bounded. Listener thread.
 */
import type { HttpResponse } from 'uWebSockets.js';

/**
 * What is read and thrown away of a body that is too long. A client that still writes when its connection ends never sees
 * the answer, so the answer waits for the end of the body, within reason.
 */
export const DISCARDED_BYTES_MAX = 64 * 1024 * 1024;

/**
 * Calls exactly one of the two, unless the client leaves first. `onBody`'s bytes are valid during the call only: a body
 * that came in one piece, nearly all of them, is never copied. `onTooLarge` is told whether there is more to come, so that
 * the connection must end.
 */
export function readBody(
  res: HttpResponse,
  bodyBytesMax: number,
  onBody: (bytes: Uint8Array) => void,
  onTooLarge: (more: boolean) => void,
): void {
  let pieces: Uint8Array[] = [];
  let bytesSeen = 0;
  let answered = false;
  res.onData((chunk, isLast) => {
    if (answered) return;
    bytesSeen += chunk.byteLength;
    if (bytesSeen > bodyBytesMax) {
      pieces = [];
      answered = isLast || bytesSeen > bodyBytesMax + DISCARDED_BYTES_MAX;
      if (answered) onTooLarge(!isLast);
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
