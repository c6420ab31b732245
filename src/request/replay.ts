/**
 * Gives the response of an earlier call again, as its client got it: a stream as a stream, a whole response as one. Listener
 * thread.
 *
 * A long one goes through an AnswerWriter, as live answers do: what a slow client does not take waits in its queue, once.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { FRAME_BYTES_MAX } from '../core/limits.js';
import type { CallContext } from './context.js';
import type { EarlierResponse } from './idempotency.js';
import { writeChatHead } from './response.js';
import type { ResponseOwner, ResponseWriter } from './response-writer.js';

export class Replay implements ResponseOwner {
  readonly isStream: boolean;
  readonly endsConnection: boolean;
  readonly #res: HttpResponse;
  readonly #context: CallContext;
  readonly #bytes: Uint8Array;
  readonly #onLeft: () => void;

  /** With `close` it ends the connection. `onLeft` is called once, when the client has it, unless the client leaves first. */
  constructor(
    res: HttpResponse,
    context: CallContext,
    answer: EarlierResponse,
    close: boolean,
    onLeft: () => void,
  ) {
    this.#res = res;
    this.#context = context;
    this.#bytes = answer.bytes;
    this.isStream = answer.stream;
    this.endsConnection = close;
    this.#onLeft = onLeft;
  }

  /** Whether it leaves by `sendWhole`: as short as a live answer that comes in one frame. */
  get isShort(): boolean {
    return !this.isStream && this.#bytes.length <= FRAME_BYTES_MAX;
  }

  /** With its length, in one write. */
  sendWhole(): void {
    this.#res.cork(() => {
      this.writeHead(false);
      this.#res.end(this.#bytes, this.endsConnection);
    });
    this.#onLeft();
  }

  /** In pieces; `writer`, whose owner this is, is to be swept until `onLeft`. */
  sendBy(writer: ResponseWriter): void {
    writer.end(this.#bytes);
  }

  writeHead(tellsClose: boolean): void {
    writeChatHead(this.#res, this.#context, this.isStream, tellsClose, this.endsConnection);
    this.#res.writeHeader('idempotent-replayed', 'true');
  }

  onTaken(): void {
    // No worker waits for credits.
  }

  onLeft(): void {
    this.#onLeft();
  }
}
