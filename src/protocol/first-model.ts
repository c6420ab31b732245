/**
 * The model that a large body names, as far as its first piece tells, so that a body whose model its caller cannot have is refused before
 * anything else is made of it. Pure; any thread.
 */
import { isUtf8 } from 'node:buffer';
import { BODY_MODEL_BYTES_MAX } from '../core/limits.js';
import { BodyError, BRACE, JsonReader, QUOTE } from './json-reader.js';

/**
 * The value of the top-level member `model` in `piece`, the first bytes of a JSON body, possibly cut anywhere. Undefined where it does not
 * stand there whole, or is not certain (no object, not JSON so far, no string or an empty one, a name with an escape): then the body must be read.
 *
 * What it gives is certain: readLargeChatBytes either refuses the whole body or takes it with this model, because a second
 * `model`, in whatever letters, is refused. Never throws; at most some 6 µs a KB of the piece, and nothing of it is kept.
 */
export function modelInFirstPiece(piece: Uint8Array): string | undefined {
  const reader = new JsonReader(piece);
  try {
    if (reader.space() !== BRACE || !reader.openObject()) return undefined;
    do {
      const nameStart = reader.at;
      if (reader.skipString()) return undefined;
      const isModel = isModelName(reader.bytes, nameStart, reader.at);
      const first = reader.colon();
      const start = reader.at;
      reader.skipValue();
      if (!isModel) continue;
      const end = reader.at;
      // An empty one breaks the rule of its field, which who reads the whole body tells.
      if (first !== QUOTE || end - start === 2 || end - start > BODY_MODEL_BYTES_MAX) return undefined;
      return isUtf8(reader.bytes.subarray(start, end)) ? reader.decoded(start, end) : undefined;
    } while (reader.moreMembers());
  } catch (fault) {
    // The piece ends within a value, or is not JSON: the same for who asks.
    if (!(fault instanceof BodyError)) throw fault;
  }
  return undefined;
}

/** `"model"` with its quotes. */
function isModelName(bytes: Buffer, start: number, end: number): boolean {
  return end - start === 7 && bytes.toString('latin1', start, end) === '"model"';
}
