/**
 * The bytes of the call log on disk. The call log keeps the records of ended calls for a while, to be found
 * by request id, caller, model, status and so on. Records are written once, in order, and removed oldest
 * first. The store (LMDB) is not used: its indexes cost microseconds a call, and all processes share one
 * write lock. Logging libraries do not search.
 *
 * A segment file is SEGMENT_START and then blocks. Each block can be read alone, so that a crash or a
 * flipped bit loses only the calls of one block.
 *
 *     byte  block (begins and ends on a multiple of 8)
 *        0  MAGIC, bytes of the block, CRC-32 of all that follows this word, count of calls (32 bits each)
 *       16  bytes of the variable parts, bytes of the names (32 bits each)
 *       24  calls, FIXED_BYTES each; then their variable parts; then the names, a JSON array of texts
 *
 *     byte  bits  a call's fixed part: what filters read
 *        0    64  endedMs   wall clock (float)
 *        8    64  request   number of the request in its listener's run (float), the end of its id
 *       16    64  charged   pico-units, signed; 0 without a source
 *       24    16  × 9       positions in the block's names, NONE for an absent name: see NAMED
 *       42    16  status    0 if the caller left before a status was sent
 *       44    16  flags     see STREAM; the next 16 bits are unused
 *       48    32  variable  offset of the call's variable part from the first one of the block
 *       52    32  queuedMs
 *
 * The variable part has numbers of 7 bits a byte, the lowest bits first. Times are microseconds. A value "or
 * none" is written as 0 for none, else as the value plus one; but a status is written as it is, 0 for none. A
 * name is its position in the block's names, or none. A text is its length in bytes, or none, and then its
 * bytes. A list is its length and then its items.
 *
 *     duration; time to the first token, or none; time to admission, or none
 *     tokens    if the call has a source: prompt, cached, cache writes of both kinds, completion, reasoning
 *     attempts  a list: upstream and model (names), status, code (a name), start, duration, error text
 *     quotas    a list: scope, id and quota (names), 1 and an amount of 64 bits, or 0 and a number
 *     error     a text
 *
 * A plain call (PLAIN) leaves out what is the same for all plain calls, and always has a source. Its tokens
 * are followed by start and duration of its attempt, the balance (64 bits), calls in flight and of the day,
 * requests of the minute or none, and the list of its other quotas.
 *
 * block-builder.ts writes blocks, on the main thread; call-reader.ts reads them, there and in commands.
 *
 * Must hold:
 * - Later versions read these files, so a change of the bytes needs another MAGIC
 *   (test/unit/call-log/call-log.test.ts).
 * - A damaged block is left out whole, by its CRC-32 and the lengths in its head. If a block with the right
 *   CRC-32 has wrong numbers in its calls, decoding throws at the end of the bytes and does not go on for
 *   ever, on a main thread (test/unit/call-log/call-block.test.ts).
 * - In the object literals of `recordOf` and VariableReader the properties stand in the order of the bytes,
 *   because each is read as it is evaluated.
 *
 * Words are those of a little-endian machine.
 */
import { crc32 } from 'node:zlib';
import { asPicoUnits, asWallMs } from '../core/units.js';
import type { CallAttempt, CallRecord, QuotaLeft } from '../telemetry/call-record.js';

/** The first bytes of a segment. They are 8, because blocks begin at multiples of 8. */
export const SEGMENT_START = Buffer.from('tgcalls1');
/** The bytes `TGC2`. */
export const MAGIC = 0x32434754;
/** `TGC1` of earlier versions, whose blocks differ only in that they have no plain calls. */
const FORMER_MAGIC = 0x31434754;
export const HEAD_BYTES = 24;
/** Words of a block's head. */
export const HEAD = { magic: 0, bytes: 1, crc32: 2, count: 3, variableBytes: 4, namesBytes: 5 } as const;
/** The CRC-32 covers the bytes from here to the end of the block. */
export const CHECKED_AT = 12;
export const FIXED_BYTES = 56;
/** A block is written when it has this many bytes, or a second after its first call. */
export const BLOCK_BYTES = 64 * 1024;
/** A block that says it is longer is damaged. */
export const BLOCK_BYTES_MAX = 1024 * 1024;
/** The position of a name that a call does not have. */
export const NONE = 0xffff;

