/**
 * Phase 4: the call is within its plan, the day has a call left, the balance holds the worst case. Listener thread.
 */
import { type ErrorRecord, invariant } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import type { RoutingMember } from '../core/routing-members.js';
import type { CallSlot, PicoUnits, WallMs } from '../core/units.js';
import { withModelId, withOutputTokensMax } from '../protocol/chat-body.js';
import type { ChatCall } from '../protocol/chat-call.js';
import { type Catalog, isListed, type ModelEntry, type PlanEntry, worstCaseOf } from '../registry/catalog.js';
import type { CallContext, Caller, ListenerContext } from './context.js';
import { secondsUntil } from './rate-limit.js';

/*
 * What a plan lets a call ask for. Listener thread.
 */

/** The refusal of a call that asks for more output than the plan allows. */
export function beyondPlan(call: ChatCall, plan: PlanEntry): ErrorRecord | undefined {
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
 * The call as the plan lets it go upstream: one that bounds its output nowhere is given the plan's bound, where that is below the
 * model's. Costs a scan of the body then, else nothing.
 */
export function boundedCall(call: ChatCall, plan: PlanEntry, model: ModelEntry): ChatCall {
  const { outputTokensMax: allowed } = plan;
  if (call.outputTokensMax !== undefined || allowed === undefined || allowed >= model.outputTokensMax) {
    return call;
  }
  return withOutputTokensMax(call, allowed);
}

const OVERLOADED: ErrorRecord = {
  code: 'overloaded',
  message: 'The gateway has as many calls in flight as it may. Retry after 1 second.',
  detail: 'calls_in_flight',
  retryAfterSeconds: 1,
};

const ACCOUNTING_FULL: ErrorRecord = {
  code: 'overloaded',
  message: 'The gateway is behind with its books. Retry after 1 second.',
  detail: 'books_behind',
  retryAfterSeconds: 1,
};
/** A disk is rarely emptied within a second. */
const ACCOUNTING_CLOSED: ErrorRecord = {
  code: 'overloaded',
  message: 'The gateway cannot write its books and takes no calls. Retry after 5 seconds.',
  detail: 'books_closed',
  retryAfterSeconds: 5,
};
const ACCOUNT_OVERLOADED: ErrorRecord = {
  code: 'overloaded',
  message: 'The account has as many calls in flight as one account may. Retry after 1 second.',
  detail: 'account_calls_in_flight',
  retryAfterSeconds: 1,
};

/** Sets `context.modelIndex` and `context.admission`; a refusal has taken nothing. */
export function admit(context: CallContext, call: ChatCall, parts: ListenerContext): ErrorRecord | undefined {
  const { caller } = context;
  invariant(caller !== undefined, 'authenticate comes before admission');
  const refusal = beyondPlan(call, caller.plan);
  if (refusal !== undefined) return refusal;
  const modelIndex = parts.access.indexOf(call.model, caller.planIndex);
  if (modelIndex === undefined) return unknownModel(call.model);
  context.modelIndex = modelIndex;
  const model = parts.catalog.models[modelIndex]!;
  const steered = call.routingMembers.find((name) => !model.passMembers.includes(name));
  if (steered !== undefined) return wouldRoute(steered);
  const budget = parts.journal.roomFor(recordsPending(parts));
  if (budget !== 'room') return budget === 'full' ? ACCOUNTING_FULL : ACCOUNTING_CLOSED;
  const slot = parts.channel.acquire();
  if (slot === undefined) return OVERLOADED;
  // A worker may have other settings by the time it has the call, and those need not know the alias; the id stays.
  const named = call.model === model.id ? call : withModelId(call, model.id);
  const mayClamp = parts.lowBalance === 'clamp' && (parts.leases === undefined || context.mayClamp);
  const admitted = reserve(slot, caller, model, boundedCall(named, caller.plan, model), mayClamp, parts);
  if ('code' in admitted) {
    parts.channel.release(slot);
    return admitted;
  }
  context.admission = { slot, modelIndex, model, call: admitted, admittedMs: parts.clock.monotonicMs() };
  return undefined;
}

/**
 * Records that may follow beside the first of a new call. With `commit` a charge may be taken back by a second one; whose end is
 * held has appended the first.
 */
function recordsPending({ durability, channel, held }: ListenerContext): number {
  return durability === 'commit' ? 2 * channel.inFlight + 1 - held.size : channel.inFlight;
}

/** Takes the day's call and the hold; the call as it goes upstream, or why nothing was taken. */
function reserve(
  slot: CallSlot,
  caller: Caller,
  model: ModelEntry,
  call: ChatCall,
  mayClamp: boolean,
  parts: ListenerContext,
): ChatCall | ErrorRecord {
  const refusal = take(slot, caller, model, call, parts);
  if (refusal?.code !== 'insufficient_quota' || !mayClamp) return refusal ?? call;
  const clamped = clampedCall(caller, model, call, parts);
  // A second refusal: another call of the account took the balance in between.
  return clamped === undefined ? refusal : (take(slot, caller, model, clamped, parts) ?? clamped);
}

function take(
  slot: CallSlot,
  caller: Caller,
  model: ModelEntry,
  call: ChatCall,
  parts: ListenerContext,
): ErrorRecord | undefined {
  const hold = worstCaseOf(model.price, call.bodyBytes, completionTokensMaxOf(model, call));
  const { callsPerDay, callsInFlightMax } = caller.plan;
  const ofKey = caller.keyLimit?.callsPerDay;
  const keyDay = ofKey === undefined ? undefined : { key: caller.key, callsPerDay: ofKey };
  switch (parts.ledger.admit(slot, caller.account, callsPerDay, hold, callsInFlightMax, keyDay)) {
    case 'admitted':
      return undefined;
    case 'too_many_in_flight':
      return ACCOUNT_OVERLOADED;
    case 'key_daily_limit_exceeded':
      return dailyLimit('key', ofKey!, parts.ledger.resetOfDay(caller.account, caller.key), parts);
    case 'daily_limit_exceeded':
      return dailyLimit('plan', callsPerDay, parts.ledger.resetOfDay(caller.account), parts);
    case 'insufficient_quota':
      return insufficient(hold, caller, parts);
  }
}

/** The call with its output lowered to what the balance affords beside the prompt; undefined where that is nothing. */
function clampedCall(
  caller: Caller,
  model: ModelEntry,
  call: ChatCall,
  parts: ListenerContext,
): ChatCall | undefined {
  const prompt = worstCaseOf(model.price, call.bodyBytes, 0);
  const left = parts.ledger.available(caller.account) - prompt;
  const perToken = model.price.outputPicoUnits * BigInt(call.choices);
  return perToken === 0n || left < perToken ? undefined : withOutputTokensMax(call, Number(left / perToken));
}

/** What `admit` has just refused to hold for the call. */
export function holdOf(
  { caller, modelIndex }: CallContext,
  call: ChatCall,
  { catalog }: ListenerContext,
): PicoUnits {
  invariant(caller !== undefined && modelIndex !== undefined, 'a call that was refused its hold has a model');
  const model = catalog.models[modelIndex]!;
  const bounded = boundedCall(call, caller.plan, model);
  return worstCaseOf(model.price, bounded.bodyBytes, completionTokensMaxOf(model, bounded));
}

/** The least that `admit` would hold for the call with its output lowered: one token of each choice. */
export function leastHoldOf(
  { modelIndex }: CallContext,
  call: ChatCall,
  { catalog }: ListenerContext,
): PicoUnits {
  const model = catalog.models[modelIndex!]!;
  return worstCaseOf(model.price, call.bodyBytes, call.choices);
}

/** What the model can generate at most bounds what a client may write, such as 10^12, before it multiplies a price. */
function completionTokensMaxOf(model: ModelEntry, call: ChatCall): number {
  return Math.min(call.outputTokensMax ?? model.outputTokensMax, model.outputTokensMax) * call.choices;
}

/** The longest model name that a message repeats. */
const MODEL_CHARS_SHOWN = 100;

export function unknownModel(model: string): ErrorRecord {
  return {
    code: 'model_not_found',
    message: `The model ${JSON.stringify(model.slice(0, MODEL_CHARS_SHOWN))} does not exist or is not on your plan. GET /v1/models lists those that are.`,
  };
}

function wouldRoute(member: RoutingMember): ErrorRecord {
  return {
    code: 'invalid_parameters',
    message: `${member} must not be given: by it an upstream may choose another model, provider or address than the call is priced for. Who runs the gateway can let it through with pass_members of the model.`,
  };
}

function dailyLimit(
  whose: 'plan' | 'key',
  callsPerDay: number,
  resetWallMs: WallMs,
  parts: ListenerContext,
): ErrorRecord {
  const retryAfterSeconds = secondsUntil(resetWallMs, parts);
  return {
    code: 'daily_limit_exceeded',
    message: `The ${whose} allows ${callsPerDay} calls per day and they are used up. Retry after ${retryAfterSeconds} seconds, at 00:00 UTC+8.`,
    retryAfterSeconds,
  };
}

function insufficient(hold: PicoUnits, caller: Caller, parts: ListenerContext): ErrorRecord {
  const available = decimalOf(parts.ledger.balanceOf(caller.account));
  return {
    code: 'insufficient_quota',
    message: `The call may cost up to ${decimalOf(hold)} and the balance is ${available}. Top up the account, or lower max_tokens.`,
  };
}

/*
 * What is certain of a large call before its body is whole: that its caller could pay for it on no model, or cannot have the model that it
 * names. Such a body is not kept, let alone parsed. Listener thread.
 */

/**
 * The refusal of a call whose body is at least `bodyBytes` long, and for which `admit` would find too little money whatever model of the
 * plan it names and however little it asks for. Where limits are shared nothing is certain: money may be with others.
 */
export function beyondBalance(
  caller: Caller,
  bodyBytes: number,
  parts: ListenerContext,
): ErrorRecord | undefined {
  if (parts.leases !== undefined) return undefined;
  const { inputPicoUnits, outputPicoUnits } = parts.access.leastPriceOf(caller.planIndex);
  const hold = BigInt(bodyBytes) * inputPicoUnits + outputPicoUnits;
  const available = parts.ledger.available(caller.account);
  if (available >= hold) return undefined;
  return {
    code: 'insufficient_quota',
    message: `A call of this size may cost ${decimalOf(hold)} at least and the balance is ${decimalOf(available)}. Top up the account, or shorten the messages.`,
  };
}

/** Whether the plan has the model. */
export function isAllowed(caller: Caller, model: string, parts: ListenerContext): boolean {
  return parts.access.indexOf(model, caller.planIndex) !== undefined;
}

/*
 * Which models a plan may use, as one look-up. Any thread; it never changes what it says.
 */

/** What a token of the prompt and one of the output cost at least where calls are held. */
export interface LeastPrice {
  readonly inputPicoUnits: bigint;
  readonly outputPicoUnits: bigint;
}

export class ModelAccess {
  readonly #indices = new Map<string, number>();
  readonly #catalog: Catalog;
  /** One set of model indices a plan, made when the plan is first asked for: all at once would be a million entries. */
  readonly #allowed: (ReadonlySet<number> | undefined)[];

  /** The same. */
  readonly #leastPrices: (LeastPrice | undefined)[];

  constructor(catalog: Catalog) {
    catalog.models.forEach((model, index) => {
      if (!isListed(model)) return;
      for (const name of [model.id, ...model.aliases]) this.#indices.set(name, index);
    });
    this.#catalog = catalog;
    this.#allowed = catalog.plans.map(() => undefined);
    this.#leastPrices = catalog.plans.map(() => undefined);
  }

  /** The model's index, or undefined where it does not exist or is not on the plan: a caller is told the same of both. */
  indexOf(idOrAlias: string, planIndex: number): number | undefined {
    const index = this.#indices.get(idOrAlias);
    return index !== undefined && this.#allowedOn(planIndex).has(index) ? index : undefined;
  }

  /** No call on the plan costs less a token: of a plan with models of several prices it is no price that any model has. */
  leastPriceOf(planIndex: number): LeastPrice {
    return (this.#leastPrices[planIndex] ??= leastPrice(this.modelsOf(planIndex)));
  }

  /** The plan's models in the order of the catalogue. */
  modelsOf(planIndex: number): ModelEntry[] {
    return this.#catalog.plans[planIndex]!.modelIndices.map((index) => this.#catalog.models[index]!);
  }

  #allowedOn(planIndex: number): ReadonlySet<number> {
    return (this.#allowed[planIndex] ??= new Set(this.#catalog.plans[planIndex]!.modelIndices));
  }
}

function leastPrice(models: readonly ModelEntry[]): LeastPrice {
  const least = (amounts: readonly bigint[]): bigint =>
    amounts.reduce((left, right) => (right < left ? right : left), amounts[0] ?? 0n);
  return {
    inputPicoUnits: least(models.map(({ price }) => worstCaseOf(price, 1, 0))),
    outputPicoUnits: least(models.map(({ price }) => worstCaseOf(price, 0, 1))),
  };
}
