/**
 * Reads the call ring, which carries ended calls from a listener (call-ring-writer.ts) to the main thread.
 * gateway/gateway-logs.ts has a reader for each listener and drains it there. call-ring-layout.ts has all
 * fields.
 *
 * `at` is the offset of a record in bytes. `first64` and `first32` say where its fields begin, counted in
 * words of 64 and of 32 bits: the layout counts each field in words of its width. Records begin at
 * multiples of 8 bytes, so the shifts are exact. The `!` are safe because all these words are in the ring's
 * memory, and because the listener has taken its indexes from the same OUTCOMES and ATTEMPT_CODES.
 *
 * Must hold (test/unit/telemetry/call-ring-writer.test.ts, test/unit/call-log/plain-calls.test.ts):
 * - Each field is read from the word to which it is written: by call-ring-writer.ts, or for a plain call by
 *   request/recorded-call.ts.
 * - Memory is given back only after it was read. A visitor must not keep a PlainCall after its visit.
 */
import type { QuotasLeft } from '../core/quotas-left.js';
import { FIELDS_AT, SpscReader } from '../core/spsc-ring.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '../core/units.js';
import * as layout from './call-ring-layout.js';
import { ATTEMPT_CODES, type EndedAttempt, type EndedCall, type WantedLogs } from './call-ring-layout.js';
import { OUTCOMES } from './metrics-layout.js';

const HTTP_OK = 200;
const MICROS_PER_MS = 1_000;
/** Memory is given back once per this many plain calls, to save atomic stores. A power of two. */
const GIVE_BACK_CALLS = 64;

/**
 * A plain call in the ring's memory, valid during the visit. `first64` is the index of the call's first
 * field among the 64-bit words. The quotas that have no field of their own follow the fields.
 */
export interface PlainCall {
  readonly ints: Int32Array;
  readonly floats: Float64Array;
  readonly amounts: BigInt64Array;
  first64: number;
}

export class CallRingReader {
  readonly #ring: SpscReader;
  readonly #amounts: BigInt64Array;
  /** One object for all visits. */
  readonly #plain: PlainCall;
  readonly #dropped: Int32Array;
  /** The words of `dropped` as `takeLost` last read them. */
  #droppedBefore: Int32Array;
  /** How many plain calls were given to `visitPlain` since the start. */
  #visitedPlain = 0;

  constructor({ ring, dropped }: layout.CallRingBuffer) {
    this.#ring = new SpscReader(ring);
    this.#amounts = new BigInt64Array(ring);
    this.#dropped = new Int32Array(dropped);
    this.#droppedBefore = new Int32Array(this.#dropped.length);
    const { ints, floats } = this.#ring;
    this.#plain = { ints, floats, amounts: this.#amounts, first64: 0 };
  }

