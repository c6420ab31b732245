/**
 * From records of the access log's rings to its lines. Main thread of a gateway process.
 *
 *     {"level":"info","time":"2025-01-31T12:00:00.000Z","thread":"listener-0","pid":7,"request_id":"req_3fQx0aZcW8Lk-1c",
 *      "account":"acct_…","key":"key_…","model":"gpt-4o-mini","upstream":"api.openai.com","stream":true,"status":200,
 *      "code":null,"prompt_tokens":9,"cached_tokens":0,"completion_tokens":12,"source":"reported","cost":"0.00000855",
 *      "first_token_ms":310.4,"duration_ms":640.2,"message":"call"}
 *
 * `time` is when the call ended. Null is what is not known or was not had: who calls, where the key is no key; the model, where
 * it is on no plan; tokens and cost, where nothing was charged, as of a repeat with an Idempotency-Key. `upstream` is the one
 * that was tried last. `status` is null where the caller left before its response began, and `code` is then `client_gone`.
 *
 * The bytes are put together by hand, of pieces that are encoded once: see line-buffer.ts.
 */
import { statusOf } from '../core/errors.js';
import { jsonText } from '../core/json.js';
import { decimalOf } from '../core/money.js';
import type { KeyIndex, PicoUnits } from '../core/units.js';
import { USAGE_SOURCES } from '../protocol/usage.js';
import type { IdNames } from '../store/usage-lines.js';
import type { AccessRecord, AccessUsage } from '../telemetry/access-layout.js';
import type { LineBuffer } from '../telemetry/line-buffer.js';

/*
 * The middle of an access line: who called what, and how it ended. Most keys make the same kind of call over and over, so it is
 * kept as bytes, the last kind of each key. Main thread of a gateway process.
 */

/** Keys whose last kind of call is kept, 500 bytes each. */
const KINDS_MAX = 10_000;
/** With the hour of IdNames well within the day for which a slot rests after its key was deleted. */
const KINDS_KEPT_MS = 3_600_000;

export interface CallerNames {
  readonly ids: IdNames;
  readonly modelIdOf: (modelIndex: number) => string;
  readonly upstreamNameOf: (upstreamSlot: number) => string | undefined;
}

interface Kind {
  readonly record: AccessRecord;
  readonly bytes: Uint8Array;
}

export class AccessCallers {
  readonly #names: CallerNames;
  readonly #kinds = new Map<KeyIndex, Kind>();
  #sinceMs = -Infinity;
  /** By model or upstream, which are few: see CATALOG_ENTRIES_MAX. */
  readonly #models = new Map<number, string>();
  readonly #upstreams = new Map<number, string>();

  constructor(names: CallerNames) {
    this.#names = names;
  }

  /** From the end of the request's identifier to the tokens. */
  bytesOf(record: AccessRecord): Uint8Array {
    const { key, endedMs } = record;
    if (key === undefined) return this.#make(record).bytes;
    if (endedMs - this.#sinceMs > KINDS_KEPT_MS) {
      this.#sinceMs = endedMs;
      this.#kinds.clear();
    }
    const last = this.#kinds.get(key);
    if (last !== undefined && isOfKind(record, last.record)) return last.bytes;
    const { bytes, known } = this.#make(record);
    if (this.#kinds.size >= KINDS_MAX) this.#kinds.clear();
    if (known) this.#kinds.set(key, { record, bytes });
    return bytes;
  }

  /** `known` where the ids could be read. */
  #make(record: AccessRecord): { readonly bytes: Uint8Array; readonly known: boolean } {
    const { ids, modelIdOf, upstreamNameOf } = this.#names;
    const account = record.account === undefined ? null : ids.accountIdOf(record.account);
    const key = record.key === undefined ? null : ids.keyIdOf(record.key);
    const text =
      `","account":${quoted(account)},"key":${quoted(key)},` +
      `"model":${nameOf(this.#models, record.model, modelIdOf)},` +
      `"upstream":${nameOf(this.#upstreams, record.upstream, upstreamNameOf)},` +
      `"stream":${record.stream},"status":${httpStatusOf(record)},` +
      `"code":${record.outcome === 'ok' ? 'null' : `"${record.outcome}"`},`;
    return { bytes: Buffer.from(text, 'latin1'), known: account !== null && key !== null };
  }
}

/** Whether all that is told of the one is so of the other, which has the same key. */
function isOfKind(one: AccessRecord, other: AccessRecord): boolean {
  return (
    one.account === other.account &&
    one.model === other.model &&
    one.upstream === other.upstream &&
    one.stream === other.stream &&
    one.outcome === other.outcome &&
    one.begun === other.begun
  );
}

function nameOf(
  names: Map<number, string>,
  index: number | undefined,
  find: (index: number) => string | undefined,
): string {
  if (index === undefined) return 'null';
  let name = names.get(index);
  if (name === undefined) {
    name = jsonText(find(index) ?? null);
    names.set(index, name);
  }
  return name;
}

/** Identifiers that the registry has made need no escapes. */
function quoted(id: string | null): string {
  return id === null ? 'null' : `"${id}"`;
}

function httpStatusOf({ outcome, begun }: AccessRecord): number | null {
  if (begun || outcome === 'ok') return 200;
  return outcome === 'client_gone' ? null : statusOf({ code: outcome, message: '' });
}

/*
 * Amounts and times of an access line, digit by digit from tables: thrice as fast as text made by way of BigInt and doubles. Main
 * thread of a gateway process.
 */

const PICO_UNITS_PER_UNIT = 1e12;
const PICO_UNITS_PER_THOUSANDTH = 1e9;

