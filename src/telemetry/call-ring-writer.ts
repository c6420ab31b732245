/**
 * The listener's side of the call ring, which carries ended calls to the main thread for the access log and
 * the call log (call-ring-layout.ts). A listener writes a record when a call ends (request/recorded-call.ts):
 * it asks `chooseLogged` and `chooseStored` once each, and then calls `append`, or `beginPlain` and
 * `publish`. call-ring-reader.ts is the main thread's side.
 *
 * Must hold (test/unit/telemetry/call-ring-writer.test.ts):
 * - A full ring drops and counts the record, and delays no call.
 * - A text that is too long is cut, and the records after it stay whole.
 * - No other record begins between `beginPlain` and `publish`: one that did would publish the plain call
 *   before its fields are written. Checked (`#isPlainOpen`).
 */
import { invariant } from '../core/errors.js';
import { NUMBERS_PER_QUOTA } from '../core/quotas-left.js';
import { FIELDS_AT, SpscWriter } from '../core/spsc-ring.js';
import * as layout from './call-ring-layout.js';
import { CALL_ATTEMPTS_MAX, CALL_ERROR_CHARS_MAX } from './call-record.js';
import { ATTEMPT_CODES, type EndedAttempt, type EndedCall, type WantedLogs } from './call-ring-layout.js';
import type { LogSwitch } from './log-switch.js';
import { OUTCOMES, type Outcome } from './metrics-layout.js';

/**
 * The most bytes of UTF-8 that one unit of UTF-16 takes. A character of four bytes has two units, so each of
 * its units takes only two.
 */
const UTF8_BYTES_MAX = 3;
/**
 * How many rejected calls a second a listener stores, of callers without a valid key and of other callers.
 * Without these bounds a flood of rejected calls would push all others out of the call log.
 */
const UNKNOWN_STORED_MAX = 100;
const REJECTED_STORED_MAX = 1_000;
const MS_PER_SECOND = 1_000;

export class CallRingWriter {
  /** The memory of the ring, for the fields of a plain call. */
  readonly ints: Int32Array;
  readonly floats: Float64Array;
  readonly amounts: BigInt64Array;
  readonly #ring: SpscWriter;
  readonly #dropped: Int32Array;
  readonly #logSwitch: LogSwitch;
  /** `samplePercent` is added at each successful call. When the sum reaches 100, the call is logged. */
  #percentSum = 0;
  /** The second of the monotonic clock in which the next two fields count. */
  #second = 0;
  /** Calls of callers without a valid key, stored or not. */
  #unknownCount = 0;
  /** Calls of other callers, stored or not. */
  #rejectedCount = 0;
  /** Whether `beginPlain` has begun a record that was not published. */
  #isPlainOpen = false;

  /** Continues where an earlier listener of this ring has stopped. */
  constructor({ ring, dropped }: layout.CallRingBuffer, logSwitch: LogSwitch) {
    this.#ring = new SpscWriter(ring);
    this.ints = this.#ring.ints;
    this.floats = this.#ring.floats;
    this.amounts = new BigInt64Array(ring);
    this.#dropped = new Int32Array(dropped);
    this.#logSwitch = logSwitch;
  }

  /** Whether calls are stored. If not, the listener need not collect what only the call log has. */
  get stores(): boolean {
    return this.#logSwitch.storesCalls;
  }

