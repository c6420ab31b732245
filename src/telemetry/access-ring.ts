/**
 * The records of calls on their way to the access log: a listener appends each call that it wants logged
 * (chat-exchange.ts), the main thread takes them out and writes them (gateway-logs.ts). One ring a listener.
 *
 * A full ring drops records and counts them; it never holds up a call. Calls are charged by way of the
 * journal, which loses none.
 *
 *     byte  bits  field of a record, behind the head that spsc-ring.ts gives it
 *        0    64  request      number of the request in its listener (float)
 *        8    64  endedMs      wall clock (float)
 *       16    64  prompt       tokens (float, as the two that follow)
 *       24    64  cached
 *       32    64  completion
 *       40    64  charged      pico-units, signed
 *       48    64  firstTokenMs milliseconds (float); NOTHING if no stream has begun
 *       56    64  durationMs   milliseconds (float)
 *       64    32  account      slot; NOTHING if the caller is not known, as in the next four
 *       68    32  key          slot
 *       72    32  model        that the caller named: index into the catalogue
 *       76    32  answered     model whose price was charged, likewise
 *       80    32  upstream     slot of the upstream that was tried last
 *       84    32  outcome      index into OUTCOMES
 *       88    32  source       index into USAGE_SOURCES; NOTHING if nothing was charged
 *       92    32  flags        see STREAM; from bit DOOR_SHIFT on, the position of the door in DOOR_NAMES
 *       96    32  queuedMs     milliseconds of waiting for room in the limits of upstreams
 *      100    32  cacheWrite   tokens, as the two that follow: no report that is believed has 2^31
 *      104    32  cacheWrite1h
 *      108    32  reasoning
 */
import { FIELDS_AT, SpscReader, SpscWriter, createSpscRing } from '../core/spsc-ring.js';
import {
  asAccountIndex,
  asKeyIndex,
  asPicoUnits,
  asWallMs,
  type AccountIndex,
  type KeyIndex,
  type PicoUnits,
  type WallMs,
} from '../core/units.js';
import type { TokenCounts } from '../core/token-counts.js';
import type { LogSwitch } from './log.js';
import { OUTCOMES, type Outcome } from './metrics-layout.js';

const CALL = 1;
const RECORD_BYTES = FIELDS_AT + 112;
/**
 * The main thread looks ten times a second under load: 200,000 calls a second fit, more than a listener can
 * refuse. Pages that were never used cost no memory.
 */
const RING_BYTES = 2 * 1024 * 1024;
const NOTHING = -1;

/** Fields of 64 bits. */
const REQUEST = 0;
const ENDED_MS = 1;
const PROMPT = 2;
const CACHED = 3;
const COMPLETION = 4;
const CHARGED = 5;
const FIRST_TOKEN_MS = 6;
const DURATION_MS = 7;
/** Fields of 32 bits. */
const ACCOUNT = 16;
const KEY = 17;
const MODEL = 18;
const ANSWERED = 19;
const UPSTREAM = 20;
const OUTCOME = 21;
const SOURCE = 22;
const FLAGS = 23;
const QUEUED_MS = 24;
const CACHE_WRITE = 25;
const CACHE_WRITE_1H = 26;
const REASONING = 27;
/**
 * Flags: the caller asked for a stream; the response had begun, with 200, before the call ended otherwise;
 * the response cache was asked, and had the response or not.
 */
const STREAM = 1;
const BEGUN = 2;
const CACHE_HIT = 4;
const CACHE_MISS = 8;
const DOOR_SHIFT = 8;

