/**
 * Takes what a call needs of all quotas of all its scopes in one step, and settles it in one, by the
 * WebAssembly module of quota-module.ts. `Calls` (calls.ts) uses it; each Ledger has one. What the module
 * leaves, ScopeQuotas does quota by quota: if limits are shared, everything. Any thread.
 *
 * An _entry_ is one quota of one scope of the call, as quota-module.ts has it. In the code `entry` is where
 * an entry begins, in 64-bit words of the scratch area: memory of this Ledger behind the quota records. The
 * area of a thread that ends is not given again. A thread that finds none left does without the module, more
 * slowly. So do all threads if WebAssembly got no memory (`createSharedMemory`).
 *
 * Must hold: a take that fails takes nothing. No two threads write one scratch area, or one takes by the
 * entries of the other. Test: test/unit/ledger/quota-batch.test.ts (a ledger with the module beside one
 * without).
 */
import { invariant } from '../core/errors.js';
import { canInstantiate, compile, instantiate, type SharedMemory } from '../core/shared-memory.js';
import type { MonotonicMs } from '../core/units.js';
import type { CallLeft } from './call-left.js';
import * as layout from './layout.js';
import { QUOTA_MODULE_BYTES } from './generated-module.js';
import { ENTRY, HALF_SETTLED, SETTLED, UNSETTLED } from './quota-module.js';
import { DAY_BIT, FIRST_SCOPE, SCOPES_MAX, type Taken } from './reservations.js';
import type { ScopeChain } from './scope-chain.js';
import {
  type Amounts,
  createAmounts,
  FIRST_QUOTA,
  NOTHING_USED,
  periodOf,
  type ScopeQuotas,
} from './scope-quotas.js';
import { PERIODS_KNOWN } from './stocks.js';
import { TICK_MS, TICKS_PER_MINUTE } from './window.js';

/** Length and fields of an entry (quota-module.ts): in words of 64 bits, then of 32. */
const ENTRY_WORDS64 = ENTRY.bytes / 8;
const AMOUNT = ENTRY.amount / 8;
const LIMIT = ENTRY.limit / 8;
const ADDRESS = 0;
const HEAD = ENTRY.head / 4;
const STATUS = ENTRY.status / 4;
const TICK_START = ENTRY.tickStart / 4;

const ENTRIES_BYTES_MAX = SCOPES_MAX * layout.EXTENDED_QUOTAS.length * 8 * ENTRY_WORDS64;
invariant(ENTRIES_BYTES_MAX <= layout.SCRATCH_BYTES, 'the entries of a call fit its scratch area');

const PERIOD_MASK = 2 * PERIODS_KNOWN - 1;

/** Compiled once a thread. */
let quotaModule: object | undefined;

export class QuotaBatch {
  readonly #quotas: ScopeQuotas;
  readonly #views: layout.QuotaViews;
  /** The memory of the records, until `#open` uses it; undefined if no module can be had over it. */
  #memory: SharedMemory | undefined;
  #words32: Int32Array;
  #floats: Float64Array;
  /** The first byte of the scratch area; undefined before `#open`, and if this Ledger has none. */
  #scratchByte: number | undefined;
  #take: ((first: number, end: number) => number) | undefined;
  #settle: ((first: number, end: number) => number) | undefined;
  /** Amounts for `#settleRest`: what is left of a hold whose use is settled. */
  readonly #rest = createAmounts(0);

  /** `memory`: that of the records; undefined if limits are shared. */
  constructor(quotas: ScopeQuotas, views: layout.QuotaViews, memory: SharedMemory | undefined) {
    this.#quotas = quotas;
    this.#views = views;
    this.#memory = memory !== undefined && canInstantiate(memory) ? memory : undefined;
    this.#words32 = views.words32;
    this.#floats = views.floats;
  }

