/**
 * The rate-limit phase: takes a permit of the requests per minute of the key, of the plan, and of the groups
 * that the account is in. Called by Intake before the body is read. If limits are shared with other processes
 * and the coordinator must be asked, the body is read meanwhile. Listener thread; about 0.2 µs, 0.5 µs if the
 * key or a group has a limit of its own.
 *
 * Must hold: no limit is ever exceeded, whatever other threads take at the same time. Every request that
 * passed authentication takes a permit of each scope, however it ends; a rejection by one of these limits
 * takes none (test/unit/request/rate-limit.key-rate-limit.test.ts, rate-limit.group-rate-limit.test.ts).
 */
import type { LeaseChannel, LeaseEnd, LeaseNeed, LeaseScope } from '../channel/lease-channel.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { QUOTA_NAMES, QUOTA_SCOPES, quotaCode } from '../core/quotas.js';
import { asAccountIndex, asGroupIndex, asKeyIndex, ceilDiv } from '../core/units.js';
import type { Ledger } from '../ledger/ledger.js';
import type { MinuteTake } from '../ledger/window.js';
import type { Caller, CallContext, ListenerContext } from './context.js';
import { DeferredBody, type BodyReceiver } from './read-body.js';
import { ownerOf, quotaUsedUp } from './quota-rejections.js';
import { coordinatorLost, LEASE_LATE } from './rejections.js';

/**
 * How long, and at least how often, a request asks again, if another request of the scope took what was
 * granted. Then it is told that its lease came too late, and not that a quota is used up.
 */
export const LEASE_TRIES_MS_MAX = 1_500;
export const LEASE_TRIES_MIN = 3;
const MS_PER_SECOND = 1_000;
const REQUESTS_PER_MINUTE = QUOTA_NAMES.indexOf('requests_per_minute');

/** The requests per minute of one scope that a request counts toward. */
interface ScopeMinute {
  readonly kind: 'key' | 'account' | 'group';
  readonly index: number;
  readonly limit: number;
}

/** The limit that the headers of the response name. */
interface TightMinute extends MinuteTake {
  readonly scope: ScopeMinute;
}

/**
 * Takes a permit of each scope, or none, without a lock. If the request is admitted, returns the limit with
 * the fewest permits left. Otherwise returns the limit that rejects it for longest, so that a client that
 * waits until its reset is admitted. `left` gets what each limit leaves, as QuotasLeft.others.
 *
 * `scopes` are in the order key, account, its group, the group above that: each is shared by more callers
 * than the one before. All but the first are checked, and nothing is taken from them; then permits are taken
 * in order. Each take is exact by itself, so no limit is ever exceeded. But another thread may take the last
 * permit of a scope between the check and the take. Then the request is rejected, and the permits that were
 * taken before are lost for a minute, because a window's count cannot be lowered once its tick may have
 * ended.
 */
export function takeMinutes(scopes: readonly ScopeMinute[], ledger: Ledger, left?: number[]): TightMinute {
  let rejecting: TightMinute | undefined;
  // The first scope comes last: if no other rejects, it need not be checked, as nothing is taken before it.
  for (let position = 1; position <= scopes.length; position++) {
    const isFirst = position === scopes.length;
    if (isFirst && rejecting === undefined) break;
    const checked = minuteOf(scopes[isFirst ? 0 : position]!, 'check', ledger);
    if (!checked.admitted && (rejecting === undefined || checked.resetWallMs > rejecting.resetWallMs))
      rejecting = checked;
  }
  if (rejecting !== undefined) return rejecting;
  let tight: TightMinute | undefined;
  for (const scope of scopes) {
    const taken = minuteOf(scope, 'take', ledger);
    if (!taken.admitted) return taken;
    const { kind, index } = scope;
    left?.push(quotaCode(QUOTA_SCOPES.indexOf(kind), REQUESTS_PER_MINUTE), index, taken.remaining);
    if (tight === undefined || taken.remaining < tight.remaining) tight = taken;
  }
  invariant(tight !== undefined, 'an account has requests per minute');
  return tight;
}

function minuteOf(scope: ScopeMinute, method: 'take' | 'check', ledger: Ledger): TightMinute {
  const { kind, index, limit } = scope;
  const { admitted, remaining, resetWallMs, asks } =
    kind === 'account'
      ? ledger.minute[method](asAccountIndex(index), limit)
      : kind === 'key'
        ? ledger.keys.minute[method](asKeyIndex(index), limit)
        : ledger.groups.minute[method](asGroupIndex(index), limit);
  return { scope, admitted, remaining, resetWallMs, asks };
}

/** The caller's scopes with a limit, in the order of `takeMinutes`; undefined if only the account has one. */
function scopesOf({ key, account, isLimited, plan }: Caller, ledger: Ledger): ScopeMinute[] | undefined {
  const ofAccount = (): ScopeMinute => ({ kind: 'account', index: account, limit: plan.requestsPerMinute });
  let scopes: ScopeMinute[] | undefined;
  const ofKey = isLimited ? ledger.keys.requestsPerMinuteOf(key) : undefined;
  if (ofKey !== undefined) scopes = [{ kind: 'key', index: key, limit: ofKey }, ofAccount()];
  for (let group = ledger.groupOf(account); group !== undefined; group = ledger.groups.parentOf(group)) {
    const limit = ledger.groups.requestsPerMinuteOf(group);
    if (limit !== undefined) (scopes ??= [ofAccount()]).push({ kind: 'group', index: group, limit });
  }
  return scopes;
}

