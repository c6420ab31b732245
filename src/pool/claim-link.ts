/**
 * The listener's side of claims: its port to the main thread, and the bound on what is collected. Listener thread.
 */
import type { MessagePort } from 'node:worker_threads';
import { AskPort } from './ask-port.js';
import type { Claim, ClaimAnswer, ClaimNote } from './claim-messages.js';

/** Bytes of answers that a listener collects at a time, of all its calls: what comes beyond is served and not kept. */
const COLLECTED_BYTES_MAX = 256 * 1024 * 1024;

export class ClaimLink {
  /** A longer answer is not kept. */
  readonly answerBytesMax: number;
  readonly #port: MessagePort;
  readonly #asks: AskPort<Claim, ClaimAnswer>;
  #collectedBytes = 0;

  constructor(port: MessagePort, answerBytesMax: number) {
    this.answerBytesMax = answerBytesMax;
    this.#port = port;
    this.#asks = new AskPort(port);
  }

  /** Rejects with `AskRefused` where the books cannot be read. */
  claim(claim: Claim): Promise<ClaimAnswer> {
    return this.#asks.ask(claim);
  }

  /** Hands over the buffer of a note's `bytes`. */
  tell(note: ClaimNote): void {
    const transfer =
      note.kind === 'keep' && note.bytes !== undefined ? [note.bytes.buffer as ArrayBuffer] : [];
    this.#port.postMessage(note, transfer);
  }

  /** Whether so many bytes more may be collected; they count until `giveBack`. */
  take(bytes: number): boolean {
    if (this.#collectedBytes + bytes > COLLECTED_BYTES_MAX) return false;
    this.#collectedBytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#collectedBytes -= bytes;
  }
}