  /**
   * Visits all records that have been appended, oldest first. If `visitPlain` is given, it gets the plain
   * calls as PlainCall, because making an object of a record takes most of the time. Only the call log wants
   * plain calls, so `visitPlain` gets no WantedLogs. Memory is given back between records, so that the
   * listener can go on writing. If a visit throws, its record counts as read.
   */
  drain(
    visit: (record: EndedCall, wanted: WantedLogs) => void,
    visitPlain?: (call: PlainCall) => void,
  ): void {
    const bytes = this.#ring.published();
    if (bytes === 0) return;
    this.#ring.read(bytes, (at) => {
      const isPlain = this.#ring.kindAt(at) === layout.PLAIN_CALL;
      if (isPlain && visitPlain !== undefined) {
        this.#plain.first64 = (at + FIELDS_AT) >> 3;
        visitPlain(this.#plain);
        if ((++this.#visitedPlain & (GIVE_BACK_CALLS - 1)) === 0) this.#ring.giveBack();
        return;
      }
      const record = isPlain ? this.#plainAt(at) : this.#recordAt(at);
      const flagsWord = isPlain ? layout.PLAIN_FLAGS : layout.FLAGS;
      const flags = this.#ring.ints[((at + FIELDS_AT) >> 2) + flagsWord]!;
      // `giveBack` includes the record at `at`, so its fields are read before. `record` is a copy, so the
      // visit comes after. The memory of a PlainCall, above, stays until its visit is over.
      this.#ring.giveBack();
      visit(record, { log: (flags & layout.LOGGED) !== 0, store: (flags & layout.STORED) !== 0 });
    });
    this.#ring.giveBack();
  }

  /**
   * Returns how many calls the listener has not appended since `takeLost` was called last: records for the
   * call log and records that only the access log wanted, because the ring was full, and rejected calls that
   * were not stored, because there were too many in a second.
   */
  takeLost(): { readonly dropped: number; readonly droppedLogOnly: number; readonly unstored: number } {
    const before = this.#droppedBefore;
    this.#droppedBefore = this.#dropped.map((_, word) => Atomics.load(this.#dropped, word));
    // Counts wrap at 2^32, so the difference is taken modulo 2^32.
    const growthOf = (word: number): number => (this.#droppedBefore[word]! - before[word]!) >>> 0;
    return {
      dropped: growthOf(layout.DROPPED),
      droppedLogOnly: growthOf(layout.DROPPED_LOG_ONLY),
      unstored: growthOf(layout.UNSTORED),
    };
  }

  /** Returns a copy of the plain call at `at`. The ring lacks what is the same for all plain calls. */
  #plainAt(at: number): EndedCall {
    const { floats, ints } = this.#ring;
    const first64 = (at + FIELDS_AT) >> 3;
    const first32 = (at + FIELDS_AT) >> 2;
    const flags = ints[first32 + layout.PLAIN_FLAGS]!;
    const answered = ints[first32 + layout.PLAIN_ANSWERED]!;
    const upstream = ints[first32 + layout.PLAIN_UPSTREAM]!;
    return {
      request: floats[first64 + layout.PLAIN_REQUEST]!,
      door: (flags >> layout.DOOR_SHIFT) & layout.DOOR_MASK,
      endedMs: asWallMs(floats[first64 + layout.PLAIN_ENDED_MS]!),
      outcome: 'ok',
      begun: (flags & layout.BEGUN) !== 0,
      stream: (flags & layout.STREAM) !== 0,
      cache: cacheOf(flags),
      account: asAccountIndex(ints[first32 + layout.PLAIN_ACCOUNT]!),
      key: asKeyIndex(ints[first32 + layout.PLAIN_KEY]!),
      model: ints[first32 + layout.PLAIN_MODEL]!,
      upstream,
      usage: {
        promptTokens: ints[first32 + layout.PLAIN_PROMPT]!,
        cachedTokens: ints[first32 + layout.PLAIN_CACHED]!,
        cacheWriteTokens: ints[first32 + layout.PLAIN_CACHE_WRITE]!,
        cacheWrite1hTokens: ints[first32 + layout.PLAIN_CACHE_WRITE_1H]!,
        completionTokens: ints[first32 + layout.PLAIN_COMPLETION]!,
        reasoningTokens: ints[first32 + layout.PLAIN_REASONING]!,
        answered,
        source: flags >> layout.SOURCE_SHIFT,
        charged: asPicoUnits(this.#amounts[first64 + layout.PLAIN_CHARGED]!),
      },
      firstTokenMs: msOf(ints[first32 + layout.PLAIN_FIRST_TOKEN]!),
      durationMs: ints[first32 + layout.PLAIN_DURATION]! / MICROS_PER_MS,
      queuedMs: ints[first32 + layout.PLAIN_QUEUED_MS]!,
      admittedMs: ints[first32 + layout.PLAIN_ADMITTED]! / MICROS_PER_MS,
      quotas: {
        minute: valueOf(ints[first32 + layout.PLAIN_MINUTE]!),
        inFlight: ints[first32 + layout.PLAIN_IN_FLIGHT]!,
        perDay: ints[first32 + layout.PLAIN_PER_DAY]!,
        balance: floats[first64 + layout.PLAIN_BALANCE]!,
        others: this.#othersAt(at + layout.PLAIN_BYTES, ints[first32 + layout.PLAIN_QUOTAS]!),
      },
      attempts: [
        {
          upstream,
          model: answered,
          status: HTTP_OK,
          code: undefined,
          startMs: ints[first32 + layout.PLAIN_ATTEMPT_START]! / MICROS_PER_MS,
          durationMs: ints[first32 + layout.PLAIN_ATTEMPT_US]! / MICROS_PER_MS,
          error: '',
        },
      ],
      error: '',
    };
  }

  /**
   * Returns a copy of the record at `at`, which is not plain. If there is no source, no usage was written at
   * all.
   */
  #recordAt(at: number): EndedCall {
    const { floats, ints } = this.#ring;
    const first64 = (at + FIELDS_AT) >> 3;
    const first32 = (at + FIELDS_AT) >> 2;
    const account = valueOf(ints[first32 + layout.ACCOUNT]!);
    const key = valueOf(ints[first32 + layout.KEY]!);
    const source = valueOf(ints[first32 + layout.SOURCE]!);
    const flags = ints[first32 + layout.FLAGS]!;
    return {
      request: floats[first64 + layout.REQUEST]!,
      // The door needs no mask, because only a plain call has its source above the door.
      door: flags >> layout.DOOR_SHIFT,
      endedMs: asWallMs(floats[first64 + layout.ENDED_MS]!),
      outcome: OUTCOMES[ints[first32 + layout.OUTCOME]!]!,
      begun: (flags & layout.BEGUN) !== 0,
      stream: (flags & layout.STREAM) !== 0,
      cache: cacheOf(flags),
      account: account === undefined ? undefined : asAccountIndex(account),
      key: key === undefined ? undefined : asKeyIndex(key),
      model: valueOf(ints[first32 + layout.MODEL]!),
      upstream: valueOf(ints[first32 + layout.UPSTREAM]!),
      usage:
        source === undefined
          ? undefined
          : {
              promptTokens: floats[first64 + layout.PROMPT]!,
              cachedTokens: floats[first64 + layout.CACHED]!,
              cacheWriteTokens: ints[first32 + layout.CACHE_WRITE]!,
              cacheWrite1hTokens: ints[first32 + layout.CACHE_WRITE_1H]!,
              completionTokens: floats[first64 + layout.COMPLETION]!,
              reasoningTokens: ints[first32 + layout.REASONING]!,
              answered: ints[first32 + layout.ANSWERED]!,
              source,
              charged: asPicoUnits(this.#amounts[first64 + layout.CHARGED]!),
            },
      firstTokenMs: valueOf(floats[first64 + layout.FIRST_TOKEN_MS]!),
      durationMs: floats[first64 + layout.DURATION_MS]!,
      queuedMs: ints[first32 + layout.QUEUED_MS]!,
      admittedMs: valueOf(floats[first64 + layout.ADMITTED_MS]!),
      quotas: this.#quotasAt(at),
      ...this.#attemptsAndErrorAt(at),
    };
  }

  /**
   * Returns the record's quotas. If `inFlight` is NOTHING, there are none. Otherwise `inFlight` is 0 or more,
   * because no call is admitted beyond the limit.
   */
  #quotasAt(at: number): QuotasLeft | undefined {
    const { floats, ints } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const inFlight = ints[first32 + layout.IN_FLIGHT]!;
    if (inFlight === layout.NOTHING) return undefined;
    const firstQuotaAt = at + layout.RECORD_BYTES + ints[first32 + layout.ATTEMPTS]! * layout.ATTEMPT_BYTES;
    return {
      minute: valueOf(ints[first32 + layout.MINUTE]!),
      inFlight,
      perDay: ints[first32 + layout.PER_DAY]!,
      balance: floats[((at + FIELDS_AT) >> 3) + layout.BALANCE]!,
      others: this.#othersAt(firstQuotaAt, ints[first32 + layout.QUOTAS]!),
    };
  }

  /** Returns `count` quotas from byte `at` on, as QuotasLeft.others has them; undefined if there are none. */
  #othersAt(at: number, count: number): number[] | undefined {
    const { floats, ints } = this.#ring;
    let others: number[] | undefined;
    for (let n = 0, quotaAt = at; n < count; n++, quotaAt += layout.QUOTA_BYTES) {
      (others ??= []).push(ints[quotaAt >> 2]!, ints[(quotaAt >> 2) + 1]!, floats[(quotaAt >> 3) + 1]!);
    }
    return others;
  }