/** Sets `context.rateLimit`, also if it rejects. */
export function limitRate(context: CallContext, listener: ListenerContext): ErrorRecord | undefined {
  const { caller } = context;
  invariant(caller !== undefined, 'authenticate comes before the rate limit');
  const { ledger } = listener;
  const { account, plan } = caller;
  const limit = plan.requestsPerMinute;
  const scopes = scopesOf(caller, ledger);
  if (scopes === undefined) {
    return outcomeOf(context, 'account', account, limit, ledger.minute.take(account, limit), listener);
  }
  context.minutesLeft = listener.callRing.stores ? [] : undefined;
  const tight = takeMinutes(scopes, ledger, context.minutesLeft);
  const { kind, index } = tight.scope;
  return outcomeOf(context, kind, index, tight.scope.limit, tight, listener);
}

/**
 * Sets `context.tokenLimit`, for the headers of the response, to the limit with the fewest tokens of the
 * minute left. Called once for each request: when it is admitted, rejected or replayed.
 */
export function setTokenLimit(context: CallContext, { ledger }: ListenerContext): void {
  const { account, plan, key, isLimited } = context.caller!;
  context.tokenLimit = ledger.tokenMinuteOf(account, plan.quotas, isLimited ? key : undefined);
}

function outcomeOf(
  context: CallContext,
  kind: ScopeMinute['kind'],
  index: number,
  limit: number,
  take: MinuteTake,
  listener: ListenerContext,
): ErrorRecord | undefined {
  context.rateLimit = {
    limit,
    remaining: take.remaining,
    resetSeconds: ceilDiv(take.resetWallMs, MS_PER_SECOND),
  };
  // Also if a lease was granted meanwhile: what the call lacks next, `admit` decides.
  context.asksLease = !take.admitted && take.asks;
  if (take.admitted) return undefined;
  return quotaUsedUp({
    owner: ownerOf(kind, index, context.caller!.plan.id, undefined, listener.groupNames),
    quota: 'requests_per_minute',
    limit: BigInt(limit),
    need: 1n,
    left: 0n,
    retryAfterSeconds: secondsUntil(take.resetWallMs, listener),
  });
}

/**
 * Whole seconds until `wallMs`, at least one, rounded up so that a client that waits so long is not early.
 */
export function secondsUntil(wallMs: number, listener: ListenerContext): number {
  return Math.max(1, ceilDiv(wallMs - listener.clock.wallMs(), MS_PER_SECOND));
}

/**
 * Asks for leases of the caller's account, of its key if that has limits of its own, and of `model` if the
 * plan has a rule for it. Never rejects.
 */
export function askLease(
  { account, key, isLimited }: Caller,
  need: LeaseNeed,
  leases: LeaseChannel,
  model?: number,
): Promise<LeaseEnd> {
  const scopes: LeaseScope[] = [{ kind: 'account', index: account }];
  if (isLimited) scopes.push({ kind: 'key', index: key });
  if (model !== undefined) scopes.push({ kind: 'model', index: model });
  return leases.ask(scopes, need);
}

/** Called if `limitRate` has set `context.asksLease`. Resolves with the final rejection, or undefined. */
async function limitRateByLease(
  context: CallContext,
  listener: ListenerContext,
  leases: LeaseChannel,
): Promise<ErrorRecord | undefined> {
  const { caller } = context;
  invariant(caller !== undefined, 'a request that asks has a caller');
  const endMs = listener.clock.monotonicMs() + LEASE_TRIES_MS_MAX;
  for (let tries = 1; ; tries++) {
    const end = await askLease(caller, { kind: 'minute' }, leases);
    const rejection = limitRate(context, listener);
    if (rejection === undefined) return undefined;
    if (end === 'refused') return rejection;
    const undecided = coordinatorLost(end);
    if (undecided !== undefined) return undecided;
    if (tries >= LEASE_TRIES_MIN && listener.clock.monotonicMs() >= endMs) return LEASE_LATE;
  }
}

/** Intake, as this phase needs it. */
interface RateLimited extends BodyReceiver {
  readonly isOver: boolean;
  takeIdempotencyKey(key: string | undefined): ErrorRecord | undefined;
  /** Nothing more of the body is awaited. Idempotent. */
  stopReading(): void;
  reject(error: ErrorRecord, close?: boolean): void;
}

/**
 * Returns the receiver of the body, or undefined if the request was rejected. `key` is the header
 * Idempotency-Key. `wrongBody` is the rejection of the body, if the headers already show that it is wrong.
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
    const wrong = wrongBody ?? intake.takeIdempotencyKey(key);
    const decided = limitRateByLease(context, listener, listener.leases);
    return new DeferredBody(intake, (give, close) => {
      // Otherwise, if the coordinator is slow to reply, the sweep would take the client for idle.
      intake.stopReading();
      void decided.then((rateRejection) => {
        const rejection = rateRejection ?? wrong;
        if (intake.isOver) return;
        if (rejection === undefined) give();
        else intake.reject(rejection, close);
      });
    });
  }
  const rejection = limited ?? wrongBody ?? intake.takeIdempotencyKey(key);
  context.hasPermit = rejection === undefined;
  if (rejection === undefined) return intake;
  intake.reject(rejection);
  return undefined;
}
