/**
 * What calls take from their scopes (key, account, groups), and give back: calls in flight, calls of the day,
 * tokens, spending, holds. Ledger calls it, for listeners that admit and settle, and for the main thread that
 * releases the calls of a dead listener. Any thread. Each admitted call is settled or released exactly once.
 *
 *     admit ──> settle ──> (reverse)      charged, and in rare cases reversed
 *          └──> release                   given back
 *
 * A call whose scopes have no quotas but those of its account's plan for the day and calls in flight takes
 * and gives back nothing else, and pays for nothing else.
 */
import { invariant } from '../core/errors.js';
import type { QuotaLimits, QuotaName } from '../core/quotas.js';
import {
  type AccountIndex,
  asPicoUnits,
  asWallMs,
  type CallSlot,
  type GroupIndex,
  type KeyIndex,
  type PicoUnits,
  type WallMs,
} from '../core/units.js';
import type { Clock } from '../core/clock.js';
import type { Balance, Settlement } from './balance.js';
import { type DayCalls, resetOfDay } from './day.js';
import type { LowLeases } from './counters.js';
import type { DirtySet } from './dirty-set.js';
import type { InFlight } from './in-flight.js';
import type { LimitedScopes } from './limited-scopes.js';
import { ACCOUNT_RECORD, BESIDE_WORDS32, EXTENDED_QUOTAS, GROUP, type LedgerViews } from './layout.js';
import {
  ACCOUNT_SCOPE,
  createTaken,
  DAY_BIT,
  GROUP_SCOPE,
  KEY_SCOPE,
  Reservations,
  SCOPES_MAX,
  type Taken,
} from './reservations.js';
import { type Amounts, nanoUnitsOf, type ScopeQuotas } from './scope-quotas.js';

/** Whose quotas a call counts toward. */
export interface CallScopes {
  readonly account: AccountIndex;
  /** The limits of the account. */
  readonly plan: {
    readonly callsPerDay: number;
    /** The lower of the plan's and the gateway's. */
    readonly callsInFlightMax: number;
    readonly quotas: QuotaLimits;
  };
  /** The key, if it has limits of its own. */
  readonly key: KeyIndex | undefined;
}

export interface CallNeeds {
  /** What the call may cost. */
  readonly hold: PicoUnits;
  /** What it may use; 0: it is admitted as long as any are left, and counts when it ends. */
  readonly tokens: number;
}

/** Why a call was not admitted. Amounts of money are in pico-units. */
export interface Refusal {
  readonly kind: 'key' | 'account' | 'group';
  /** Of the key, the account or the group. */
  readonly index: number;
  readonly quota: QuotaName | 'balance';
  /** Of a balance: the hold. */
  readonly limit: bigint;
  readonly left: bigint;
  /** When a call may be admitted again, as far as that is known. */
  readonly resetsMs: WallMs;
  /** The coordinator may have more. */
  readonly asks: boolean;
  /** It needs more than the limit. */
  readonly never: boolean;
}

export interface CallsOptions {
  readonly inFlight: InFlight;
  readonly day: DayCalls<AccountIndex>;
  readonly keys: LimitedScopes;
  readonly groups: LimitedScopes<GroupIndex>;
  readonly quotas: ScopeQuotas;
  readonly balance: Balance;
  readonly dirty: DirtySet;
  readonly clock: Clock;
  /** Undefined unless limits are shared. */
  readonly low: LowLeases | undefined;
}

const QUOTA_COUNT = EXTENDED_QUOTAS.length;
const FLIGHT = EXTENDED_QUOTAS.indexOf('calls_in_flight');
const TOKENS_PER_MINUTE = EXTENDED_QUOTAS.indexOf('tokens_per_minute');
const CALLS_PER_DAY = -1;
/** In this order admission takes them: extended quotas by number, and calls of the day. */
const ORDER = EXTENDED_QUOTAS.flatMap((_, quota) =>
  quota === TOKENS_PER_MINUTE ? [quota, CALLS_PER_DAY] : [quota],
);
const NO_MASKS = new Uint8Array(0);
const NO_LIMITS = new Float64Array(QUOTA_COUNT);

