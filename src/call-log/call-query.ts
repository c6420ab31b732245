/**
 * The filter and the cursors of a search for calls. A filter becomes a test of extents, which asks their
 * Bloom filters, and a test of each call of a block. A cursor is a text by which a client continues a list,
 * or asks for newer calls. call-reader.ts, page-search.ts and newer-calls.ts use both. Pure.
 *
 * Must hold (test/unit/call-log/call-log.test.ts):
 * - An extent passes if any of its calls passes, else a search misses the call. So each filter key that
 *   `extentTestOf` asks for is one that segment-index.ts adds for such a call.
 * - A cursor is parsed as it was made; any other text is rejected. So pages neither skip nor repeat a call.
 */
import { ATTEMPTS, type Block, NAMED, NONE, PLAIN, STATUS } from './call-block.js';
import {
  type Extent,
  FAILED_KEY,
  FAILED_STATUS,
  hashOf,
  mayHave,
  pairHash,
  statusKeys,
} from './segment-index.js';

interface AccountSet {
  /** All ids of the set; undefined if they are too many to look up each in the indexes. */
  readonly ids: readonly string[] | undefined;
  readonly has: (accountId: string) => boolean;
}

/** A call passes if all members that are given match. */
export interface CallFilter {
  readonly account?: string | undefined;
  /** The account is one of these. */
  readonly accounts?: AccountSet | undefined;
  readonly key?: string | undefined;
  /** The model that the caller named, or that answered. */
  readonly model?: string | undefined;
  /** An upstream of one of the attempts. */
  readonly upstream?: string | undefined;
  /** One code or several, with commas between: the call has one of them. */
  readonly code?: string | undefined;
  /** A status, or the first digit of a class of them: 5 is 5xx. */
  readonly status?: number | undefined;
  /** Whether the call failed, so that it has a code. */
  readonly failed?: boolean | undefined;
  /** The call ended at `fromMs` or later, and before `toMs`. */
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
}

/** The class of FAILED_STATUS. The index has pairs for statuses of this class and of higher ones. */
const FAILED_CLASS = 4;
/** A status below this is the first digit of a class. */
const STATUS_MIN = 10;
/** Stands for the position of a name that the filter does not have. */
const NOT_FILTERED = -1;

/** Returns the filter keys (segment-index.ts) of a status, or of a class; none if the filter has neither. */
function keysOfStatus(status: number | undefined): string[] {
  if (status === undefined || status === 0) return [];
  const filterKeys = statusKeys(status < STATUS_MIN ? status * 100 : status);
  // The second filter key is that of the class.
  return status < STATUS_MIN ? filterKeys.slice(1) : filterKeys;
}

/** The filter key of the codes. Several codes have FAILED_KEY, because each call with a code has failed. */
const keyOfCodes = (code: string): string => (code.includes(',') ? FAILED_KEY : code.trim());

/** Returns the hashes of the failures (codes, statuses) that the filter names; an empty list if none. */
function failureHashesOf({ code, status = 0, failed }: CallFilter): number[] {
  const keys = [...(code === undefined ? [] : [keyOfCodes(code)]), ...(failed === true ? [FAILED_KEY] : [])];
  const isFailed = status >= FAILED_STATUS || (status >= FAILED_CLASS && status < STATUS_MIN);
  return [...keys, ...(isFailed ? keysOfStatus(status) : [])].map(hashOf);
}

/**
 * Returns a test of extents that is false if no call of the extent can pass. The test asks the extent's Bloom
 * filter for single filter keys, and for pairs: an account or key together with a failure.
 */