  /** Returns the record's attempts and error. The record ends with the texts of both, in this order. */
  #attemptsAndErrorAt(at: number): Pick<EndedCall, 'attempts' | 'error'> {
    const { ints } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const count = ints[first32 + layout.ATTEMPTS]!;
    let attemptAt = at + layout.RECORD_BYTES;
    let textAt =
      attemptAt + count * layout.ATTEMPT_BYTES + ints[first32 + layout.QUOTAS]! * layout.QUOTA_BYTES;
    const attempts: EndedAttempt[] = [];
    for (let n = 0; n < count; n++, attemptAt += layout.ATTEMPT_BYTES) {
      attempts.push(this.#attemptAt(attemptAt, textAt));
      textAt += ints[(attemptAt >> 2) + layout.ATTEMPT_TEXT_BYTES]!;
    }
    return { attempts, error: this.#textAt(textAt, ints[first32 + layout.ERROR_BYTES]!) };
  }

  /** Returns the attempt at `at`, which begins with two floats: start, duration. Its text is at `textAt`. */
  #attemptAt(at: number, textAt: number): EndedAttempt {
    const { floats, ints } = this.#ring;
    const first32 = at >> 2;
    const code = ints[first32 + layout.ATTEMPT_CODE]!;
    return {
      upstream: ints[first32 + layout.ATTEMPT_UPSTREAM]!,
      model: ints[first32 + layout.ATTEMPT_MODEL]!,
      status: ints[first32 + layout.ATTEMPT_STATUS]!,
      code: code === layout.NOTHING ? undefined : ATTEMPT_CODES[code]!,
      startMs: floats[at >> 3]!,
      durationMs: floats[(at >> 3) + 1]!,
      error: this.#textAt(textAt, ints[first32 + layout.ATTEMPT_TEXT_BYTES]!),
    };
  }

  #textAt(at: number, bytes: number): string {
    return bytes === 0 ? '' : this.#ring.bytes.toString('utf8', at, at + bytes);
  }
}

function cacheOf(flags: number): 'hit' | 'miss' | undefined {
  return (flags & layout.CACHE_HIT) !== 0 ? 'hit' : (flags & layout.CACHE_MISS) !== 0 ? 'miss' : undefined;
}

/** Returns the milliseconds; undefined for NOTHING. */
function msOf(micros: number): number | undefined {
  return micros === layout.NOTHING ? undefined : micros / MICROS_PER_MS;
}

/** Returns the word; undefined for NOTHING. */
function valueOf(word: number): number | undefined {
  return word === layout.NOTHING ? undefined : word;
}