  /**
   * Takes `held` of the quotas in `mask` of each link, but no calls a day. The chain's `taken` has the scopes
   * and the periods. Sets the bits of these quotas in `taken.masks`, and sets `left`. Returns false, and
   * takes nothing, if a quota has too little left or begins a period: then the caller takes quota by quota.
   */
  take(chain: ScopeChain, mask: number, held: Amounts, nowMs: MonotonicMs, left: CallLeft): boolean {
    const { links, taken } = chain;
    const quotaBits = mask & ~DAY_BIT;
    const tick = Math.floor(nowMs / TICK_MS) - TICKS_PER_MINUTE;
    if (quotaBits === 0 || tick < 0) return false;
    const scratchByte = this.#scratchByte ?? this.#open();
    if (scratchByte === undefined) return false;
    const floats = this.#floats;
    const start = 8 * (layout.TOKEN_TICK_STARTS + (tick % layout.TOKEN_TICKS_KEPT));
    let entry = 0;
    for (let scope = FIRST_SCOPE; scope < taken.scopeCount; scope++) {
      const { mask: linkMask, record, limits, firstLimit } = links[scope]!;
      for (let bits = linkMask & quotaBits; bits !== 0; bits &= bits - 1) {
        const quota = layout.lowestQuotaOf(bits);
        this.#set(entry, record, quota, taken, tick, record * layout.QUOTA_BYTES + start);
        floats[entry + AMOUNT] = held[quota]!;
        floats[entry + LIMIT] = limits[firstLimit + quota]!;
        entry += ENTRY_WORDS64;
      }
    }
    if (entry === 0 || this.#take!(scratchByte, scratchByte + 8 * entry) === 0) return false;
    entry = 0;
    for (let scope = FIRST_SCOPE; scope < taken.scopeCount; scope++) {
      const { mask: linkMask, record, limits, firstLimit } = links[scope]!;
      taken.masks[scope]! |= linkMask & quotaBits;
      for (let bits = linkMask & quotaBits; bits !== 0; bits &= bits - 1, entry += ENTRY_WORDS64) {
        const quota = layout.lowestQuotaOf(bits);
        left.set(scope, quota, floats[entry + LIMIT]!, limits[firstLimit + quota]!, record);
      }
    }
    return true;
  }

  /** Replaces `held` by `used` for the quotas in `mask` that the `masks` of the chain's `taken` have. */
  settle(chain: ScopeChain, mask: number, held: Amounts, used: Amounts, nowMs: MonotonicMs): void {
    const { links, taken } = chain;
    const floats = this.#floats;
    const scratchByte = this.#scratchByte;
    if (scratchByte !== undefined) {
      const tick = Math.floor(nowMs / TICK_MS);
      let entry = 0;
      for (let quota = FIRST_QUOTA; quota < held.length; quota++)
        for (let scope = FIRST_SCOPE; scope < taken.scopeCount; scope++) {
          if ((taken.masks[scope]! & mask & (1 << quota)) === 0) continue;
          this.#set(entry, links[scope]!.record, quota, taken, tick, 1);
          floats[entry + AMOUNT] = held[quota]!;
          floats[entry + LIMIT] = used[quota]!;
          entry += ENTRY_WORDS64;
        }
      if (entry === 0 || this.#settle!(scratchByte, scratchByte + 8 * entry) === SETTLED) return;
    }
    this.#settleRest(chain, mask, held, used, nowMs);
  }

  /**
   * Settles what the module left, in the order of the entries; everything without the module. Quota by quota,
   * because most quotas have the amount of the one before (addendOf of packed-words.ts).
   */
  #settleRest(chain: ScopeChain, mask: number, held: Amounts, used: Amounts, nowMs: MonotonicMs): void {
    const { links, taken } = chain;
    const words = this.#words32;
    let entry = 0;
    for (let quota = FIRST_QUOTA; quota < held.length; quota++)
      for (let scope = FIRST_SCOPE; scope < taken.scopeCount; scope++) {
        if ((taken.masks[scope]! & mask & (1 << quota)) === 0) continue;
        const { record } = links[scope]!;
        let status = UNSETTLED;
        if (this.#scratchByte !== undefined) {
          const isOfEntry = words[2 * entry + ADDRESS] === 8 * layout.stockAt(record, quota);
          invariant(isOfEntry, 'the rest is settled in the order of the entries');
          status = words[2 * entry + STATUS]!;
          entry += ENTRY_WORDS64;
        }
        if (status === UNSETTLED) this.#quotas.settle(record, quota, held, used, taken, nowMs);
        if (status !== HALF_SETTLED) continue;
        this.#rest[quota] = held[quota]! - used[quota]!;
        this.#quotas.settle(record, quota, this.#rest, NOTHING_USED, taken, nowMs);
      }
  }

  /** Makes an instance of the module: some ms, with the first call only. Returns `#scratchByte`. */
  #open(): number | undefined {
    const memory = this.#memory;
    if (memory === undefined) return undefined;
    const { used, words64 } = this.#views;
    const area = Atomics.add(used, layout.SCRATCH_USED, 1);
    // Cleared also if no area is left: this Ledger does not try again.
    this.#memory = undefined;
    if (area >= layout.SCRATCH_AREAS) return undefined;
    quotaModule ??= compile(Buffer.from(QUOTA_MODULE_BYTES, 'base64'));
    const { take, settle } = instantiate(quotaModule, memory);
    const scratchByte = words64.byteLength + area * layout.SCRATCH_BYTES;
    this.#words32 = new Int32Array(memory.buffer, scratchByte, layout.SCRATCH_BYTES / 4);
    this.#floats = new Float64Array(memory.buffer, scratchByte, layout.SCRATCH_BYTES / 8);
    this.#take = take;
    this.#settle = settle;
    this.#scratchByte = scratchByte;
    return scratchByte;
  }

  /**
   * Writes an entry but its amounts. `tick`: see the field `head` in quota-module.ts. `start`: for a window,
   * the address of the start of that tick; `settle` reads no start, so there any number but 0 will do.
   */
  #set(
    entry: number,
    record: number,
    quota: layout.QuotaNumber,
    taken: Taken,
    tick: number,
    start: number,
  ): void {
    const words = this.#words32;
    const isWindow = quota === layout.TOKENS_PER_MINUTE;
    words[2 * entry + ADDRESS] = 8 * layout.stockAt(record, quota);
    words[2 * entry + HEAD] = isWindow ? tick : periodOf(quota, taken) & PERIOD_MASK;
    words[2 * entry + TICK_START] = isWindow ? start : 0;
  }
}
