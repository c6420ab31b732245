/**
 * Collects a request's body, bounded. Listener thread.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import { joinedBytes } from '../core/joined-bytes.js';
import { BODY_BYTES_UNCOUNTED } from '../core/limits.js';
import type { MonotonicMs } from '../core/units.js';

/**
 * What is read and thrown away of a body that is too long. A client that still writes when its connection ends never sees
 * the response, so the response waits for the end of the body, within reason.
 */
export const DISCARDED_BYTES_MAX = 64 * 1024 * 1024;

/** Chunks of a large body are joined up to this, so that a body that comes in packets is not thousands of pieces. */
const PIECE_BYTES_MIN = 64 * 1024;
/** A body whose length is not known is counted in steps of this, before its bytes are kept. */
const COUNTED_STEP_BYTES = 64 * 1024;

export interface BodyReceiver {
  /** The whole body, valid during the call only: one that came in one chunk, nearly all of them, is never copied. */
  onBody(bytes: Uint8Array): void;
  /** The whole body, longer than was asked to have in one piece. The pieces are the receiver's. */
  onLargeBody(pieces: Uint8Array[]): void;
  /** `more` is to come and is not read, so that the connection must end. */
  onTooLarge(more: boolean): void;
}

/** Who answers for the memory of a body. Where one says false the call was refused: nothing is kept, and nobody called any more. */
export interface BodyHold {
  /** The body will be `bytes` long before it is asked again, and is at least `certainBytes` long. */
  takeBody(bytes: number, certainBytes: number): boolean;
  /** The first bytes of a large body, valid during the call only. */
  takeFirstPiece(piece: Uint8Array): boolean;
  /** Bytes have come, and more are to come. */
  onBodyProgress(): void;
}

/**
 * Calls exactly one of the receiver's methods, unless the client leaves first or `hold` refuses. `length` is what the head says, 0 where it
 * says nothing; a longer one than BODY_BYTES_UNCOUNTED has been taken.
 */
export function readBody(
  res: HttpResponse,
  length: number,
  bodyBytesMax: number,
  onePieceBytesMax: number,
  hold: BodyHold,
  receiver: BodyReceiver,
): void {
  let kept: BufferedBody | undefined;
  let bytesSeen = 0;
  let answered = false;
  res.onData((chunk, isLast) => {
    if (answered) return;
    if (!isLast) hold.onBodyProgress();
    bytesSeen += chunk.byteLength;
    if (bytesSeen > bodyBytesMax) {
      kept = undefined;
      answered = isLast || bytesSeen > bodyBytesMax + DISCARDED_BYTES_MAX;
      if (answered) receiver.onTooLarge(!isLast);
      return;
    }
    // It will be too long.
    if (length > bodyBytesMax) return;
    if (isLast && kept === undefined && bytesSeen <= onePieceBytesMax) {
      // Counted or not: it came at once, and what is made of it is counted where it is long.
      answered = true;
      if (bytesSeen <= Math.max(length, BODY_BYTES_UNCOUNTED) || hold.takeBody(bytesSeen, bytesSeen))
        receiver.onBody(new Uint8Array(chunk));
      return;
    }
    kept ??= new BufferedBody(length, bodyBytesMax, onePieceBytesMax, hold);
    if (!kept.add(new Uint8Array(chunk), isLast)) {
      answered = true;
      kept = undefined;
    } else if (isLast) {
      answered = true;
      const { pieces } = kept;
      kept = undefined;
      if (bytesSeen <= onePieceBytesMax)
        receiver.onBody(pieces.length === 1 ? pieces[0]! : joinedBytes(pieces, bytesSeen));
      else receiver.onLargeBody(pieces);
    }
  });
}

/** What is there of a body that did not come at once. */
class BufferedBody {
  pieces: Uint8Array[] = [];
  readonly #length: number;
  readonly #bodyBytesMax: number;
  readonly #onePieceBytesMax: number;
  readonly #hold: BodyHold;
  #bytes = 0;
  #countedBytes: number;
  /** Not joined yet. */
  #chunks: Uint8Array[] = [];
  #chunksBytes = 0;
  #isFirstSeen = false;

  constructor(length: number, bodyBytesMax: number, onePieceBytesMax: number, hold: BodyHold) {
    this.#bodyBytesMax = bodyBytesMax;
    this.#length = length;
    this.#onePieceBytesMax = onePieceBytesMax;
    this.#hold = hold;
    this.#countedBytes = Math.max(length, BODY_BYTES_UNCOUNTED);
    // Of its own memory, which is handed to other threads; pages that nothing is written to cost nothing.
    if (length > 0) this.pieces.push(Buffer.allocUnsafeSlow(length));
  }

  /** Keeps a copy: the chunk's memory is µWS's and is gone when its callback returns. */
  add(chunk: Uint8Array, isLast: boolean): boolean {
    const end = this.#bytes + chunk.length;
    if (end > this.#countedBytes && !this.#count(end)) return false;
    if (this.#length > 0) this.pieces[0]!.set(chunk, this.#bytes);
    else this.#append(chunk, isLast || (!this.#isFirstSeen && end > this.#onePieceBytesMax));
    this.#bytes = end;
    if (this.#isFirstSeen || end <= this.#onePieceBytesMax) return true;
    this.#isFirstSeen = true;
    return this.#hold.takeFirstPiece(this.pieces[0]!.subarray(0, end));
  }

  #count(bytes: number): boolean {
    this.#countedBytes = Math.min(
      Math.ceil(bytes / COUNTED_STEP_BYTES) * COUNTED_STEP_BYTES,
      this.#bodyBytesMax,
    );
    return this.#hold.takeBody(this.#countedBytes, bytes);
  }

  #append(chunk: Uint8Array, isLast: boolean): void {
    this.#chunks.push(chunk.slice());
    this.#chunksBytes += chunk.length;
    if (this.#chunksBytes < PIECE_BYTES_MIN && !isLast) return;
    this.pieces.push(
      this.#chunks.length === 1 ? this.#chunks[0]! : joinedBytes(this.#chunks, this.#chunksBytes),
    );
    this.#chunks = [];
    this.#chunksBytes = 0;
  }
}

/*
 * How many bytes of refused bodies a listener reads to throw them away. Listener thread.
 *
 * Who still writes its body when its connection ends may never see its response, so the body of a refused call is read to its end. But µWS
 * reads half a megabyte of each connection that has some before it looks at the next: 200 bodies at once kept a listener's other calls
 * waiting for 0.7 s. Beyond the budget a refusal ends its connection.
 */

/** Some 25 of the longest bodies by default: a tenth of a second of a listener's time. */
const BYTES_PER_SECOND = 256 * 1024 * 1024;
const MS_PER_SECOND = 1_000;

export class DiscardBudget {
  readonly #clock: Clock;
  #bytes = BYTES_PER_SECOND;
  #filledMs: MonotonicMs;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#filledMs = clock.monotonicMs();
  }

  /** Whether `bytes` may be read and thrown away; they are taken then. */
  take(bytes: number): boolean {
    const nowMs = this.#clock.monotonicMs();
    const filled = this.#bytes + ((nowMs - this.#filledMs) * BYTES_PER_SECOND) / MS_PER_SECOND;
    this.#bytes = Math.min(BYTES_PER_SECOND, filled);
    this.#filledMs = nowMs;
    if (bytes > this.#bytes) return false;
    this.#bytes -= bytes;
    return true;
  }
}
