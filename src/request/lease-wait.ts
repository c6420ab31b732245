/**
 * What a request does where limits are shared with other processes and what this one was lent does not cover it: it asks for
 * more and tries anew, for a while. Listener thread.
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { ChatCall } from '../protocol/chat-call.js';
import type { LeaseChannel, LeaseEnd, LeaseNeed } from '../channel/lease-channel.js';
import { holdOf, leastHoldOf } from './admit.js';
import type { CallContext, Caller, ListenerContext } from './context.js';
import { limitRate } from './rate-limit.js';

/** Who is told to try may find that another request was faster, and asks again: for so long. */
const TRIES_MS_MAX = 1_500;

const COORDINATOR_LOST: ErrorRecord = {
  code: 'overloaded',
  detail: 'authority_lost',
  message: 'The gateway cannot reach those it shares its limits with. Retry after 1 second.',
  retryAfterSeconds: 1,
};

function ask({ account, key, keyLimit }: Caller, need: LeaseNeed, leases: LeaseChannel): Promise<LeaseEnd> {
  return leases.ask(account, keyLimit === undefined ? undefined : key, need);
}

/** After `limitRate` has refused and `context.asksLease`: the last word on the request's minute. Never rejects. */
export async function awaitRate(
  context: CallContext,
  parts: ListenerContext,
  leases: LeaseChannel,
): Promise<ErrorRecord | undefined> {
  const { caller } = context;
  invariant(caller !== undefined, 'a request that asks has a caller');
  const endMs = parts.clock.monotonicMs() + TRIES_MS_MAX;
  for (;;) {
    const end = await ask(caller, { kind: 'minute' }, leases);
    const refusal = limitRate(context, parts);
    if (refusal === undefined) return undefined;
    if (end === 'lost') return COORDINATOR_LOST;
    if (end === 'refused' || parts.clock.monotonicMs() >= endMs) return refusal;
  }
}

/**
 * The asking of one call for its admission. Where a low balance is to lower `max_tokens`, that is done only when the whole
 * hold is known not to be had: then it asks for what the account has.
 */
export class AdmissionAsk {
  readonly #context: CallContext;
  readonly #parts: ListenerContext;
  readonly #leases: LeaseChannel;
  #endMs: number;
  #stage: 'whole' | 'rest' | 'over' = 'whole';

  constructor(context: CallContext, parts: ListenerContext, leases: LeaseChannel) {
    this.#context = context;
    this.#parts = parts;
    this.#leases = leases;
    this.#endMs = parts.clock.monotonicMs() + TRIES_MS_MAX;
  }

  /**
   * After `admit` has refused `call`: resolves with undefined where it is to be tried anew, else with the last word. Undefined
   * where `refusal` is the last word already.
   */
  again(refusal: ErrorRecord, call: ChatCall): Promise<ErrorRecord | undefined> | undefined {
    if (this.#stage === 'over' || !isOfLeases(refusal)) return undefined;
    if (this.#parts.clock.monotonicMs() >= this.#endMs) return undefined;
    return this.#again(call);
  }

  async #again(call: ChatCall): Promise<ErrorRecord | undefined> {
    const { caller } = this.#context;
    invariant(caller !== undefined, 'a call that asks has a caller');
    const hold = this.#stage === 'whole' ? holdOf(this.#context, call, this.#parts) : this.#rest(call);
    const end = await ask(caller, { kind: 'admission', hold }, this.#leases);
    if (end === 'lost') return COORDINATOR_LOST;
    if (end === 'refused') this.#onRefused();
    return undefined;
  }

  #onRefused(): void {
    const clamps = this.#parts.lowBalance === 'clamp' && this.#stage === 'whole';
    this.#stage = clamps ? 'rest' : 'over';
    // What others hold may come back only now: asking for the whole has taken all the time that it had.
    if (clamps) this.#endMs = this.#parts.clock.monotonicMs() + TRIES_MS_MAX;
    this.#context.mayClamp = true;
  }

  /** All that the account has, as far as is known; at least what one token of a response needs. */
  #rest(call: ChatCall): PicoUnits {
    const { caller } = this.#context;
    const least = leastHoldOf(this.#context, call, this.#parts);
    const balance = this.#parts.ledger.balanceOf(caller!.account);
    return asPicoUnits(balance > least ? balance : least);
  }
}

function isOfLeases({ code, detail }: ErrorRecord): boolean {
  return (
    code === 'insufficient_quota' || code === 'daily_limit_exceeded' || detail === 'account_calls_in_flight'
  );
}
