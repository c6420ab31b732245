/** Makes blocks of calls: see call-block.ts for the bytes. The writer has one, on a gateway's main thread. */
import { crc32 } from 'node:zlib';
import {
  ATTEMPTS,
  Block,
  BLOCK_BYTES,
  CACHE_HIT,
  CACHE_MISS,
  FIXED_BYTES,
  FLAGS,
  HEAD_BYTES,
  MAGIC,
  NAMED,
  NONE,
  QUEUED_MS,
  STATUS,
  STREAM,
  VARIABLE,
} from './call-block.js';
import { CALL_ATTEMPTS_MAX, CALL_ERROR_CHARS_MAX, type CallRecord } from '../telemetry/call-record.js';

/** What a single call may add to a full block: its texts, attempts and quotas are cut. */
const CALL_BYTES_MAX = 64 * 1024;
const QUOTAS_MAX = 64;
/** Names are counted in 16 bits. A call has at most 9 + 3 × 8 + 3 × 64. */
const NAMES_MAX = 60_000;

/** Kinds of names, for their last ones: accounts are ids of quotas too; then the quotas, by their order. */
const IDS = 10;
const KINDS = IDS + 9;

/** Puts calls into a block. One a writer, filled again and again. */
export class BlockBuilder {
  readonly #fixed = new ArrayBuffer(BLOCK_BYTES + FIXED_BYTES);
  readonly #floats = new Float64Array(this.#fixed);
  readonly #amounts = new BigInt64Array(this.#fixed);
  readonly #words = new Uint32Array(this.#fixed);
  readonly #shorts = new Uint16Array(this.#fixed);
  readonly #variable = Buffer.allocUnsafeSlow(BLOCK_BYTES + CALL_BYTES_MAX);
  /** `writeBigInt64LE` takes ten times as long. */
  readonly #view = new DataView(this.#variable.buffer);
  readonly #names = new Map<string, number>();
  /** By kind of name. */
  readonly #lastNames = new Array<string | undefined>(KINDS).fill(undefined);
  readonly #lastPositions = new Int32Array(KINDS);
  #nameChars = 0;
  #count = 0;
  #at = 0;

  get count(): number {
    return this.#count;
  }

  /** Whether the block is to be taken before another call is added. */
  get isFull(): boolean {
    const bytes = this.#count * FIXED_BYTES + this.#at + this.#nameChars;
    return bytes >= BLOCK_BYTES - FIXED_BYTES || this.#names.size >= NAMES_MAX;
  }

