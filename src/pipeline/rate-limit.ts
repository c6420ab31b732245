/**
 * Phase 2: the requests per minute of the plan and of the key. Every request that passed authentication counts here, whatever becomes of
 * it; a refusal for the limit itself consumes nothing. Listener thread; about 0.2 µs.
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import { ceilDiv } from '../core/units.js';
import type { MinuteTake } from '../ledger/minute.js';
import type { CallContext } from './context.js';
import { takeBothMinutes } from './key-rate-limit.js';
import type { PipelineParts } from './parts.js';

const MS_PER_SECOND = 1_000;

/** Sets `context.rateLimit`, also for a refusal. */
export function limitRate(context: CallContext, parts: PipelineParts): ErrorRecord | undefined {
  const { caller } = context;
  invariant(caller !== undefined, 'authenticate comes before the rate limit');
  const { ledger } = parts;
  const { key, account } = caller;
  const ofPlan = caller.plan.requestsPerMinute;
  const ofKey = caller.keyLimit?.requestsPerMinute;
  if (ofKey === undefined) return answer(context, 'plan', ofPlan, ledger.takeMinute(account, ofPlan), parts);
  const { whose, limit, take } = takeBothMinutes(key, ofKey, account, ofPlan, ledger);
  return answer(context, whose, limit, take, parts);
}

function answer(
  context: CallContext,
  whose: 'plan' | 'key',
  limit: number,
  take: MinuteTake,
  parts: PipelineParts,
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
export function secondsUntil(wallMs: number, parts: PipelineParts): number {
  return Math.max(1, ceilDiv(wallMs - parts.clock.wallMs(), MS_PER_SECOND));
}
