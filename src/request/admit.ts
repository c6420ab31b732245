/**
 * The admission phase (admission control). It checks that the plan allows the call and its model, that each
 * quota of key, account, groups and model has what the call needs, and that the balance covers the worst
 * case. intake.ts calls `admit` and `beyondBalance`; replay.ts calls `chooseModel`. If limits are shared with
 * other processes, admission-lease.ts decides whether a rejected call may try again, by `withPlanBound`,
 * `needOf` and `lowersOutput`. Listener thread.
 *
 * Must hold: a rejected call has taken nothing, and an admitted call is settled or released exactly once;
 * otherwise its money and its slot stay taken for ever. The hold covers the dearest model that may answer,
 * fallbacks included; otherwise a call costs more than its account has. Further tests:
 * test/unit/request/admit.quotas.test.ts, test/unit/request/admit.media-parts.test.ts.
 */
import { type ErrorRecord, invariant } from '../core/errors.js';
import { type DoorName, SERVICE_OF } from '../core/door-names.js';
import type { RoutingMember } from '../core/routing-members.js';
import { QUOTA_KINDS } from '../core/quotas.js';
import { asPicoUnits, type CallSlot, ceilDiv, type MonotonicMs } from '../core/units.js';
import type { CallNeeds, QuotaRejection } from '../ledger/quota-rejections.js';
import { SCOPES_MAX } from '../ledger/reservations.js';
import { promptTokensMaxOf, withModelId, withOutputTokensMax, type ChatCall } from '../protocol/chat-call.js';
import { type ModelEntry, type PlanEntry, worstCaseOf } from '../registry/catalog.js';
import type { CallContext, Caller, ListenerContext } from './context.js';
import type { CandidateModel } from './model-access.js';
import { holdsMedia, neverFits, ownerOf, quotaUsedUp } from './quota-rejections.js';
import { secondsUntil, setTokenLimit } from './rate-limit.js';
import {
  ACCOUNT_CALLS_FULL,
  bodyTooCostly,
  CALLS_FULL,
  callTooCostly,
  JOURNAL_CLOSED,
  JOURNAL_FULL,
  LEASE_LATE,
  notServed,
  QUOTA_SCOPES_FULL,
  routingMember,
  unknownModel,
} from './rejections.js';

const MS_PER_SECOND = 1_000;
/** What a call at a door with `isFree` needs: only a call slot, and a request of the model's minute. */
const FREE: CallNeeds = { hold: asPicoUnits(0n), tokens: 0, isFree: true };
/**
 * How often the output of a call can be lowered: once by the balance, and for each scope once by the spending
 * of a day and once by the spending of a month. The number bounds the loop of `reserve`.
 */
const LOWERINGS_MAX = 1 + 2 * SCOPES_MAX;

/** Returns the rejection if the call asks for more output than the plan allows. */
function outputBeyondPlan(call: ChatCall, plan: PlanEntry): ErrorRecord | undefined {
  const { outputTokensMax: requested, outputTokensField: field } = call;
  const { outputTokensMax: allowed } = plan;
  if (requested === undefined || field === undefined || allowed === undefined || requested <= allowed)
    return undefined;
  return {
    code: 'invalid_parameters',
    message: `${field} must be at most ${allowed} on the plan ${plan.id}, got ${requested}`,
  };
}

/** Returns the call, or a copy of it with the bound that `planBoundOf` says it needs. */
export function withPlanBound(call: ChatCall, plan: PlanEntry, models: Models): ChatCall {
  const bound = planBoundOf(call, plan, models);
  return bound === undefined ? call : withOutputTokensMax(call, bound);
}

/** Returns the plan's bound of output if the call has none and a model that may answer has a higher bound. */
function planBoundOf(call: ChatCall, plan: PlanEntry, models: Models): number | undefined {
  const { outputTokensMax: allowed } = plan;
  if (call.outputTokensMax !== undefined || allowed === undefined) return undefined;
  return models.some(({ model }) => allowed < model.outputTokensMax) ? allowed : undefined;
}

