/**
 * Phase 2: the requests per minute of the plan and of the key. Every request that passed authentication counts here, whatever becomes of
 * it; a refusal for the limit itself consumes nothing. Listener thread; about 0.2 µs.
 */
import { type ErrorRecord, invariant } from '../core/errors.js';
import { type AccountIndex, ceilDiv, type KeyIndex } from '../core/units.js';
import type { Ledger } from '../ledger/ledger.js';
import type { MinuteTake } from '../ledger/window.js';
import type { CallContext, ListenerContext } from './context.js';
import { awaitRate } from './lease-wait.js';
import type { BodyReceiver } from './read-body.js';

/*
 * The minute of a key that has a limit of its own, together with its account's. Listener thread; about 0.5 µs, against 0.2 of the account's alone.
 *
 * Both permits are taken or none, without a lock. The account is looked at first and nothing is taken from it; then the key's
 * permit is taken, then the account's. Each taking is exact by itself, so neither limit is ever exceeded. What is left is
 * that another thread takes the account's last permit between the look and the taking: then the request is refused and its
 * permit of the key is gone for a minute, for a window's running count cannot be taken back once its tick may have ended. So it
 * errs on refusing, by one permit of that key, and only in a request that meets the account's limit within those 0.2 µs.
 */

/** The one of the two limits that a caller has to be told of. */
export interface TightMinute {
  readonly whose: 'plan' | 'key';
  readonly limit: number;
  readonly take: MinuteTake;
}

/**
 * Admitted: the limit of which less remains. Refused: the limit that refuses, where both do the one that does so for longer,
 * so that whoever waits until its reset is admitted.
 */
export function takeBothMinutes(
  key: KeyIndex,
  ofKey: number,
  account: AccountIndex,
  ofPlan: number,
  ledger: Ledger,
): TightMinute {
  const plan = ledger.checkMinute(account, ofPlan);
  if (!plan.admitted) {
    const own = ledger.keys.checkMinute(key, ofKey);
    return !own.admitted && own.resetWallMs > plan.resetWallMs
      ? { whose: 'key', limit: ofKey, take: own }
      : { whose: 'plan', limit: ofPlan, take: plan };
  }
  const own = ledger.keys.takeMinute(key, ofKey);
  if (!own.admitted) return { whose: 'key', limit: ofKey, take: own };
  const taken = ledger.takeMinute(account, ofPlan);
  return taken.admitted && own.remaining <= taken.remaining
    ? { whose: 'key', limit: ofKey, take: own }
    : { whose: 'plan', limit: ofPlan, take: taken };
}

const MS_PER_SECOND = 1_000;

/** Sets `context.rateLimit`, also for a refusal. */
export function limitRate(context: CallContext, parts: ListenerContext): ErrorRecord | undefined {
  const { caller } = context;
  invariant(caller !== undefined, 'authenticate comes before the rate limit');
  const { ledger } = parts;
  const { key, account } = caller;
  const ofPlan = caller.plan.requestsPerMinute;
  const ofKey = caller.keyLimit?.requestsPerMinute;
  if (ofKey === undefined)
    return response(context, 'plan', ofPlan, ledger.takeMinute(account, ofPlan), parts);
  const { whose, limit, take } = takeBothMinutes(key, ofKey, account, ofPlan, ledger);
  return response(context, whose, limit, take, parts);
}

function response(
  context: CallContext,
  whose: 'plan' | 'key',
  limit: number,
  take: MinuteTake,
  parts: ListenerContext,
): ErrorRecord | undefined {
  context.rateLimit = {
    limit,
    remaining: take.remaining,
    resetSeconds: ceilDiv(take.resetWallMs, MS_PER_SECOND),
  };
  if (take.admitted) return undefined;
  context.asksLease = take.asks;
  const retryAfterSeconds = secondsUntil(take.resetWallMs, parts);
  return {
    code: 'rate_limit_exceeded',
    message: `The ${whose} allows ${limit} requests per minute and they are used up. Retry after ${retryAfterSeconds} seconds.`,
    retryAfterSeconds,
  };
}

/** Whole seconds until `wallMs`, at least one: a client that waits for them is not early. */
export function secondsUntil(wallMs: number, parts: ListenerContext): number {
  return Math.max(1, ceilDiv(wallMs - parts.clock.wallMs(), MS_PER_SECOND));
}

/*
 * The request of the minute, before the body is read; or while it is read, where limits are shared with other processes and the
 * coordinator must be asked. The order of refusals is the same: what is wrong with a body is told only to who has its permit.
 * Listener thread.
 */

/** An exchange that reads its body. */
export interface RateLimited extends BodyReceiver {
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
  exchange: RateLimited,
  context: CallContext,
  key: string | undefined,
  wrongBody: ErrorRecord | undefined,
  parts: ListenerContext,
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
  readonly #exchange: RateLimited;
  readonly #decided: Promise<ErrorRecord | undefined>;

  constructor(exchange: RateLimited, decided: Promise<ErrorRecord | undefined>) {
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