/** One scope of a call that is being admitted. */
interface Link {
  index: number;
  /** Its quota record; -1 if none. */
  record: number;
  /** Which quotas it has: bits as in Taken.masks. */
  mask: number;
  callsPerDay: number;
}

export class Calls {
  readonly #besides: Int32Array;
  readonly #options: CallsOptions;
  readonly #inFlight: InFlight;
  readonly #reservations: Reservations;
  readonly #day: DayCalls<AccountIndex>;
  readonly #balance: Balance;
  readonly #dirty: DirtySet;
  readonly #quotas: ScopeQuotas;
  readonly #links: Link[] = Array.from({ length: SCOPES_MAX }, () => ({
    index: 0,
    record: -1,
    mask: 0,
    callsPerDay: 0,
  }));
  /** The limits of the account that is being admitted; those of others are in their records. */
  #planLimits: Float64Array = NO_LIMITS;
  #lastQuotas: QuotaLimits | undefined;
  #lastMask = 0;
  readonly #taken = createTaken();
  readonly #held: Amounts = { tokens: 0, nanoUnits: 0 };
  readonly #used: Amounts = { tokens: 0, nanoUnits: 0 };

  constructor(views: LedgerViews, options: CallsOptions) {
    const { inFlight, day, balance, dirty, quotas } = options;
    this.#besides = views.besides;
    this.#options = options;
    this.#inFlight = inFlight;
    this.#reservations = new Reservations(views);
    this.#day = day;
    this.#balance = balance;
    this.#dirty = dirty;
    this.#quotas = quotas;
  }

  /** The account's calls in flight now. Any thread. */
  inFlightOf(account: AccountIndex): number {
    return this.#inFlight.of(account);
  }

  /**
   * Takes all that the call needs, or nothing, in this order: calls in flight, tokens of the minute, calls of
   * the day, the other quotas of days and months, the hold; of each quota first the key's, then the
   * account's, then those of the groups from the account's own upward. A rejection gives back what was taken
   * before it. Until then another thread may be rejected although a moment later it would not be, but no
   * thread ever gets one too many. Returns undefined if the call is admitted. Owner of the slot, which is
   * free.
   */
  admit(slot: CallSlot, scopes: CallScopes, needs: CallNeeds): Refusal | undefined {
    invariant(this.#reservations.isFree(slot), `call slot ${slot} is free when a call is admitted into it`);
    const { account, plan, key } = scopes;
    const taken = this.#taken;
    taken.account = account;
    taken.scopes = 0;
    if (plan.quotas !== this.#lastQuotas) this.#usePlan(plan.quotas);
    const group = Atomics.load(this.#besides, account * BESIDE_WORDS32 + GROUP);
    if (this.#lastMask !== 0 || group !== 0 || key !== undefined) {
      this.#link(scopes, group - 1);
    }
    if (!this.#inFlight.take(account, plan.callsInFlightMax)) {
      return this.#refuse(ACCOUNT_SCOPE, FLIGHT, scopes, needs);
    }
    const refusal = taken.scopes > 0 ? this.#takeAll(scopes, needs) : this.#takeDay(scopes, needs);
    if (refusal !== undefined) {
      this.#inFlight.giveBack(account);
      return refusal;
    }
    if (!this.#balance.hold(account, needs.hold)) {
      this.#giveBack(taken);
      this.#inFlight.giveBack(account);
      return this.#refuse(ACCOUNT_SCOPE, 'balance', scopes, needs);
    }
    this.#reservations.open(slot, needs.hold, taken);
    this.#dirty.mark(account);
    return undefined;
  }

  /** See `Ledger.settle`. */
  settle(slot: CallSlot, cost: PicoUnits, tokens: number): Settlement | undefined {
    if (!this.#reservations.claim(slot)) return undefined;
    const taken = this.#reservations.read(slot, this.#taken);
    const hold = this.#reservations.holdOf(slot);
    const settlement = this.#balance.settle(taken.account, hold, cost);
    if (taken.scopes > 0) {
      this.#held.nanoUnits = nanoUnitsOf(hold);
      this.#held.tokens = taken.tokens;
      this.#used.nanoUnits = nanoUnitsOf(cost);
      this.#used.tokens = tokens;
      this.#eachQuota(taken, (record, quota) =>
        this.#quotas.settle(record, quota, this.#held, this.#used, taken),
      );
    }
    this.#reservations.close(slot);
    this.#inFlight.giveBack(taken.account);
    this.#dirty.mark(taken.account);
    return settlement;
  }

  /** See `Ledger.takenOf`. */
  takenOf(slot: CallSlot): Taken {
    const taken = this.#reservations.read(slot, this.#taken);
    return { ...taken, masks: taken.scopes === 0 ? NO_MASKS : taken.masks.slice() };
  }

  /** See `Ledger.reverse`. */
  reverse(taken: Taken, { charged, uncovered }: Settlement, tokens: number): void {
    const { account } = taken;
    this.#balance.reverse(account, charged, uncovered);
    this.#giveBackDays(taken);
    if (taken.scopes > 0) {
      this.#used.nanoUnits = nanoUnitsOf(asPicoUnits(charged + uncovered));
      this.#used.tokens = tokens;
      this.#eachQuota(taken, (record, quota) => this.#quotas.reverse(record, quota, this.#used, taken));
    }
    this.#dirty.mark(account);
  }

  /** See `Ledger.release`. */
  release(slot: CallSlot): boolean {
    if (!this.#reservations.claim(slot)) return false;
    const taken = this.#reservations.read(slot, this.#taken);
    const { account } = taken;
    const hold = this.#reservations.holdOf(slot);
    this.#balance.giveBack(account, hold);
    if (taken.scopes > 0) {
      this.#held.nanoUnits = nanoUnitsOf(hold);
      this.#held.tokens = taken.tokens;
    }
    this.#giveBack(taken);
    this.#reservations.close(slot);
    this.#inFlight.giveBack(account);
    this.#dirty.mark(account);
    return true;
  }

  #usePlan(quotas: QuotaLimits): void {
    const { mask, limits } = this.#quotas.planOf(quotas);
    this.#lastQuotas = quotas;
    this.#lastMask = mask;
    this.#planLimits = limits;
  }

  /** Sets the links of a call, and how many scopes it has. */
  #link({ account, key }: CallScopes, group: number): void {
    const { keys, groups } = this.#options;
    const taken = this.#taken;
    taken.key = key;
    taken.group = group < 0 ? undefined : (group as GroupIndex);
    if (key === undefined) this.#links[KEY_SCOPE]!.mask = 0;
    else this.#linkLimited(KEY_SCOPE, key, keys);
    const own = this.#links[ACCOUNT_SCOPE]!;
    own.index = account;
    own.mask = this.#lastMask;
    if (own.mask !== 0) {
      const record = this.#quotas.recordAt(this.#besides, account * BESIDE_WORDS32 + ACCOUNT_RECORD);
      invariant(record !== undefined, 'there is a quota record for each account that calls');
      own.record = record;
    }
    let scopes = GROUP_SCOPE;
    for (let at = taken.group; at !== undefined && scopes < SCOPES_MAX; at = groups.parentOf(at)) {
      this.#linkLimited(scopes, at, groups);
      scopes += 1;
    }
    taken.scopes = scopes;
    taken.masks.fill(0);
  }

  #linkLimited<Index extends number>(scope: number, index: Index, limited: LimitedScopes<Index>): void {
    const link = this.#links[scope]!;
    const callsPerDay = limited.callsPerDayOf(index);
    link.index = index;
    link.record = limited.recordOf(index) ?? -1;
    link.callsPerDay = callsPerDay ?? 0;
    link.mask =
      (link.record < 0 ? 0 : this.#quotas.maskOf(link.record)) | (callsPerDay === undefined ? 0 : DAY_BIT);
  }

  /** The account's call of the day, for a call that takes of nothing else. */
  #takeDay(scopes: CallScopes, needs: CallNeeds): Refusal | undefined {
    const dayNumber = this.#day.take(scopes.account, scopes.plan.callsPerDay);
    if (dayNumber === undefined) return this.#refuse(ACCOUNT_SCOPE, CALLS_PER_DAY, scopes, needs);
    this.#taken.dayNumber = dayNumber;
    return undefined;
  }

  /** All that a call takes of its scopes but the hold and the account's calls in flight. */
  #takeAll(scopes: CallScopes, needs: CallNeeds): Refusal | undefined {
    const taken = this.#taken;
    const held = this.#held;
    held.tokens = needs.tokens;
    held.nanoUnits = nanoUnitsOf(needs.hold);
    taken.tokens = needs.tokens;
    this.#quotas.readPeriods(taken);
    let all = 0;
    for (let scope = 0; scope < taken.scopes; scope++) all |= this.#links[scope]!.mask;
    for (const quota of ORDER) {
      if (quota !== CALLS_PER_DAY && (all & (1 << quota)) === 0) continue;
      for (let scope = 0; scope < taken.scopes; scope++) {
        if (this.#take(scope, quota, scopes)) continue;
        this.#giveBack(taken);
        return this.#refuse(scope, quota, scopes, needs);
      }
    }
    return undefined;
  }

  /** Takes of one quota of one scope; true if it has none. */
  #take(scope: number, quota: number, { account, plan }: CallScopes): boolean {
    const { keys, groups, low } = this.#options;
    const taken = this.#taken;
    const { index, record, mask, callsPerDay } = this.#links[scope]!;
    if (quota !== CALLS_PER_DAY) {
      const bit = 1 << quota;
      if ((mask & bit) === 0) return true;
      const limit = scope === ACCOUNT_SCOPE ? this.#planLimits[quota]! : this.#quotas.limitOf(record, quota);
      if (!this.#quotas.take(record, quota, limit, this.#held, taken)) return false;
      if (low !== undefined && this.#quotas.ranLow()) tell(low, scope, index);
      taken.masks[scope]! |= bit;
      return true;
    }
    if (scope === ACCOUNT_SCOPE) {
      const dayNumber = this.#day.take(account, plan.callsPerDay);
      if (dayNumber === undefined) return false;
      taken.dayNumber = dayNumber;
      taken.masks[scope]! |= DAY_BIT;
      return true;
    }
    if ((mask & DAY_BIT) === 0) return true;
    const dayNumber =
      scope === KEY_SCOPE
        ? keys.takeDay(index as KeyIndex, callsPerDay)
        : groups.takeDay(index as GroupIndex, callsPerDay);
    if (dayNumber === undefined) return false;
    // If midnight comes before the account's is taken, this call is of a day that is over.
    taken.dayNumber = dayNumber;
    taken.masks[scope]! |= DAY_BIT;
    return true;
  }

  /** Gives back all that is in `taken`, of amounts `#held`, but what the account takes besides. */
  #giveBack(taken: Taken): void {
    this.#giveBackDays(taken);
    if (taken.scopes === 0) return;
    this.#eachQuota(taken, (record, quota) => this.#quotas.release(record, quota, this.#held, taken));
  }

  #giveBackDays({ account, masks, scopes, key, group, dayNumber }: Taken): void {
    const { keys, groups } = this.#options;
    if (scopes === 0 || (masks[ACCOUNT_SCOPE]! & DAY_BIT) !== 0) this.#day.giveBack(account, dayNumber);
    if (key !== undefined && (masks[KEY_SCOPE]! & DAY_BIT) !== 0) keys.giveBackDay(key, dayNumber);
    for (let scope = GROUP_SCOPE, at = group; scope < scopes && at !== undefined; scope++) {
      if ((masks[scope]! & DAY_BIT) !== 0) groups.giveBackDay(at, dayNumber);
      at = groups.parentOf(at);
    }
  }

  /** Visits each quota that the call took of a quota record, and marks its scopes dirty. */
  #eachQuota(taken: Taken, visit: (record: number, quota: number) => void): void {
    const { keys, groups } = this.#options;
    const { masks, scopes, key } = taken;
    if (key !== undefined && masks[KEY_SCOPE] !== 0) {
      this.#eachBit(masks[KEY_SCOPE]!, keys.recordOf(key), visit);
      keys.mark(key);
    }
    const own = Atomics.load(this.#besides, taken.account * BESIDE_WORDS32 + ACCOUNT_RECORD) - 1;
    this.#eachBit(masks[ACCOUNT_SCOPE]!, own, visit);
    for (let scope = GROUP_SCOPE, at = taken.group; scope < scopes && at !== undefined; scope++) {
      if (masks[scope] !== 0) {
        this.#eachBit(masks[scope]!, groups.recordOf(at), visit);
        groups.mark(at);
      }
      at = groups.parentOf(at);
    }
  }

  #eachBit(mask: number, record: number | undefined, visit: (record: number, quota: number) => void): void {
    for (let bits = mask & ~DAY_BIT; bits !== 0; bits &= bits - 1)
      visit(record!, 31 - Math.clz32(bits & -bits));
  }

  /** A need that exceeds a limit is named first, whatever was refused. */
  #refuse(scope: number, quota: number | 'balance', scopes: CallScopes, needs: CallNeeds): Refusal {
    return this.#neverFits(needs) ?? this.#refusalOf(scope, quota, scopes, needs);
  }

  #neverFits(needs: CallNeeds): Refusal | undefined {
    const held: Amounts = { tokens: needs.tokens, nanoUnits: nanoUnitsOf(needs.hold) };
    for (let scope = 0; scope < this.#taken.scopes; scope++) {
      const { mask, record } = this.#links[scope]!;
      for (let quota = 0; quota < QUOTA_COUNT; quota++) {
        if ((mask & (1 << quota)) === 0) continue;
        const limit =
          scope === ACCOUNT_SCOPE ? this.#planLimits[quota]! : this.#quotas.limitOf(record, quota);
        if (this.#quotas.needOf(quota, held) > limit)
          return { ...this.#quotaRefusal(scope, quota, limit, held), never: true };
      }
    }
    return undefined;
  }

  #quotaRefusal(scope: number, quota: number, limit: number, held: Amounts): Refusal {
    const { index, record } = this.#links[scope]!;
    const { left, resetsMs } = this.#quotas.leftOf(record, quota, limit, held);
    return {
      kind: scope === KEY_SCOPE ? 'key' : scope === ACCOUNT_SCOPE ? 'account' : 'group',
      index,
      quota: EXTENDED_QUOTAS[quota]!,
      limit: this.#quotas.amountIn(quota, limit),
      left: this.#quotas.amountIn(quota, left),
      resetsMs,
      asks: this.#options.low !== undefined,
      never: false,
    };
  }

  #refusalOf(scope: number, quota: number | 'balance', scopes: CallScopes, needs: CallNeeds): Refusal {
    const { account, plan } = scopes;
    const { keys, groups, clock, low } = this.#options;
    const asks = low !== undefined;
    const nowMs = clock.wallMs();
    if (quota === 'balance') {
      const left = this.#balance.balance(account);
      return {
        kind: 'account',
        index: account,
        quota,
        limit: needs.hold,
        left,
        resetsMs: nowMs,
        asks,
        never: false,
      };
    }
    if (scope === ACCOUNT_SCOPE && (quota === FLIGHT || quota === CALLS_PER_DAY)) {
      const isDay = quota === CALLS_PER_DAY;
      return {
        kind: 'account',
        index: account,
        quota: isDay ? 'calls_per_day' : 'calls_in_flight',
        limit: BigInt(isDay ? plan.callsPerDay : plan.callsInFlightMax),
        left: 0n,
        resetsMs: isDay ? resetOfDay(this.#day.read(account).dayNumber, nowMs) : asWallMs(nowMs + 1),
        asks,
        never: false,
      };
    }
    const { index, record, callsPerDay } = this.#links[scope]!;
    if (quota === CALLS_PER_DAY) {
      const isKey = scope === KEY_SCOPE;
      const { dayNumber } = isKey ? keys.countsOf(index as KeyIndex) : groups.countsOf(index as GroupIndex);
      return {
        kind: isKey ? 'key' : 'group',
        index,
        quota: 'calls_per_day',
        limit: BigInt(callsPerDay),
        left: 0n,
        resetsMs: resetOfDay(dayNumber, nowMs),
        asks,
        never: false,
      };
    }
    const limit = scope === ACCOUNT_SCOPE ? this.#planLimits[quota]! : this.#quotas.limitOf(record, quota);
    return this.#quotaRefusal(scope, quota, limit, this.#held);
  }
}

function tell(low: LowLeases, scope: number, index: number): void {
  if (scope === KEY_SCOPE) low.key(index as KeyIndex);
  else if (scope === ACCOUNT_SCOPE) low.account(index as AccountIndex);
  else low.group?.(index as GroupIndex);
}
