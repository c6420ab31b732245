/**
 * Encodes ended calls into blocks of the call log. call-block.ts describes the bytes, and decodes them.
 * call-writer.ts owns a BlockBuilder, on the main thread of a gateway process.
 *
 * Must hold: call-block.ts reads fields in the order in which `add` and `addPlain` write them. So a call is
 * read as it was added, without the ends of cut texts and names and the attempts and quotas beyond a bound
 * (test/unit/call-log/call-log.test.ts, test/unit/call-log/plain-calls.test.ts).
 */
import { crc32 } from 'node:zlib';
import {
  ATTEMPTS,
  Block,
  BLOCK_BYTES,
  CACHE_HIT,
  CACHE_MISS,
  CHARGED,
  CHECKED_AT,
  FIXED_BYTES,
  FLAGS,
  HEAD,
  HEAD_BYTES,
  MAGIC,
  NAMED,
  NONE,
  PLAIN,
  QUEUED_MS,
  REQUEST,
  STATUS,
  STREAM,
  VARIABLE,
  putNumber,
} from './call-block.js';
import { BlockNames, type SlotNames, SlotPositions } from './block-names.js';
import { DOOR_NAMES, DOOR_PATHS } from '../core/door-names.js';
import { FIELDS_AT } from '../core/spsc-ring.js';
import { PICO_PER_NANO } from '../core/money.js';
import { nameIndexOf, scopeIndexOf } from '../core/quotas-left.js';
import { QUOTA_KINDS, QUOTA_NAMES, QUOTA_SCOPES } from '../core/quotas.js';
import type { AccountIndex, GroupIndex, KeyIndex } from '../core/units.js';
import * as ring from '../telemetry/call-ring-layout.js';
import type { PlainCall } from '../telemetry/call-ring-reader.js';
import {
  CALL_ATTEMPTS_MAX,
  CALL_ERROR_CHARS_MAX,
  picoUnitsOfFloat,
  type CallRecord,
} from '../telemetry/call-record.js';

/** More than a call's variable part can have: call-record.ts and QUOTAS_MAX bound it to some 10 KiB. */
const CALL_BYTES_MAX = 64 * 1024;
const QUOTAS_MAX = 64;

/**
 * By position in QUOTA_SCOPES: the word of a call's fixed part that names whose quota it is. The fixed part
 * names no group, so the ring has the group's slot beside the quota.
 */
const NO_OWNER = -1;
const OWNERS = QUOTA_SCOPES.map((scope) => (scope === 'group' ? NO_OWNER : NAMED[scope]));
const IS_MONEY = QUOTA_NAMES.map((name) => QUOTA_KINDS[name].unit === 'money');
const PICO_IN_NANO = Number(PICO_PER_NANO);
const TWO_32 = 2 ** 32;
const HTTP_OK = 200;

export class BlockBuilder {
  /** The fixed parts of the calls, and four views of these bytes. */
  readonly #fixed = new ArrayBuffer(BLOCK_BYTES + FIXED_BYTES);
  readonly #floats = new Float64Array(this.#fixed);
  readonly #amounts = new BigInt64Array(this.#fixed);
  readonly #words = new Uint32Array(this.#fixed);
  readonly #shorts = new Uint16Array(this.#fixed);
  readonly #variable = Buffer.allocUnsafeSlow(BLOCK_BYTES + CALL_BYTES_MAX);
  /** Writes 64 bits into `#variable` in a tenth of the time of Buffer's `writeBigInt64LE`. */
  readonly #view = new DataView(this.#variable.buffer);
  readonly #names = new BlockNames();
  #count = 0;
  /** How many bytes of `#variable` are written. */
  #variableBytes = 0;
  readonly #slotCaches: readonly SlotPositions[];
  readonly #prefixes: SlotPositions;
  readonly #accounts: SlotPositions;
  readonly #keys: SlotPositions;
  readonly #models: SlotPositions;
  readonly #upstreams: SlotPositions;
  readonly #sources: SlotPositions;
  readonly #routes: SlotPositions;
  readonly #groups: SlotPositions;
  /** Positions plus one of a quota's scope and, above 16 bits, of its name; 0 if the block lacks them yet. */
  readonly #quotaTexts = new Uint32Array(QUOTA_SCOPES.length * QUOTA_NAMES.length);

