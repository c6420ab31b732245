/**
 * Both ends of the ring that takes ended calls from a listener to the main thread, for the access log and the
 * store of calls (call-ring-layout.ts). The listener writes when a call ends (chat-exchange.ts); the main
 * thread reads (gateway-logs.ts).
 *
 * Must hold: a full ring drops the record and counts it, and holds up no call; a text that is too long is
 * cut, and the records behind it stay whole. Test: unit/telemetry/call-ring.
 */
import { QUOTA_NUMBERS, type QuotasLeft } from '../core/quotas.js';
import { FIELDS_AT, SpscReader, SpscWriter } from '../core/spsc-ring.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '../core/units.js';
import * as layout from './call-ring-layout.js';
import { CALL_ATTEMPTS_MAX, CALL_ERROR_CHARS_MAX } from './call-record.js';
import { ATTEMPT_CODES, type EndedAttempt, type EndedCall, type Wanted } from './ended-call.js';
import type { LogSwitch } from './log.js';
import { OUTCOMES, type Outcome } from './metrics-layout.js';

const UTF8_BYTES_MAX = 3;
const OK = OUTCOMES.indexOf('ok');
const RESPONDED = 200;
/**
 * Calls a second that a listener wants stored although they were rejected, of callers without a valid key and
 * of others. A flood would push the calls that matter out of the store.
 */
const UNKNOWN_STORED_MAX = 100;
const REJECTED_STORED_MAX = 1_000;
const MS_PER_SECOND = 1_000;
/** The writer gets the room of so many plain calls back at once. A power of two. */
const GIVE_BACK_CALLS = 64;

/** The listener's end. */
export class CallRingWriter {
  readonly #ring: SpscWriter;
  readonly #amounts: BigInt64Array;
  readonly #dropped: Int32Array;
  readonly #control: LogSwitch;
  /** Percents of a line that successful calls have gathered. */
  #share = 0;
  /** The second that `#unknown` and `#rejected` count. */
  #second = 0;
  #unknown = 0;
  #rejected = 0;

  /** Goes on where an earlier listener of this ring has stopped. */
  constructor({ ring, dropped }: layout.CallRingBuffer, control: LogSwitch) {
    this.#ring = new SpscWriter(ring);
    this.#amounts = new BigInt64Array(ring);
    this.#dropped = new Int32Array(dropped);
    this.#control = control;
  }

  /** Whether calls are stored, so that it is worth while to gather what only the store has. */
  get stores(): boolean {
    return this.#control.store;
  }

