/**
 * The permits of a scope's minute that an coordinator has granted, by when they expire and by who has them: of the reference in memory
 * and of LmdbAuthority. Main thread.
 */
import type { MinuteAsk, MinuteGrant, ReturnedPermits } from './coordinator.js';
import { expiryTickOf, shareOf, TICK_MS, WEIGHING_TICKS } from './grant-policy.js';

export type BucketState = readonly [tick: number, lent: readonly (readonly [node: string, count: number])[]];

export class MinuteBuckets {
  /** By tick of expiry, then by node: permits granted and not given back. */
  readonly #buckets = new Map<number, Map<string, number>>();
  /** The last grant to each node, which it may not have heard of. No part of `state`: LMDB loses no response. */
  readonly #lastGrants = new Map<
    string,
    { readonly number: number; readonly tick: number; readonly count: number }
  >();

  /** Of what `state` told, or of what was used before anything was granted. */
  put(tick: number, granted: BucketState[1]): void {
    this.#buckets.set(tick, new Map(granted));
  }

  /** Without what weighs no more. */
  state(nowMs: number): BucketState[] {
    const oldest = Math.floor(nowMs / TICK_MS) - WEIGHING_TICKS;
    const weighing = [...this.#buckets].filter(([tick]) => tick >= oldest);
    return weighing.map(([tick, bucket]) => [tick, [...bucket].filter(([, count]) => count > 0)]);
  }

  weighing(nowMs: number): number {
    return this.#weighingAt(Math.floor(nowMs / TICK_MS));
  }

  /** Takes what `ask` gives back, and lends what it wants of what is left of the limit. */
  answer(node: string, limit: number, ask: MinuteAsk, nowMs: number): MinuteGrant {
    const nowTick = Math.floor(nowMs / TICK_MS);
    for (const tick of this.#buckets.keys()) {
      if (tick + WEIGHING_TICKS < nowTick) this.#buckets.delete(tick);
    }
    const last = this.#lastGrants.get(node);
    if (last !== undefined && ask.order !== undefined && last.number > ask.order.heardNumber) {
      this.#takeBack(node, last);
    } else {
      for (const permits of ask.returned) this.#takeBack(node, permits);
    }
    const before = this.#weighingAt(nowTick);
    const granted = shareOf(limit - before, ask);
    const weighing = before + granted;
    const tick = expiryTickOf(nowTick, weighing, limit, ask);
    if (granted > 0) {
      const bucket = this.#buckets.get(tick) ?? new Map<string, number>();
      bucket.set(node, (bucket.get(node) ?? 0) + granted);
      this.#buckets.set(tick, bucket);
    }
    if (ask.order !== undefined)
      this.#lastGrants.set(node, { number: ask.order.number, tick, count: granted });
    return {
      granted,
      remaining: Math.max(0, limit - weighing),
      heldByOthers: this.#isHeldByOthers(node, nowTick),
      tick,
      validMs: (tick + 1) * TICK_MS - nowMs,
      freeInMs: this.#freeInMs(weighing, limit, nowMs),
    };
  }

  /** The node's life has ended: it may have used the last of what it was granted. */
  forget(node: string): void {
    this.#lastGrants.delete(node);
  }

  /** Never more than the node was granted: what is not there is of a bucket that weighs no more. */
  #takeBack(node: string, { tick, count }: ReturnedPermits): void {
    const bucket = this.#buckets.get(tick);
    bucket?.set(node, Math.max(0, (bucket.get(node) ?? 0) - count));
  }

  /** Oldest first, until enough has stopped weighing. */
  #freeInMs(weighing: number, limit: number, nowMs: number): number {
    let left = weighing;
    if (left < limit) return 0;
    for (const [tick, bucket] of [...this.#buckets].sort(([first], [second]) => first - second)) {
      left -= sum(bucket.values());
      if (left < limit) return (tick + WEIGHING_TICKS + 1) * TICK_MS - nowMs;
    }
    return 0;
  }

  #isHeldByOthers(node: string, nowTick: number): boolean {
    for (const [tick, bucket] of this.#buckets) {
      if (tick < nowTick) continue;
      for (const [holder, count] of bucket) if (holder !== node && count > 0) return true;
    }
    return false;
  }

  #weighingAt(nowTick: number): number {
    let weighing = 0;
    for (const [tick, bucket] of this.#buckets) {
      if (tick + WEIGHING_TICKS >= nowTick) weighing += sum(bucket.values());
    }
    return weighing;
  }
}

function sum(counts: Iterable<number>): number {
  let total = 0;
  for (const count of counts) total += count;
  return total;
}
