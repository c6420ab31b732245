/**
 * The admission phase (admission control). It checks that the call is within its plan, that its model is on
 * the plan, that each quota of key, account, groups and model has what the call needs, and that the balance
 * covers the worst case. intake.ts calls `admit`, `beyondBalance` and `isAllowed`; replay.ts calls `choose`;
 * admission-lease.ts calls `boundedCall`, `needOf` and `lowersOutput`: if limits are shared with other
 * processes, it decides whether a rejected call may try again. Listener thread.
 *
 * Must hold: a rejected call has taken nothing, and an admitted one is settled or released exactly once;
 * otherwise money and slots stay held for ever. The hold covers the dearest model that may answer, fallbacks
 * included, or a call costs more than its account has (test/unit/request/admit.test.ts,
 * test/unit/request/admit.quotas.test.ts).
 */
import { type ErrorRecord, invariant } from '../core/errors.js';
import { type DoorName, SERVICE_OF } from '../core/door-names.js';
import { GROUP_DEPTH_MAX } from '../core/limits.js';
import type { RoutingMember } from '../core/routing-members.js';
import { QUOTA_KINDS, type QuotaName } from '../core/quotas.js';
import { asPicoUnits, type CallSlot, ceilDiv, type MonotonicMs } from '../core/units.js';
import type { CallNeeds, QuotaRejection } from '../ledger/quota-rejections.js';
import { promptTokensMaxOf, withModelId, withOutputTokensMax, type ChatCall } from '../protocol/chat-call.js';
import { type ModelEntry, type PlanEntry, worstCaseOf } from '../registry/catalog.js';
import type { CallContext, Caller, ListenerContext } from './context.js';
import type { ChosenModel } from './model-access.js';
import { holdsMedia, neverFits, ownerOf, quotaUsedUp } from './quota-rejections.js';
import { secondsUntil, setTokenLimit } from './rate-limit.js';
import {
  ACCOUNT_CALLS_FULL,
  bodyTooCostly,
  CALLS_FULL,
  callTooCostly,
  JOURNAL_CLOSED,
  JOURNAL_FULL,
  notServed,
  QUOTA_SCOPES_FULL,
  routingMember,
  unknownModel,
} from './rejections.js';

const MS_PER_SECOND = 1_000;
const FREE: CallNeeds = { hold: asPicoUnits(0n), tokens: 0, isFree: true };
/** The most scopes of one call: its key, its account, the model for the account, and groups. */
const SCOPES_MAX = 3 + GROUP_DEPTH_MAX;
/**
 * How often the output can be lowered: once by the balance, and by the spending of a day and of a month of
 * each scope.
 */
const CLAMPS_MAX = 1 + 2 * SCOPES_MAX;

/** The rejection of a call that asks for more output than the plan allows. */
function beyondPlan(call: ChatCall, plan: PlanEntry): ErrorRecord | undefined {
  const { outputTokensMax: wanted, outputTokensField: field } = call;
  const { outputTokensMax: allowed } = plan;
  if (wanted === undefined || field === undefined || allowed === undefined || wanted <= allowed)
    return undefined;
  return {
    code: 'invalid_parameters',
    message: `${field} must be at most ${allowed} on the plan ${plan.id}, got ${wanted}`,
  };
}

/** The call as it goes upstream: with the bound of `planBoundOf`, if any, which costs a copy of the body. */
export function boundedCall(call: ChatCall, plan: PlanEntry, models: Models): ChatCall {
  const bound = planBoundOf(call, plan, models);
  return bound === undefined ? call : withOutputTokensMax(call, bound);
}

/** The plan's bound of the output, if the call has no bound and that of a model that may answer is higher. */
function planBoundOf(call: ChatCall, plan: PlanEntry, models: Models): number | undefined {
  const { outputTokensMax: allowed } = plan;
  if (call.outputTokensMax !== undefined || allowed === undefined) return undefined;
  return models.some(({ model }) => allowed < model.outputTokensMax) ? allowed : undefined;
}

/** As `CallContext.models`. */
export type Models = readonly ChosenModel[];

/** The model that a call gets, before anything is taken for it. */
interface Choice extends ChosenModel {
  /** See `planBoundOf`. */
  readonly outputTokensMax: number | undefined;
}

/**
 * Chooses the model, if the call's plan allows what it asks for. Sets `context.modelIndex` as soon as the
 * model is found, and `context.models` if it does not reject.
 */
