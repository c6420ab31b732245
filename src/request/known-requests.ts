/**
 * Requests that were hits of the response cache, found by the bytes of their bodies. An entry has the call
 * that was read of the body, and the key of its response. Most hits repeat an earlier request byte for byte.
 * A known request is neither parsed nor hashed. response-cache.ts makes one KnownRequests, intake.ts and
 * replay.ts use it; listener thread.
 *
 * An entry never becomes wrong, because it follows from the bytes of the body, the door, the account and the
 * `facts` alone, which are all compared. An entry decides nothing: plan, model, limits and the response are
 * looked up for each request, known or not. So the oldest entries are removed only to bound the memory.
 *
 * Must hold: `read` returns for a known request what the door would read of its body. Requests share the
 * ChatCall of an entry; its type lets nobody write to its fields. All texts of an entry count.
 */
import { asBuffer } from '../core/bytes.js';
import type { AccountIndex } from '../core/units.js';
import type { Door } from '../doors/door.js';
import { BODY_AS_BYTES_MIN, type ChatCall, type ChatRequestResult } from '../protocol/chat-call.js';
import { nameOfResponse, type ResponseKey } from '../registry/stored-response.js';

/** The call of a longer body has a `largeBody`, whose memory its worker takes away, so it serves one call. */
const KNOWN_BYTES_MAX = BODY_AS_BYTES_MIN - 1;
/** About how many bytes an entry takes besides its texts. */
const KNOWN_ENTRY_BYTES = 1_024;

/** An entry. A request that has one is _known_. */
export interface KnownRequest {
  readonly door: Door;
  /** The result of `door.read` for the body. */
  readonly readResult: Extract<ChatRequestResult, { readonly ok: true }>;
  /**
   * What decides on the response besides the body (door, model, settings), as one text. replay.ts makes it
   * for each request, and requestDigestOf of protocol/request-digest.ts puts it into the digest of the key.
   */
  readonly facts: string;
  readonly key: ResponseKey;
  /** `nameOfResponse(key)`, which `lookUp` then need not make. */
  readonly name: string;
  /** About how much memory the entry takes. */
  readonly bytes: number;
}

/** The members of a ChatExchange that this file uses. */
export interface ReadRequest {
  readonly door: Door;
  /** The body's bytes as Latin-1, which `read` sets; empty if the body is too long, or there is no cache. */
  bodyText: string;
  /** The entry of the same body at the same door, which `read` sets; undefined if there is none. */
  known: KnownRequest | undefined;
}

export class KnownRequests {
  /**
   * By `bodyText`, in the order in which they were remembered. A body has one entry: if it comes by two
   * doors, or from two accounts, each hit replaces the other's entry, which costs only time.
   */
  readonly #byText = new Map<string, KnownRequest>();
  #bytes = 0;
  #bytesMax = 0;

  /** ResponseCache calls it at the start and at each reload; 0 if there is no cache. */
  setBytesMax(bytesMax: number): void {
    this.#bytesMax = bytesMax;
    this.#evict();
  }

  /** About how much memory all entries take. The test reads it. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Returns what the door reads of the body, or has read of the same bytes before. Sets `bodyText` and
   * `known` of the request. Called once for a request.
   */
  read(request: ReadRequest, bytes: Uint8Array): ChatRequestResult {
    if (this.#bytesMax > 0 && bytes.length <= KNOWN_BYTES_MAX) {
      request.bodyText = asBuffer(bytes).toString('latin1');
      const known = this.#byText.get(request.bodyText);
      if (known?.door === request.door) {
        request.known = known;
        return known.readResult;
      }
    }
    return request.door.read(bytes);
  }

  /** Remembers a hit. `call` is what `read` returned; `facts` and `key` are of the call's response. */
  remember({ door, bodyText, known }: ReadRequest, call: ChatCall, facts: string, key: ResponseKey): void {
    // If `knownFor` has returned the entry, `key` is the entry's own object: the request is known already.
    if (bodyText === '' || known?.key === key) return;
    this.#forget(bodyText);
    const name = nameOfResponse(key);
    // The text of a call may take two bytes a character. All others are Latin-1, which takes one.
    const bytes =
      KNOWN_ENTRY_BYTES +
      bodyText.length +
      2 * call.body.length +
      (facts.length + key.key.length + name.length);
    this.#byText.set(bodyText, { door, readResult: { ok: true, call }, facts, key, name, bytes });
    this.#bytes += bytes;
    this.#evict();
  }

  #evict(): void {
    for (const text of this.#byText.keys()) {
      if (this.#bytes <= this.#bytesMax) return;
      this.#forget(text);
    }
  }

  #forget(text: string): void {
    this.#bytes -= this.#byText.get(text)?.bytes ?? 0;
    this.#byText.delete(text);
  }
}

/**
 * Returns the entry of the request's body, if the entry has these `facts` and this account, else undefined.
 * For a model whose cache is shared the account is ALL_ACCOUNTS.
 */
export function knownFor(
  { known }: ReadRequest,
  facts: string,
  account: AccountIndex,
): KnownRequest | undefined {
  return known?.facts === facts && known.key.account === account ? known : undefined;
}
