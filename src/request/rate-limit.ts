/**
 * The rate-limit phase: takes a permit of the requests per minute of the key, of the account, and of the
 * groups that the account is in. intake.ts calls it before the body is read. If limits are shared with other
 * processes and the coordinator must be asked, the body is read meanwhile. Listener thread; about 0.2 µs, 0.5
 * µs if the key or a group has a limit of its own. A _minute_ in a name is a limit of requests per minute.
 *
 * Must hold: no limit is ever exceeded, whatever other threads take at the same time. Every request that
 * passed authentication takes a permit of each scope, however it ends; a request that one of these limits
 * rejects takes none. Further tests: test/unit/request/rate-limit.key-rate-limit.test.ts,
 * test/unit/request/rate-limit.group-rate-limit.test.ts, test/threads/key-limits.test.ts.
 */
import {
  type LeaseChannel,
  type LeaseEnd,
  type LeaseNeed,
  type LeaseScope,
  refusedBy,
} from '../channel/lease-channel.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { quotaCode } from '../core/quotas-left.js';
import { QUOTA_NAMES, QUOTA_SCOPES } from '../core/quotas.js';
import { asAccountIndex, asGroupIndex, asKeyIndex, asWallMs, ceilDiv } from '../core/units.js';
import type { Ledger } from '../ledger/ledger.js';
import type { RefusedQuota } from '../ledger/quota-rejections.js';
import type { MinuteTake } from '../ledger/window.js';
import type { Caller, CallContext, ListenerContext } from './context.js';
import { DeferredBody, type BodyReceiver } from './read-body.js';
import { ownerOf, quotaUsedUp } from './quota-rejections.js';
import { coordinatorRejection, LEASE_LATE } from './rejections.js';

/**
 * How long, and at least how often, a request asks again if other requests of the scope took what was
 * granted. After that the rejection is LEASE_LATE, because perhaps no quota is used up. Admission
 * (admission-lease.ts) asks within the same bounds.
 */
export const LEASE_TRIES_MS_MAX = 1_500;
export const LEASE_TRIES_MIN = 3;
const MS_PER_SECOND = 1_000;
const REQUESTS_PER_MINUTE = QUOTA_NAMES.indexOf('requests_per_minute');

/** A scope that a request counts toward, and its limit of requests a minute. `index`: the scope's slot. */
interface ScopeLimit {
  readonly kind: 'key' | 'account' | 'group';
  readonly index: number;
  readonly limit: number;
}

/** The limit that the headers of the response name, with the result of `take` or `check`. */
interface TightestLimit extends MinuteTake {
  readonly scope: ScopeLimit;
}

/**
 * Takes a permit of each scope, or none, without a lock. If the request is admitted, returns the limit with
 * the fewest permits left. Otherwise returns the limit that rejects it for longest, so that a client that
 * waits until its reset is admitted. `left`, if given, gets what is left of each limit, laid out as
 * QuotasLeft.others.
 *
 * `scopes` are in the order key, account, the account's group, the group above that: each is shared by more
 * callers than the scope before. At first all scopes but the first are checked, and nothing is taken. Then
 * the permits are taken in order. Each take is atomic, so no limit is ever exceeded. But another thread may
 * take the last permit of a scope between the check and the take. Then the request is rejected, and the
 * permits that were taken before are lost for a minute, because a window's count cannot be lowered once its
 * tick may have ended.
 */
export function takePermits(scopes: readonly ScopeLimit[], ledger: Ledger, left?: number[]): TightestLimit {
  let rejecting: TightestLimit | undefined;
  // The first scope is checked last, and only if another scope rejects. Otherwise the take of the first scope
  // decides, before anything is taken.
  for (let position = 1; position <= scopes.length; position++) {
    const isFirst = position === scopes.length;
    if (isFirst && rejecting === undefined) break;
    const checked = takeOrCheck(scopes[isFirst ? 0 : position]!, 'check', ledger);
    if (!checked.admitted && (rejecting === undefined || checked.resetWallMs > rejecting.resetWallMs))
      rejecting = checked;
  }
  if (rejecting !== undefined) return rejecting;
  let tightest: TightestLimit | undefined;
  for (const scope of scopes) {
    const taken = takeOrCheck(scope, 'take', ledger);
    if (!taken.admitted) return taken;
    const { kind, index } = scope;
    left?.push(quotaCode(QUOTA_SCOPES.indexOf(kind), REQUESTS_PER_MINUTE), index, taken.remaining);
    if (tightest === undefined || taken.remaining < tightest.remaining) tightest = taken;
  }
  invariant(tightest !== undefined, 'an account has requests per minute');
  return tightest;
}

