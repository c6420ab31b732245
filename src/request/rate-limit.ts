/**
 * The rate-limit phase: the requests per minute of the plan and of the key. Every request that passed
 * authentication takes a permit, whatever becomes of it later; a rejection by the limit itself takes none.
 * Called by Intake before the body is read. If limits are shared with other processes and the coordinator
 * must be asked, the body is read meanwhile. Listener thread; about 0.2 µs, 0.5 µs if the key has a limit of
 * its own.
 */
import type { LeaseChannel, LeaseEnd, LeaseNeed, LeaseScope } from '../channel/lease-channel.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { type AccountIndex, ceilDiv, type KeyIndex } from '../core/units.js';
import type { Ledger } from '../ledger/ledger.js';
import type { MinuteTake } from '../ledger/window.js';
import type { Caller, CallContext, ListenerContext } from './context.js';
import { DeferredBody, type BodyReceiver } from './read-body.js';
import { quotaUsedUp } from './quota-rejections.js';
import { coordinatorLost } from './rejections.js';

/** For so long a request asks again, if after a grant another request of the scope was faster. */
export const LEASE_TRIES_MS_MAX = 1_500;
const MS_PER_SECOND = 1_000;

/** The one of the two limits that a caller has to be told. */
export interface TightMinute {
  readonly whose: 'plan' | 'key';
  readonly limit: number;
  readonly take: MinuteTake;
}

/**
 * Takes a permit of the key and one of its account, or none, without a lock. Returns, if admitted, the limit
 * with less remaining; if not, the limit that rejects, and if both do, the one that does so for longer, so
 * that a client that waits until its reset is admitted.
 *
 * The account is checked first and nothing is taken from it; then the key's permit is taken, then the
 * account's. Each take is exact by itself, so neither limit is ever exceeded. But another thread may take the
 * account's last permit between the check and the take. Then the request is rejected and the key's permit is
 * lost for a minute, because a window's count can't be lowered once its tick may have ended. So the error is
 * one permit of that key too few, and only for a request that meets the account's limit within those 0.2 µs.
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

/** Sets `context.rateLimit`, also if it rejects. */
export function limitRate(context: CallContext, listener: ListenerContext): ErrorRecord | undefined {
  const { caller } = context;
  invariant(caller !== undefined, 'authenticate comes before the rate limit');
  const { ledger } = listener;
  const { key, account } = caller;
  const ofPlan = caller.plan.requestsPerMinute;
  const ofKey = caller.keyLimit?.requestsPerMinute;
  if (ofKey === undefined)
    return outcomeOf(context, 'plan', ofPlan, ledger.takeMinute(account, ofPlan), listener);
  const { whose, limit, take } = takeBothMinutes(key, ofKey, account, ofPlan, ledger);
  return outcomeOf(context, whose, limit, take, listener);
}

function outcomeOf(
  context: CallContext,
  whose: 'plan' | 'key',
  limit: number,
  take: MinuteTake,
  listener: ListenerContext,
): ErrorRecord | undefined {
  context.rateLimit = {
    limit,
    remaining: take.remaining,
    resetSeconds: ceilDiv(take.resetWallMs, MS_PER_SECOND),
  };
  if (take.admitted) return undefined;
  context.asksLease = take.asks;
  return quotaUsedUp({
    owner: whose === 'key' ? { kind: 'key' } : { kind: 'account', plan: context.caller!.plan.id },
    quota: 'requests_per_minute',
    limit: BigInt(limit),
    need: 1n,
    left: 0n,
    retryAfterSeconds: secondsUntil(take.resetWallMs, listener),
  });
}

/** Whole seconds until `wallMs`, at least one: a client that waits so long is not early. */
export function secondsUntil(wallMs: number, listener: ListenerContext): number {
  return Math.max(1, ceilDiv(wallMs - listener.clock.wallMs(), MS_PER_SECOND));
}

/** Asks for a lease of the caller's account, and of its key if that has limits of its own. Never rejects. */
export function askLease(
  { account, key, keyLimit }: Caller,
  need: LeaseNeed,
  leases: LeaseChannel,
): Promise<LeaseEnd> {
  const scopes: LeaseScope[] = [{ kind: 'account', index: account }];
  if (keyLimit !== undefined) scopes.push({ kind: 'key', index: key });
  return leases.ask(scopes, need);
}

/** After `limitRate` has set `context.asksLease`: resolves with the final rejection, or undefined. */
async function limitRateByLease(
  context: CallContext,
  listener: ListenerContext,
  leases: LeaseChannel,
): Promise<ErrorRecord | undefined> {
  const { caller } = context;
  invariant(caller !== undefined, 'a request that asks has a caller');
  const endMs = listener.clock.monotonicMs() + LEASE_TRIES_MS_MAX;
  for (;;) {
    const end = await askLease(caller, { kind: 'minute' }, leases);
    const rejection = limitRate(context, listener);
    if (rejection === undefined) return undefined;
    const lost = coordinatorLost(end);
    if (lost !== undefined) return lost;
    if (end === 'refused' || listener.clock.monotonicMs() >= endMs) return rejection;
  }
}

/** The intake of a request, as this phase sees it. */
interface RateLimited extends BodyReceiver {
  readonly isOver: boolean;
  takeKey(key: string | undefined): ErrorRecord | undefined;
  reject(error: ErrorRecord, close?: boolean): void;
}

/**
 * Returns who gets the body, or undefined if the request was rejected. `key` is the header Idempotency-Key,
 * `wrongBody` what is known to be wrong with the body before it is read.
 */
export function passMinute(
  intake: RateLimited,
  context: CallContext,
  key: string | undefined,
  wrongBody: ErrorRecord | undefined,
  listener: ListenerContext,
): BodyReceiver | undefined {
  const limited = limitRate(context, listener);
  if (limited !== undefined && listener.leases !== undefined && context.asksLease) {
    const wrong = wrongBody ?? intake.takeKey(key);
    const decided = limitRateByLease(context, listener, listener.leases);
    return new DeferredBody(intake, (go, close) => {
      void decided.then((last) => {
        const rejection = last ?? wrong;
        if (intake.isOver) return;
        if (rejection === undefined) go();
        else intake.reject(rejection, close);
      });
    });
  }
  const rejection = limited ?? wrongBody ?? intake.takeKey(key);
  if (rejection === undefined) return intake;
  intake.reject(rejection);
  return undefined;
}
