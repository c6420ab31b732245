/**
 * Collects responses that are to be stored: those of calls with an Idempotency-Key (idempotency.ts), and
 * those for the response cache (response-cache.ts). delivery.ts and chat-exchange.ts call a StorableCall;
 * listener.thread.ts makes the CollectBudget. Listener thread.
 *
 * Must hold: bytes are counted in the budget before they are kept, and each call gives back all its bytes,
 * once; otherwise no response is stored any more. CollectedPieces does both.
 */
import { joinedBytes } from '../core/bytes.js';
import { invariant } from '../core/errors.js';

/**
 * A call whose response is collected, to be stored once it is whole. Delivery calls the methods: any number
 * of `collect`, and `keep` if the response is whole and its client still there; then `publish`, also without
 * `keep`, or `forget`. In any case ChatExchange.finish calls `giveUp`, which others may have called before.
 */
export interface StorableCall {
  /** `bytes`: a piece of the response, valid until the method returns. */
  collect(bytes: Uint8Array): void;
  /**
   * `last` completes the response. Its charge is appended to the journal afterwards, at `position`.
   * `fallback` is the id of the model that answered, if it was a fallback.
   */
  keep(last: Uint8Array, stream: boolean, position: number, fallback?: string): void;
  /** The response is charged, as safely as `durability` demands, and goes to the client. */
  publish(): void;
  /** The response must not be replayed: its charge is taken back, by the journal's record at `position`. */
  forget(position: number): void;
  /** Gives back what the call has taken, such as its lock. A response that was kept stays. Idempotent. */
  giveUp(): void;
}

/**
 * Bytes of the responses that a listener collects at a time. A response for which no bytes are left is served
 * and not stored.
 */
const COLLECTED_BYTES_MAX = 256 * 1024 * 1024;

/** The memory budget of the responses that a listener collects. */
export class CollectBudget {
  #bytes = 0;

  /** Returns whether `bytes` more may be kept. If so, they count until `giveBack`. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > COLLECTED_BYTES_MAX) return false;
    this.#bytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    invariant(bytes <= this.#bytes, 'no more is given back than was taken');
    this.#bytes -= bytes;
  }
}

/** The pieces of a response. Their bytes count toward a budget that all calls of the listener share. */
export class CollectedPieces {
  readonly #budget: CollectBudget;
  readonly #bytesMax: number;
  /** Undefined once the pieces were dropped or taken. */
  #pieces: Uint8Array[] | undefined = [];
  #bytes = 0;

  /** A response of more than `bytesMax` is not kept. */
  constructor(budget: CollectBudget, bytesMax: number) {
    this.#budget = budget;
    this.#bytesMax = bytesMax;
  }

  /** Copies the piece, because the worker soon overwrites its memory. */
  add(bytes: Uint8Array): void {
    if (this.#pieces === undefined) return;
    if (this.#bytes + bytes.length > this.#bytesMax || !this.#budget.take(bytes.length)) {
      this.drop();
      return;
    }
    this.#pieces.push(new Uint8Array(bytes));
    this.#bytes += bytes.length;
  }

  /** Whether the pieces were dropped or taken, so that no response can be kept. */
  get isEmpty(): boolean {
    return this.#pieces === undefined;
  }

  /** Returns the joined pieces, and drops them; undefined if they were dropped before. */
  take(): Uint8Array | undefined {
    const bytes = this.#pieces && joinedBytes(this.#pieces, this.#bytes);
    this.drop();
    return bytes;
  }

  /** Gives the bytes back to the budget. Idempotent. */
  drop(): void {
    this.#budget.giveBack(this.#bytes);
    this.#bytes = 0;
    this.#pieces = undefined;
  }
}