export function extentTestOf(filter: CallFilter): (extent: Extent) => boolean {
  const { account, key, model, upstream, code, status, failed } = filter;
  const names = [account, key, model, upstream, code && keyOfCodes(code)].filter(
    (name) => name !== undefined,
  );
  const hashes = [...names, ...keysOfStatus(status), ...(failed === true ? [FAILED_KEY] : [])].map(hashOf);
  const failures = failureHashesOf(filter);
  const pairsOf = (caller: number): number[] => failures.map((failure) => pairHash(caller, failure));
  const pairs = [account, key].flatMap((caller) => (caller === undefined ? [] : pairsOf(hashOf(caller))));
  const accounts = filter.accounts?.ids?.map(hashOf).map((id) => ({ hashes: [id], pairs: pairsOf(id) }));
  const mayPass = (extent: Extent, asked: { readonly hashes: number[]; readonly pairs: number[] }): boolean =>
    mayHave(extent, asked.hashes) && (!extent.hasPairs || mayHave(extent, asked.pairs));
  return (extent) =>
    mayPass(extent, { hashes, pairs }) &&
    (accounts === undefined || accounts.some((account) => mayPass(extent, account)));
}

/** Returns a test of the block's calls by their index, or undefined if no call of the block can pass. */
export function callTestOf(filter: CallFilter, block: Block): ((call: number) => boolean) | undefined {
  const { account, key, model, upstream, code, status, failed, fromMs = -Infinity, toMs = Infinity } = filter;
  const { floats, shorts } = block;
  // Positions among the block's names. Undefined: the block lacks a name of the filter.
  const positions = [account, key, model, upstream].map((name) =>
    name === undefined ? NOT_FILTERED : block.positionOf(name),
  );
  if (positions.includes(undefined)) return undefined;
  const [accountPosition, keyPosition, modelPosition, upstreamPosition] = positions as [
    number,
    number,
    number,
    number,
  ];
  const codePositions = code?.split(',').flatMap((each) => block.positionOf(each.trim()) ?? []);
  if (codePositions?.length === 0) return undefined;
  const isOfAccounts = filter.accounts && accountTestOf(filter.accounts, block);
  return (call) => {
    const at64 = block.first64Of(call);
    const at16 = at64 * 4;
    const endedMs = floats[at64]!;
    if (endedMs < fromMs || endedMs >= toMs) return false;
    if (accountPosition !== NOT_FILTERED && shorts[at16 + NAMED.account] !== accountPosition) return false;
    if (isOfAccounts?.(at16) === false) return false;
    if (keyPosition !== NOT_FILTERED && shorts[at16 + NAMED.key] !== keyPosition) return false;
    if (codePositions?.includes(shorts[at16 + NAMED.code]!) === false) return false;
    if (failed !== undefined && (shorts[at16 + NAMED.code] !== NONE) !== failed) return false;
    if (status !== undefined) {
      const callStatus = shorts[at16 + STATUS]!;
      if (callStatus !== status && (status >= STATUS_MIN || Math.floor(callStatus / 100) !== status))
        return false;
    }
    const isOfModel =
      shorts[at16 + NAMED.model] === modelPosition || shorts[at16 + NAMED.answered] === modelPosition;
    if (modelPosition !== NOT_FILTERED && !isOfModel) return false;
    if (upstreamPosition === NOT_FILTERED || shorts[at16 + NAMED.upstream] === upstreamPosition) return true;
    // NAMED.upstream is the upstream of the last attempt, and a plain call has no other attempt. The attempts
    // of other calls are decoded last, because decoding is slow.
    if ((block.flagsOf(call) & (ATTEMPTS | PLAIN)) !== ATTEMPTS) return false;
    return block.recordOf(call).attempts.some((attempt) => attempt.upstream === upstream);
  };
}

/** Returns a test of calls, by the index in `shorts` at which a call begins. Looks up each account once. */
function accountTestOf({ has }: AccountSet, { names, shorts }: Block): (at16: number) => boolean {
  /** By the account's position among the names; undefined until the account was looked up. */
  const isInSet: (boolean | undefined)[] = [];
  return (at16) => {
    const position = shorts[at16 + NAMED.account]!;
    return position !== NONE && (isInSet[position] ??= has(names[position]!));
  };
}

/** How many segments a cursor names: one of each process, and some that killed processes have left. */
const CURSOR_SEGMENTS_MAX = 100;

/** What a list of calls is ordered by: when a call ended, then where it is on disk. */
export interface SortKey {
  readonly endedMs: number;
  /** Number of the segment. */
  readonly segment: number;
  /** Offset of the call's block in the segment. */
  readonly at: number;
  /** The call's index in the block. */
  readonly call: number;
}

