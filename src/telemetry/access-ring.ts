/**
 * The access log on its way from a listener to the main thread, which writes it: one ring a listener, in a shared buffer.
 *
 * As in the settlement journal, a record is written first and then counted, by an atomic store, and no word has two
 * writers. Other than there nothing depends on it: a full ring drops and counts, and never holds up a call.
 */
import { invariant } from '../core/errors.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '../core/units.js';
import {
  ACCOUNT,
  APPENDED,
  BEGUN,
  BYTE_MASK,
  CACHED,
  CHARGED,
  COMPLETION,
  DRAINED,
  DROPPED,
  DURATION_MS,
  ENDED_MS,
  FIRST_TOKEN_MS,
  FLAGS_SHIFT,
  HEAD_WORDS32,
  HEAD_WORDS64,
  KEY,
  MODEL,
  NOTHING,
  OUTCOME,
  PROMPT,
  RECORDS,
  RECORD_WORDS32,
  RECORD_WORDS64,
  REQUEST,
  SOURCE_SHIFT,
  STREAM,
  UPSTREAM,
  type AccessBuffer,
  type AccessRecord,
} from './access-layout.js';
import type { LogSwitch } from './log.js';
import { OUTCOMES } from './metrics-layout.js';

/** A source's byte where nothing was charged. */
const NO_SOURCE = BYTE_MASK;

invariant(OUTCOMES.length < BYTE_MASK, 'an outcome fits its byte');
invariant(Number.isInteger(Math.log2(RECORDS)), 'the records are a power of two, which divides 2^32');

class Ring {
  protected readonly words32: Int32Array;
  protected readonly floats: Float64Array;
  protected readonly words64: BigInt64Array;

  constructor(buffer: AccessBuffer) {
    this.words32 = new Int32Array(buffer);
    this.floats = new Float64Array(buffer);
    this.words64 = new BigInt64Array(buffer);
  }

  protected static between(position: number, end: number): number {
    return (end - position) >>> 0;
  }

  protected static placeOf(position: number): number {
    return (position >>> 0) & (RECORDS - 1);
  }
}

/** The listener's end. */
export class AccessWriter extends Ring {
  readonly #control: LogSwitch;
  /** Percents of a line that calls which went well have gathered. */
  #share = 0;

  /** Goes on where an earlier listener of this ring has stopped. */
  constructor(buffer: AccessBuffer, control: LogSwitch) {
    super(buffer);
    this.#control = control;
  }

  /** Whether a call that ends so is to be appended: asked once a call, 10 ns where the log is off. */
  wants(outcome: AccessRecord['outcome']): boolean {
    if (!this.#control.access) return false;
    if (outcome !== 'ok') return true;
    this.#share += this.#control.samplePercent;
    if (this.#share < 100) return false;
    this.#share -= 100;
    return true;
  }

  /** Some 100 ns. */
  append(record: AccessRecord): void {
    const { floats, words64, words32 } = this;
    const appended = Atomics.load(words32, APPENDED);
    if (Ring.between(Atomics.load(words32, DRAINED), appended) >= RECORDS) {
      Atomics.add(words32, DROPPED, 1);
      return;
    }
    const place = Ring.placeOf(appended);
    const { usage } = record;
    const first64 = HEAD_WORDS64 + place * RECORD_WORDS64;
    floats[first64 + REQUEST] = record.request;
    floats[first64 + ENDED_MS] = record.endedMs;
    floats[first64 + FIRST_TOKEN_MS] = record.firstTokenMs ?? NOTHING;
    floats[first64 + DURATION_MS] = record.durationMs;
    if (usage !== undefined) {
      floats[first64 + PROMPT] = usage.promptTokens;
      floats[first64 + CACHED] = usage.cachedTokens;
      floats[first64 + COMPLETION] = usage.completionTokens;
      words64[first64 + CHARGED] = usage.charged;
    }
    const first32 = HEAD_WORDS32 + place * RECORD_WORDS32;
    words32[first32 + ACCOUNT] = record.account ?? NOTHING;
    words32[first32 + KEY] = record.key ?? NOTHING;
    words32[first32 + MODEL] = record.model ?? NOTHING;
    words32[first32 + UPSTREAM] = record.upstream ?? NOTHING;
    const flags = (record.stream ? STREAM : 0) | (record.begun ? BEGUN : 0);
    words32[first32 + OUTCOME] =
      OUTCOMES.indexOf(record.outcome) |
      ((usage?.source ?? NO_SOURCE) << SOURCE_SHIFT) |
      (flags << FLAGS_SHIFT);
    Atomics.store(words32, APPENDED, (appended + 1) | 0);
  }
}

/** The main thread's end. */
export class AccessReader extends Ring {
  #dropped = 0;

  /** Visits what was appended before the call, oldest first. */
  drain(visit: (record: AccessRecord) => void): void {
    const { words32 } = this;
    let drained = Atomics.load(words32, DRAINED);
    const count = Ring.between(drained, Atomics.load(words32, APPENDED));
    for (let taken = 0; taken < count; taken++) {
      visit(this.#read(Ring.placeOf(drained)));
      drained = (drained + 1) | 0;
      Atomics.store(words32, DRAINED, drained);
    }
  }

  /** Records that were dropped since this was last asked. */
  takeDropped(): number {
    const dropped = Atomics.load(this.words32, DROPPED);
    const more = Ring.between(this.#dropped, dropped);
    this.#dropped = dropped;
    return more;
  }

  #read(place: number): AccessRecord {
    const first64 = HEAD_WORDS64 + place * RECORD_WORDS64;
    const first32 = HEAD_WORDS32 + place * RECORD_WORDS32;
    const { floats, words64, words32 } = this;
    const outcome = words32[first32 + OUTCOME]!;
    const source = (outcome >>> SOURCE_SHIFT) & BYTE_MASK;
    const flags = outcome >>> FLAGS_SHIFT;
    const account = indexOf(words32[first32 + ACCOUNT]!);
    const key = indexOf(words32[first32 + KEY]!);
    return {
      request: floats[first64 + REQUEST]!,
      endedMs: asWallMs(floats[first64 + ENDED_MS]!),
      outcome: OUTCOMES[outcome & BYTE_MASK]!,
      begun: (flags & BEGUN) !== 0,
      stream: (flags & STREAM) !== 0,
      account: account === undefined ? undefined : asAccountIndex(account),
      key: key === undefined ? undefined : asKeyIndex(key),
      model: indexOf(words32[first32 + MODEL]!),
      upstream: indexOf(words32[first32 + UPSTREAM]!),
      usage:
        source === NO_SOURCE
          ? undefined
          : {
              promptTokens: floats[first64 + PROMPT]!,
              cachedTokens: floats[first64 + CACHED]!,
              completionTokens: floats[first64 + COMPLETION]!,
              source,
              charged: asPicoUnits(words64[first64 + CHARGED]!),
            },
      firstTokenMs: indexOf(floats[first64 + FIRST_TOKEN_MS]!),
      durationMs: floats[first64 + DURATION_MS]!,
    };
  }
}

function indexOf(word: number): number | undefined {
  return word === NOTHING ? undefined : word;
}