/** The models that may answer: the call's own, which `chooseModel` makes sure is there, and its fallbacks. */
export type Models = readonly CandidateModel[];

/** The chosen model of a call, before anything is taken. */
interface Choice extends CandidateModel {
  /** The bound that the gateway has to add to the call; undefined if the call needs none. */
  readonly outputTokensMax: number | undefined;
}

/**
 * Chooses the model, or rejects if the plan does not allow what the call asks for. Sets `context.modelIndex`
 * as soon as the model is found, and `context.models` if the call is not rejected. Takes nothing.
 */
export function chooseModel(
  context: CallContext,
  call: ChatCall,
  listener: ListenerContext,
): Choice | ErrorRecord {
  const caller = context.knownCaller;
  const { access } = listener;
  const rejection = outputBeyondPlan(call, caller.plan);
  if (rejection !== undefined) return rejection;
  const modelIndex = access.indexOf(call.model, caller.planIndex);
  if (modelIndex === undefined) return unknownModel(call.model);
  context.modelIndex = modelIndex;
  const chosen = access.candidatesOf(modelIndex, caller.planIndex);
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
 * Admits the call, or returns the rejection and has taken nothing. Intake calls `admit` again after
 * AdmissionAsk has asked for a lease, so each field of `context` may be set again. CallContext tells which
 * fields this phase sets.
 */
export function admit(
  context: CallContext,
  call: ChatCall,
  listener: ListenerContext,
): ErrorRecord | undefined {
  const { channel } = listener;
  context.asksLease = false;
  const chosen = chooseModel(context, call, listener);
  if ('code' in chosen) return chosen;
  const { modelIndex, model, outputTokensMax } = chosen;
  const { models } = context;
  const journalState = listener.journal.roomFor(recordsPending(listener));
  if (journalState !== 'room') return journalState === 'full' ? JOURNAL_FULL : JOURNAL_CLOSED;
  const slot = channel.acquire();
  if (slot === undefined) return CALLS_FULL;
  // An alias is replaced by the id, because a reload may remove the alias before the worker gets the call. No
  // worker gets a hit.
  const withId = call.model === model.id || context.hit !== undefined ? call : withModelId(call, model.id);
  const bounded =
    outputTokensMax === undefined || context.hit !== undefined
      ? withId
      : withOutputTokensMax(withId, outputTokensMax);
  const admittedMs = listener.clock.monotonicMs();
  const callOrRejection = reserve(slot, context, models, bounded, listener, admittedMs);
  if ('code' in callOrRejection) {
    channel.release(slot);
    return callOrRejection;
  }
  // `reserve` returns `bounded` itself, unless it has lowered the output.
  context.isOutputLowered = callOrRejection !== bounded;
  // After `reserve` the ledger still knows what is left of the minute's tokens, which saves a second reading.
  // For a free call, which takes no tokens, `setTokenLimit` reads what is left.
  if (context.door.isFree === true) setTokenLimit(context, listener);
  else context.tokenLimit = listener.ledger.tokenMinuteLeft();
  context.admission = {
    slot,
    modelIndex,
    model,
    call: callOrRejection,
    admittedMs,
    mayReverse: listener.durability === 'commit',
  };
  return undefined;
}

/**
 * Returns the first routing member of the request that `pass_members` of the model does not name. The member
 * must not reach the model's upstreams, which may then serve another call than the priced one.
 */
function unpassedMember(
  { routingMembers }: ChatCall,
  { passMembers }: ModelEntry,
): RoutingMember | undefined {
  return routingMembers.find((name) => !passMembers.includes(name));
}

/**
 * How many journal records the calls in flight may still append. `roomFor` adds one for the new call. With
 * `durability: commit` a call may append two: its charge, and a record that takes the charge back. So the new
 * call's second record is added here. A call whose end is pending has already appended its first.
 */
function recordsPending({ durability, channel, pendingCommits }: ListenerContext): number {
  return durability === 'commit' ? 2 * channel.inFlight + 1 - pendingCommits.size : channel.inFlight;
}

/**
 * Returns what the call may cost and use at most, whichever model answers: its hold, until it is settled.
 *
 * With `token_quota: settle` a call holds no tokens, or one token if limits are shared. A coordinator counts
 * what a process has used of a stock only while the process holds some of the stock; one token is enough.
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
 * rejection. If money is lacking and `low_balance` is `clamp`, it lowers the output and tries again. With
 * shared limits it does so only after the coordinator has refused the whole hold (`context.refused`).
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
  const { account, plan } = caller;
  const limits = plan.modelLimits?.[modelIndex];
  const scopes = {
    account,
    plan,
    key: caller.isLimited ? caller.key : undefined,
    model: limits === undefined ? undefined : { modelIndex, limits },
  };
  const isLowerable = lowersOutput(context, listener);
  const mayLower = isLowerable && (listener.leases === undefined || context.refused !== undefined);
  let lowered = call;
  for (let lowerings = 0; ; lowerings++) {
    const need = needOf(context, models, lowered, listener);
    const rejection = listener.ledger.admit(slot, scopes, need, nowMs);
    if (rejection === undefined) {
      if (!listener.callRing.stores) return lowered;
      const minute = context.minutesLeft === undefined ? context.rateLimit?.remaining : undefined;
      context.quotasLeft = listener.ledger.quotasLeft(account, minute, context.minutesLeft);
      return lowered;
    }
    const isSpending = rejection.quota === 'spend_per_day' || rejection.quota === 'spend_per_month';
    // With `mayAskForMore` the coordinator may have more of the quota. If the call needs more than the whole
    // limit (`canNeverFit`), a lease helps only if the output may be lowered.
    context.asksLease = rejection.mayAskForMore && (!rejection.canNeverFit || (isSpending && isLowerable));
    // For a quota of spending AdmissionAsk asks for the last try's need, whose output may be lowered.
    context.lackingNeeds = isSpending ? need : undefined;
    const nextTry =
      mayLower && lowerings < LOWERINGS_MAX
        ? callWithLessOutput(rejection, models, lowered, caller, listener)
        : undefined;
    if (nextTry === undefined) {
      const named = listener.ledger.rejections.refusalOf(rejection, context.refused, scopes, need);
      return named === undefined ? LEASE_LATE : rejectionOf(named, need, models, lowered, context, listener);
    }
    lowered = nextTry;
  }
}

/** Whether the output is lowered if money is lacking. Neither a hit nor a free call has output to lower. */
export function lowersOutput({ hit, door }: CallContext, { lowBalance }: ListenerContext): boolean {
  return lowBalance === 'clamp' && hit === undefined && door.isFree !== true;
}

/**
 * Returns the call with its output lowered to what the balance, or a quota of spending, affords. Undefined if
 * `fittingOutput` returns undefined, or if the call did not lack money. No output is lowered for lack of
 * tokens, because tokens come back within the minute or the day.
 */
function callWithLessOutput(
  { quota, left }: QuotaRejection,
  models: Models,
  call: ChatCall,
  { account }: Caller,
  { ledger }: ListenerContext,
): ChatCall | undefined {
  if (quota !== 'balance' && quota !== 'spend_per_day' && quota !== 'spend_per_month') return undefined;
  const available = quota === 'balance' ? ledger.balance.available(account) : left;
  const tokens = fittingOutput(true, available, models, call);
  // The balance may have grown since it rejected the hold, and then pays more than any model gives.
  const tokensMax = Math.max(...models.map(({ model }) => model.outputTokensMax));
  return tokens === undefined ? undefined : withOutputTokensMax(call, Math.min(tokens, tokensMax));
}

/**
 * Returns how many output tokens of each choice `amount` (pico-units) pays, whichever model answers: -1 if it
 * does not even pay the prompt, undefined if output is free.
 */
function affordedBy(amount: bigint, models: Models, call: ChatCall): bigint | undefined {
  let fewest: bigint | undefined;
  for (const { model } of models) {
    const promptTokensMax = promptTokensMaxOf(call, model);
    const promptCost = worstCaseOf(model.price, promptTokensMax, 0);
    const costPerToken = worstCaseOf(model.price, promptTokensMax, call.choices) - promptCost;
    if (promptCost > amount) return -1n;
    const tokens = costPerToken > 0n ? (amount - promptCost) / costPerToken : undefined;
    if (fewest === undefined || (tokens !== undefined && tokens < fewest)) fewest = tokens;
  }
  return fewest;
}

/**
 * Returns the rejection for the caller, and sets the limits of a minute for the response's headers. `reserve`
 * has checked that `context.caller` is there; `models` has the call's own model first.
 */
function rejectionOf(
  { kind, index, quota, limit, left, resetsMs, canNeverFit }: QuotaRejection,
  { hold, tokens }: CallNeeds,
  models: Models,
  call: ChatCall,
  context: CallContext,
  listener: ListenerContext,
): ErrorRecord {
  const { account, plan } = context.knownCaller;
  const isHit = context.hit !== undefined;
  const outputField = call.outputTokensField ?? call.outputTokensName;
  if (quota === 'balance') {
    const balance = listener.ledger.balance.balance(account);
    const isLowerable = fittingOutput(true, balance, models, call) !== undefined;
    const loweredField = isLowerable ? outputField : undefined;
    return callTooCostly(hold, balance, isHit, loweredField, holdsMedia(models, call));
  }
  if (quota === 'scopes') return QUOTA_SCOPES_FULL;
  const { unit } = QUOTA_KINDS[quota];
  const owner = ownerOf(kind, index, plan.id, models[0]!.model.id, listener.groupNames);
  const tokenNeed = listener.tokenQuota === 'reserve' ? tokens : 0;
  const need = unit === 'money' ? hold : BigInt(unit === 'tokens' ? tokenNeed : 1);
  if (canNeverFit)
    return neverFits(
      { owner, quota, limit, need },
      context.door.name,
      isHit ? undefined : outputField,
      fittingOutput(unit === 'money', limit, models, call),
      holdsMedia(models, call),
    );
  if (quota === 'calls_in_flight')
    return kind === 'account'
      ? ACCOUNT_CALLS_FULL
      : quotaUsedUp({ owner, quota, limit, need, left, retryAfterSeconds: 1 });
  const retryAfterSeconds = secondsUntil(resetsMs, listener);
  const rejection = quotaUsedUp({ owner, quota, limit, need, left, retryAfterSeconds });
  // The call asks for a lease, and may then be admitted, or rejected by another quota.
  if (context.asksLease && context.refused === undefined) return rejection;
  if (quota === 'requests_per_minute') {
    const resetSeconds = ceilDiv(resetsMs, MS_PER_SECOND);
    context.rateLimit = { limit: Number(limit), remaining: 0, resetSeconds };
  } else if (quota === 'tokens_per_minute') {
    const resetMs = resetsMs - listener.clock.wallMs();
    context.tokenLimit = { limit: Number(limit), remaining: Number(left), resetMs };
  }
  return rejection;
}

/**
 * The most output tokens of each choice for which `amount` is enough, in pico-units or tokens. Undefined if
 * that is less than upstreams accept, or if output is free: then a lower bound of output does not help.
 */
function fittingOutput(isMoney: boolean, amount: bigint, models: Models, call: ChatCall): number | undefined {
  const promptTokensMax = Math.max(...models.map(({ model }) => promptTokensMaxOf(call, model)));
  const tokens = isMoney
    ? affordedBy(amount, models, call)
    : (amount - BigInt(promptTokensMax)) / BigInt(call.choices);
  return tokens === undefined || tokens < BigInt(call.outputTokensMin) ? undefined : Number(tokens);
}

/** The output tokens of all choices at most. Bounded by the model, because a client may write 10^12. */
function completionTokensMaxOf(model: ModelEntry, call: ChatCall): number {
  return Math.min(call.outputTokensMax ?? model.outputTokensMax, model.outputTokensMax) * call.choices;
}

/**
 * Returns the rejection of a large body that is still coming, if its caller cannot pay a token for each of
 * `bodyBytes`, and one of output, on any model of the plan. Undefined if the caller can pay, and if limits
 * are shared, because other processes may give money back.
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
