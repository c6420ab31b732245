/**
 * The body of a request to the admin interface, whole and bounded. Main thread of the gateway.
 */
import { isUtf8 } from 'node:buffer';
import type { HttpResponse } from 'uWebSockets.js';

export type CollectedBody = { readonly text: string } | 'too_large' | 'not_utf8';

/** Calls back once; never when the client has gone. A body is too large as soon as it is, whatever follows. */
export function collectBody(
  response: HttpResponse,
  bytesMax: number,
  done: (body: CollectedBody) => void,
): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let ended = false;
  response.onAborted(() => {
    ended = true;
  });
  response.onData((chunk, isLast) => {
    if (ended) return;
    bytes += chunk.byteLength;
    if (bytes > bytesMax) {
      ended = true;
      done('too_large');
      return;
    }
    // The library takes the chunk back when this function returns.
    chunks.push(Buffer.copyBytesFrom(new Uint8Array(chunk)));
    if (!isLast) return;
    ended = true;
    const whole = Buffer.concat(chunks);
    done(isUtf8(whole) ? { text: whole.toString('utf8') } : 'not_utf8');
  });
}