// Words of a call's fixed part: first the index of words of 64 bits.
export const REQUEST = 1;
export const CHARGED = 2;

/**
 * Words of 16 bits, from byte 24: names of the CallRecord. `prefix` is its `requestPrefix`. `answered` and
 * `source` are in its `usage`: the model that answered, and where the tokens come from.
 */
export const NAMED = {
  prefix: 12,
  account: 13,
  key: 14,
  model: 15,
  answered: 16,
  upstream: 17,
  code: 18,
  source: 19,
  route: 20,
} as const;
export const STATUS = 21;
export const FLAGS = 22;
// Words of 32 bits.
export const VARIABLE = 12;
export const QUEUED_MS = 13;

// Bits of the flags.
export const STREAM = 1;
export const CACHE_HIT = 2;
export const CACHE_MISS = 4;
/** The call has attempts. call-query.ts reads only the attempts of such calls. */
export const ATTEMPTS = 8;
/** The call's variable part is that of a plain call. */
export const PLAIN = 16;

/** A view of a block in bytes that were read of a file. */
export class Block {
  /** How many calls the block has. */
  readonly count: number;
  /** Length of the whole block. */
  readonly bytes: number;
  /** `floats` and `shorts` span all bytes read, not the block alone: `first64Of` gives the indexes. */
  readonly floats: Float64Array;
  readonly shorts: Uint16Array;
  readonly #data: Buffer;
  /** Offset of the block in `#data`. */
  readonly #start: number;
  readonly #variableAt: number;
  readonly #namesAt: number;
  readonly #namesBytes: number;
  /** Undefined until `names` is read, which parses them. */
  #names: readonly string[] | undefined;

  private constructor(data: Buffer, at: number, words: Uint32Array) {
    const at32 = at >> 2;
    this.#data = data;
    this.#start = at;
    this.bytes = words[at32 + HEAD.bytes]!;
    this.count = words[at32 + HEAD.count]!;
    this.floats = new Float64Array(data.buffer, data.byteOffset, data.length >> 3);
    this.shorts = new Uint16Array(data.buffer, data.byteOffset, data.length >> 1);
    this.#variableAt = at + HEAD_BYTES + this.count * FIXED_BYTES;
    this.#namesAt = this.#variableAt + words[at32 + HEAD.variableBytes]!;
    this.#namesBytes = words[at32 + HEAD.namesBytes]!;
  }

  /**
   * Returns the block at `at`, or undefined if no whole and undamaged block is there. `data` must begin and
   * end at a multiple of 8 in its memory, and `at` must be a multiple of 8.
   */
  static read(data: Buffer, at: number): Block | undefined {
    if (at + HEAD_BYTES > data.length) return undefined;
    const words = new Uint32Array(data.buffer, data.byteOffset, data.length >> 2);
    const at32 = at >> 2;
    const bytes = words[at32 + HEAD.bytes]!;
    const magic = words[at32 + HEAD.magic];
    if (magic !== MAGIC && magic !== FORMER_MAGIC) return undefined;
    if (bytes < HEAD_BYTES || bytes % 8 !== 0) return undefined;
    if (bytes > BLOCK_BYTES_MAX || at + bytes > data.length) return undefined;
    const partsBytes =
      words[at32 + HEAD.count]! * FIXED_BYTES +
      words[at32 + HEAD.variableBytes]! +
      words[at32 + HEAD.namesBytes]!;
    // Readers loop over all calls: a count of 2^32 would stop the thread.
    if (HEAD_BYTES + partsBytes > bytes) return undefined;
    if (crc32(data.subarray(at + CHECKED_AT, at + bytes)) !== words[at32 + HEAD.crc32]) return undefined;
    return new Block(data, at, words);
  }

  /**
   * Returns the block of `bytes`, which have `names`, without a check: block-builder.ts has just made the
   * bytes. `bytes` must begin where their ArrayBuffer begins.
   */
  static fromBuilder(bytes: Buffer, names: readonly string[]): Block {
    const block = new Block(bytes, 0, new Uint32Array(bytes.buffer, 0, HEAD_BYTES / 4));
    block.#names = names;
    return block;
  }

