/**
 * The admission of a call: it is within its plan, its model is on the plan, the day has a call left, the
 * balance covers the worst case. If limits are shared with other processes, a call that was rejected may ask
 * for a lease and try again. Called by Intake; listener thread.
 */
import type { LeaseChannel } from '../channel/lease-channel.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { asPicoUnits, type CallSlot, type PicoUnits } from '../core/units.js';
import { withModelId, withOutputTokensMax, type ChatCall } from '../protocol/chat-call.js';
import { type ModelEntry, type PlanEntry, worstCaseOf } from '../registry/catalog.js';
import type { CallContext, Caller, ListenerContext } from './context.js';
import { askLease, LEASE_TRIES_MS_MAX, secondsUntil } from './rate-limit.js';
import { quotaUsedUp, type QuotaOwner } from './quota-rejections.js';
import {
  ACCOUNT_CALLS_FULL,
  bodyTooCostly,
  CALLS_FULL,
  callTooCostly,
  coordinatorLost,
  JOURNAL_CLOSED,
  JOURNAL_FULL,
  routingMember,
  unknownModel,
} from './rejections.js';

/** The rejection of a call that asks for more output than the plan allows. */
function beyondPlan(call: ChatCall, plan: PlanEntry): ErrorRecord | undefined {
  const { outputTokensMax: asked, outputTokensField: field } = call;
  const { outputTokensMax: allowed } = plan;
  if (asked === undefined || field === undefined || allowed === undefined || asked <= allowed)
    return undefined;
  return {
    code: 'invalid_parameters',
    message: `${field} must be at most ${allowed} on the plan ${plan.id}, got ${asked}`,
  };
}

/**
 * The call as it goes upstream: if it does not bound its output, it gets the plan's bound, if that is below
 * the model's. That costs a copy of the body; otherwise nothing.
 */
function boundedCall(call: ChatCall, plan: PlanEntry, model: ModelEntry): ChatCall {
  const { outputTokensMax: allowed } = plan;
  if (call.outputTokensMax !== undefined || allowed === undefined || allowed >= model.outputTokensMax) {
    return call;
  }
  return withOutputTokensMax(call, allowed);
}

/** Sets `context.modelIndex` and `context.admission`. If it rejects, nothing was taken. */
export function admit(
  context: CallContext,
  call: ChatCall,
  listener: ListenerContext,
): ErrorRecord | undefined {
  const { caller } = context;
  const { catalog, channel } = listener;
  invariant(caller !== undefined, 'authenticate comes before admission');
  const tooMuch = beyondPlan(call, caller.plan);
  if (tooMuch !== undefined) return tooMuch;
  const modelIndex = listener.access.indexOf(call.model, caller.planIndex);
  if (modelIndex === undefined) return unknownModel(call.model);
  context.modelIndex = modelIndex;
  const model = catalog.models[modelIndex]!;
  const routing = call.routingMembers.find((name) => !model.passMembers.includes(name));
  if (routing !== undefined) return routingMember(routing);
  const budget = listener.journal.roomFor(recordsPending(listener));
  if (budget !== 'room') return budget === 'full' ? JOURNAL_FULL : JOURNAL_CLOSED;
  const slot = channel.acquire();
  if (slot === undefined) return CALLS_FULL;
  // The worker may have other settings by the time it gets the call, which may lack the alias. The id stays.
  const named = call.model === model.id ? call : withModelId(call, model.id);
  const mayClamp = listener.lowBalance === 'clamp' && (listener.leases === undefined || context.mayClamp);
  const admitted = reserve(slot, caller, model, boundedCall(named, caller.plan, model), mayClamp, listener);
  if ('code' in admitted) {
    channel.release(slot);
    return admitted;
  }
  context.admission = { slot, modelIndex, model, call: admitted, admittedMs: listener.clock.monotonicMs() };
  return undefined;
}

/**
 * Journal records that may follow beside the first of a new call. With `commit` a charge may be taken back by
 * a second record; a call whose end is pending has appended its first.
 */
function recordsPending({ durability, channel, pendingCommits }: ListenerContext): number {
  return durability === 'commit' ? 2 * channel.inFlight + 1 - pendingCommits.size : channel.inFlight;
}

/** Takes the day's call and the hold. Returns the call as it goes upstream, or why nothing was taken. */
function reserve(
  slot: CallSlot,
  caller: Caller,
  model: ModelEntry,
  call: ChatCall,
  mayClamp: boolean,
  listener: ListenerContext,
): ChatCall | ErrorRecord {
  const rejection = take(slot, caller, model, call, listener);
  if (rejection?.code !== 'insufficient_quota' || !mayClamp) return rejection ?? call;
  const clamped = clampedCall(caller, model, call, listener);
  // A second rejection: another call of the account took the balance in between.
  return clamped === undefined ? rejection : (take(slot, caller, model, clamped, listener) ?? clamped);
}

function take(
  slot: CallSlot,
  caller: Caller,
  model: ModelEntry,
  call: ChatCall,
  listener: ListenerContext,
): ErrorRecord | undefined {
  const { ledger } = listener;
  const { account, key, plan, keyLimit } = caller;
  const hold = worstCaseOf(model.price, call.bodyBytes, completionTokensMaxOf(model, call));
  const tokens = call.bodyBytes + completionTokensMaxOf(model, call);
  const scopes = { account, plan, key: keyLimit === undefined ? undefined : key };
  const refusal = ledger.admit(slot, scopes, { hold, tokens });
  if (refusal === undefined) return undefined;
  if (refusal.quota === 'balance') return callTooCostly(hold, ledger.balanceOf(account));
  if (refusal.kind === 'account' && refusal.quota === 'calls_in_flight') return ACCOUNT_CALLS_FULL;
  const owner: QuotaOwner =
    refusal.kind === 'key'
      ? { kind: 'key' }
      : refusal.kind === 'account'
        ? { kind: 'account', plan: plan.id }
        : { kind: 'group', name: String(refusal.index) };
  const retryAfterSeconds = secondsUntil(refusal.resetsMs, listener);
  return quotaUsedUp({ ...refusal, quota: refusal.quota, owner, need: 1n, retryAfterSeconds });
}

