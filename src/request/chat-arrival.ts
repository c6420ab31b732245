/**
 * What is asked of other threads before a call can be admitted: to parse a large body, to claim an Idempotency-Key.
 * Listener thread.
 */
import type { ErrorRecord } from '../core/errors.js';
import type { AccountIndex } from '../core/units.js';
import { bodyDigestOf, bodyDigestOfPieces, type EarlierResponse, type KeyedCall } from './idempotency.js';
import { AskRefused, type Asked, type AskPort } from '../channel/ask-port.js';
import type { ChatCall } from '../protocol/chat-call.js';
import type { ChatRequestResult } from '../protocol/chat-request.js';

/** Exactly one of the three: the call is to be made, or refused, or was made before. */
export type Arrival =
  | { readonly kind: 'call'; readonly call: ChatCall }
  | { readonly kind: 'refusal'; readonly refusal: ErrorRecord }
  | { readonly kind: 'repeat'; readonly earlier: EarlierResponse };

export interface ParseAsk {
  readonly account: AccountIndex;
  readonly task: { readonly kind: 'parse'; readonly pieces: Uint8Array[] };
}

export type BodyParser = AskPort<ParseAsk, ChatRequestResult>;

/** Nobody is told. */
const CLIENT_GONE: ErrorRecord = {
  code: 'internal_error',
  message: 'the client left before its body was read',
};
const RETRY_SECONDS = 5;

/** One large body on its way through the counter pool. When its client leaves it is taken out of the queue. */
export class LargeParse {
  readonly #parser: BodyParser;
  readonly #account: AccountIndex;
  readonly #waitMsMax: number;
  #asked: Asked<ChatRequestResult> | undefined;
  #withdrawn = false;

  constructor(parser: BodyParser, account: AccountIndex, waitMsMax: number) {
    this.#parser = parser;
    this.#account = account;
    this.#waitMsMax = waitMsMax;
  }

  /** Rejects with AskRefused where the pool is full, the time over, or the client gone. The buffers are handed over. */
  read(pieces: Uint8Array[]): Promise<ChatRequestResult> {
    if (this.#withdrawn) return Promise.reject(new AskRefused(CLIENT_GONE));
    const late: ErrorRecord = {
      code: 'overloaded',
      detail: 'large_bodies',
      message:
        `The gateway could not read this large request within ${this.#waitMsMax} ms, because it has too many ` +
        `of them. Retry after ${RETRY_SECONDS} seconds.`,
      retryAfterSeconds: RETRY_SECONDS,
    };
    this.#asked = this.#parser.askFor(
      this.#waitMsMax,
      late,
      { account: this.#account, task: { kind: 'parse', pieces } },
      pieces.map(({ buffer }) => buffer as ArrayBuffer),
    );
    return this.#asked.reply;
  }

  /** The client has gone. */
  withdraw(): void {
    this.#withdrawn = true;
    this.#asked?.withdraw(CLIENT_GONE);
  }
}

/** A request with an Idempotency-Key. */
export interface Keyed {
  readonly keyed: KeyedCall;
  readonly account: AccountIndex;
}

/** Of a body in one piece, whose `bytes` are valid during the call only, and of what was read of it. */
export function arrivalOfKeyed(keyed: Keyed, bytes: Uint8Array, call: ChatCall): Promise<Arrival> {
  return orRejection(takeLock(keyed, bodyDigestOf(bytes), call));
}

/** Of a body in pieces, whose buffers are handed over. */
export function arrivalOfLarge(
  pieces: Uint8Array[],
  large: LargeParse,
  keyed: Keyed | undefined,
): Promise<Arrival> {
  return orRejection(parse(pieces, large, keyed));
}

async function parse(pieces: Uint8Array[], large: LargeParse, keyed: Keyed | undefined): Promise<Arrival> {
  const bodyDigest = keyed === undefined ? '' : await bodyDigestOfPieces(pieces);
  const read = await large.read(pieces);
  if (!read.ok) return { kind: 'refusal', refusal: read.error };
  return keyed === undefined ? { kind: 'call', call: read.call } : takeLock(keyed, bodyDigest, read.call);
}

async function takeLock({ keyed, account }: Keyed, bodyDigest: string, call: ChatCall): Promise<Arrival> {
  const { refusal, earlier } = await keyed.lock(account, bodyDigest);
  if (refusal !== undefined) return { kind: 'refusal', refusal };
  return earlier === undefined ? { kind: 'call', call } : { kind: 'repeat', earlier };
}

async function orRejection(arrival: Promise<Arrival>): Promise<Arrival> {
  try {
    return await arrival;
  } catch (error) {
    if (!(error instanceof AskRefused)) throw error;
    return { kind: 'refusal', refusal: error.refusal };
  }
}