/** Compares two calls for `sort`: below 0 if `left` comes first, because it ended later. */
export function newestFirst(left: SortKey, right: SortKey): number {
  return (
    right.endedMs - left.endedMs ||
    right.segment - left.segment ||
    right.at - left.at ||
    right.call - left.call
  );
}

/** How far a client has read in each segment. The cursor for newer calls has it. */
export interface ReadPositions {
  /** The number of the newest segment that was read. Segments with a higher number are new. */
  readonly lastNumber: number;
  /** Where to continue in segments that were still growing or not read to their end. */
  readonly segments: ReadonlyMap<number, Position>;
}

export interface Position {
  readonly at: number;
  /** How many calls of the block at `at` were returned. */
  readonly call: number;
}

export const FIRST_POSITION: Position = { at: 0, call: 0 };

/** Returns the cursor that continues a list after that call, with older ones. */
export function cursorAfter({ endedMs, segment, at, call }: SortKey): string {
  return `${endedMs}_${segment}_${at}_${call}`;
}

/** Reads a cursor of `cursorAfter`; undefined for other text. 16 digits: no exact number has more. */
export function sortKeyOf(cursor: string): SortKey | undefined {
  if (!/^\d{1,16}(\.\d{1,6})?(_\d{1,16}){3}$/.test(cursor)) return undefined;
  const [endedMs, segment, at, call] = cursor.split('_').map(Number);
  const sortKey = { endedMs: endedMs!, segment: segment!, at: at!, call: call! };
  // Other digits of the same numbers, and digits that a number cannot hold, are no cursor of ours.
  return cursorAfter(sortKey) === cursor ? sortKey : undefined;
}

/**
 * Returns the cursor for newer calls, with some 12 characters a process, because it becomes a part of a URL.
 * Offsets are divided by 8: blocks begin at multiples of 8.
 */
export function newerCursorOf({ lastNumber, segments }: ReadPositions): string {
  const positions = [...segments].slice(-CURSOR_SEGMENTS_MAX).map(([number, { at, call }]) => {
    return [lastNumber - number, at / 8, call].map((field) => field.toString(36)).join('.');
  });
  return [lastNumber.toString(36), ...positions].join('_');
}

/**
 * Returns the cursor for calls that are newer than all that the segments (oldest first) have now. The cursor
 * names only segments that grow: all others up to the newest number have been read.
 */
export function newestCursorOf(
  segments: readonly { readonly number: number; readonly end: number; readonly isGrowing: boolean }[],
): string {
  const growing = segments.filter(({ isGrowing }) => isGrowing);
  return newerCursorOf({
    lastNumber: segments.at(-1)?.number ?? 0,
    segments: new Map(growing.map(({ number, end }) => [number, { at: end, call: 0 }])),
  });
}

/**
 * Reads a cursor of `newerCursorOf` or `newestCursorOf`; undefined for other text. 7 digits of base 36 are
 * enough for the 10 decimal digits of a segment's number (segment-files.ts).
 */
export function readPositionsOf(cursor: string): ReadPositions | undefined {
  if (!/^[0-9a-z]{1,7}(_[0-9a-z]{1,7}\.[0-9a-z]{1,7}\.[0-9a-z]{1,7})*$/.test(cursor)) return undefined;
  const [lastDigits, ...positions] = cursor.split('_');
  const lastNumber = parseInt(lastDigits!, 36);
  const segments = positions.map((position): [number, Position] => {
    const [distance, at, call] = position.split('.').map((digits) => parseInt(digits, 36));
    return [lastNumber - distance!, { at: at! * 8, call: call! }];
  });
  const positionsRead = { lastNumber, segments: new Map(segments) };
  // No segment has a number below 1. A text that names a segment twice, or too many, differs from ours.
  const isOurs = segments.every(([number]) => number > 0) && newerCursorOf(positionsRead) === cursor;
  return isOurs ? positionsRead : undefined;
}
