/**
 * Branded numbers, which the compiler keeps apart: an account's slot is not a key's, and a count is not a
 * time. In the names of these types an _Index_ is a slot of the glossary. The `as…` functions check nothing:
 * whoever calls them must know the unit. The last functions are arithmetic that JavaScript lacks. Nearly
 * every folder uses this file. Pure; any thread. No test of its own.
 */

declare const UNIT: unique symbol;
/** For a brand that one file alone makes, such as CallId of channel/open-calls.ts. */
export type Branded<Base, Name extends string> = Base & { readonly [UNIT]: Name };

/** Slot of an account in the ledger, from 0. */
export type AccountIndex = Branded<number, 'AccountIndex'>;
/** Slot of a key in the key table's records, from 0. */
export type KeyIndex = Branded<number, 'KeyIndex'>;
/** Slot of a group of accounts in the ledger, from 0. */
export type GroupIndex = Branded<number, 'GroupIndex'>;
/** Slot of an account's rule for a model in the ledger, from 0. */
export type ModelScopeIndex = Branded<number, 'ModelScopeIndex'>;
/** Slot of a scope of upstreams in the ledger, from 0. The scope is one provider's key at an address. */
export type UpstreamScopeIndex = Branded<number, 'UpstreamScopeIndex'>;
/** Slot of a call in flight: its index in the ledger's reservations and in the channel's table of calls. */
export type CallSlot = Branded<number, 'CallSlot'>;
/** Money: 10^-12 of one unit of the operator's currency. */
export type PicoUnits = Branded<bigint, 'PicoUnits'>;
/** Milliseconds of the monotonic clock (core/clock.ts), the same in all threads and processes of a host. */
export type MonotonicMs = Branded<number, 'MonotonicMs'>;
/** Milliseconds since 1970-01-01T00:00:00Z. */
export type WallMs = Branded<number, 'WallMs'>;

export const asAccountIndex = (value: number): AccountIndex => value as AccountIndex;
export const asKeyIndex = (value: number): KeyIndex => value as KeyIndex;
export const asModelScopeIndex = (value: number): ModelScopeIndex => value as ModelScopeIndex;
export const asGroupIndex = (value: number): GroupIndex => value as GroupIndex;
export const asUpstreamScopeIndex = (value: number): UpstreamScopeIndex => value as UpstreamScopeIndex;
export const asCallSlot = (value: number): CallSlot => value as CallSlot;
export const asPicoUnits = (value: bigint): PicoUnits => value as PicoUnits;
export const asMonotonicMs = (value: number): MonotonicMs => value as MonotonicMs;
export const asWallMs = (value: number): WallMs => value as WallMs;

/** As Math.min and Math.max, which take no bigints. */
export const minOf = (first: bigint, second: bigint): bigint => (first < second ? first : second);
export const maxOf = (first: bigint, second: bigint): bigint => (first > second ? first : second);

/** The quotient, rounded up. Both arguments are safe integers, and `divisor` is positive. */
export function ceilDiv(dividend: number, divisor: number): number {
  return Math.ceil(dividend / divisor);
}