  /** All bytes of a block that `fromBuilder` returned. */
  get data(): Buffer {
    return this.#data;
  }

  /** The names in the order of their positions. Parsed at the first use. */
  get names(): readonly string[] {
    return (this.#names ??= JSON.parse(
      this.#data.toString('utf8', this.#namesAt, this.#namesAt + this.#namesBytes),
    ) as string[]);
  }

  /** Returns the position of the name; undefined, mostly without parsing names, if the block lacks it. */
  positionOf(name: string): number | undefined {
    const nameJson = JSON.stringify(name);
    const namesJson = this.#data.subarray(this.#namesAt, this.#namesAt + this.#namesBytes);
    if (this.#names === undefined && !namesJson.includes(nameJson)) return undefined;
    const position = this.names.indexOf(name);
    return position === -1 ? undefined : position;
  }

  /** Returns the index of the call's first word in `floats`. Times 4 it is the index in `shorts`. */
  first64Of(call: number): number {
    return (this.#start + HEAD_BYTES + call * FIXED_BYTES) >> 3;
  }

  /** Decodes the whole record of the call with that index in the block. */
  recordOf(call: number): CallRecord {
    const at64 = this.first64Of(call);
    const at16 = at64 << 2;
    const { names, shorts } = this;
    const nameOf = (field: keyof typeof NAMED): string | null => names[shorts[at16 + NAMED[field]]!] ?? null;
    const flags = shorts[at16 + FLAGS]!;
    const isPlain = (flags & PLAIN) !== 0;
    const account = nameOf('account');
    const source = nameOf('source');
    const at = this.#variableAt + this.#data.readUInt32LE(at64 * 8 + VARIABLE * 4);
    const reader = new VariableReader(this.#data, at, names);
    const durationMs = reader.time();
    const firstTokenMs = reader.timeOrNone();
    const admittedMs = reader.timeOrNone();
    // `!`: each call has a prefix and a route, and each call with a source has `answered`.
    return {
      endedMs: asWallMs(this.floats[at64]!),
      requestPrefix: nameOf('prefix')!,
      request: this.floats[at64 + REQUEST]!,
      route: nameOf('route')!,
      account,
      key: nameOf('key'),
      model: nameOf('model'),
      upstream: nameOf('upstream'),
      stream: (flags & STREAM) !== 0,
      cache: (flags & CACHE_HIT) !== 0 ? 'hit' : (flags & CACHE_MISS) !== 0 ? 'miss' : null,
      // Here and in `attempts` 0 stands for no status.
      status: shorts[at16 + STATUS]! || null,
      code: nameOf('code'),
      usage:
        source === null
          ? undefined
          : {
              promptTokens: reader.number(),
              cachedTokens: reader.number(),
              cacheWriteTokens: reader.number(),
              cacheWrite1hTokens: reader.number(),
              completionTokens: reader.number(),
              reasoningTokens: reader.number(),
              answeredModel: nameOf('answered')!,
              source,
              charged: asPicoUnits(this.#data.readBigInt64LE((at64 + CHARGED) * 8)),
            },
      admittedMs,
      firstTokenMs,
      durationMs,
      queuedMs: this.#data.readUInt32LE(at64 * 8 + QUEUED_MS * 4),
      attempts: isPlain ? [reader.plainAttempt(nameOf('upstream'), nameOf('answered'))] : reader.attempts(),
      quotas: isPlain ? reader.plainQuotas(account) : reader.quotas(),
      error: isPlain ? null : reader.text(),
    };
  }

  /** Returns the record of that request; undefined if the block lacks it. */
  find(prefix: string, request: number): CallRecord | undefined {
    const prefixPosition = this.positionOf(prefix);
    if (prefixPosition === undefined) return undefined;
    for (let call = 0; call < this.count; call++) {
      const at64 = this.first64Of(call);
      if (this.floats[at64 + REQUEST] !== request) continue;
      if (this.shorts[(at64 << 2) + NAMED.prefix] === prefixPosition) return this.recordOf(call);
    }
    return undefined;
  }

  /** Returns the call's flags: STREAM and those declared after it. */
  flagsOf(call: number): number {
    return this.shorts[(this.first64Of(call) << 2) + FLAGS]!;
  }
}

/** Reads a call's variable part from offset `at` on. Each method reads the next fields. */
class VariableReader {
  readonly #data: Buffer;
  readonly #names: readonly string[];
  #at: number;

  constructor(data: Buffer, at: number, names: readonly string[]) {
    this.#data = data;
    this.#at = at;
    this.#names = names;
  }

  name(): string | null {
    const position = this.number();
    return position === 0 ? null : this.#names[position - 1]!;
  }

  number(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 0x80) {
      const byte = this.#data[this.#at++];
      if (byte === undefined) throw new Error('a block of the call log ends within a call');
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
  }

  time(): number {
    return this.number() / 1_000;
  }

  timeOrNone(): number | undefined {
    const microsPlusOne = this.number();
    return microsPlusOne === 0 ? undefined : (microsPlusOne - 1) / 1_000;
  }

  text(): string | null {
    const length = this.number();
    if (length === 0) return null;
    const start = this.#at;
    this.#at += length - 1;
    return this.#data.toString('utf8', start, this.#at);
  }

  attempts(): CallAttempt[] {
    return Array.from({ length: this.number() }, () => ({
      upstream: this.name(),
      model: this.name(),
      status: this.number() || null,
      code: this.name(),
      startMs: this.time(),
      durationMs: this.time(),
      error: this.text(),
    }));
  }

  /** The attempt of a plain call always succeeded, so only its times are stored. */
  plainAttempt(upstream: string | null, model: string | null): CallAttempt {
    return {
      upstream,
      model,
      status: 200,
      code: null,
      startMs: this.time(),
      durationMs: this.time(),
      error: null,
    };
  }

  /** `id`: the id of the call's account, whose quotas come first. */
  plainQuotas(id: string | null): QuotaLeft[] {
    const quotas: QuotaLeft[] = [
      { scope: 'account', id, quota: 'balance', left: this.#amount() },
      { scope: 'account', id, quota: 'calls_in_flight', left: this.number() },
      { scope: 'account', id, quota: 'calls_per_day', left: this.number() },
    ];
    const minute = this.number();
    if (minute > 0) quotas.push({ scope: 'account', id, quota: 'requests_per_minute', left: minute - 1 });
    return quotas.concat(this.quotas());
  }

  quotas(): QuotaLeft[] {
    return Array.from({ length: this.number() }, () => ({
      scope: this.name() as QuotaLeft['scope'],
      id: this.name(),
      quota: this.name() as QuotaLeft['quota'],
      left: this.number() === 1 ? this.#amount() : this.number(),
    }));
  }

  #amount(): bigint {
    const amount = this.#data.readBigInt64LE(this.#at);
    this.#at += 8;
    return amount;
  }
}

/** Four bytes of 7 bits hold numbers below this. */
const TWO_28 = 2 ** 28;

/**
 * Writes a number at `start` for `VariableReader.number`, and returns the offset after it. 7 bits a byte
 * make at most 8 bytes for a number up to 2^53 (test/unit/call-log/plain-calls.test.ts).
 */
export function putNumber(bytes: Uint8Array, start: number, value: number): number {
  // Most numbers are whole and have 31 bits. `| 0` changes all other numbers.
  let bits = value | 0;
  if (bits !== value || bits < 0) return putRareNumber(bytes, start, value);
  let at = start;
  for (; bits > 0x7f; bits >>= 7) bytes[at++] = (bits & 0x7f) | 0x80;
  bytes[at++] = bits;
  return at;
}

/** Writes a number beyond 31 bits, or the whole part of a fraction. A negative number, a bug, becomes 0. */
function putRareNumber(bytes: Uint8Array, start: number, value: number): number {
  const whole = value > 0 ? Math.min(Math.floor(value), Number.MAX_SAFE_INTEGER) : 0;
  if (whole < TWO_28) return putNumber(bytes, start, whole);
  const high = Math.floor(whole / TWO_28);
  const low = whole - high * TWO_28;
  bytes[start] = (low & 0x7f) | 0x80;
  bytes[start + 1] = ((low >> 7) & 0x7f) | 0x80;
  bytes[start + 2] = ((low >> 14) & 0x7f) | 0x80;
  bytes[start + 3] = (low >> 21) | 0x80;
  return putNumber(bytes, start + 4, high);
}