export function choose(
  context: CallContext,
  call: ChatCall,
  listener: ListenerContext,
): Choice | ErrorRecord {
  const { caller } = context;
  const { access } = listener;
  invariant(caller !== undefined, 'authenticate comes before admission');
  const rejection = beyondPlan(call, caller.plan);
  if (rejection !== undefined) return rejection;
  const modelIndex = access.indexOf(call.model, caller.planIndex);
  if (modelIndex === undefined) return unknownModel(call.model);
  context.modelIndex = modelIndex;
  const chosen = access.chosenOf(modelIndex, caller.planIndex);
  const { model } = chosen[0]!;
  const service = SERVICE_OF[context.door.name];
  if (!model.serves.includes(service)) return notServed(model, service);
  const unpassed = unpassedMember(call, model);
  if (unpassed !== undefined) return routingMember(unpassed);
  // A fallback that does not pass a routing member of the call is left out.
  const models =
    call.routingMembers.length === 0
      ? chosen
      : chosen.filter((fallback) => unpassedMember(call, fallback.model) === undefined);
  context.models = models;
  return { modelIndex, model, outputTokensMax: planBoundOf(call, caller.plan, models) };
}

/**
 * Admits the call, or returns the rejection; then nothing was taken. Intake calls it again after each lease
 * that it asked for, so all that it sets may be set anew. Of `context` it sets, with `choose`, `reserve` and
 * `rejectionOf`:
 *
 *     admission                 for dispatch, delivery and settle
 *     modelIndex, models        for AdmissionAsk, dispatch, delivery, metrics and the call log
 *     tokenLimit, rateLimit     for the headers of the response; rateLimit only if a minute rejected the call
 *     quotasLeft                for the call log
 *     isClamped                 for Intake: a response with lowered output is not stored in the cache
 *     asksLease, lacking        for AdmissionAsk: whether the call may ask for a lease, and of how much
 */
export function admit(
  context: CallContext,
  call: ChatCall,
  listener: ListenerContext,
): ErrorRecord | undefined {
  const { channel } = listener;
  context.asksLease = false;
  const chosen = choose(context, call, listener);
  if ('code' in chosen) return chosen;
  const { modelIndex, model, outputTokensMax } = chosen;
  const { models } = context;
  const room = listener.journal.roomFor(recordsPending(listener));
  if (room !== 'room') return room === 'full' ? JOURNAL_FULL : JOURNAL_CLOSED;
  const slot = channel.acquire();
  if (slot === undefined) return CALLS_FULL;
  // By the time the worker gets the call its settings may lack the alias. The id stays.
  const named = call.model === model.id || context.hit !== undefined ? call : withModelId(call, model.id);
  const bounded =
    outputTokensMax === undefined || context.hit !== undefined
      ? named
      : withOutputTokensMax(named, outputTokensMax);
  const admittedMs = listener.clock.monotonicMs();
  const admitted = reserve(slot, context, models, bounded, listener, admittedMs);
  if ('code' in admitted) {
    channel.release(slot);
    return admitted;
  }
  // `reserve` returns the object that it got, unless it has lowered the output.
  context.isClamped = admitted !== bounded;
  // The ledger still knows the tokens of the minute, as it has just taken some for this call. For a free call
  // it takes none, so they are read.
  if (context.door.isFree === true) setTokenLimit(context, listener);
  else context.tokenLimit = listener.ledger.tokenMinuteLeft();
  context.admission = {
    slot,
    modelIndex,
    model,
    call: admitted,
    admittedMs,
    mayReverse: listener.durability === 'commit',
  };
  return undefined;
}

/**
 * The first routing member of the request that `pass_members` of the model does not name, and that must not
 * reach its upstreams. A routing member may make an upstream serve another call than the one that was priced
 * (core/routing-members.ts).
 */
function unpassedMember(
  { routingMembers }: ChatCall,
  { passMembers }: ModelEntry,
): RoutingMember | undefined {
  return routingMembers.find((name) => !passMembers.includes(name));
}

/**
 * Journal records that the calls in flight may still append, for `roomFor`, which adds the one of the new
 * call. With `durability: commit` each call may append two: its charge, and one that takes the charge back.
 * So the new call's second is added here. A call whose end is pending has appended its first.
 */
function recordsPending({ durability, channel, pendingCommits }: ListenerContext): number {
  return durability === 'commit' ? 2 * channel.inFlight + 1 - pendingCommits.size : channel.inFlight;
}

/**
 * What the call may cost and use at most, whichever model answers. It holds that until it is settled.
 *
 * With `token_quota: settle` a call holds no tokens, or one if limits are shared. A coordinator counts what a
 * process has used of a stock only as long as the process holds some of it. One token is enough for that.
 */