export interface AccessRecord {
  /** The count part of the request's identifier. */
  readonly request: number;
  /** By which it came: position in DOOR_NAMES. */
  readonly door: number;
  readonly endedMs: WallMs;
  readonly outcome: Outcome;
  /** Whether a part of the response had been given to the caller. */
  readonly begun: boolean;
  readonly stream: boolean;
  /** Undefined if the response cache was not asked. */
  readonly cache: 'hit' | 'miss' | undefined;
  readonly account: AccountIndex | undefined;
  readonly key: KeyIndex | undefined;
  /** The model that the caller named. */
  readonly model: number | undefined;
  readonly upstream: number | undefined;
  /** Undefined if the call was not charged. */
  readonly usage: AccessUsage | undefined;
  readonly firstTokenMs: number | undefined;
  readonly durationMs: number;
  /** Time of it in which the call waited for room in the limits of its upstreams. */
  readonly queuedMs: number;
}

export interface AccessUsage extends TokenCounts {
  /** The model that answered, whose price was charged. */
  readonly answered: number;
  /** Index into `USAGE_SOURCES`. */
  readonly source: number;
  readonly charged: PicoUnits;
}

/** Hand it to a thread in its `workerData`. */
export interface AccessBuffer {
  readonly ring: SharedArrayBuffer;
  /** One 32-bit word: records that were dropped so far, modulo 2^32. The listener adds. */
  readonly dropped: SharedArrayBuffer;
}

export function createAccessRing(): AccessBuffer {
  return {
    ring: createSpscRing(RING_BYTES),
    dropped: new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT),
  };
}

/** The listener's end. */
export class AccessWriter {
  readonly #ring: SpscWriter;
  readonly #amounts: BigInt64Array;
  readonly #dropped: Int32Array;
  readonly #control: LogSwitch;
  /** Percents of a line that successful calls have gathered. */
  #share = 0;

  /** Goes on where an earlier listener of this ring has stopped. */
  constructor({ ring, dropped }: AccessBuffer, control: LogSwitch) {
    this.#ring = new SpscWriter(ring);
    this.#amounts = new BigInt64Array(ring);
    this.#dropped = new Int32Array(dropped);
    this.#control = control;
  }