  /** Returns whether the access log has a call that ends so. To be asked once a call. */
  isLogged(outcome: Outcome): boolean {
    if (!this.#control.access) return false;
    if (outcome !== 'ok') return true;
    this.#share += this.#control.samplePercent;
    if (this.#share < 100) return false;
    this.#share -= 100;
    return true;
  }

  /**
   * Returns whether the store has a call that ends at `nowMs`. To be asked once a call. `standing`: whether
   * it was admitted, rejected, or rejected because its caller is not known.
   */
  isStored(standing: 'admitted' | 'rejected' | 'unknown', nowMs: number): boolean {
    if (!this.#control.store) return false;
    if (standing === 'admitted') return true;
    const second = Math.floor(nowMs / MS_PER_SECOND);
    if (second !== this.#second) {
      this.#second = second;
      this.#unknown = this.#rejected = 0;
    }
    return standing === 'unknown'
      ? this.#unknown++ < UNKNOWN_STORED_MAX
      : this.#rejected++ < REJECTED_STORED_MAX;
  }

  /** Takes some 150 ns. */
  append(record: EndedCall, wanted: Wanted): void {
    const { usage, attempts, quotas, error } = record;
    const others = quotas?.others;
    const lastAttempt = Math.min(attempts.length, CALL_ATTEMPTS_MAX);
    const otherCount = others === undefined ? 0 : others.length / QUOTA_NUMBERS;
    let bytes = layout.RECORD_BYTES + lastAttempt * layout.ATTEMPT_BYTES + otherCount * layout.QUOTA_BYTES;
    const textsAt = bytes;
    // Most have no texts. A character of UTF-16 has at most three bytes of UTF-8.
    for (let n = 0; n < lastAttempt; n++) {
      bytes += Math.min(attempts[n]!.error.length, layout.ATTEMPT_ERROR_CHARS_MAX) * UTF8_BYTES_MAX;
    }
    bytes += Math.min(error.length, CALL_ERROR_CHARS_MAX) * UTF8_BYTES_MAX;
    const at = this.#ring.reserve(layout.CALL, bytes);
    if (at === -1) {
      Atomics.add(this.#dropped, 0, 1);
      return;
    }
    const { floats, ints } = this.#ring;
    const first64 = (at + FIELDS_AT) >> 3;
    floats[first64 + layout.REQUEST] = record.request;
    floats[first64 + layout.ENDED_MS] = record.endedMs;
    floats[first64 + layout.FIRST_TOKEN_MS] = record.firstTokenMs ?? layout.NOTHING;
    floats[first64 + layout.DURATION_MS] = record.durationMs;
    floats[first64 + layout.ADMITTED_MS] = record.admittedMs ?? layout.NOTHING;
    const first32 = (at + FIELDS_AT) >> 2;
    if (usage !== undefined) {
      floats[first64 + layout.PROMPT] = usage.promptTokens;
      floats[first64 + layout.CACHED] = usage.cachedTokens;
      floats[first64 + layout.COMPLETION] = usage.completionTokens;
      this.#amounts[first64 + layout.CHARGED] = usage.charged;
      ints[first32 + layout.ANSWERED] = usage.answered;
      ints[first32 + layout.CACHE_WRITE] = usage.cacheWriteTokens;
      ints[first32 + layout.CACHE_WRITE_1H] = usage.cacheWrite1hTokens;
      ints[first32 + layout.REASONING] = usage.reasoningTokens;
    }
    ints[first32 + layout.ACCOUNT] = record.account ?? layout.NOTHING;
    ints[first32 + layout.KEY] = record.key ?? layout.NOTHING;
    ints[first32 + layout.MODEL] = record.model ?? layout.NOTHING;
    ints[first32 + layout.UPSTREAM] = record.upstream ?? layout.NOTHING;
    ints[first32 + layout.OUTCOME] = OUTCOMES.indexOf(record.outcome);
    ints[first32 + layout.SOURCE] = usage?.source ?? layout.NOTHING;
    ints[first32 + layout.FLAGS] = flagsOf(record, wanted);
    ints[first32 + layout.QUEUED_MS] = record.queuedMs;
    ints[first32 + layout.ATTEMPTS] = lastAttempt;
    ints[first32 + layout.QUOTAS] = otherCount;
    ints[first32 + layout.IN_FLIGHT] = quotas?.inFlight ?? layout.NOTHING;
    if (quotas !== undefined) {
      floats[first64 + layout.BALANCE] = quotas.balance;
      ints[first32 + layout.MINUTE] = quotas.minute ?? layout.NOTHING;
      ints[first32 + layout.PER_DAY] = quotas.perDay;
    }
    let next = at + layout.RECORD_BYTES;
    let textAt = at + textsAt;
    for (let n = 0; n < lastAttempt; n++, next += layout.ATTEMPT_BYTES) {
      textAt += this.#writeAttempt(next, attempts[n]!, textAt);
    }
    for (let n = 0; n < otherCount; n++, next += layout.QUOTA_BYTES) {
      ints[next >> 2] = others![n * QUOTA_NUMBERS]!;
      ints[(next >> 2) + 1] = others![n * QUOTA_NUMBERS + 1]!;
      floats[(next >> 3) + 1] = others![n * QUOTA_NUMBERS + 2]!;
    }
    ints[first32 + layout.ERROR_BYTES] = this.#writeText(error, CALL_ERROR_CHARS_MAX, textAt);
    this.#ring.publish();
  }

  /** Returns how many bytes its text has. */
  #writeAttempt(at: number, attempt: EndedAttempt, textAt: number): number {
    const { floats, ints } = this.#ring;
    floats[at >> 3] = attempt.startMs;
    floats[(at >> 3) + 1] = attempt.durationMs;
    const first = at >> 2;
    ints[first + layout.ATTEMPT_UPSTREAM] = attempt.upstream;
    ints[first + layout.ATTEMPT_MODEL] = attempt.model;
    ints[first + layout.ATTEMPT_STATUS] = attempt.status;
    ints[first + layout.ATTEMPT_CODE] =
      attempt.code === undefined ? layout.NOTHING : ATTEMPT_CODES.indexOf(attempt.code);
    return (ints[first + layout.ATTEMPT_TEXT] = this.#writeText(
      attempt.error,
      layout.ATTEMPT_ERROR_CHARS_MAX,
      textAt,
    ));
  }

  #writeText(text: string, charsMax: number, at: number): number {
    return text === '' ? 0 : this.#ring.bytes.write(text.slice(0, charsMax), at);
  }
}

/**
 * A call in the ring that only the store wants, as most are: it went well at the first attempt, was charged,
 * and has no text. `first64` is where its fields begin among those of 64 bits; its one attempt and its quotas
 * follow them. Valid during the visit.
 */
export interface PlainCall {
  readonly ints: Int32Array;
  readonly floats: Float64Array;
  readonly amounts: BigInt64Array;
  first64: number;
}

/** The main thread's end. */
export class CallRingReader {
  readonly #ring: SpscReader;
  readonly #amounts: BigInt64Array;
  readonly #plain: PlainCall;
  readonly #dropped: Int32Array;
  #droppedBefore = 0;
  #visited = 0;

