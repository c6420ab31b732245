/**
 * Collects a request's body, bounded. Listener thread.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { joinedBytes } from '../core/joined-bytes.js';

/**
 * What is read and thrown away of a body that is too long. A client that still writes when its connection ends never sees
 * the answer, so the answer waits for the end of the body, within reason.
 */
export const DISCARDED_BYTES_MAX = 64 * 1024 * 1024;

/** Chunks of a large body are joined up to this, so that a body that comes in packets is not thousands of pieces. */
const PIECE_BYTES_MIN = 64 * 1024;

export interface BodyReceiver {
  /** The whole body, valid during the call only: one that came in one chunk, nearly all of them, is never copied. */
  onBody(bytes: Uint8Array): void;
  /** The whole body, longer than was asked to have in one piece. The pieces are the receiver's. */
  onLargeBody(pieces: Uint8Array[]): void;
  /** `more` is to come and is not read, so that the connection must end. */
  onTooLarge(more: boolean): void;
}

/** Calls exactly one of the receiver's methods, unless the client leaves first. */
export function readBody(
  res: HttpResponse,
  bodyBytesMax: number,
  onePieceBytesMax: number,
  receiver: BodyReceiver,
): void {
  const pieces: Uint8Array[] = [];
  let chunks: Uint8Array[] = [];
  let chunksBytes = 0;
  let bytesSeen = 0;
  let answered = false;
  const join = (): Uint8Array => {
    const joined = chunks.length === 1 ? chunks[0]! : joinedBytes(chunks, chunksBytes);
    chunks = [];
    chunksBytes = 0;
    return joined;
  };
  res.onData((chunk, isLast) => {
    if (answered) return;
    bytesSeen += chunk.byteLength;
    if (bytesSeen > bodyBytesMax) {
      pieces.length = 0;
      chunks = [];
      answered = isLast || bytesSeen > bodyBytesMax + DISCARDED_BYTES_MAX;
      if (answered) receiver.onTooLarge(!isLast);
      return;
    }
    if (isLast && bytesSeen === chunk.byteLength && bytesSeen <= onePieceBytesMax) {
      receiver.onBody(new Uint8Array(chunk));
      return;
    }
    // The chunk's memory is µWS's and is gone when this callback returns.
    chunks.push(new Uint8Array(chunk.slice(0)));
    chunksBytes += chunk.byteLength;
    if (bytesSeen > onePieceBytesMax && (chunksBytes >= PIECE_BYTES_MIN || isLast)) pieces.push(join());
    if (!isLast) return;
    if (pieces.length === 0) receiver.onBody(join());
    else receiver.onLargeBody(pieces);
  });
}