/** The call with its output lowered to what the balance affords; undefined if that is nothing. */
function clampedCall(
  caller: Caller,
  model: ModelEntry,
  call: ChatCall,
  { ledger }: ListenerContext,
): ChatCall | undefined {
  const prompt = worstCaseOf(model.price, call.bodyBytes, 0);
  const left = ledger.available(caller.account) - prompt;
  const perToken = model.price.outputPicoUnits * BigInt(call.choices);
  return perToken === 0n || left < perToken ? undefined : withOutputTokensMax(call, Number(left / perToken));
}

/** The model's bound also limits what a client may write, such as 10^12, before it multiplies a price. */
function completionTokensMaxOf(model: ModelEntry, call: ChatCall): number {
  return Math.min(call.outputTokensMax ?? model.outputTokensMax, model.outputTokensMax) * call.choices;
}

/**
 * The rejection of a large body before it is whole: its caller can't pay for `bodyBytes` on any model of the
 * plan, however little output the call asks for. Such a body is neither kept nor parsed. If limits are shared
 * nothing is certain, because money may be held by others.
 */
export function beyondBalance(
  caller: Caller,
  bodyBytes: number,
  { leases, access, ledger }: ListenerContext,
): ErrorRecord | undefined {
  if (leases !== undefined) return undefined;
  const { inputPicoUnits, outputPicoUnits } = access.leastPriceOf(caller.planIndex);
  const hold = BigInt(bodyBytes) * inputPicoUnits + outputPicoUnits;
  const available = ledger.available(caller.account);
  return available >= hold ? undefined : bodyTooCostly(hold, available);
}

/** Whether the plan has the model. */
export function isAllowed(caller: Caller, model: string, { access }: ListenerContext): boolean {
  return access.indexOf(model, caller.planIndex) !== undefined;
}

/**
 * The leases that one call asks for, if limits are shared. If `low_balance` is `clamp`, its output is lowered
 * only once the whole hold is known not to be available; then it asks for what the account has.
 *
 *     whole ──→ rest ──→ over
 *       └─ refuse ───────↗
 */
export class AdmissionAsk {
  readonly #context: CallContext;
  readonly #listener: ListenerContext;
  readonly #leases: LeaseChannel;
  #endMs: number;
  #stage: 'whole' | 'rest' | 'over' = 'whole';

  constructor(context: CallContext, listener: ListenerContext, leases: LeaseChannel) {
    this.#context = context;
    this.#listener = listener;
    this.#leases = leases;
    this.#endMs = listener.clock.monotonicMs() + LEASE_TRIES_MS_MAX;
  }

  /**
   * After `admit` has rejected `call`. Resolves with undefined if `admit` is to be called again, else with
   * the final rejection. Returns undefined if `rejection` is final already.
   */
  again(rejection: ErrorRecord, call: ChatCall): Promise<ErrorRecord | undefined> | undefined {
    if (this.#stage === 'over' || !dependsOnLeases(rejection)) return undefined;
    if (this.#listener.clock.monotonicMs() >= this.#endMs) return undefined;
    return this.#again(call);
  }

  async #again(call: ChatCall): Promise<ErrorRecord | undefined> {
    const { caller } = this.#context;
    invariant(caller !== undefined, 'a call that asks has a caller');
    const hold = this.#stage === 'whole' ? this.#whole(caller, call) : this.#rest(caller, call);
    const end = await askLease(caller, { kind: 'admission', hold }, this.#leases);
    const lost = coordinatorLost(end);
    if (lost !== undefined) return lost;
    if (end === 'refused') this.#onRefused();
    return undefined;
  }

  #onRefused(): void {
    const clamps = this.#listener.lowBalance === 'clamp' && this.#stage === 'whole';
    this.#stage = clamps ? 'rest' : 'over';
    // Asking for the whole hold used the time up, and money that others hold may come back only now.
    if (clamps) this.#endMs = this.#listener.clock.monotonicMs() + LEASE_TRIES_MS_MAX;
    this.#context.mayClamp = true;
  }

  /** What `admit` has just failed to hold. */
  #whole(caller: Caller, call: ChatCall): PicoUnits {
    const model = this.#model();
    const bounded = boundedCall(call, caller.plan, model);
    return worstCaseOf(model.price, bounded.bodyBytes, completionTokensMaxOf(model, bounded));
  }

  /** All that the account is known to have, and at least what one token of each choice needs. */
  #rest(caller: Caller, call: ChatCall): PicoUnits {
    const least = worstCaseOf(this.#model().price, call.bodyBytes, call.choices);
    const balance = this.#listener.ledger.balanceOf(caller.account);
    return asPicoUnits(balance > least ? balance : least);
  }

  #model(): ModelEntry {
    const { modelIndex } = this.#context;
    invariant(modelIndex !== undefined, 'a call whose hold was rejected has a model');
    return this.#listener.catalog.models[modelIndex]!;
  }
}

function dependsOnLeases({ code, detail }: ErrorRecord): boolean {
  return (
    code === 'insufficient_quota' || code === 'daily_limit_exceeded' || detail === 'account_calls_in_flight'
  );
}