/** Takes a permit of one scope, or checks whether one is left. */
function takeOrCheck(scope: ScopeLimit, method: 'take' | 'check', ledger: Ledger): TightestLimit {
  const { kind, index, limit } = scope;
  const { admitted, remaining, resetWallMs, mayAskForMore } =
    kind === 'account'
      ? ledger.minute[method](asAccountIndex(index), limit)
      : kind === 'key'
        ? ledger.keys.minute[method](asKeyIndex(index), limit)
        : ledger.groups.minute[method](asGroupIndex(index), limit);
  return { scope, admitted, remaining, resetWallMs, mayAskForMore };
}

/** The caller's scopes with a limit, in the order of `takePermits`; undefined if only the account has one. */
function scopesOf({ key, account, isLimited, plan }: Caller, ledger: Ledger): ScopeLimit[] | undefined {
  const accountScope = (): ScopeLimit => ({
    kind: 'account',
    index: account,
    limit: plan.requestsPerMinute,
  });
  let scopes: ScopeLimit[] | undefined;
  const keyLimit = isLimited ? ledger.keys.requestsPerMinuteOf(key) : undefined;
  if (keyLimit !== undefined) scopes = [{ kind: 'key', index: key, limit: keyLimit }, accountScope()];
  for (let group = ledger.groupOf(account); group !== undefined; group = ledger.groups.parentOf(group)) {
    const limit = ledger.groups.requestsPerMinuteOf(group);
    if (limit !== undefined) (scopes ??= [accountScope()]).push({ kind: 'group', index: group, limit });
  }
  return scopes;
}

/**
 * Returns the limit that rejects a request for which the coordinator had no permit: of the scopes in
 * `refused` the one that rejects for longest. Undefined if the limits of these scopes were removed since.
 */
function refusalOf(
  scopes: readonly ScopeLimit[],
  refused: readonly RefusedQuota[],
  { ledger, clock }: ListenerContext,
): TightestLimit | undefined {
  const [longest] = scopes
    .filter(({ kind, index }) => refused.some((one) => one.kind === kind && one.index === index))
    .map((scope) => takeOrCheck(scope, 'check', ledger))
    // A scope that has permits again by now still rejects this request, and its limit resets now.
    .map((take) => (take.admitted ? { ...take, resetWallMs: asWallMs(clock.wallMs() + 1) } : take))
    .sort((first, second) => second.resetWallMs - first.resetWallMs);
  return longest && { ...longest, admitted: false, remaining: 0 };
}

/**
 * Takes the permits, or returns the rejection. Sets `context.rateLimit` and `context.asksLease` in any case.
 * If the coordinator has `refused` the request, only a refused scope rejects it: of the other scopes there
 * were permits, which other requests have taken since. If the refused limits were removed since, the
 * rejection is LEASE_LATE.
 */
export function limitRate(
  context: CallContext,
  listener: ListenerContext,
  refused?: readonly RefusedQuota[],
): ErrorRecord | undefined {
  const caller = context.knownCaller;
  const { ledger } = listener;
  const { account, plan } = caller;
  const limit = plan.requestsPerMinute;
  const scopes = scopesOf(caller, ledger);
  if (scopes === undefined) {
    const take = ledger.minute.take(account, limit);
    return setRateLimit(context, 'account', account, limit, take, listener, refused);
  }
  context.minutesLeft = listener.callRing.stores ? [] : undefined;
  const take = takePermits(scopes, ledger, context.minutesLeft);
  const refusal = take.admitted ? undefined : refused && refusalOf(scopes, refused, listener);
  const tightest = refusal ?? take;
  const { kind, index } = tightest.scope;
  return setRateLimit(context, kind, index, tightest.scope.limit, tightest, listener, refused);
}

/**
 * Sets `context.tokenLimit`, for the headers of the response, to the limit with the fewest tokens of the
 * minute left. Called once for each request: when it is admitted, rejected or replayed.
 */