  constructor({ ring, dropped }: layout.CallRingBuffer) {
    this.#ring = new SpscReader(ring);
    this.#amounts = new BigInt64Array(ring);
    this.#dropped = new Int32Array(dropped);
    const { ints, floats } = this.#ring;
    this.#plain = { ints, floats, amounts: this.#amounts, first64: 0 };
  }

  /**
   * Visits the records that were appended before the call, oldest first. If `plain` is given, it gets those
   * that are plain, and `visit` the others: making an object of a record takes most of a visit's time.
   */
  drain(visit: (record: EndedCall, wanted: Wanted) => void, plain?: (call: PlainCall) => void): void {
    const bytes = this.#ring.published();
    if (bytes === 0) return;
    this.#ring.read(bytes, (at) => {
      if (plain !== undefined && this.#isPlain(at)) {
        this.#plain.first64 = (at + FIELDS_AT) >> 3;
        plain(this.#plain);
        if ((++this.#visited & (GIVE_BACK_CALLS - 1)) === 0) this.#ring.giveBack();
        return;
      }
      const record = this.#recordAt(at);
      const flags = this.#ring.ints[((at + FIELDS_AT) >> 2) + layout.FLAGS]!;
      this.#ring.giveBack();
      visit(record, { log: (flags & layout.LOGGED) !== 0, store: (flags & layout.STORED) !== 0 });
    });
    this.#ring.giveBack();
  }

  /** See PlainCall. */
  #isPlain(at: number): boolean {
    const { ints } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const attempt32 = (at + layout.RECORD_BYTES) >> 2;
    return (
      ints[first32 + layout.OUTCOME] === OK &&
      (ints[first32 + layout.FLAGS]! & (layout.LOGGED | layout.STORED)) === layout.STORED &&
      ints[first32 + layout.ATTEMPTS] === 1 &&
      ints[attempt32 + layout.ATTEMPT_UPSTREAM] === ints[first32 + layout.UPSTREAM] &&
      ints[attempt32 + layout.ATTEMPT_MODEL] === ints[first32 + layout.ANSWERED] &&
      ints[attempt32 + layout.ATTEMPT_STATUS] === RESPONDED &&
      ints[attempt32 + layout.ATTEMPT_CODE] === layout.NOTHING &&
      ints[attempt32 + layout.ATTEMPT_TEXT] === 0 &&
      ints[first32 + layout.ERROR_BYTES] === 0 &&
      ints[first32 + layout.SOURCE] !== layout.NOTHING &&
      ints[first32 + layout.IN_FLIGHT] !== layout.NOTHING
    );
  }

  /** Returns how many records were dropped since the last call. */
  takeDropped(): number {
    const dropped = Atomics.load(this.#dropped, 0);
    const more = (dropped - this.#droppedBefore) >>> 0;
    this.#droppedBefore = dropped;
    return more;
  }

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
      door: flags >> layout.DOOR_SHIFT,
      endedMs: asWallMs(floats[first64 + layout.ENDED_MS]!),
      outcome: OUTCOMES[ints[first32 + layout.OUTCOME]!]!,
      begun: (flags & layout.BEGUN) !== 0,
      stream: (flags & layout.STREAM) !== 0,
      cache:
        (flags & layout.CACHE_HIT) !== 0 ? 'hit' : (flags & layout.CACHE_MISS) !== 0 ? 'miss' : undefined,
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
      attempts: this.#attemptsAt(at),
      error: this.#errorAt(at),
    };
  }