  /** Returns whether to append a call that ends so. To be asked once a call; 10 ns if the log is off. */
  wants(outcome: Outcome): boolean {
    if (!this.#control.access) return false;
    if (outcome !== 'ok') return true;
    this.#share += this.#control.samplePercent;
    if (this.#share < 100) return false;
    this.#share -= 100;
    return true;
  }

  /** Takes some 100 ns. */
  append(record: AccessRecord): void {
    const at = this.#ring.reserve(CALL, RECORD_BYTES);
    if (at === -1) {
      Atomics.add(this.#dropped, 0, 1);
      return;
    }
    const { floats, ints } = this.#ring;
    const { usage } = record;
    const first64 = (at + FIELDS_AT) >> 3;
    floats[first64 + REQUEST] = record.request;
    floats[first64 + ENDED_MS] = record.endedMs;
    floats[first64 + FIRST_TOKEN_MS] = record.firstTokenMs ?? NOTHING;
    floats[first64 + DURATION_MS] = record.durationMs;
    if (usage !== undefined) {
      floats[first64 + PROMPT] = usage.promptTokens;
      floats[first64 + CACHED] = usage.cachedTokens;
      floats[first64 + COMPLETION] = usage.completionTokens;
      this.#amounts[first64 + CHARGED] = usage.charged;
    }
    const first32 = (at + FIELDS_AT) >> 2;
    if (usage !== undefined) {
      ints[first32 + ANSWERED] = usage.answered;
      ints[first32 + CACHE_WRITE] = usage.cacheWriteTokens;
      ints[first32 + CACHE_WRITE_1H] = usage.cacheWrite1hTokens;
      ints[first32 + REASONING] = usage.reasoningTokens;
    }
    ints[first32 + ACCOUNT] = record.account ?? NOTHING;
    ints[first32 + KEY] = record.key ?? NOTHING;
    ints[first32 + MODEL] = record.model ?? NOTHING;
    ints[first32 + UPSTREAM] = record.upstream ?? NOTHING;
    ints[first32 + OUTCOME] = OUTCOMES.indexOf(record.outcome);
    ints[first32 + SOURCE] = usage?.source ?? NOTHING;
    ints[first32 + FLAGS] = flagsOf(record);
    ints[first32 + QUEUED_MS] = record.queuedMs;
    this.#ring.publish();
  }
}

/** The main thread's end. */
export class AccessReader {
  readonly #ring: SpscReader;
  readonly #amounts: BigInt64Array;
  readonly #dropped: Int32Array;
  #droppedBefore = 0;

  constructor({ ring, dropped }: AccessBuffer) {
    this.#ring = new SpscReader(ring);
    this.#amounts = new BigInt64Array(ring);
    this.#dropped = new Int32Array(dropped);
  }

  /** Visits the records that were appended before the call, oldest first. */
  drain(visit: (record: AccessRecord) => void): void {
    const bytes = this.#ring.published();
    if (bytes === 0) return;
    this.#ring.read(bytes, (at) => {
      const record = this.#recordAt(at);
      this.#ring.giveBack();
      visit(record);
    });
    this.#ring.giveBack();
  }

  /** Returns how many records were dropped since the last call. */
  takeDropped(): number {
    const dropped = Atomics.load(this.#dropped, 0);
    const more = (dropped - this.#droppedBefore) >>> 0;
    this.#droppedBefore = dropped;
    return more;
  }

  #recordAt(at: number): AccessRecord {
    const { floats, ints } = this.#ring;
    const first64 = (at + FIELDS_AT) >> 3;
    const first32 = (at + FIELDS_AT) >> 2;
    const account = valueOf(ints[first32 + ACCOUNT]!);
    const key = valueOf(ints[first32 + KEY]!);
    const source = valueOf(ints[first32 + SOURCE]!);
    const flags = ints[first32 + FLAGS]!;
    return {
      request: floats[first64 + REQUEST]!,
      door: flags >> DOOR_SHIFT,
      endedMs: asWallMs(floats[first64 + ENDED_MS]!),
      outcome: OUTCOMES[ints[first32 + OUTCOME]!]!,
      begun: (flags & BEGUN) !== 0,
      stream: (flags & STREAM) !== 0,
      cache: (flags & CACHE_HIT) !== 0 ? 'hit' : (flags & CACHE_MISS) !== 0 ? 'miss' : undefined,
      account: account === undefined ? undefined : asAccountIndex(account),
      key: key === undefined ? undefined : asKeyIndex(key),
      model: valueOf(ints[first32 + MODEL]!),
      upstream: valueOf(ints[first32 + UPSTREAM]!),
      usage:
        source === undefined
          ? undefined
          : {
              promptTokens: floats[first64 + PROMPT]!,
              cachedTokens: floats[first64 + CACHED]!,
              cacheWriteTokens: ints[first32 + CACHE_WRITE]!,
              cacheWrite1hTokens: ints[first32 + CACHE_WRITE_1H]!,
              completionTokens: floats[first64 + COMPLETION]!,
              reasoningTokens: ints[first32 + REASONING]!,
              answered: ints[first32 + ANSWERED]!,
              source,
              charged: asPicoUnits(this.#amounts[first64 + CHARGED]!),
            },
      firstTokenMs: valueOf(floats[first64 + FIRST_TOKEN_MS]!),
      durationMs: floats[first64 + DURATION_MS]!,
      queuedMs: ints[first32 + QUEUED_MS]!,
    };
  }
}

function flagsOf({ stream, begun, cache, door }: AccessRecord): number {
  const result = cache === undefined ? 0 : cache === 'hit' ? CACHE_HIT : CACHE_MISS;
  return result | (stream ? STREAM : 0) | (begun ? BEGUN : 0) | (door << DOOR_SHIFT);
}

function valueOf(word: number): number | undefined {
  return word === NOTHING ? undefined : word;
}