  /** `names` looks up the names of plain calls. Without `names`, `addPlain` throws. */
  constructor(names?: SlotNames) {
    const cacheOf = (nameOf: (slot: number) => string | null): SlotPositions =>
      new SlotPositions((slot) => this.#names.positionOf(nameOf(slot)));
    this.#prefixes = cacheOf((listener) => names!.requestPrefixOf(listener));
    this.#accounts = cacheOf((slot) => names!.accountIdOf(slot as AccountIndex));
    this.#keys = cacheOf((slot) => names!.keyIdOf(slot as KeyIndex));
    this.#models = cacheOf((index) => names!.modelIdOf(index));
    this.#upstreams = cacheOf((slot) => names!.upstreamNameOf(slot));
    this.#sources = cacheOf((index) => names!.sourceOf(index));
    this.#routes = cacheOf((door) => DOOR_PATHS[DOOR_NAMES[door]!]);
    this.#groups = cacheOf((slot) => names!.groupNameOf(slot as GroupIndex));
    const caches = [this.#accounts, this.#keys, this.#models, this.#upstreams, this.#groups];
    this.#slotCaches = [...caches, this.#prefixes, this.#sources, this.#routes];
  }

  get count(): number {
    return this.#count;
  }

  /** The last call may make the block exceed BLOCK_BYTES, for which the buffers have CALL_BYTES_MAX more. */
  get #isFull(): boolean {
    const bytes = this.#count * FIXED_BYTES + this.#variableBytes + this.#names.bytes;
    return bytes >= BLOCK_BYTES - FIXED_BYTES;
  }

  /** Call it when slots may have new names. `take` calls it too, because positions are a block's own. */
  forgetSlots(): void {
    for (const cache of this.#slotCaches) cache.clear();
    this.#quotaTexts.fill(0);
  }

  /**
   * Adds a call. Returns false, and adds nothing, if the block is full: then `take` must come first. An empty
   * block is never full. `addPlain` does the same.
   */
  add(call: CallRecord): boolean {
    if (this.#isFull) return false;
    // Where the call's fixed part begins, in words of 64, 32 and 16 bits. In `addPlain` too.
    const at64 = (this.#count * FIXED_BYTES) >> 3;
    const at32 = at64 << 1;
    const at16 = at64 << 2;
    const { usage, cache } = call;
    this.#floats[at64] = call.endedMs;
    this.#floats[at64 + REQUEST] = call.request;
    this.#amounts[at64 + CHARGED] = usage === undefined ? 0n : usage.charged;
    const shorts = this.#shorts;
    shorts[at16 + NAMED.prefix] = this.#names.positionOf(call.requestPrefix);
    shorts[at16 + NAMED.account] = this.#names.positionOf(call.account);
    shorts[at16 + NAMED.key] = this.#names.positionOf(call.key);
    shorts[at16 + NAMED.model] = this.#names.positionOf(call.model);
    shorts[at16 + NAMED.answered] = this.#names.positionOf(usage?.answeredModel ?? null);
    shorts[at16 + NAMED.upstream] = this.#names.positionOf(call.upstream);
    shorts[at16 + NAMED.code] = this.#names.positionOf(call.code);
    shorts[at16 + NAMED.source] = this.#names.positionOf(usage?.source ?? null);
    shorts[at16 + NAMED.route] = this.#names.positionOf(call.route);
    shorts[at16 + STATUS] = call.status ?? 0;
    shorts[at16 + FLAGS] =
      (call.stream ? STREAM : 0) |
      (cache === null ? 0 : cache === 'hit' ? CACHE_HIT : CACHE_MISS) |
      (call.attempts.length > 0 ? ATTEMPTS : 0);
    this.#words[at32 + VARIABLE] = this.#variableBytes;
    this.#words[at32 + QUEUED_MS] = call.queuedMs;
    this.#count += 1;
    this.#putTime(call.durationMs);
    this.#putTimeOrNone(call.firstTokenMs);
    this.#putTimeOrNone(call.admittedMs);
    if (usage !== undefined) {
      this.#putNumber(usage.promptTokens);
      this.#putNumber(usage.cachedTokens);
      this.#putNumber(usage.cacheWriteTokens);
      this.#putNumber(usage.cacheWrite1hTokens);
      this.#putNumber(usage.completionTokens);
      this.#putNumber(usage.reasoningTokens);
    }
    this.#putDetails(call);
    return true;
  }

  /** Adds a plain call of the listener of that index. Reads the call ring itself and makes no CallRecord. */
  addPlain(call: PlainCall, listener: number): boolean {
    if (this.#isFull) return false;
    const { ints, floats, amounts, first64 } = call;
    const first32 = first64 << 1;
    const at64 = (this.#count * FIXED_BYTES) >> 3;
    const at32 = at64 << 1;
    const at16 = at64 << 2;
    const shorts = this.#shorts;
    const flags = ints[first32 + ring.PLAIN_FLAGS]!;
    this.#floats[at64] = floats[first64 + ring.PLAIN_ENDED_MS]!;
    this.#floats[at64 + REQUEST] = floats[first64 + ring.PLAIN_REQUEST]!;
    this.#amounts[at64 + CHARGED] = amounts[first64 + ring.PLAIN_CHARGED]!;
    shorts[at16 + NAMED.prefix] = this.#prefixes.positionOfSlot(listener);
    shorts[at16 + NAMED.account] = this.#accounts.positionOfSlot(ints[first32 + ring.PLAIN_ACCOUNT]!);
    shorts[at16 + NAMED.key] = this.#keys.positionOfSlot(ints[first32 + ring.PLAIN_KEY]!);
    shorts[at16 + NAMED.model] = this.#models.positionOfSlot(ints[first32 + ring.PLAIN_MODEL]!);
    shorts[at16 + NAMED.answered] = this.#models.positionOfSlot(ints[first32 + ring.PLAIN_ANSWERED]!);
    shorts[at16 + NAMED.upstream] = this.#upstreams.positionOfSlot(ints[first32 + ring.PLAIN_UPSTREAM]!);
    shorts[at16 + NAMED.code] = NONE;
    // The source is the highest part of the flags.
    shorts[at16 + NAMED.source] = this.#sources.positionOfSlot(flags >> ring.SOURCE_SHIFT);
    shorts[at16 + NAMED.route] = this.#routes.positionOfSlot((flags >> ring.DOOR_SHIFT) & ring.DOOR_MASK);
    shorts[at16 + STATUS] = HTTP_OK;
    // A plain call has one attempt. No plain call is a hit, because a hit has no call slot.
    shorts[at16 + FLAGS] =
      PLAIN |
      ATTEMPTS |
      ((flags & ring.STREAM) === 0 ? 0 : STREAM) |
      ((flags & ring.CACHE_MISS) === 0 ? 0 : CACHE_MISS);
    this.#words[at32 + VARIABLE] = this.#variableBytes;
    this.#words[at32 + QUEUED_MS] = ints[first32 + ring.PLAIN_QUEUED_MS]!;
    this.#count += 1;
    const bytes = this.#variable;
    let at = putNumber(bytes, this.#variableBytes, ints[first32 + ring.PLAIN_DURATION]!);
    // "None" is -1 (NOTHING) in the ring and 0 in the block, so 1 is added to each value that may be none.
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_FIRST_TOKEN]! + 1);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_ADMITTED]! + 1);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_PROMPT]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_CACHED]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_CACHE_WRITE]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_CACHE_WRITE_1H]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_COMPLETION]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_REASONING]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_ATTEMPT_START]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_ATTEMPT_US]!);
    this.#variableBytes = this.#putPlainQuotas(call, at);
    return true;
  }

  /** Writes the quotas at `start`. Returns the offset after them. */
  #putPlainQuotas(call: PlainCall, start: number): number {
    const { ints, floats, first64 } = call;
    const first32 = first64 << 1;
    const minute = ints[first32 + ring.PLAIN_MINUTE]!;
    // QUOTAS_MAX includes the balance, calls in flight, calls of the day, and the minute's requests if given.
    const othersMax = QUOTAS_MAX - (minute === ring.NOTHING ? 3 : 4);
    // The other quotas follow the ring's fields, with 128 bits each: a code (quotas-left.ts) and a group's
    // slot of 32 bits each, then what is left, as a float.
    const others = Math.min(ints[first32 + ring.PLAIN_QUOTAS]!, othersMax);
    const others64 = first64 + ((ring.PLAIN_BYTES - FIELDS_AT) >> 3);
    const bytes = this.#variable;
    let at = this.#putMoney(start, floats[first64 + ring.PLAIN_BALANCE]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_IN_FLIGHT]!);
    at = putNumber(bytes, at, ints[first32 + ring.PLAIN_PER_DAY]!);
    at = putNumber(bytes, at, minute === ring.NOTHING ? 0 : minute + 1);
    at = putNumber(bytes, at, others);
    for (let quota64 = others64; quota64 < others64 + 2 * others; quota64 += 2)
      at = this.#putPlainQuota(call, quota64, at);
    return at;
  }

  /** Writes the quota at `quota64` of the ring. Takes no float as an argument: V8 would allocate it. */
  #putPlainQuota({ ints, floats }: PlainCall, quota64: number, start: number): number {
    const code = ints[quota64 << 1]!;
    const scopeIndex = scopeIndexOf(code);
    const nameIndex = nameIndexOf(code);
    const named = OWNERS[scopeIndex]!;
    const at16 = ((this.#count - 1) * FIXED_BYTES) >> 1;
    const slot = ints[(quota64 << 1) + 1]!;
    const owner = named === NO_OWNER ? this.#groups.positionOfSlot(slot) : this.#shorts[at16 + named]!;
    const index = scopeIndex * QUOTA_NAMES.length + nameIndex;
    const known = this.#quotaTexts[index]!;
    const texts = known === 0 ? this.#addQuotaTexts(index) : known;
    const isMoney = IS_MONEY[nameIndex]!;
    const bytes = this.#variable;
    let at = start + 4;
    // Mostly each of the three numbers has one byte, as `isMoney` has: one write for all.
    if ((texts & ~0x7f007f) === 0 && owner < 0x7f) {
      this.#view.setUint32(start, texts | ((owner + 1) << 8) | (isMoney ? 1 << 24 : 0), true);
    } else {
      at = putPosition(bytes, putNumber(bytes, start, texts & 0xffff), owner);
      at = putNumber(bytes, at, texts >>> 16);
      bytes[at++] = isMoney ? 1 : 0;
    }
    const left = floats[quota64 + 1]!;
    return isMoney ? this.#putNanos(at, left) : putNumber(bytes, at, left);
  }

  /** Sets and returns `#quotaTexts[index]`. */
  #addQuotaTexts(index: number): number {
    const scope = this.#names.positionOf(QUOTA_SCOPES[Math.floor(index / QUOTA_NAMES.length)]!) + 1;
    const name = this.#names.positionOf(QUOTA_NAMES[index % QUOTA_NAMES.length]!) + 1;
    return (this.#quotaTexts[index] = scope | (name << 16));
  }

  /** Returns the block and begins the next one. `count` must not be 0. */
  take(): Block {
    const names = this.#names.list();
    const namesText = Buffer.from(JSON.stringify(names));
    const fixedBytes = this.#count * FIXED_BYTES;
    const namesAt = HEAD_BYTES + fixedBytes + this.#variableBytes;
    const bytes = Buffer.allocUnsafeSlow((namesAt + namesText.length + 7) & ~7).fill(0, namesAt);
    bytes.set(new Uint8Array(this.#fixed, 0, fixedBytes), HEAD_BYTES);
    bytes.set(this.#variable.subarray(0, this.#variableBytes), HEAD_BYTES + fixedBytes);
    bytes.set(namesText, namesAt);
    const head = new Uint32Array(bytes.buffer, 0, HEAD_BYTES / 4);
    // In the order of HEAD. The CRC-32 is set last, because it covers the words after it.
    head.set([MAGIC, bytes.length, 0, this.#count, this.#variableBytes, namesText.length]);
    head[HEAD.crc32] = crc32(bytes.subarray(CHECKED_AT));
    this.#names.clear();
    this.forgetSlots();
    this.#count = this.#variableBytes = 0;
    return Block.fromBuilder(bytes, names);
  }

  #putDetails({ attempts, quotas, error }: CallRecord): void {
    this.#putNumber(Math.min(attempts.length, CALL_ATTEMPTS_MAX));
    for (let index = 0; index < attempts.length && index < CALL_ATTEMPTS_MAX; index++) {
      const attempt = attempts[index]!;
      this.#putName(attempt.upstream);
      this.#putName(attempt.model);
      this.#putNumber(attempt.status ?? 0);
      this.#putName(attempt.code);
      this.#putTime(attempt.startMs);
      this.#putTime(attempt.durationMs);
      this.#putText(attempt.error);
    }
    this.#putNumber(Math.min(quotas.length, QUOTAS_MAX));
    for (let index = 0; index < quotas.length && index < QUOTAS_MAX; index++) {
      const { scope, id, quota, left } = quotas[index]!;
      this.#putName(scope);
      this.#putName(id);
      this.#putName(quota);
      const isMoney = typeof left === 'bigint';
      this.#putNumber(isMoney ? 1 : 0);
      if (isMoney) this.#putAmount(left);
      else this.#putNumber(left);
    }
    this.#putText(error);
  }

  /** Writes the name's position plus one, or 0 for null. */
  #putName(text: string | null): void {
    this.#variableBytes = putPosition(this.#variable, this.#variableBytes, this.#names.positionOf(text));
  }

  /** Writes the integer that `picoUnitsOfFloat` makes of a float; returns the offset after it. */
  #putMoney(at: number, amount: number): number {
    if (amount < 0) {
      this.#view.setBigInt64(at, picoUnitsOfFloat(amount), true);
      return at + 8;
    }
    if (!Number.isSafeInteger(amount)) return this.#putNanos(at, Math.floor(amount / PICO_IN_NANO));
    // A BigInt would be allocated, and % would call a C function for floats.
    const high = Math.floor(amount / TWO_32);
    this.#view.setUint32(at, amount - high * TWO_32, true);
    this.#view.setUint32(at + 4, high, true);
    return at + 8;
  }

  /** Writes nano-units as pico-units, in halves (a BigInt costs 70 ns); returns the offset after them. */
  #putNanos(at: number, nanos: number): number {
    const high = Math.floor(nanos / TWO_32);
    const low = (nanos - high * TWO_32) * PICO_IN_NANO;
    const carry = Math.floor(low / TWO_32);
    this.#view.setUint32(at, low - carry * TWO_32, true);
    this.#view.setUint32(at + 4, high * PICO_IN_NANO + carry, true);
    return at + 8;
  }

  #putAmount(amount: bigint): void {
    this.#view.setBigInt64(this.#variableBytes, amount, true);
    this.#variableBytes += 8;
  }

  #putTimeOrNone(ms: number | undefined): void {
    this.#putNumber(ms === undefined ? 0 : Math.max(Math.round(ms * 1_000), 0) + 1);
  }

  #putTime(ms: number): void {
    this.#putNumber(Math.round(ms * 1_000));
  }

  #putNumber(value: number): void {
    this.#variableBytes = putNumber(this.#variable, this.#variableBytes, value);
  }

  /** Writes the count of bytes plus one, or 0 for null. A cut within a surrogate pair leaves U+FFFD. */
  #putText(text: string | null): void {
    if (text === null) {
      this.#putNumber(0);
      return;
    }
    const bytes = Buffer.from(
      text.length > CALL_ERROR_CHARS_MAX ? `${text.slice(0, CALL_ERROR_CHARS_MAX)}…` : text,
    );
    this.#putNumber(bytes.length + 1);
    this.#variable.set(bytes, this.#variableBytes);
    this.#variableBytes += bytes.length;
  }
}

/** Writes a name's position plus one, or 0 for NONE, at offset `at`. Returns the offset after it. */
function putPosition(bytes: Uint8Array, at: number, namePosition: number): number {
  return putNumber(bytes, at, namePosition === NONE ? 0 : namePosition + 1);
}
