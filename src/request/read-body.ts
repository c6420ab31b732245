/**
 * The read-body phase: collects a request's body, within bounds. intake.ts and rate-limit.ts use it; listener
 * thread. A _chunk_ is here what one callback of µWS brings of a body, and a _piece_ some joined chunks. But
 * a _chunked body_ is one with `Transfer-Encoding`, of unknown length.
 *
 * Must hold: bytes are counted in the memory budget before they are kept. Exactly one method of the receiver
 * is called, once, unless the client leaves first or the watcher has rejected the request. A body that is too
 * long is read on within DISCARDED_BYTES_MAX (further test: test/hostile/unread-bodies.test.ts). A body with
 * Content-Length has as many bytes as it says, or readBody throws: the rest of the buffer is memory that was
 * never written. µWS brings as many, by the same header that request-head.ts has checked
 * (test/hostile/framing.test.ts).
 */
import type { HttpResponse } from 'uWebSockets.js';
import { joinedBytes } from '../core/bytes.js';
import { invariant } from '../core/errors.js';
import { BODY_BYTES_UNCOUNTED } from '../core/limits.js';
import { DISCARDED_BYTES_MAX } from './discard-budget.js';

/** Chunks are joined up to this size, so that a body in packets is not thousands of pieces. */
const PIECE_BYTES_MIN = 64 * 1024;
/** A body of unknown length is counted in steps of this size, before its bytes are kept. */
const COUNTED_STEP_BYTES = 64 * 1024;

/** Gets the body by one call of one method. An Intake, or a DeferredBody in front of an Intake. */
export interface BodyReceiver {
  /** The whole body, valid until the method returns. Most bodies come in one chunk, which is not copied. */
  onBody(bytes: Uint8Array): void;
  /** The whole body, if it is longer than BodyLengths.onePieceBytesMax. The receiver owns the pieces. */
  onLargeBody(pieces: Uint8Array[]): void;
  /** If some of the body is never read (`unread`), the response must end the connection. */
  onTooLarge(rest: 'read' | 'unread'): void;
}

/**
 * Checks a body while it comes, and counts its memory. A method that returns false has rejected the request:
 * then no method is called any more, neither of the watcher nor of the receiver.
 */
export interface BodyWatcher {
  /**
   * Counts the body up to its first `bytes`, before they are kept. At least `certainBytes` of it will come.
   * Both are totals of the body, and grow from call to call.
   */
  takeBody(bytes: number, certainBytes: number): boolean;
  /** The first bytes of a large body, valid until the method returns. */
  takeFirstPiece(piece: Uint8Array): boolean;
  /** `bytes` have come, and more are to come. */
  onBodyProgress(bytes: number): void;
}

interface BodyLengths {
  /** The header Content-Length; 0 without the header. */
  readonly length: number;
  /** The longest body that the caller may send. */
  readonly bodyBytesMax: number;
  /** The longest body that `onBody` gets; `onLargeBody` gets a longer one. */
  readonly onePieceBytesMax: number;
}

/**
 * Reads the body and gives it to `receiver`. For a `length` above BODY_BYTES_UNCOUNTED and up to
 * `bodyBytesMax`, Intake has called `takeBody` before.
 */
export function readBody(
  res: HttpResponse,
  lengths: BodyLengths,
  watcher: BodyWatcher,
  receiver: BodyReceiver,
): void {
  const { length, bodyBytesMax, onePieceBytesMax } = lengths;
  let buffered: BufferedBody | undefined;
  let receivedBytes = 0;
  let isDone = false;
  res.onData((chunk, isLast) => {
    if (isDone) return;
    if (!isLast) watcher.onBodyProgress(chunk.byteLength);
    receivedBytes += chunk.byteLength;
    if (isLast && length > 0) invariant(receivedBytes === length, 'a body is as long as its Content-Length');
    // The body is too long: it is discarded up to its end or the bound. Then the request is rejected.
    if (receivedBytes > bodyBytesMax) {
      buffered = undefined;
      isDone = isLast || receivedBytes > bodyBytesMax + DISCARDED_BYTES_MAX;
      if (isDone) receiver.onTooLarge(isLast ? 'read' : 'unread');
      return;
    }
    // Content-Length says that the body will be too long.
    if (length > bodyBytesMax) return;
    // The whole body came in one chunk. The watcher has not counted it yet if it is chunked (`length` is 0).
    if (isLast && buffered === undefined && receivedBytes <= onePieceBytesMax) {
      isDone = true;
      if (
        receivedBytes <= Math.max(length, BODY_BYTES_UNCOUNTED) ||
        watcher.takeBody(receivedBytes, receivedBytes)
      )
        receiver.onBody(new Uint8Array(chunk));
      return;
    }
    buffered ??= new BufferedBody(lengths, watcher);
    if (!buffered.add(new Uint8Array(chunk), isLast)) {
      // The watcher has rejected the request.
      isDone = true;
      buffered = undefined;
    } else if (isLast) {
      isDone = true;
      const { pieces } = buffered;
      buffered = undefined;
      if (receivedBytes <= onePieceBytesMax)
        receiver.onBody(pieces.length === 1 ? pieces[0]! : joinedBytes(pieces, receivedBytes));
      else receiver.onLargeBody(pieces);
    }
  });
}

