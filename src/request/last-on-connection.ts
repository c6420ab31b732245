/**
 * Requests after which nothing is to be read from their connection: those that are refused for their framing, and those whose
 * body comes in chunks, since what µWS takes for the end of such a body may be in the middle of it. Listener thread.
 *
 * A response that is ended within a callback of µWS leaves the rest of the packet to be read as further requests, also one that ends
 * its connection. While a response is outstanding, µWS closes the connection as soon as it reads another request. So such
 * a request is answered outside of µWS's callbacks, with the connection's end.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { ErrorRecord } from '../core/errors.js';
import type { CallContext } from './context.js';
import { writeError } from './response.js';
import type { BodyReceiver } from './read-body.js';

/** Responses with `error` and ends the connection. `isHead`: without the body. */
export function refuseLast(
  res: HttpResponse,
  error: ErrorRecord,
  context: CallContext,
  isHead: boolean,
): void {
  let isGone = false;
  res.onAborted(() => {
    isGone = true;
  });
  setImmediate(() => {
    if (!isGone) res.cork(() => writeError(res, error, context, { close: true, head: isHead }));
  });
}

interface Endable {
  /** It has ended, for its client has left. */
  readonly isOver: boolean;
}

/** Hands a body on outside of the callback of µWS that brought its end. */
export class LaterBody implements BodyReceiver {
  readonly #receiver: BodyReceiver;
  readonly #exchange: Endable;

  constructor(receiver: BodyReceiver, exchange: Endable) {
    this.#receiver = receiver;
    this.#exchange = exchange;
  }

  onBody(bytes: Uint8Array): void {
    // Valid during the call only.
    const kept = bytes.slice();
    this.#later(() => this.#receiver.onBody(kept));
  }

  onLargeBody(pieces: Uint8Array[]): void {
    this.#later(() => this.#receiver.onLargeBody(pieces));
  }

  onTooLarge(more: boolean): void {
    this.#later(() => this.#receiver.onTooLarge(more));
  }

  #later(go: () => void): void {
    setImmediate(() => {
      if (!this.#exchange.isOver) go();
    });
  }
}