export function setTokenLimit(context: CallContext, { ledger }: ListenerContext): void {
  const { account, plan, key, isLimited } = context.knownCaller;
  context.tokenLimit = ledger.tokenMinuteOf(account, plan.quotas, isLimited ? key : undefined);
}

/**
 * Sets the context's fields by the result of `take` at one scope, which `kind`, `index` and `limit` name:
 * most requests have no ScopeLimit. Returns the rejection, if there is one.
 */
function setRateLimit(
  context: CallContext,
  kind: ScopeLimit['kind'],
  index: number,
  limit: number,
  result: MinuteTake,
  listener: ListenerContext,
  refused: readonly RefusedQuota[] | undefined,
): ErrorRecord | undefined {
  context.rateLimit = {
    limit,
    remaining: result.remaining,
    resetSeconds: ceilDiv(result.resetWallMs, MS_PER_SECOND),
  };
  // False if the request has its permit. From then on `admit` decides whether the call may ask for a lease.
  context.asksLease = !result.admitted && result.mayAskForMore;
  if (result.admitted) return undefined;
  const isRefused = refused?.some((one) => one.kind === kind && one.index === index) ?? true;
  if (!isRefused) return LEASE_LATE;
  return quotaUsedUp({
    owner: ownerOf(kind, index, context.knownCaller.plan.id, undefined, listener.groupNames),
    quota: 'requests_per_minute',
    limit: BigInt(limit),
    need: 1n,
    left: 0n,
    retryAfterSeconds: secondsUntil(result.resetWallMs, listener),
  });
}

/** Whole seconds until `wallMs`, at least 1, rounded up so that a client that waits so long is not early. */
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
  return leases.ask({ scopes, need });
}

/** Called if `limitRate` has set `context.asksLease`. Resolves with the final rejection, or undefined. */
async function limitRateByLease(
  context: CallContext,
  listener: ListenerContext,
  leases: LeaseChannel,
): Promise<ErrorRecord | undefined> {
  const askUntilMs = listener.clock.monotonicMs() + LEASE_TRIES_MS_MAX;
  for (let tries = 1; ; tries++) {
    const leaseEnd = await askLease(context.knownCaller, { kind: 'minute' }, leases);
    const refused = refusedBy(leaseEnd);
    const rejection = limitRate(context, listener, refused);
    if (rejection === undefined || refused !== undefined) return rejection;
    const lostRejection = coordinatorRejection(leaseEnd);
    if (lostRejection !== undefined) return lostRejection;
    if (tries >= LEASE_TRIES_MIN && listener.clock.monotonicMs() >= askUntilMs) return LEASE_LATE;
  }
}

/** Intake, as this phase needs it. */
interface RateLimitedIntake extends BodyReceiver {
  readonly isOver: boolean;
  takeIdempotencyKey(key: string | undefined): ErrorRecord | undefined;
  /** Nothing more of the body is awaited. Idempotent. */
  stopReading(): void;
  reject(error: ErrorRecord, endsConnection?: boolean): void;
}

/**
 * Returns the receiver of the body, or undefined if the request was rejected. `key` is the header
 * Idempotency-Key. `wrongBody` is the rejection of the body, if the headers already show that it is wrong.
 */
export function passRateLimit(
  intake: RateLimitedIntake,
  context: CallContext,
  key: string | undefined,
  wrongBody: ErrorRecord | undefined,
  listener: ListenerContext,
): BodyReceiver | undefined {
  const limitRejection = limitRate(context, listener);
  if (limitRejection !== undefined && listener.leases !== undefined && context.asksLease) {
    const otherRejection = wrongBody ?? intake.takeIdempotencyKey(key);
    const leaseDecision = limitRateByLease(context, listener, listener.leases);
    return new DeferredBody(intake, (deliver, endsConnection) => {
      // The body is whole, so no more is read. Otherwise the sweep would cut the client as idle while the
      // coordinator is slow.
      intake.stopReading();
      void leaseDecision.then((rateRejection) => {
        const rejection = rateRejection ?? otherRejection;
        if (intake.isOver) return;
        if (rejection === undefined) deliver();
        else intake.reject(rejection, endsConnection);
      });
    });
  }
  const rejection = limitRejection ?? wrongBody ?? intake.takeIdempotencyKey(key);
  context.hasPermit = rejection === undefined;
  if (rejection === undefined) return intake;
  intake.reject(rejection);
  return undefined;
}