/** The bytes so far of a body that does not come in one chunk. */
class BufferedBody {
  /** One piece of the whole length if Content-Length was given, otherwise the chunks, joined to pieces. */
  pieces: Uint8Array[] = [];
  readonly #lengths: BodyLengths;
  readonly #watcher: BodyWatcher;
  #bytes = 0;
  /** How many bytes of the body the watcher has counted: always at least `#bytes`. */
  #countedBytes: number;
  /** Chunks that are not joined yet. */
  #chunks: Uint8Array[] = [];
  #chunksBytes = 0;
  #isFirstPieceChecked = false;

  constructor(lengths: BodyLengths, watcher: BodyWatcher) {
    const { length } = lengths;
    this.#lengths = lengths;
    this.#watcher = watcher;
    this.#countedBytes = Math.max(length, BODY_BYTES_UNCOUNTED);
    // Not from Node's common pool, because this memory is transferred to other threads. Pages that are never
    // written cost nothing.
    if (length > 0) this.pieces.push(Buffer.allocUnsafeSlow(length));
  }

  /** Copies the chunk, whose memory µWS reuses. Returns false if the watcher has rejected the request. */
  add(chunk: Uint8Array, isLast: boolean): boolean {
    const { length, onePieceBytesMax } = this.#lengths;
    const end = this.#bytes + chunk.length;
    if (end > this.#countedBytes && !this.#countUpTo(end)) return false;
    if (length > 0) this.pieces[0]!.set(chunk, this.#bytes);
    else this.#appendChunk(chunk, isLast || (!this.#isFirstPieceChecked && end > onePieceBytesMax));
    this.#bytes = end;
    // A body that is whole is checked as a whole: other errors in it come before an unknown model.
    if (isLast || this.#isFirstPieceChecked || end <= onePieceBytesMax) return true;
    this.#isFirstPieceChecked = true;
    return this.#watcher.takeFirstPiece(this.pieces[0]!.subarray(0, end));
  }

  /** Makes the watcher count the body up to the next step. Returns false if it rejected the request. */
  #countUpTo(bytes: number): boolean {
    this.#countedBytes = Math.min(
      Math.ceil(bytes / COUNTED_STEP_BYTES) * COUNTED_STEP_BYTES,
      this.#lengths.bodyBytesMax,
    );
    return this.#watcher.takeBody(this.#countedBytes, bytes);
  }

  /** Keeps a chunk of a body without Content-Length. `joinsNow`: the chunks so far become a piece at once. */
  #appendChunk(chunk: Uint8Array, joinsNow: boolean): void {
    // µWS ends a chunked body with an empty chunk.
    if (chunk.length > 0) this.#chunks.push(chunk.slice());
    this.#chunksBytes += chunk.length;
    if (this.#chunksBytes === 0 || (this.#chunksBytes < PIECE_BYTES_MIN && !joinsNow)) return;
    this.pieces.push(
      this.#chunks.length === 1 ? this.#chunks[0]! : joinedBytes(this.#chunks, this.#chunksBytes),
    );
    this.#chunks = [];
    this.#chunksBytes = 0;
  }
}

/**
 * Runs `deliver` later, or rejects the request instead. `endsConnection`: such a rejection must end the
 * connection; undefined leaves that to the rejection.
 */
type Defer = (deliver: () => void, endsConnection?: boolean) => void;

/** Gives a body to its receiver later. */
export class DeferredBody implements BodyReceiver {
  readonly #receiver: BodyReceiver;
  readonly #defer: Defer;

  constructor(receiver: BodyReceiver, defer: Defer) {
    this.#receiver = receiver;
    this.#defer = defer;
  }

  onBody(bytes: Uint8Array): void {
    // Copied: `bytes` are valid only until this method returns.
    const copy = bytes.slice();
    this.#defer(() => this.#receiver.onBody(copy));
  }

  onLargeBody(pieces: Uint8Array[]): void {
    this.#defer(() => this.#receiver.onLargeBody(pieces));
  }

  onTooLarge(rest: 'read' | 'unread'): void {
    this.#defer(() => this.#receiver.onTooLarge(rest), rest === 'unread' || undefined);
  }
}

/**
 * Gives a chunked body to its receiver outside of the callback of µWS that brought its end. µWS may have
 * taken bytes in the middle of such a body for its end. What follows on the connection may then be the rest
 * of the body, and must not be served as a request.
 *
 * If a response is ended within a callback, µWS goes on to read requests in the same packet, even if the
 * response ends its connection. Outside of callbacks it does not: the response is still outstanding as µWS
 * comes to the next request, at which it closes the connection.
 */
export function outsideOfCallbacks(
  receiver: BodyReceiver,
  exchange: { readonly isOver: boolean },
): BodyReceiver {
  return new DeferredBody(receiver, (deliver) => {
    setImmediate(() => {
      if (!exchange.isOver) deliver();
    });
  });
}
