/**
 * The digest of a large body, without keeping the listener's other calls waiting. Listener thread.
 */
import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Between two turns of the event loop: about half a millisecond. */
const STEP_BYTES = 1024 * 1024;

/** As `bodyDigestOf` of the pieces joined. */
export async function bodyDigestOfPieces(pieces: readonly Uint8Array[]): Promise<string> {
  const digest = createHash('sha256');
  let stepBytes = 0;
  for (const piece of pieces) {
    digest.update(piece);
    stepBytes += piece.length;
    if (stepBytes < STEP_BYTES) continue;
    stepBytes = 0;
    await nextTurn();
  }
  return digest.digest('hex');
}
