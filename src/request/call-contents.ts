/**
 * Gathers the contents of calls, if `call_log.contents` keeps any: the body of the request, and the response
 * as the caller got it, each up to a bound. intake.ts begins a GatheredContents and adds the body;
 * delivery.ts and replay.ts add the response; chat-exchange.ts ends it. On the main thread
 * gateway/gateway-logs.ts writes the batches to disk. Listener thread.
 *
 * Must hold: no header is gathered, because headers have the callers' keys (test/e2e/contents.test.ts). A
 * call whose key is private leaves nothing, even if the key became private during the call. `end` is called
 * once for each GatheredContents, or its bytes stay in the budget.
 */
import { joinedBytes } from '../core/bytes.js';
import type { Clock } from '../core/clock.js';
import { asWallMs, type KeyIndex } from '../core/units.js';
import type { KeyTable } from '../registry/key-table.js';
import type { ContentsBudget } from '../telemetry/contents-budget.js';
import { type ClippedText, type ContentsMode, packContents } from '../telemetry/contents-layout.js';
import type { Outcome } from '../telemetry/metrics-layout.js';

/** A batch of so much is sent. gateway-logs.ts sizes its blocks for it and the contents of one more call. */
export const CONTENTS_MESSAGE_BYTES = 64 * 1024;
/** How long the first contents of a batch wait for others before they are sent. */
const BATCH_WAIT_MS = 200;
/** How many bytes of the budget each piece takes besides its length, so that tiny pieces are not free. */
const PIECE_EXTRA_BYTES = 128;

export interface ContentsSettings {
  readonly mode: ContentsMode;
  /** The bound of each request and each response; what is beyond it is left out. */
  readonly bodyBytesMax: number;
}

interface ContentsGathererOptions {
  readonly budget: ContentsBudget;
  readonly keys: Pick<KeyTable, 'isPrivate'>;
  readonly clock: Clock;
  /** Transfers a batch to the main thread, which gives its bytes back to the budget. */
  readonly send: (bytes: Uint8Array<ArrayBuffer>) => void;
}

/** What one call has gathered so far. */
export class GatheredContents {
  readonly key: KeyIndex;
  readonly #budget: ContentsBudget;
  readonly #bytesMax: number;
  readonly #request: Uint8Array[] = [];
  readonly #response: Uint8Array[] = [];
  /** Bytes of the whole request and response so far, gathered or not. */
  #requestBytes = 0;
  #responseBytes = 0;
  #takenBytes = 0;
  /** Whether the budget was full: then nothing of the call is kept, and `end` counts the call as dropped. */
  isLost = false;

  constructor(key: KeyIndex, budget: ContentsBudget, bytesMax: number) {
    this.key = key;
    this.#budget = budget;
    this.#bytesMax = bytesMax;
  }

  /** Copies the bytes up to the bound, and counts all. */
  addRequest(bytes: Uint8Array): void {
    this.#copy(this.#request, bytes, this.#requestBytes);
    this.#requestBytes += bytes.length;
  }

  /** Copies and counts as `addRequest`. */
  addResponse(bytes: Uint8Array): void {
    this.#copy(this.#response, bytes, this.#responseBytes);
    this.#responseBytes += bytes.length;
  }

  get hasResponse(): boolean {
    return this.#responseBytes > 0;
  }

  /** Request and response so far. The budget counts their pieces until `drop`. */
  get texts(): { readonly request: ClippedText; readonly response: ClippedText } {
    return {
      request: textOf(this.#request, this.#requestBytes),
      response: textOf(this.#response, this.#responseBytes),
    };
  }

  /** Gives all bytes back to the budget. Idempotent. */
  drop(): void {
    this.#budget.giveBack(this.#takenBytes);
    this.#takenBytes = 0;
    this.#request.length = 0;
    this.#response.length = 0;
  }

  /** `bytesBefore`: how many bytes came before these. */
  #copy(pieces: Uint8Array[], bytes: Uint8Array, bytesBefore: number): void {
    const length = Math.min(bytes.length, this.#bytesMax - bytesBefore);
    if (length <= 0 || this.isLost) return;
    if (!this.#budget.take(length + PIECE_EXTRA_BYTES)) {
      this.isLost = true;
      this.drop();
      return;
    }
    this.#takenBytes += length + PIECE_EXTRA_BYTES;
    // A copy, because µWS or the worker soon overwrites the memory of `bytes`.
    pieces.push(new Uint8Array(bytes.subarray(0, length)));
  }
}

/** `bytesInAll` shows the reader how much was left out. */
function textOf(pieces: readonly Uint8Array[], bytesInAll: number): ClippedText {
  const bytes = pieces.reduce((bytesBefore, piece) => bytesBefore + piece.length, 0);
  return { bytes: joinedBytes(pieces, bytes), bytesInAll };
}

export class ContentsGatherer {
  readonly #options: ContentsGathererOptions;
  #mode: ContentsMode = 'none';
  #bodyBytesMax = 0;
  #batch: Buffer[] = [];
  #batchBytes = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ContentsGathererOptions) {
    this.#options = options;
  }

  /** Call it at the start and at each reload. Calls that have begun keep their bound of bytes. */
  applySettings({ mode, bodyBytesMax }: ContentsSettings): void {
    this.#mode = mode;
    this.#bodyBytesMax = bodyBytesMax;
  }

  /** Whether contents of any call are kept. */
  get isOn(): boolean {
    return this.#mode !== 'none';
  }

  /** Returns undefined if the call's contents are not kept. */
  begin(key: KeyIndex): GatheredContents | undefined {
    if (!this.isOn || this.#options.keys.isPrivate(key)) return undefined;
    return new GatheredContents(key, this.#options.budget, this.#bodyBytesMax);
  }

  /** Sends the contents or drops them, as the settings and the key demand now. Call it once for a call. */
  end(contents: GatheredContents, requestId: string, outcome: Outcome): void {
    const { budget, keys, clock } = this.#options;
    const isKept = this.#mode === 'all' || (this.#mode === 'errors' && outcome !== 'ok');
    if (isKept && !keys.isPrivate(contents.key)) {
      const packed = contents.isLost
        ? undefined
        : packContents({ requestId, endedMs: asWallMs(clock.wallMs()), ...contents.texts });
      if (packed !== undefined && budget.take(packed.length)) this.#push(packed);
      else budget.countDropped();
    }
    contents.drop();
  }

  /** Sends the batch. Call it before the thread ends, because the timer does not keep the thread alive. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#batch.length === 0) return;
    const bytes = joinedBytes(this.#batch, this.#batchBytes);
    this.#batch = [];
    this.#batchBytes = 0;
    this.#options.send(bytes);
  }

  #push(packed: Buffer): void {
    this.#batch.push(packed);
    this.#batchBytes += packed.length;
    if (this.#batchBytes >= CONTENTS_MESSAGE_BYTES) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), BATCH_WAIT_MS).unref();
  }
}
