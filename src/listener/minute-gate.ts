/**
 * The request of the minute, before the body is read; or while it is read, where limits are shared with other processes and the
 * authority must be asked. The order of refusals is the same: what is wrong with a body is told only to who has its permit.
 * Listener thread.
 */
import type { ErrorRecord } from '../core/errors.js';
import type { CallContext } from '../pipeline/context.js';
import { awaitRate } from '../pipeline/lease-wait.js';
import type { PipelineParts } from '../pipeline/parts.js';
import { limitRate } from '../pipeline/rate-limit.js';
import type { BodyReceiver } from './body-reader.js';

/** An exchange that reads its body. */
export interface Gated extends BodyReceiver {
  /** It has ended, for its client has left. */
  readonly isOver: boolean;
  takeKey(key: string | undefined): ErrorRecord | undefined;
  refuse(error: ErrorRecord, close?: boolean): void;
}

/**
 * Where the body is to go; undefined where the request was refused. `key` is the text of the header Idempotency-Key, `wrongBody` what is
 * known to be wrong with a body before it is read.
 */
export function passMinute(
  exchange: Gated,
  context: CallContext,
  key: string | undefined,
  wrongBody: ErrorRecord | undefined,
  parts: PipelineParts,
): BodyReceiver | undefined {
  const limited = limitRate(context, parts);
  if (limited !== undefined && parts.leases !== undefined && context.asksLease) {
    const wrong = wrongBody ?? exchange.takeKey(key);
    const decided = awaitRate(context, parts, parts.leases).then((refusal) => refusal ?? wrong);
    return new AwaitingBody(exchange, decided);
  }
  const refusal = limited ?? wrongBody ?? exchange.takeKey(key);
  if (refusal === undefined) return exchange;
  exchange.refuse(refusal);
  return undefined;
}

/** Hands the body on when the request is known to have its permit. */
class AwaitingBody implements BodyReceiver {
  readonly #exchange: Gated;
  readonly #decided: Promise<ErrorRecord | undefined>;

  constructor(exchange: Gated, decided: Promise<ErrorRecord | undefined>) {
    this.#exchange = exchange;
    this.#decided = decided;
  }

  onBody(bytes: Uint8Array): void {
    // Valid during the call only.
    const kept = bytes.slice();
    void this.#then(() => this.#exchange.onBody(kept));
  }

  onLargeBody(pieces: Uint8Array[]): void {
    void this.#then(() => this.#exchange.onLargeBody(pieces));
  }

  onTooLarge(more: boolean): void {
    void this.#then(() => this.#exchange.onTooLarge(more), more || undefined);
  }

  async #then(go: () => void, close?: boolean): Promise<void> {
    const refusal = await this.#decided;
    if (this.#exchange.isOver) return;
    if (refusal === undefined) go();
    else this.#exchange.refuse(refusal, close);
  }
}