  add(call: CallRecord): void {
    const at64 = (this.#count * FIXED_BYTES) >> 3;
    const at32 = at64 << 1;
    const at16 = at64 << 2;
    const { usage, cache } = call;
    this.#floats[at64] = call.endedMs;
    this.#floats[at64 + 1] = call.request;
    this.#amounts[at64 + 2] = usage === undefined ? 0n : usage.charged;
    const shorts = this.#shorts;
    shorts[at16 + NAMED.prefix] = this.#nameOf(call.requestPrefix, 0);
    shorts[at16 + NAMED.account] = this.#nameOf(call.account, IDS);
    shorts[at16 + NAMED.key] = this.#nameOf(call.key, 1);
    shorts[at16 + NAMED.model] = this.#nameOf(call.model, 2);
    shorts[at16 + NAMED.answered] = this.#nameOf(usage?.answeredModel ?? null, 6);
    shorts[at16 + NAMED.upstream] = this.#nameOf(call.upstream, 3);
    shorts[at16 + NAMED.code] = this.#nameOf(call.code, 4);
    shorts[at16 + NAMED.source] = this.#nameOf(usage?.source ?? null, 7);
    shorts[at16 + NAMED.route] = this.#nameOf(call.route, 5);
    shorts[at16 + STATUS] = call.status ?? 0;
    shorts[at16 + FLAGS] =
      (call.stream ? STREAM : 0) |
      (cache === null ? 0 : cache === 'hit' ? CACHE_HIT : CACHE_MISS) |
      (call.attempts.length > 0 ? ATTEMPTS : 0);
    this.#words[at32 + VARIABLE] = this.#at;
    this.#words[at32 + QUEUED_MS] = call.queuedMs;
    this.#count += 1;
    this.#time(call.durationMs);
    this.#timeOrNone(call.firstTokenMs);
    this.#timeOrNone(call.admittedMs);
    if (usage !== undefined) {
      this.#number(usage.promptTokens);
      this.#number(usage.cachedTokens);
      this.#number(usage.cacheWriteTokens);
      this.#number(usage.cacheWrite1hTokens);
      this.#number(usage.completionTokens);
      this.#number(usage.reasoningTokens);
    }
    this.#details(call);
  }

  /** Returns the block and its names, and begins the next one. */
  take(): { block: Block; names: readonly string[] } {
    const names = [...this.#names.keys()];
    const text = Buffer.from(JSON.stringify(names));
    const fixedBytes = this.#count * FIXED_BYTES;
    const namesAt = HEAD_BYTES + fixedBytes + this.#at;
    const bytes = Buffer.allocUnsafeSlow((namesAt + text.length + 7) & ~7).fill(0, namesAt);
    bytes.set(new Uint8Array(this.#fixed, 0, fixedBytes), HEAD_BYTES);
    bytes.set(this.#variable.subarray(0, this.#at), HEAD_BYTES + fixedBytes);
    bytes.set(text, namesAt);
    const head = new Uint32Array(bytes.buffer, 0, HEAD_BYTES / 4);
    head.set([MAGIC, bytes.length, 0, this.#count, this.#at, text.length]);
    head[2] = crc32(bytes.subarray(12));
    this.#names.clear();
    this.#lastNames.fill(undefined);
    this.#nameChars = this.#count = this.#at = 0;
    return { block: Block.of(bytes), names };
  }

  #details({ attempts, quotas, error }: CallRecord): void {
    this.#number(Math.min(attempts.length, CALL_ATTEMPTS_MAX));
    for (let at = 0; at < attempts.length && at < CALL_ATTEMPTS_MAX; at++) {
      const attempt = attempts[at]!;
      this.#name(attempt.upstream, 3);
      this.#name(attempt.model, 2);
      this.#number(attempt.status ?? 0);
      this.#name(attempt.code, 8);
      this.#time(attempt.startMs);
      this.#time(attempt.durationMs);
      this.#text(attempt.error);
    }
    this.#number(Math.min(quotas.length, QUOTAS_MAX));
    for (let at = 0; at < quotas.length && at < QUOTAS_MAX; at++) {
      const { scope, id, quota, left } = quotas[at]!;
      this.#name(scope, 9);
      this.#name(id, IDS);
      this.#name(quota, IDS + 1 + (at & 7));
      const isMoney = typeof left === 'bigint';
      this.#number(isMoney ? 1 : 0);
      if (isMoney) {
        this.#view.setBigInt64(this.#at, left, true);
        this.#at += 8;
      } else this.#number(left);
    }
    this.#text(error);
  }

  /** 0: none. */
  #name(text: string | null, kind: number): void {
    this.#number(text === null ? 0 : this.#nameOf(text, kind) + 1);
  }

  /** Most names are those of the call before: comparing takes a quarter of looking up. */
  #nameOf(text: string | null, kind: number): number {
    if (text === null) return NONE;
    if (this.#lastNames[kind] === text) return this.#lastPositions[kind]!;
    let position = this.#names.get(text);
    if (position === undefined) {
      position = this.#names.size;
      this.#nameChars += text.length + 3;
      this.#names.set(text, position);
    }
    this.#lastNames[kind] = text;
    this.#lastPositions[kind] = position;
    return position;
  }

  #timeOrNone(ms: number | undefined): void {
    this.#number(ms === undefined ? 0 : Math.max(Math.round(ms * 1_000), 0) + 1);
  }

  #time(ms: number): void {
    this.#number(Math.round(ms * 1_000));
  }

  /** A negative one, which only a fault could give, is kept as 0. */
  #number(value: number): void {
    let rest = value > 0 ? Math.min(value, Number.MAX_SAFE_INTEGER) : 0;
    while (rest > 0x7f) {
      this.#variable[this.#at++] = (rest % 0x80) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#variable[this.#at++] = rest;
  }

  /** 0: none. */
  #text(text: string | null): void {
    if (text === null) {
      this.#number(0);
      return;
    }
    const bytes = Buffer.from(
      text.length > CALL_ERROR_CHARS_MAX ? `${text.slice(0, CALL_ERROR_CHARS_MAX)}…` : text,
    );
    this.#number(bytes.length + 1);
    this.#variable.set(bytes, this.#at);
    this.#at += bytes.length;
  }
}