/** Thousandths as three digits; the same without zeros at the end; with two digits at least, as decimals of money; as a fraction. */
const PADDED = Array.from({ length: 1_000 }, (_, thousandths) => String(thousandths).padStart(3, '0'));
const TRIMMED = PADDED.map((digits) => digits.replace(/0+$/, ''));
const MONEY = TRIMMED.map((digits) => digits.padEnd(2, '0'));
const FRACTIONS = TRIMMED.map((digits) => (digits === '' ? '' : `.${digits}`));

/** Three digits. */
export function writeThousandths(to: LineBuffer, thousandths: number): void {
  to.ascii(PADDED[thousandths]!);
}

/** As `decimalOf`, which is asked for what no double holds: nobody pays 9,000 units for a call. */
export function writeMoney(to: LineBuffer, amount: PicoUnits): void {
  const picoUnits = Number(amount);
  if (!(picoUnits >= 0 && picoUnits <= Number.MAX_SAFE_INTEGER)) {
    to.ascii(decimalOf(amount));
    return;
  }
  const units = Math.floor(picoUnits / PICO_UNITS_PER_UNIT);
  to.number(units);
  to.ascii('.');
  let rest = picoUnits - units * PICO_UNITS_PER_UNIT;
  const first = Math.floor(rest / PICO_UNITS_PER_THOUSANDTH);
  rest -= first * PICO_UNITS_PER_THOUSANDTH;
  to.ascii((rest === 0 ? MONEY : PADDED)[first]!);
  for (let scale = PICO_UNITS_PER_THOUSANDTH / 1e3; rest > 0; scale /= 1e3) {
    const digits = Math.floor(rest / scale);
    rest -= digits * scale;
    to.ascii((rest === 0 ? TRIMMED : PADDED)[digits]!);
  }
}

/** As JSON has the number, to a thousandth, the resolution of the clocks of two threads. */
export function writeMilliseconds(to: LineBuffer, timeMs: number): void {
  const thousandths = Math.round(timeMs * 1_000);
  const whole = Math.floor(thousandths / 1_000);
  to.number(whole);
  to.ascii(FRACTIONS[thousandths - whole * 1_000]!);
}

export interface AccessNames extends CallerNames {
  /** Of a request of the listener of that index. */
  readonly requestIdOf: (listener: number, request: number) => string;
}

const MS_PER_SECOND = 1_000;
const piece = (text: string): Uint8Array => Buffer.from(text, 'latin1');
const NULL = piece('null');
const NO_USAGE = piece(
  '"prompt_tokens":null,"cached_tokens":null,"completion_tokens":null,"source":null,"cost":null',
);
const PROMPT = piece('"prompt_tokens":');
const CACHED = piece(',"cached_tokens":');
const COMPLETION = piece(',"completion_tokens":');
const COSTS = USAGE_SOURCES.map((source) => piece(`,"source":"${source}","cost":"`));
const END_OF_COST = piece('"');
const FIRST_TOKEN = piece(',"first_token_ms":');
const DURATION = piece(',"duration_ms":');
const END = piece(',"message":"call"}\n');

export class AccessLines {
  readonly #requestIdOf: AccessNames['requestIdOf'];
  readonly #callers: AccessCallers;
  /** By listener: from the end of the time to the beginning of the request's identifier. */
  readonly #listeners = new Map<number, Uint8Array>();
  /** Records come in batches of the same moment. */
  #second = NaN;
  #begin = NULL;

  constructor(names: AccessNames) {
    this.#requestIdOf = names.requestIdOf;
    this.#callers = new AccessCallers(names);
  }

  /** The line with its newline. 0.4 µs. */
  write(to: LineBuffer, listener: number, record: AccessRecord): void {
    this.#writeTime(to, record.endedMs);
    to.bytes(this.#listenerOf(listener));
    to.ascii(this.#requestIdOf(listener, record.request));
    to.bytes(this.#callers.bytesOf(record));
    writeUsage(to, record.usage);
    to.bytes(FIRST_TOKEN);
    writeMillisecondsOrNull(to, record.firstTokenMs);
    to.bytes(DURATION);
    writeMilliseconds(to, record.durationMs);
    to.bytes(END);
  }

  /** Up to the seconds by Date, which takes as long as all else in the line. */
  #writeTime(to: LineBuffer, endedMs: number): void {
    const second = Math.floor(endedMs / MS_PER_SECOND);
    if (second !== this.#second) {
      const text = new Date(second * MS_PER_SECOND).toISOString().slice(0, -'000Z'.length);
      this.#second = second;
      this.#begin = piece(`{"level":"info","time":"${text}`);
    }
    to.bytes(this.#begin);
    writeThousandths(to, Math.floor(endedMs - second * MS_PER_SECOND));
  }

  #listenerOf(listener: number): Uint8Array {
    let bytes = this.#listeners.get(listener);
    if (bytes === undefined) {
      bytes = piece(`Z","thread":"listener-${listener}","pid":${process.pid},"request_id":"`);
      this.#listeners.set(listener, bytes);
    }
    return bytes;
  }
}

function writeUsage(to: LineBuffer, usage: AccessUsage | undefined): void {
  if (usage === undefined) {
    to.bytes(NO_USAGE);
    return;
  }
  to.bytes(PROMPT);
  to.number(usage.promptTokens);
  to.bytes(CACHED);
  to.number(usage.cachedTokens);
  to.bytes(COMPLETION);
  to.number(usage.completionTokens);
  to.bytes(COSTS[usage.source]!);
  writeMoney(to, usage.charged);
  to.bytes(END_OF_COST);
}

function writeMillisecondsOrNull(to: LineBuffer, timeMs: number | undefined): void {
  if (timeMs === undefined) to.bytes(NULL);
  else writeMilliseconds(to, timeMs);
}