  /** Returns whether the access log gets a call with this outcome. Counts, so it is called once a call. */
  chooseLogged(outcome: Outcome): boolean {
    if (!this.#logSwitch.writesAccessLog) return false;
    if (outcome !== 'ok') return true;
    this.#percentSum += this.#logSwitch.samplePercent;
    if (this.#percentSum < 100) return false;
    this.#percentSum -= 100;
    return true;
  }

  /**
   * Returns whether the call log gets a call that ends at `nowMs`, monotonic. Counts, so it is called once a
   * call. `unknown`: the call was rejected, and its caller is not known.
   */
  chooseStored(admission: 'admitted' | 'rejected' | 'unknown', nowMs: number): boolean {
    if (!this.#logSwitch.storesCalls) return false;
    if (admission === 'admitted') return true;
    const second = Math.floor(nowMs / MS_PER_SECOND);
    if (second !== this.#second) {
      this.#second = second;
      this.#unknownCount = this.#rejectedCount = 0;
    }
    const isStored =
      admission === 'unknown'
        ? this.#unknownCount++ < UNKNOWN_STORED_MAX
        : this.#rejectedCount++ < REJECTED_STORED_MAX;
    if (!isStored) Atomics.add(this.#dropped, layout.UNSTORED, 1);
    return isStored;
  }

  /**
   * Begins the record of a plain call (call-ring-layout.ts). Writes the number of the other quotas, and
   * `others`, which describes them (QuotasLeft, quotas-left.ts). Returns where the record's fields begin,
   * in 64-bit words. If the ring is full, counts the call as dropped and returns -1.
   *
   * request/recorded-call.ts then writes all other fields to `ints`, `floats` and `amounts`, and calls
   * `publish`. The caller gives no object, because most calls are plain and an object would cost more than
   * the record.
   */
  beginPlain(others: readonly number[] | undefined): number {
    invariant(!this.#isPlainOpen, 'a plain call is published before the next record begins');
    const otherCount = others === undefined ? 0 : others.length / NUMBERS_PER_QUOTA;
    const at = this.#ring.reserve(layout.PLAIN_CALL, layout.PLAIN_BYTES + otherCount * layout.QUOTA_BYTES);
    if (at === -1) {
      Atomics.add(this.#dropped, layout.DROPPED, 1);
      return -1;
    }
    this.#isPlainOpen = true;
    this.ints[((at + FIELDS_AT) >> 2) + layout.PLAIN_QUOTAS] = otherCount;
    if (others !== undefined) this.#writeQuotas(at + layout.PLAIN_BYTES, others);
    return (at + FIELDS_AT) >> 3;
  }

  /** Makes the record that `beginPlain` has begun visible to the reader. */
  publish(): void {
    invariant(this.#isPlainOpen, 'what is published is a plain call that was begun');
    this.#isPlainOpen = false;
    this.#ring.publish();
  }

  /**
   * Writes a whole record, or drops and counts it if the ring is full. Takes some 150 ns. Without `usage` or
   * `quotas` their fields keep old bytes: the reader looks at SOURCE and IN_FLIGHT first.
   */
  append(record: EndedCall, logs: WantedLogs): void {
    invariant(!this.#isPlainOpen, 'a plain call is published before the next record begins');
    const { usage, attempts, quotas, error } = record;
    const others = quotas?.others;
    const attemptCount = Math.min(attempts.length, CALL_ATTEMPTS_MAX);
    const otherCount = others === undefined ? 0 : others.length / NUMBERS_PER_QUOTA;
    let bytes = layout.RECORD_BYTES + attemptCount * layout.ATTEMPT_BYTES + otherCount * layout.QUOTA_BYTES;
    const textsOffset = bytes;
    // Reserves the most bytes that the texts can take. How many they take is known once they are written.
    for (let n = 0; n < attemptCount; n++) {
      bytes += Math.min(attempts[n]!.error.length, layout.ATTEMPT_ERROR_CHARS_MAX) * UTF8_BYTES_MAX;
    }
    bytes += Math.min(error.length, CALL_ERROR_CHARS_MAX) * UTF8_BYTES_MAX;
    const at = this.#ring.reserve(layout.CALL, bytes);
    if (at === -1) {
      Atomics.add(this.#dropped, logs.store ? layout.DROPPED : layout.DROPPED_LOG_ONLY, 1);
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
      this.amounts[first64 + layout.CHARGED] = usage.charged;
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
    ints[first32 + layout.FLAGS] = flagsOf(record, logs);
    ints[first32 + layout.QUEUED_MS] = record.queuedMs;
    ints[first32 + layout.ATTEMPTS] = attemptCount;
    ints[first32 + layout.QUOTAS] = otherCount;
    ints[first32 + layout.IN_FLIGHT] = quotas?.inFlight ?? layout.NOTHING;
    if (quotas !== undefined) {
      floats[first64 + layout.BALANCE] = quotas.balance;
      ints[first32 + layout.MINUTE] = quotas.minute ?? layout.NOTHING;
      ints[first32 + layout.PER_DAY] = quotas.perDay;
    }
    let nextAt = at + layout.RECORD_BYTES;
    let textAt = at + textsOffset;
    for (let n = 0; n < attemptCount; n++, nextAt += layout.ATTEMPT_BYTES) {
      textAt += this.#writeAttempt(nextAt, attempts[n]!, textAt);
    }
    if (others !== undefined) this.#writeQuotas(nextAt, others);
    ints[first32 + layout.ERROR_BYTES] = this.#writeText(error, CALL_ERROR_CHARS_MAX, textAt);
    this.#ring.publish();
  }

  /** `others` has NUMBERS_PER_QUOTA for each quota: code, slot, left (QuotasLeft in core/quotas-left.ts). */
  #writeQuotas(at: number, others: readonly number[]): void {
    const { floats, ints } = this;
    for (let n = 0, quotaAt = at; n < others.length; n += NUMBERS_PER_QUOTA, quotaAt += layout.QUOTA_BYTES) {
      ints[quotaAt >> 2] = others[n]!;
      ints[(quotaAt >> 2) + 1] = others[n + 1]!;
      floats[(quotaAt >> 3) + 1] = others[n + 2]!;
    }
  }

  /** Writes the attempt at byte `at` and its text at byte `textAt`; returns how many bytes the text has. */
  #writeAttempt(at: number, attempt: EndedAttempt, textAt: number): number {
    const { floats, ints } = this.#ring;
    floats[at >> 3] = attempt.startMs;
    floats[(at >> 3) + 1] = attempt.durationMs;
    const first32 = at >> 2;
    ints[first32 + layout.ATTEMPT_UPSTREAM] = attempt.upstream;
    ints[first32 + layout.ATTEMPT_MODEL] = attempt.model;
    ints[first32 + layout.ATTEMPT_STATUS] = attempt.status;
    ints[first32 + layout.ATTEMPT_CODE] =
      attempt.code === undefined ? layout.NOTHING : ATTEMPT_CODES.indexOf(attempt.code);
    return (ints[first32 + layout.ATTEMPT_TEXT_BYTES] = this.#writeText(
      attempt.error,
      layout.ATTEMPT_ERROR_CHARS_MAX,
      textAt,
    ));
  }

  /** Returns how many bytes were written. */
  #writeText(text: string, charsMax: number, at: number): number {
    return text === '' ? 0 : this.#ring.bytes.write(text.slice(0, charsMax), at);
  }
}

function flagsOf({ stream, begun, cache, door }: EndedCall, { log, store }: WantedLogs): number {
  const cacheFlag = cache === undefined ? 0 : cache === 'hit' ? layout.CACHE_HIT : layout.CACHE_MISS;
  const logFlags = cacheFlag | (log ? layout.LOGGED : 0) | (store ? layout.STORED : 0);
  return logFlags | (stream ? layout.STREAM : 0) | (begun ? layout.BEGUN : 0) | (door << layout.DOOR_SHIFT);
}
