/**
 * Both ends of the ring that takes ended calls from a listener to the main thread; see call-ring-layout.ts.
 */
import { QUOTA_NUMBERS, type QuotasLeft } from '../core/quotas.js';
import { FIELDS_AT, SpscReader, SpscWriter } from '../core/spsc-ring.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '../core/units.js';
import {
  CALL,
  RECORD_BYTES,
  ATTEMPT_BYTES,
  ATTEMPT_CODE,
  QUOTA_BYTES,
  ATTEMPT_ERROR_CHARS_MAX,
  ATTEMPT_MODEL,
  ATTEMPT_STATUS,
  ATTEMPT_TEXT,
  ATTEMPT_UPSTREAM,
  NOTHING,
  REQUEST,
  ENDED_MS,
  PROMPT,
  CACHED,
  COMPLETION,
  CHARGED,
  FIRST_TOKEN_MS,
  DURATION_MS,
  ADMITTED_MS,
  BALANCE,
  ACCOUNT,
  KEY,
  MODEL,
  ANSWERED,
  UPSTREAM,
  OUTCOME,
  SOURCE,
  FLAGS,
  QUEUED_MS,
  CACHE_WRITE,
  CACHE_WRITE_1H,
  REASONING,
  MINUTE,
  IN_FLIGHT,
  PER_DAY,
  ATTEMPTS,
  QUOTAS,
  ERROR_BYTES,
  STREAM,
  BEGUN,
  CACHE_HIT,
  CACHE_MISS,
  LOGGED,
  STORED,
  DOOR_SHIFT,
  type CallRingBuffer,
} from './call-ring-layout.js';
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
  constructor({ ring, dropped }: CallRingBuffer, control: LogSwitch) {
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
    let bytes = RECORD_BYTES + lastAttempt * ATTEMPT_BYTES + otherCount * QUOTA_BYTES;
    const textsAt = bytes;
    // Most have no texts. A character of UTF-16 has at most three bytes of UTF-8.
    for (let n = 0; n < lastAttempt; n++) {
      bytes += Math.min(attempts[n]!.error.length, ATTEMPT_ERROR_CHARS_MAX) * UTF8_BYTES_MAX;
    }
    bytes += Math.min(error.length, CALL_ERROR_CHARS_MAX) * UTF8_BYTES_MAX;
    const at = this.#ring.reserve(CALL, bytes);
    if (at === -1) {
      Atomics.add(this.#dropped, 0, 1);
      return;
    }
    const { floats, ints } = this.#ring;
    const first64 = (at + FIELDS_AT) >> 3;
    floats[first64 + REQUEST] = record.request;
    floats[first64 + ENDED_MS] = record.endedMs;
    floats[first64 + FIRST_TOKEN_MS] = record.firstTokenMs ?? NOTHING;
    floats[first64 + DURATION_MS] = record.durationMs;
    floats[first64 + ADMITTED_MS] = record.admittedMs ?? NOTHING;
    const first32 = (at + FIELDS_AT) >> 2;
    if (usage !== undefined) {
      floats[first64 + PROMPT] = usage.promptTokens;
      floats[first64 + CACHED] = usage.cachedTokens;
      floats[first64 + COMPLETION] = usage.completionTokens;
      this.#amounts[first64 + CHARGED] = usage.charged;
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
    ints[first32 + FLAGS] = flagsOf(record, wanted);
    ints[first32 + QUEUED_MS] = record.queuedMs;
    ints[first32 + ATTEMPTS] = lastAttempt;
    ints[first32 + QUOTAS] = otherCount;
    ints[first32 + IN_FLIGHT] = quotas?.inFlight ?? NOTHING;
    if (quotas !== undefined) {
      floats[first64 + BALANCE] = quotas.balance;
      ints[first32 + MINUTE] = quotas.minute ?? NOTHING;
      ints[first32 + PER_DAY] = quotas.perDay;
    }
    let next = at + RECORD_BYTES;
    let textAt = at + textsAt;
    for (let n = 0; n < lastAttempt; n++, next += ATTEMPT_BYTES) {
      textAt += this.#writeAttempt(next, attempts[n]!, textAt);
    }
    for (let n = 0; n < otherCount; n++, next += QUOTA_BYTES) {
      ints[next >> 2] = others![n * QUOTA_NUMBERS]!;
      ints[(next >> 2) + 1] = others![n * QUOTA_NUMBERS + 1]!;
      floats[(next >> 3) + 1] = others![n * QUOTA_NUMBERS + 2]!;
    }
    ints[first32 + ERROR_BYTES] = this.#writeText(error, CALL_ERROR_CHARS_MAX, textAt);
    this.#ring.publish();
  }

  /** Returns how many bytes its text has. */
  #writeAttempt(at: number, attempt: EndedAttempt, textAt: number): number {
    const { floats, ints } = this.#ring;
    floats[at >> 3] = attempt.startMs;
    floats[(at >> 3) + 1] = attempt.durationMs;
    const first = at >> 2;
    ints[first + ATTEMPT_UPSTREAM] = attempt.upstream;
    ints[first + ATTEMPT_MODEL] = attempt.model;
    ints[first + ATTEMPT_STATUS] = attempt.status;
    ints[first + ATTEMPT_CODE] = attempt.code === undefined ? NOTHING : ATTEMPT_CODES.indexOf(attempt.code);
    return (ints[first + ATTEMPT_TEXT] = this.#writeText(attempt.error, ATTEMPT_ERROR_CHARS_MAX, textAt));
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

  constructor({ ring, dropped }: CallRingBuffer) {
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
      const flags = this.#ring.ints[((at + FIELDS_AT) >> 2) + FLAGS]!;
      this.#ring.giveBack();
      visit(record, { log: (flags & LOGGED) !== 0, store: (flags & STORED) !== 0 });
    });
    this.#ring.giveBack();
  }

  /** See PlainCall. */
  #isPlain(at: number): boolean {
    const { ints } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const attempt32 = (at + RECORD_BYTES) >> 2;
    return (
      ints[first32 + OUTCOME] === OK &&
      (ints[first32 + FLAGS]! & (LOGGED | STORED)) === STORED &&
      ints[first32 + ATTEMPTS] === 1 &&
      ints[attempt32 + ATTEMPT_UPSTREAM] === ints[first32 + UPSTREAM] &&
      ints[attempt32 + ATTEMPT_MODEL] === ints[first32 + ANSWERED] &&
      ints[attempt32 + ATTEMPT_STATUS] === RESPONDED &&
      ints[attempt32 + ATTEMPT_CODE] === NOTHING &&
      ints[attempt32 + ATTEMPT_TEXT] === 0 &&
      ints[first32 + ERROR_BYTES] === 0 &&
      ints[first32 + SOURCE] !== NOTHING &&
      ints[first32 + IN_FLIGHT] !== NOTHING
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
      admittedMs: valueOf(floats[first64 + ADMITTED_MS]!),
      quotas: this.#quotasAt(at),
      attempts: this.#attemptsAt(at),
      error: this.#errorAt(at),
    };
  }

  #quotasAt(at: number): QuotasLeft | undefined {
    const { floats, ints } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const inFlight = ints[first32 + IN_FLIGHT]!;
    if (inFlight === NOTHING) return undefined;
    const count = ints[first32 + QUOTAS]!;
    let others: number[] | undefined;
    let next = at + RECORD_BYTES + ints[first32 + ATTEMPTS]! * ATTEMPT_BYTES;
    for (let n = 0; n < count; n++, next += QUOTA_BYTES) {
      (others ??= []).push(ints[next >> 2]!, ints[(next >> 2) + 1]!, floats[(next >> 3) + 1]!);
    }
    return {
      minute: valueOf(ints[first32 + MINUTE]!),
      inFlight,
      perDay: ints[first32 + PER_DAY]!,
      balance: floats[((at + FIELDS_AT) >> 3) + BALANCE]!,
      others,
    };
  }

  #attemptsAt(at: number): readonly EndedAttempt[] {
    const { ints } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const count = ints[first32 + ATTEMPTS]!;
    let next = at + RECORD_BYTES;
    let textAt = next + count * ATTEMPT_BYTES + ints[first32 + QUOTAS]! * QUOTA_BYTES;
    if (count === 1) return [this.#attemptAt(next, textAt)];
    const attempts: EndedAttempt[] = [];
    for (let n = 0; n < count; n++, next += ATTEMPT_BYTES) {
      attempts.push(this.#attemptAt(next, textAt));
      textAt += ints[(next >> 2) + ATTEMPT_TEXT]!;
    }
    return attempts;
  }

  /** Its text is behind those of the attempts. */
  #errorAt(at: number): string {
    const { ints, bytes } = this.#ring;
    const first32 = (at + FIELDS_AT) >> 2;
    const errorBytes = ints[first32 + ERROR_BYTES]!;
    if (errorBytes === 0) return '';
    const count = ints[first32 + ATTEMPTS]!;
    const attemptsAt = at + RECORD_BYTES;
    let textAt = attemptsAt + count * ATTEMPT_BYTES + ints[first32 + QUOTAS]! * QUOTA_BYTES;
    for (let n = 0; n < count; n++) {
      textAt += ints[((attemptsAt + n * ATTEMPT_BYTES) >> 2) + ATTEMPT_TEXT]!;
    }
    return bytes.toString('utf8', textAt, textAt + errorBytes);
  }

  #attemptAt(at: number, textAt: number): EndedAttempt {
    const { floats, ints, bytes } = this.#ring;
    const first = at >> 2;
    const code = ints[first + ATTEMPT_CODE]!;
    const textBytes = ints[first + ATTEMPT_TEXT]!;
    return {
      upstream: ints[first + ATTEMPT_UPSTREAM]!,
      model: ints[first + ATTEMPT_MODEL]!,
      status: ints[first + ATTEMPT_STATUS]!,
      code: code === NOTHING ? undefined : ATTEMPT_CODES[code]!,
      startMs: floats[at >> 3]!,
      durationMs: floats[(at >> 3) + 1]!,
      error: textBytes === 0 ? '' : bytes.toString('utf8', textAt, textAt + textBytes),
    };
  }
}

function flagsOf({ stream, begun, cache, door }: EndedCall, { log, store }: Wanted): number {
  const cacheFlag = cache === undefined ? 0 : cache === 'hit' ? CACHE_HIT : CACHE_MISS;
  const result = cacheFlag | (log ? LOGGED : 0) | (store ? STORED : 0);
  return result | (stream ? STREAM : 0) | (begun ? BEGUN : 0) | (door << DOOR_SHIFT);
}

function valueOf(word: number): number | undefined {
  return word === NOTHING ? undefined : word;
}