export function needOf(
  { hit, door }: CallContext,
  models: Models,
  call: ChatCall,
  { tokenQuota, leases }: Pick<ListenerContext, 'tokenQuota' | 'leases'>,
): CallNeeds {
  if (door.isFree === true) return FREE;
  if (hit !== undefined) return { hold: models[0]!.model.price.cachedResponsePicoUnits, tokens: 0 };
  let tokens = 0;
  let hold = asPicoUnits(0n);
  for (const { model } of models) {
    const prompt = promptTokensMaxOf(call, model);
    const completion = completionTokensMaxOf(model, call);
    const cost = worstCaseOf(model.price, prompt, completion);
    if (prompt + completion > tokens) tokens = prompt + completion;
    if (cost > hold) hold = cost;
  }
  if (tokenQuota === 'reserve') return { hold, tokens };
  return { hold, tokens: leases === undefined ? 0 : 1 };
}

/**
 * Takes what the call needs of all its scopes, or nothing. Returns the call as it goes upstream, or the
 * rejection. If money is lacking and `low_balance` is `clamp`, it lowers the output and tries again, with
 * shared limits only after the coordinator has refused the whole hold (`context.mayClamp`).
 */
function reserve(
  slot: CallSlot,
  context: CallContext,
  models: Models,
  call: ChatCall,
  listener: ListenerContext,
  nowMs: MonotonicMs,
): ChatCall | ErrorRecord {
  const { caller, modelIndex } = context;
  invariant(caller !== undefined && modelIndex !== undefined, 'a call that is admitted has caller and model');
  const { account, plan, key, isLimited } = caller;
  const limits = plan.modelLimits?.[modelIndex];
  const who = {
    account,
    plan,
    key: isLimited ? key : undefined,
    model: limits === undefined ? undefined : { modelIndex, limits },
  };
  const lowers = lowersOutput(context, listener);
  const mayClamp = lowers && (listener.leases === undefined || context.mayClamp);
  let wanted = call;
  for (let clamps = 0; ; clamps++) {
    const need = needOf(context, models, wanted, listener);
    const rejection = listener.ledger.admit(slot, who, need, nowMs);
    if (rejection === undefined) {
      if (!listener.callRing.stores) return wanted;
      const { minutesLeft, rateLimit } = context;
      const minute = minutesLeft === undefined ? rateLimit?.remaining : undefined;
      context.quotasLeft = listener.ledger.quotasLeft(account, minute, minutesLeft);
      return wanted;
    }
    const isSpending = rejection.quota === 'spend_per_day' || rejection.quota === 'spend_per_month';
    // Whether AdmissionAsk may ask the coordinator for what the ledger lacks here. A call that is larger than
    // the whole limit never fits, so it asks only if its output may be lowered.
    context.asksLease = rejection.asks && (!rejection.never || (isSpending && lowers));
    // What the call needs, as it was tried last, of a quota of spending. AdmissionAsk then asks for that.
    context.lacking = isSpending ? need : undefined;
    const clamped =
      mayClamp && clamps < CLAMPS_MAX ? clampedCall(rejection, models, wanted, caller, listener) : undefined;
    if (clamped === undefined) return rejectionOf(rejection, need, models, wanted, context, listener);
    wanted = clamped;
  }
}

/** Whether the output of a call is lowered if the balance does not cover it. A hit has no output to lower. */
export function lowersOutput({ hit, door }: CallContext, { lowBalance }: ListenerContext): boolean {
  return lowBalance === 'clamp' && hit === undefined && door.isFree !== true;
}

/**
 * The call with its output lowered to what the balance, or a quota of spending, affords. Undefined if that is
 * nothing, or if it was no money that the call lacked: tokens come back within the minute or the day.
 */
function clampedCall(
  { quota, left }: QuotaRejection,
  models: Models,
  call: ChatCall,
  { account }: Caller,
  { ledger }: ListenerContext,
): ChatCall | undefined {
  if (quota !== 'balance' && quota !== 'spend_per_day' && quota !== 'spend_per_month') return undefined;
  const available = quota === 'balance' ? ledger.balance.available(account) : left;
  const tokens = affordedBy(available, models, call);
  // The balance may have grown since the hold failed.
  const tokensMax = Math.max(...models.map(({ model }) => model.outputTokensMax));
  return tokens === undefined || tokens < BigInt(call.outputTokensMin)
    ? undefined
    : withOutputTokensMax(call, Math.min(Number(tokens), tokensMax));
}

