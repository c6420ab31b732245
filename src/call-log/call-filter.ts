/**
 * What one looks for in the call log: as keys of an index's Bloom filter, and as a test of each call of a
 * block. call-reader.ts uses both. Pure.
 *
 * Must hold: a call that passes the test has all the keys, or a search misses it
 * (test/unit/call-log/call-log.test.ts).
 */
import { ATTEMPTS, type Block, NAMED, NONE, PLAIN, STATUS } from './call-block.js';
import { type Extent, FAILED_KEY, hashOf, mayHave, statusKeys } from './segment-index.js';

/** Accounts by id; `ids` are all of them, if they are few enough to be looked for in the indexes. */
export interface AccountSet {
  readonly ids: readonly string[] | undefined;
  readonly has: (accountId: string) => boolean;
}

/** All that is given must hold. */
export interface CallFilter {
  readonly account?: string | undefined;
  /** That the account is one of these. */
  readonly accounts?: AccountSet | undefined;
  readonly key?: string | undefined;
  /** That the caller named, or that answered. */
  readonly model?: string | undefined;
  /** That one attempt was on. */
  readonly upstream?: string | undefined;
  readonly code?: string | undefined;
  /** From 100 on, or its first digit for a class: 5 is 5xx. */
  readonly status?: number | undefined;
  /** Whether the call did not go well, so that it has a code. */
  readonly failed?: boolean | undefined;
  /** When the call ended: from, and before. */
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
}

/** Keys that are in the index of each extent with such a call. */
function hashesOf({ account, key, model, upstream, code, status, failed }: CallFilter): number[] {
  const names = [account, key, model, upstream, code].filter((name) => name !== undefined);
  const statuses =
    status === undefined || status === 0 ? [] : statusKeys(status < 10 ? status * 100 : status);
  if (status !== undefined && status < 10) statuses.shift();
  return [...names, ...statuses, ...(failed === true ? [FAILED_KEY] : [])].map(hashOf);
}

/** Returns a test of extents: false if no call in it can pass. */
export function extentTestOf(filter: CallFilter): (extent: Extent) => boolean {
  const hashes = hashesOf(filter);
  const accounts = filter.accounts?.ids?.map((id) => [hashOf(id)]);
  return (extent) =>
    mayHave(extent, hashes) && (accounts === undefined || accounts.some((hash) => mayHave(extent, hash)));
}

/** Returns a test of the block's calls, or undefined if none can pass. */
export function testOf(filter: CallFilter, block: Block): ((call: number) => boolean) | undefined {
  const { account, key, model, upstream, code, status, failed, fromMs = -Infinity, toMs = Infinity } = filter;
  const { floats, shorts } = block;
  const wanted = [account, key, code, model, upstream].map((name) =>
    name === undefined ? -1 : block.positionOf(name),
  );
  if (wanted.includes(undefined)) return undefined;
  const [accountAt, keyAt, codeAt, modelAt, upstreamAt] = wanted as [number, number, number, number, number];
  const isOfAccounts = filter.accounts && accountTestOf(filter.accounts, block);
  return (call) => {
    const at64 = block.at64(call);
    const at16 = at64 * 4;
    const endedMs = floats[at64]!;
    if (endedMs < fromMs || endedMs >= toMs) return false;
    if (accountAt >= 0 && shorts[at16 + NAMED.account] !== accountAt) return false;
    if (isOfAccounts?.(at16) === false) return false;
    if (keyAt >= 0 && shorts[at16 + NAMED.key] !== keyAt) return false;
    if (codeAt >= 0 && shorts[at16 + NAMED.code] !== codeAt) return false;
    if (failed !== undefined && (shorts[at16 + NAMED.code] !== NONE) !== failed) return false;
    if (status !== undefined) {
      const own = shorts[at16 + STATUS]!;
      if (own !== status && (status >= 10 || Math.floor(own / 100) !== status)) return false;
    }
    if (modelAt >= 0 && shorts[at16 + NAMED.model] !== modelAt && shorts[at16 + NAMED.answered] !== modelAt) {
      return false;
    }
    if (upstreamAt < 0 || shorts[at16 + NAMED.upstream] === upstreamAt) return true;
    // The one attempt of a plain call is the one that was compared.
    if ((block.flags(call) & (ATTEMPTS | PLAIN)) !== ATTEMPTS) return false;
    return block.call(call).attempts.some((attempt) => attempt.upstream === upstream);
  };
}

/** Each account of the block is looked up once. */
function accountTestOf({ has }: AccountSet, { names, shorts }: Block): (at16: number) => boolean {
  const known: (boolean | undefined)[] = [];
  return (at16) => {
    const at = shorts[at16 + NAMED.account]!;
    return at !== NONE && (known[at] ??= has(names[at]!));
  };
}
