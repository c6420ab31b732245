/**
 * If limits are shared with other processes, a rejected call asks the coordinator for a lease of the quota
 * that the call lacks, and then `admit` tries again. Here `admit` _rejects_ and the coordinator _refuses_.
 * intake.ts makes at most one AdmissionAsk for each call. Listener thread.
 *
 * Must hold: after LEASE_TRIES_MS_MAX of a stage, `whole` or `lowered`, a call asks no more, because its
 * caller and its body wait meanwhile. Only the first LEASE_TRIES_MIN asks of the call may begin later
 * (further test: test/e2e/shared-quotas.test.ts).
 */
import { type LeaseChannel, refusedBy } from '../channel/lease-channel.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { asPicoUnits } from '../core/units.js';
import type { CallNeeds, RefusedQuota } from '../ledger/quota-rejections.js';
import { promptTokensMaxOf, type ChatCall } from '../protocol/chat-call.js';
import { worstCaseOf } from '../registry/catalog.js';
import { withPlanBound, lowersOutput, type Models, needOf } from './admit.js';
import type { CallContext, Caller, ListenerContext } from './context.js';
import { askLease, LEASE_TRIES_MIN, LEASE_TRIES_MS_MAX } from './rate-limit.js';
import { coordinatorRejection, LEASE_LATE } from './rejections.js';

/**
 * The leases that one call asks for. If `low_balance` is `clamp`, the output is lowered only once the
 * coordinator has refused the whole hold. Then the call asks for the money that the account has. In the stage
 * `over` it asks for no lease.
 *
 *     whole ── money was refused ──→ lowered ── refused again ──→ over
 *       └── `low_balance: refuse`, or no money was refused ────────↗
 *
 * A refusal names the quotas that are used up (`context.refused`). Then `admit` is called once more, because
 * some of them may have come back. If another quota rejects the call now, other calls have taken it since the
 * refusal; the rejection still names the refused quota. If the time of a stage ends without a lease and
 * without a refusal, the rejection is LEASE_LATE, because perhaps no quota is used up.
 *
 * `admit` sets `context.asksLease` with each decision. Nothing clears `context.refused`.
 */
export class AdmissionAsk {
  readonly #context: CallContext;
  readonly #listener: ListenerContext;
  readonly #leases: LeaseChannel;
  /** Monotonic. After LEASE_TRIES_MIN tries no lease is asked for beyond this time. */
  #askUntilMs: number;
  /**
   * The asks of both stages. They are not counted anew for `lowered`: that stage has at least one ask, at its
   * beginning, and with a slow coordinator each further one would keep the caller waiting.
   */
  #tries = 0;
  #stage: 'whole' | 'lowered' | 'over' = 'whole';

  constructor(context: CallContext, listener: ListenerContext, leases: LeaseChannel) {
    this.#context = context;
    this.#listener = listener;
    this.#leases = leases;
    this.#askUntilMs = listener.clock.monotonicMs() + LEASE_TRIES_MS_MAX;
  }

  /**
   * Call it after `admit` has rejected `call`. Returns undefined if that rejection is final. Otherwise
   * resolves with undefined if `admit` is to be called again, or with the final rejection. Never rejects.
   */
  askAgain(call: ChatCall): Promise<ErrorRecord | undefined> | undefined {
    if (this.#stage === 'over' || !this.#context.asksLease) return undefined;
    const isTimeOver =
      this.#tries >= LEASE_TRIES_MIN && this.#listener.clock.monotonicMs() >= this.#askUntilMs;
    return isTimeOver ? Promise.resolve(LEASE_LATE) : this.#ask(call);
  }

  /** Resolves with undefined if `admit` is to be called again, else with the final rejection. */
  async #ask(call: ChatCall): Promise<ErrorRecord | undefined> {
    const caller = this.#context.knownCaller;
    this.#tries += 1;
    const need = this.#stage === 'whole' ? this.#wholeNeed(caller, call) : this.#loweredNeed(caller, call);
    // LeaseEnd (lease-channel.ts) lists how the wait may end. After `try` both of the next two are undefined.
    const leaseEnd = await askLease(
      caller,
      { kind: 'admission', ...need },
      this.#leases,
      this.#modelScopeOf(caller),
    );
    const lostRejection = coordinatorRejection(leaseEnd);
    if (lostRejection !== undefined) return lostRejection;
    const refused = refusedBy(leaseEnd);
    if (refused === undefined) return undefined;
    this.#context.refused = refused;
    this.#onRefused(refused);
    return undefined;
  }

  #modelScopeOf({ account, plan }: Caller): number | undefined {
    const { modelIndex } = this.#context;
    if (modelIndex === undefined || plan.modelLimits?.[modelIndex] === undefined) return undefined;
    return this.#listener.ledger.modelScopes.slotOf(account, modelIndex);
  }

  /**
   * Begins the next stage, because the coordinator has too little of what the call asked for. A lower output
   * helps only if money was refused. Otherwise the call would ask in vain for all money of the account, as it
   * does in the stage `lowered`.
   */
  #onRefused(refused: readonly RefusedQuota[]): void {
    const isMoney = refused.some(
      ({ quota }) => quota === 'balance' || quota === 'spend_per_day' || quota === 'spend_per_month',
    );
    const mayLowerOutput = isMoney && lowersOutput(this.#context, this.#listener) && this.#stage === 'whole';
    this.#stage = mayLowerOutput ? 'lowered' : 'over';
    // The stage `whole` may have used up its time, and other nodes may give money back only now.
    if (mayLowerOutput) this.#askUntilMs = this.#listener.clock.monotonicMs() + LEASE_TRIES_MS_MAX;
  }

  /** What `admit` has just failed to take. */
  #wholeNeed(caller: Caller, call: ChatCall): CallNeeds {
    const models = this.#models();
    return needOf(this.#context, models, withPlanBound(call, caller.plan, models), this.#listener);
  }

  /**
   * What the call needs with its output lowered. If a quota of spending rejected the call, `admit` has set it
   * as `context.lackingNeeds`. If the balance rejected the call, it is all money that the account is known to
   * have, and at least what one token of each choice costs. The need is never `isFree`, because the output of
   * a free call is not lowered (`lowersOutput`).
   */
  #loweredNeed(caller: Caller, call: ChatCall): CallNeeds {
    const { lackingNeeds } = this.#context;
    if (lackingNeeds !== undefined) return lackingNeeds;
    // The dearest model's, as in `needOf`: any of the models may answer.
    const leastHold = this.#models()
      .map(({ model }) => worstCaseOf(model.price, promptTokensMaxOf(call, model), call.choices))
      .reduce((highest, hold) => (hold > highest ? hold : highest));
    const balance = this.#listener.ledger.balance.balance(caller.account);
    const { tokens } = this.#wholeNeed(caller, call);
    return { hold: asPicoUnits(balance > leastHold ? balance : leastHold), tokens };
  }

  #models(): Models {
    const { models } = this.#context;
    invariant(models.length > 0, 'a call whose hold was rejected has a model');
    return models;
  }
}