/**
 * The output tokens of each choice that `amount` pays at any model. -1 if it does not pay the prompt;
 * undefined if output is free.
 */
function affordedBy(amount: bigint, models: Models, call: ChatCall): bigint | undefined {
  let most: bigint | undefined;
  for (const { model } of models) {
    const promptTokensMax = promptTokensMaxOf(call, model);
    const prompt = worstCaseOf(model.price, promptTokensMax, 0);
    const perToken = worstCaseOf(model.price, promptTokensMax, call.choices) - prompt;
    if (prompt > amount) return -1n;
    const paid = perToken > 0n ? (amount - prompt) / perToken : undefined;
    if (most === undefined || (paid !== undefined && paid < most)) most = paid;
  }
  return most;
}

/** The rejection that the caller gets if the ledger did not admit the call. */
function rejectionOf(
  { kind, index, quota, limit, left, resetsMs, never }: QuotaRejection,
  { hold, tokens }: CallNeeds,
  models: Models,
  call: ChatCall,
  context: CallContext,
  listener: ListenerContext,
): ErrorRecord {
  const { account, plan } = context.caller!;
  if (quota === 'balance')
    return callTooCostly(hold, listener.ledger.balanceOf(account), call, holdsMedia(models, call));
  if (quota === 'scopes') return QUOTA_SCOPES_FULL;
  const { unit } = QUOTA_KINDS[quota];
  const owner = ownerOf(kind, index, plan.id, models[0]!.model.id, listener.groupNames);
  const wanted = listener.tokenQuota === 'reserve' ? tokens : 0;
  const need = unit === 'money' ? hold : BigInt(unit === 'tokens' ? wanted : 1);
  if (never)
    return neverFits(
      { owner, quota, limit, need },
      context.door.name,
      call.outputTokensField ?? call.outputTokensName,
      fittingOutput(quota, limit, models, call),
      holdsMedia(models, call),
    );
  if (quota === 'calls_in_flight') {
    return kind === 'account'
      ? ACCOUNT_CALLS_FULL
      : quotaUsedUp({ owner, quota, limit, need, left, retryAfterSeconds: 1 });
  }
  const retryAfterSeconds = secondsUntil(resetsMs, listener);
  if (quota === 'requests_per_minute')
    context.rateLimit = {
      limit: Number(limit),
      remaining: 0,
      resetSeconds: ceilDiv(resetsMs, MS_PER_SECOND),
    };
  if (quota === 'tokens_per_minute')
    context.tokenLimit = {
      limit: Number(limit),
      remaining: Number(left),
      resetMs: resetsMs - listener.clock.wallMs(),
    };
  return quotaUsedUp({ owner, quota, limit, need, left, retryAfterSeconds });
}

/** The most output tokens of each choice with which the call would fit an unused quota. */
function fittingOutput(quota: QuotaName, limit: bigint, models: Models, call: ChatCall): number {
  if (QUOTA_KINDS[quota].unit === 'money') return Number(affordedBy(limit, models, call) ?? 0n);
  const promptTokensMax = Math.max(...models.map(({ model }) => promptTokensMaxOf(call, model)));
  return Number((limit - BigInt(promptTokensMax)) / BigInt(call.choices));
}

/** Bounded by the model's own bound, because a client may write numbers such as 10^12. */
function completionTokensMaxOf(model: ModelEntry, call: ChatCall): number {
  return Math.min(call.outputTokensMax ?? model.outputTokensMax, model.outputTokensMax) * call.choices;
}

/**
 * The rejection of a large body before all of it has come, if its caller cannot pay for `bodyBytes` on any
 * model of the plan, however little output the call asks for. Undefined if limits are shared, because other
 * processes may give money back.
 */
export function beyondBalance(
  caller: Caller,
  bodyBytes: number,
  door: DoorName,
  { leases, access, ledger }: ListenerContext,
): ErrorRecord | undefined {
  if (leases !== undefined) return undefined;
  const { inputPicoUnits, outputPicoUnits } = access.leastPriceOf(caller.planIndex);
  const hold = BigInt(bodyBytes) * inputPicoUnits + outputPicoUnits;
  const available = ledger.balance.available(caller.account);
  return available >= hold ? undefined : bodyTooCostly(hold, available, door);
}

/** Whether the plan has the model. */
export function isAllowed(caller: Caller, model: string, { access }: ListenerContext): boolean {
  return access.indexOf(model, caller.planIndex) !== undefined;
}