  #quotasAt(at: number): QuotasLeft | undefined {
    const { floats, ints } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const inFlight = ints[first32 + layout.IN_FLIGHT]!;
    if (inFlight === layout.NOTHING) return undefined;
    const count = ints[first32 + layout.QUOTAS]!;
    let others: number[] | undefined;
    let next = at + layout.RECORD_BYTES + ints[first32 + layout.ATTEMPTS]! * layout.ATTEMPT_BYTES;
    for (let n = 0; n < count; n++, next += layout.QUOTA_BYTES) {
      (others ??= []).push(ints[next >> 2]!, ints[(next >> 2) + 1]!, floats[(next >> 3) + 1]!);
    }
    return {
      minute: valueOf(ints[first32 + layout.MINUTE]!),
      inFlight,
      perDay: ints[first32 + layout.PER_DAY]!,
      balance: floats[((at + FIELDS_AT) >> 3) + layout.BALANCE]!,
      others,
    };
  }

  #attemptsAt(at: number): readonly EndedAttempt[] {
    const { ints } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const count = ints[first32 + layout.ATTEMPTS]!;
    let next = at + layout.RECORD_BYTES;
    let textAt = next + count * layout.ATTEMPT_BYTES + ints[first32 + layout.QUOTAS]! * layout.QUOTA_BYTES;
    if (count === 1) return [this.#attemptAt(next, textAt)];
    const attempts: EndedAttempt[] = [];
    for (let n = 0; n < count; n++, next += layout.ATTEMPT_BYTES) {
      attempts.push(this.#attemptAt(next, textAt));
      textAt += ints[(next >> 2) + layout.ATTEMPT_TEXT]!;
    }
    return attempts;
  }

  /** Its text is behind those of the attempts. */
  #errorAt(at: number): string {
    const { ints, bytes } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const errorBytes = ints[first32 + layout.ERROR_BYTES]!;
    if (errorBytes === 0) return '';
    const count = ints[first32 + layout.ATTEMPTS]!;
    const attemptsAt = at + layout.RECORD_BYTES;
    let textAt =
      attemptsAt + count * layout.ATTEMPT_BYTES + ints[first32 + layout.QUOTAS]! * layout.QUOTA_BYTES;
    for (let n = 0; n < count; n++) {
      textAt += ints[((attemptsAt + n * layout.ATTEMPT_BYTES) >> 2) + layout.ATTEMPT_TEXT]!;
    }
    return bytes.toString('utf8', textAt, textAt + errorBytes);
  }

  #attemptAt(at: number, textAt: number): EndedAttempt {
    const { floats, ints, bytes } = this.#ring;
    const first = at >> 2;
    const code = ints[first + layout.ATTEMPT_CODE]!;
    const textBytes = ints[first + layout.ATTEMPT_TEXT]!;
    return {
      upstream: ints[first + layout.ATTEMPT_UPSTREAM]!,
      model: ints[first + layout.ATTEMPT_MODEL]!,
      status: ints[first + layout.ATTEMPT_STATUS]!,
      code: code === layout.NOTHING ? undefined : ATTEMPT_CODES[code]!,
      startMs: floats[at >> 3]!,
      durationMs: floats[(at >> 3) + 1]!,
      error: textBytes === 0 ? '' : bytes.toString('utf8', textAt, textAt + textBytes),
    };
  }
}

function flagsOf({ stream, begun, cache, door }: EndedCall, { log, store }: Wanted): number {
  const cacheFlag = cache === undefined ? 0 : cache === 'hit' ? layout.CACHE_HIT : layout.CACHE_MISS;
  const result = cacheFlag | (log ? layout.LOGGED : 0) | (store ? layout.STORED : 0);
  return result | (stream ? layout.STREAM : 0) | (begun ? layout.BEGUN : 0) | (door << layout.DOOR_SHIFT);
}

function valueOf(word: number): number | undefined {
  return word === layout.NOTHING ? undefined : word;
}
