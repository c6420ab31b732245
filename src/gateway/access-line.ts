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
 * that was tried last. `status` is null where the caller left before its answer began, and `code` is then `client_gone`.
 *
 * The bytes are put together by hand, of pieces that are encoded once: see line-buffer.ts.
 */
import { USAGE_SOURCES } from '../protocol/usage.js';
import type { AccessRecord, AccessUsage } from '../telemetry/access-layout.js';
import type { LineBuffer } from '../telemetry/line-buffer.js';
import { AccessCallers, type CallerNames } from './access-callers.js';
import { writeMilliseconds, writeMoney, writeThousandths } from './access-numbers.js';

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
